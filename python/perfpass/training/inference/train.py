"""Fit the vision predictor on all records and write its artefact."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.graph import OPERATORS
from perfpass.predictors.inference.features import FEATURES
from perfpass.predictors.inference.features import SCHEMA_VERSION as FEATURE_VERSION
from perfpass.predictors.learned import artefacts, packed_trees
from perfpass.predictors.roofline import GROUPS, SOFTWARE
from perfpass.training.constants import MEMORY, POWER
from perfpass.training.inference import calibrate, model
from perfpass.training.inference.dataset import Dataset, load
from perfpass.training.inference.fit import columns
from perfpass.training.tasks.splits import SPLITS

SEEDS = 2
CALIBRATION_FOLDS = 3
# Distances beyond which a network has no close relative, or none at all, among the measured: quantiles of what families
# keep from each other (docs/research/inference.md).
NEAR_DISTANCE = 0.2
FAR_DISTANCE = 0.5


def train(folder: str | None = None, output: str | None = None, *, seed: int = 0, quiet: bool = False) -> Path:
    """Fit the vision predictor on the records in ``folder`` (default: the repository's data), write it to ``output``.

    ``output`` defaults to the place of the shipped artefact. Returns where it was written. Raises FileError.
    """
    place = Path(output) if output else artefacts.shipped("inference")

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    dataset = load(folder)
    say(f"{len(dataset)} records of {dataset.rows.model.nunique()} models on {len(dataset.devices)} devices")
    everything = np.arange(len(dataset))
    efficiency = model.efficiency_of(dataset, everything)
    data = model.arrays(dataset, efficiency)
    files = {}
    for name, portable in (("known", False), ("portable", True)):
        boosters = []
        for i in range(SEEDS):
            boosters.append(
                bytes(model.fit(data, everything, portable=portable, seed=seed + i).booster.save_raw("json"))
            )
            say(f"trees {name} {i + 1}/{SEEDS}")
        files[f"{name}.trees"] = packed_trees.pack(boosters)
    # To 1/256, far below the distances that matter: most batch sizes of a network then share a fingerprint.
    prints = np.unique(np.round(dataset.fingerprints * 256), axis=0) / 256
    files["fingerprints.npy"] = artefacts.array_bytes(prints.astype(np.float16))
    manifest: dict[str, Any] = {
        "predictor": "inference",
        "feature_version": FEATURE_VERSION,
        "features": list(FEATURES),
        "groups": list(GROUPS),
        "software": list(SOFTWARE),
        "efficiency": [[round(float(v), 5) for v in row] for row in efficiency],
        "columns": {name: columns(name == "portable").tolist() for name in ("known", "portable")},
        **_calibrate(dataset, seed, say),
        "power": POWER,
        "memory": MEMORY,
        **_support(dataset),
        "corpus": _corpus(dataset),
    }
    artefacts.write(place, manifest, files)
    say(f"wrote {place}: {sum(map(len, files.values())) / 1e6:.1f} MB")
    return place


def _calibrate(dataset: Dataset, seed: int, say: Any) -> dict[str, Any]:
    """Bounds by network distance, and widths of unseen devices by what is known of the software; by kind of device."""
    found = calibrate.unseen_networks(dataset, SPLITS[:3], CALIBRATION_FOLDS, seed=seed + 100)
    say("held-out networks for the intervals")
    experiments = calibrate.unseen_devices(dataset, seed=seed, say=say)
    experiments += calibrate.unseen_software(dataset, seed=seed, say=say)
    kinds = sorted({d.kind for d in dataset.devices.values()})
    return {
        "conformal": {kind: table.to_dict() for kind, table in calibrate.tables(dataset, found).items()},
        "evidence": calibrate.evidence_table(dataset),
        "unseen_device": {kind: _rounded(calibrate.widths(experiments, kind)) for kind in kinds},
    }


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


def _support(dataset: Dataset) -> dict[str, Any]:
    """What was measured: per device the workloads, and the ranges of networks and batches."""
    rows = dataset.rows
    measured: dict[str, list[dict[str, Any]]] = {}
    for (name, precision, runtime, layout), group in rows.groupby(["device", "precision", "runtime", "layout"]):
        versions = sorted(set(group.runtime_version) - {""}, key=lambda v: tuple(int(p) for p in v.split(".")))
        measured.setdefault(name, []).append(
            {
                "precision": precision,
                "runtime": runtime,
                "layout": layout,
                "torch_version": versions[-1] if versions else "1.7",
                "batch": [int(group.batch.min()), int(group.batch.max())],
                "rows": len(group),
            }
        )
    cpu = rows.device.map(lambda d: dataset.devices[d].kind == "cpu").to_numpy()
    operators: set[int] = set()
    macs = []
    for table, workload in {id(t): (t, w) for t, w in zip(dataset.tables, dataset.workloads, strict=True)}.values():
        operators.update(np.unique(table.op).tolist())
        macs.append(float(np.dot(table.macs, table.count)) / workload.batch)
    batch = rows.batch.to_numpy()
    return {
        "measured": measured,
        "support": {
            "operators": sorted(OPERATORS[i] for i in operators),
            "macs_per_sample": [min(macs), max(macs)],
            "batch": {
                "gpu": [int(batch[~cpu].min()), int(batch[~cpu].max())],
                "cpu": [int(batch[cpu].min()), int(batch[cpu].max())],
            },
            "distance": {"near": NEAR_DISTANCE, "far": FAR_DISTANCE},
        },
    }


def _corpus(dataset: Dataset) -> dict[str, Any]:
    rows = dataset.rows
    return {
        "name": "vision inference: timm benchmarks and torchvision on pytorch-gpu-benchmark",
        "rows": len(dataset),
        "models": int(rows.model.nunique()),
        "architectures": int(rows.architecture.nunique()),
        "families": int(rows.family.nunique()),
        "devices": sorted(dataset.devices),
        "sources": {
            "timm": "huggingface/pytorch-image-models results, Apache-2.0",
            "torchvision": "ryujaehun/pytorch-gpu-benchmark, MIT",
        },
    }
