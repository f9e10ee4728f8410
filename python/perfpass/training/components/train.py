"""Training of artefacts that hold several quantities: the same for energy and for phases."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.predictors.learned import artefacts
from perfpass.training.components.grade import Quantity, both_split, calibrate, group_split, random_split, ship


def train_quantities(
    predictor: str, quantities: Mapping[str, Quantity], output: str | None, *, seed: int, quiet: bool
) -> Path:
    """Fit every quantity with its bounds and write the artefact of ``predictor``; returns its folder."""

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    manifest: dict[str, Any] = {"predictor": predictor, "ranges": {}, "corpus": corpus(quantities)}
    files: dict[str, bytes] = {}
    for name, q in quantities.items():
        # Few models and devices vouch for another, so each counts alike.
        splits = {
            "random rows": (random_split(q, seed=seed), False),
            "model": (group_split(q.model), True),
            "device": (group_split(q.device), True),
            "device and model": (both_split(q, seed), True),
        }
        manifest[name], own, _ = ship(q, calibrate(q, splits, say))
        manifest["ranges"][name] = ranges(q)
        files |= own
    place = Path(output) if output else artefacts.shipped(predictor)
    artefacts.write(place, manifest, files)
    say(f"wrote {place}: {sum(map(len, files.values())) / 1e6:.2f} MB")
    return place


def corpus(quantities: Mapping[str, Quantity]) -> dict[str, Any]:
    """What stands behind each quantity."""
    return {
        name: {"rows": len(q), "models": len(set(q.model)), "devices": sorted(set(q.device)), "unit": q.unit}
        for name, q in quantities.items()
    }


def ranges(q: Quantity) -> list[list[float]]:
    """Least and largest of every workload and trait number."""
    values = np.concatenate([q.rows.workload, q.rows.traits], axis=1)
    return [[float(low), float(high)] for low, high in zip(values.min(axis=0), values.max(axis=0), strict=True)]
