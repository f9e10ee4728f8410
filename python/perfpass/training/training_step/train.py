"""Fit the training-step predictor on all records and write its artefact."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.graph import OPERATORS
from perfpass.predictors.learned import artefacts, packed_trees
from perfpass.predictors.training_step.features import FEATURES, SCHEMA_VERSION, SOFTWARE, STEP_GROUPS
from perfpass.training.constants import POWER
from perfpass.training.training_step import calibrate, model
from perfpass.training.training_step.dataset import Dataset, inference, load

SEEDS = 2
CALIBRATION_FOLDS = 4
# Distances beyond which a network has no close relative, or none at all, among the measured, as for inference.
NEAR_DISTANCE = 0.2
FAR_DISTANCE = 0.5
_NEWEST_TORCH = "1.12"


def train(folder: str | None = None, output: str | None = None, *, seed: int = 0, quiet: bool = False) -> Path:
    """Fit on the records in ``folder`` (default: the repository's data), write to ``output``, return that folder.

    ``output`` defaults to the place of the shipped artefact. Raises FileError, FormatError.
    """
    target = Path(output) if output else artefacts.shipped("training_step")

    def say(text: str) -> None:
        if not quiet:
            print(f"train steps: {text}", file=sys.stderr, flush=True)

    dataset = load(folder)
    say(f"{len(dataset)} records of {dataset.rows.model.nunique()} models on {len(dataset.devices)} devices")
    everything = np.arange(len(dataset))
    others = inference(folder)
    steps = model.Rows.of(dataset, everything)
    joint = steps.beside(others, np.ones(len(others), dtype=bool))
    files, efficiency = {}, {}
    for name, rows in (("known", steps), ("portable", joint)):
        fitted = [model.fit(rows, portable=name == "portable", seed=seed + i) for i in range(SEEDS)]
        files[f"{name}.trees"] = packed_trees.pack([bytes(m.booster.save_raw("json")) for m in fitted])
        efficiency[name] = [[round(float(v), 5) for v in row] for row in fitted[0].efficiency]
        say(f"trees {name}")
    prints = np.unique(np.round(dataset.fingerprints * 256), axis=0) / 256
    files["fingerprints.npy"] = artefacts.array_bytes(prints.astype(np.float16))
    found = calibrate.unseen_networks(dataset, CALIBRATION_FOLDS, seed=seed + 100)
    say("held-out networks for the intervals")
    experiments = calibrate.unseen_devices(dataset, others, seed=seed, say=say)
    unseen = {name: round(value, 4) for name, value in calibrate.widths(experiments).items()}
    manifest: dict[str, Any] = {
        "predictor": "training_step",
        "feature_version": SCHEMA_VERSION,
        "features": list(FEATURES),
        "groups": list(STEP_GROUPS),
        "software": list(SOFTWARE),
        "efficiency": efficiency,
        "columns": {name: model.columns(name == "portable").tolist() for name in ("known", "portable")},
        "conformal": {name: table.to_dict() for name, table in calibrate.tables(dataset, found).items()},
        # No CPU was measured in the corpus: what is left of the roofline there is as little known as it can be.
        "unseen_device": {"gpu": unseen, "cpu": unseen},
        "power": POWER,
        **_support(dataset),
        "corpus": {
            "name": "vision training: timm benchmarks and torchvision on pytorch-gpu-benchmark",
            "rows": len(dataset),
            "rows_of_inference": len(others),
            "models": int(dataset.rows.model.nunique()),
            "architectures": int(dataset.rows.architecture.nunique()),
            "families": int(dataset.rows.family.nunique()),
            "devices": sorted(dataset.devices),
            "sources": {
                "timm": "huggingface/pytorch-image-models results, Apache-2.0",
                "torchvision": "ryujaehun/pytorch-gpu-benchmark, MIT",
            },
        },
    }
    artefacts.write(target, manifest, files)
    say(f"wrote {target}: {sum(map(len, files.values())) / 1e6:.1f} MB")
    return target


def _support(dataset: Dataset) -> dict[str, Any]:
    rows = dataset.rows
    measured: dict[str, list[dict[str, Any]]] = {}
    for (name, precision, runtime, layout), group in rows.groupby(["device", "precision", "runtime", "layout"]):
        batch = [int(group.batch.min()), int(group.batch.max())]
        entry = {"precision": precision, "runtime": runtime, "layout": layout, "batch": batch, "rows": len(group)}
        measured.setdefault(name, []).append(entry)
    operators = {int(i) for table in dataset.forward for i in np.unique(table.op)}
    macs = [float(np.dot(t.macs, t.count)) / w.batch for t, w in zip(dataset.forward, dataset.workloads, strict=True)]
    return {
        "measured": measured,
        "support": {
            "newest_torch": _NEWEST_TORCH,
            "vendors": sorted({d.vendor for d in dataset.devices.values()}),
            "operators": sorted(OPERATORS[i] for i in operators),
            "macs_per_sample": [min(macs), max(macs)],
            "batch": [int(rows.batch.min()), int(rows.batch.max())],
            "distance": {"near": NEAR_DISTANCE, "far": FAR_DISTANCE},
        },
    }
