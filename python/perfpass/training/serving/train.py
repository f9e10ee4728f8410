"""Training what ships: `train` writes the serving artefact."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.devices import device as find_device
from perfpass.predictors.learned import artefacts, packed_trees
from perfpass.predictors.serving.predictor import TARGETS, ServingPredictor
from perfpass.training.serving import outside, widths
from perfpass.training.serving.dataset import Dataset, load
from perfpass.training.serving.fit import fit
from perfpass.training.serving.held_out import experiments


def train(
    folder: Path | str | None = None, output: Path | str | None = None, *, seed: int = 0, quiet: bool = False
) -> Path:
    """Fit on all records of ``folder`` (default: the repository's) and write the artefact; returns its folder."""
    say: Callable[[str], None] = (lambda text: None) if quiet else (lambda text: print(text, file=sys.stderr))
    data = load(folder)
    say(f"serving: {len(data)} records; held-out errors for the bounds")
    held_out = experiments(data, seed=seed, say=say)
    fitted = fit(data, np.arange(len(data)), seed=seed)
    known = fitted.neighbours[TARGETS[0]]
    words, codes = np.unique(known.labels.astype(str), return_inverse=True)
    residuals = np.stack([known.weight, *(fitted.neighbours[t].residuals[0] for t in TARGETS)], axis=1)
    files = {
        f"{name}.trees": packed_trees.pack([bytes(booster.save_raw("json"))])
        for name, booster in fitted.boosters.items()
    }
    files |= {
        "place.npy": artefacts.array_bytes(known.place.astype(np.float32)),
        "labels.npy": artefacts.array_bytes(codes.reshape(known.labels.shape).astype(np.uint8)),
        "residuals.npy": artefacts.array_bytes(residuals.astype(np.float32)),
    }
    manifest = {
        "predictor": "serving",
        "constants": fitted.constants,
        "words": words.tolist(),
        "families": {
            name: [m.parameters, m.active_parameters, m.layer_count] for name, m in sorted(data.models.items())
        },
        **_measured(data),
        "spread": widths.prior(),
        "corpus": corpus(data),
    }
    target = Path(output) if output else artefacts.shipped("serving")
    artefacts.write(target, manifest, files)
    asked, left = outside.load(folder)
    found = widths.fit(data, held_out, ServingPredictor(target), asked)
    manifest["spread"] = {name: fitted.to_dict() for name, fitted in found.items()}
    artefacts.write(target, manifest, files)
    say(f"serving: widths from {len(asked)} questions of other laboratories; {sum(left.values())} rows are left out")
    return target


def corpus(data: Dataset) -> dict[str, Any]:
    """What the records are, for manifests and reports."""
    rows = data.rows
    return {
        "name": "serving",
        "rows": len(rows),
        "measurements": int(rows.configuration.nunique()),
        "models": sorted(rows.family.unique().tolist()),
        "devices": sorted(rows.device.unique().tolist()),
        "sources": ["ai-dynamo/aiconfigurator (Apache-2.0)"],
    }


def _measured(data: Dataset) -> dict[str, Any]:
    rows, numbers = data.rows, data.workloads.numbers
    gpus = 2 ** numbers["log_gpus"]
    deployment = np.where(np.isnan(numbers["deployment_gpus"]), gpus, numbers["deployment_gpus"])
    pairs, quantization = rows.groupby("device").family.unique(), data.workloads.texts["quantization"]
    spans = {
        "input_length": rows.input_tokens,
        "output_length": rows.output_tokens,
        "concurrency per GPU": rows.concurrency / deployment,
        "GPUs per replica": gpus,
        "parameters": 1e9 * numbers["total"],
    }
    return {
        "measured": {device: sorted(found.tolist()) for device, found in pairs.items()},
        "architectures": sorted({find_device(name).architecture for name in pairs.index}),
        "vendors": sorted({find_device(name).vendor for name in pairs.index}),
        "quantizations": sorted(set(quantization.tolist())),
        "runtimes": {
            str(name): {
                "quantizations": sorted(set(quantization[part.index].tolist())),
                "versions": sorted(set(part.runtime_version) - {""}),
            }
            for name, part in rows.groupby("runtime")
        },
        "ranges": {name: [float(np.min(v)), float(np.max(v))] for name, v in spans.items()},
    }
