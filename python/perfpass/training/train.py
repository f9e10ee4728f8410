"""`perfpass train`: fit the vision predictor on all records and write its artefact."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.graph import OPERATORS
from perfpass.predictors import artefacts
from perfpass.predictors.intervals import ConformalTable, conformal, quantiles
from perfpass.predictors.roofline import GROUPS, SOFTWARE
from perfpass.predictors.roofline_features import FEATURES
from perfpass.predictors.roofline_features import SCHEMA_VERSION as FEATURE_VERSION
from perfpass.predictors.trees import LEAST_DEVICE_ROWS
from perfpass.training import model
from perfpass.training.constants import MEMORY, POWER
from perfpass.training.dataset import Dataset, load
from perfpass.training.fit import columns
from perfpass.training.splits import folds_of

SEEDS = 2
CALIBRATION_FOLDS = 3
# Distances beyond which a network has no close relative, or none at all, among the measured: quantiles of what families
# keep from each other (docs/prediction.md).
NEAR_DISTANCE = 0.2
FAR_DISTANCE = 0.5


def train(
    records: str | None = None, output: str | None = None, seed: int = 0, predictor: str = "vision", quiet: bool = False
) -> Path:
    """Fit ``predictor`` on the records in ``records`` (default: the repository's data) and write it to ``output``.

    ``output`` defaults to the place of the shipped artefact. Returns the folder. Raises ArgumentError, FileError.
    """
    if predictor != "vision":
        raise ArgumentError(f"unknown predictor {predictor!r}; allowed is vision")
    folder = Path(output) if output else artefacts.shipped("vision")

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    dataset = load(records)
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
        files[f"{name}.ubj"] = artefacts.compact_trees(boosters)
    # To 1/256, far below the distances that matter: most batch sizes of a network then share a fingerprint.
    prints = np.unique(np.round(dataset.fingerprints * 256), axis=0) / 256
    files["fingerprints.npy"] = artefacts.array_bytes(prints.astype(np.float16))
    tables = _calibrate(dataset, data, seed, say)
    manifest: dict[str, Any] = {
        "predictor": "vision",
        "feature_version": FEATURE_VERSION,
        "features": list(FEATURES),
        "groups": list(GROUPS),
        "software": list(SOFTWARE),
        "efficiency": [[round(float(v), 5) for v in row] for row in efficiency],
        "columns": {name: columns(name == "portable").tolist() for name in ("known", "portable")},
        "conformal": {name: table.to_dict() for name, table in tables.items()},
        "power": POWER,
        "memory": MEMORY,
        **_support(dataset),
        "corpus": _corpus(dataset),
    }
    artefacts.write(folder, manifest, files)
    say(f"wrote {folder}: {sum(map(len, files.values())) / 1e6:.1f} MB")
    return folder


def held_out_residuals(
    dataset: Dataset, data: model.Arrays, splits: tuple[str, ...], folds: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log(measured / predicted), distance and row of every row when held out, over the given splits."""
    rows = dataset.rows
    out: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for split in splits:
        for fold in folds_of(split, rows.architecture, rows.family, rows.device, folds, seed):
            trees = model.fit(data, fold.train, portable=False, seed=seed)
            predicted, distance = model.predict(data, trees, fold.train, fold.test)
            out.append((np.log(data.latency_s[fold.test] / predicted), distance, fold.test))
    return tuple(np.concatenate(parts) for parts in zip(*out, strict=True))  # type: ignore[return-value]


def held_out_devices(
    dataset: Dataset, data: model.Arrays, seed: int, names: list[str]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """log(measured / predicted) and rows of each device in ``names``, by portable trees that never saw it."""
    device = dataset.rows.device.to_numpy()
    out = {}
    for name in names:
        train_rows, test_rows = np.flatnonzero(device != name), np.flatnonzero(device == name)
        trees = model.fit(data, train_rows, portable=True, seed=seed)
        predicted = data.base_s[test_rows] * np.exp(trees.predict(data.x[test_rows]))
        out[name] = np.log(data.latency_s[test_rows] / predicted), test_rows
    return out


def _calibrate(dataset: Dataset, data: model.Arrays, seed: int, say: Any) -> dict[str, ConformalTable]:
    residual, distance, row = held_out_residuals(
        dataset, data, ("random", "architecture", "family"), CALIBRATION_FOLDS, seed + 100
    )
    say("held-out folds for the intervals")
    cpu = np.array([d.kind == "cpu" for d in map(dataset.devices.get, dataset.rows.device)])  # type: ignore[union-attr]
    tables = {
        "gpu_known": conformal(residual[~cpu[row]], distance[~cpu[row]]),
        "cpu_known": conformal(residual[cpu[row]], distance[cpu[row]]),
    }
    counts = dataset.rows.device.value_counts()
    names = sorted(counts.index[counts >= LEAST_DEVICE_ROWS])
    unseen = held_out_devices(dataset, data, seed, names)
    say("held-out devices for the intervals")
    for kind in ("gpu", "cpu"):
        known = tables[f"{kind}_known"]
        widths = [np.abs(quantiles(r, 0.9)).max() for n, (r, _) in unseen.items() if dataset.devices[n].kind == kind]
        # Few devices stand for all: the widest of their bounds holds, added to what networks differ by.
        width = float(max(widths))
        extra = [max(abs(a), b) for a, b in zip(known.low, known.high, strict=True)]
        bound = [float(np.hypot(width, e)) for e in extra]
        tables[f"{kind}_portable"] = ConformalTable(known.edges, tuple(-b for b in bound), tuple(bound), known.rows)
    return tables


def _support(dataset: Dataset) -> dict[str, Any]:
    """What was measured: per device the workloads, and the ranges of networks and batches."""
    rows = dataset.rows
    measured: dict[str, list[dict[str, Any]]] = {}
    for (name, precision, runtime, layout), group in rows.groupby(["device", "precision", "runtime", "layout"]):
        versions = sorted(set(group.torch_version) - {""}, key=lambda v: tuple(int(p) for p in v.split(".")))
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
