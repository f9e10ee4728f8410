"""Fit the inference predictor on all records and write its artefact."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.predictors.inference.predictor import InferencePredictor
from perfpass.predictors.learned.spread import Spread
from perfpass.training import ratio_trees
from perfpass.training.inference import calibrate, model, outside
from perfpass.training.inference.dataset import Dataset, load
from perfpass.training.spread import Errors
from perfpass.training.tasks.splits import SPLITS

SEEDS = 2
CALIBRATION_FOLDS = 3


def train(folder: str | None = None, output: str | None = None, *, seed: int = 0, quiet: bool = False) -> Path:
    """Fit the predictor on the records in ``folder`` (default: the repository's data), write it to ``output``.

    ``output`` defaults to the place of the shipped artefact. Returns where it was written. Raises FileError.
    """

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    dataset = load(folder)
    say(f"{len(dataset)} records of {dataset.rows.model.nunique()} models on {len(dataset.devices)} devices")
    everything = np.arange(len(dataset))
    efficiency = model.efficiency_of(dataset, everything)
    data = model.arrays(dataset, efficiency, everything)
    boosters: dict[str, list[Any]] = {"known": [], "portable": []}
    for name, found in boosters.items():
        for i in range(SEEDS):
            found.append(model.fit(data, everything, portable=name == "portable", seed=seed + i).booster)
            say(f"trees {name} {i + 1}/{SEEDS}")
    held = _held_out(dataset, seed, say)

    def write(spreads: dict[str, Spread]) -> tuple[Path, int]:
        return ratio_trees.write(
            InferencePredictor.settings, dataset, boosters, output,
            {
                "efficiency": ratio_trees.rounded(efficiency),
                "spread": {name: value.to_dict() for name, value in spreads.items()},
                "evidence": calibrate.evidence_table(dataset),
            },
            corpus={"name": "vision inference: timm benchmarks and torchvision on pytorch-gpu-benchmark"},
        )  # fmt: skip

    # What is off on other sources is known once there is a predictor to ask.
    place, _ = write({name: calibrate.fit(parts) for name, parts in held.items()})
    other = outside.answers(folder, InferencePredictor(place))
    say(f"{len(other.rows)} questions of other sources")
    kind = other.kind
    place, size = write({name: calibrate.fit([*p, other.take(kind == name).errors]) for name, p in held.items()})
    say(f"wrote {place}: {size / 1e6:.1f} MB")
    return place


def _held_out(dataset: Dataset, seed: int, say: Any) -> dict[str, list[Errors]]:
    """Errors on networks, devices and software held out, by kind of device."""
    experiments = calibrate.unseen_devices(dataset, seed=seed, say=say)
    experiments += calibrate.unseen_software(dataset, seed=seed, say=say)
    found = ratio_trees.Residuals.joined(
        calibrate.unseen_networks(dataset, split, CALIBRATION_FOLDS, seed=seed + 100).residuals for split in SPLITS[:3]
    )
    say("held-out networks for the intervals")
    kind = calibrate.kinds(dataset)
    return {
        str(name): [
            calibrate.of_networks(dataset, found.take(kind[found.row] == name)),
            *(e.errors for e in experiments if e.kind == name),
        ]
        for name in np.unique(kind)
    }
