"""Fits the energy and power predictors on all records and writes their artefact."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.predictors import artefacts
from perfpass.training.component_grade import (
    Quantity,
    both_split,
    calibrate,
    group_split,
    random_split,
    ship,
)
from perfpass.training.energy.dataset import load, names


def train(folder: str | None = None, output: str | None = None, *, seed: int = 0, quiet: bool = False) -> Path:
    """Learn from the records of ``folder`` and write the artefact to ``output``; returns that folder."""

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    quantities = load(folder)
    manifest: dict[str, Any] = {"predictor": "energy", "ranges": {}, "corpus": names(list(quantities.values()))}
    files: dict[str, bytes] = {}
    for name, q in quantities.items():
        splits = {
            "random rows": (random_split(q, seed=seed), False),
            "model": (group_split(q.model), True),
            "device": (group_split(q.device), True),
            "device and model": (both_split(q, seed), True),
        }
        entry, own, _ = ship(q, calibrate(q, splits, say))
        manifest[name] = entry
        manifest["ranges"][name] = ranges(q)
        files |= own
    place = Path(output) if output else artefacts.shipped("energy")
    artefacts.write(place, manifest, files)
    say(f"wrote {place}: {sum(map(len, files.values())) / 1e6:.2f} MB")
    return place


def ranges(q: Quantity) -> list[list[float]]:
    """Least and largest of every workload and trait number."""
    values = np.concatenate([q.rows.workload, q.rows.traits], axis=1)
    return [[float(low), float(high)] for low, high in zip(values.min(axis=0), values.max(axis=0), strict=True)]
