"""Fits the generation predictor on all records and writes its artefact."""

from __future__ import annotations

import sys
from pathlib import Path

from perfpass.predictors.learned import artefacts
from perfpass.training.components.grade import both_split, calibrate, group_split, random_split, ship
from perfpass.training.generation.dataset import Dataset, corpus, load

MODEL_FOLDS = 10


def train(folder: str | None = None, output: str | None = None, *, seed: int = 0, quiet: bool = False) -> Path:
    """Learn from the records of ``folder`` and write the artefact to ``output``; returns that folder."""

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    data = load(folder)
    q = data.quantity
    splits = {
        "random rows": (random_split(q, seed=seed), False),
        "model": (group_split(q.model, MODEL_FOLDS, seed), False),
        "device": (group_split(q.device), True),
        "device and model": (both_split(q, seed), True),
        "runtime": (group_split(q.others["runtime"]), True),
    }
    entry, files, _ = ship(q, calibrate(q, splits, say))
    place = Path(output) if output else artefacts.shipped("generation")
    manifest = {"predictor": "generation", q.name: entry, "ranges": ranges(data), "corpus": corpus(data)}
    artefacts.write(place, manifest, files)
    say(f"wrote {place}: {sum(map(len, files.values())) / 1e6:.2f} MB")
    return place


def ranges(data: Dataset) -> dict[str, list[float]]:
    """Least and largest measured value of what may be out of range."""
    table = data.table
    parameters = [b.model.parameters for b in data.batches]
    return {
        "devices": [1, int(table.n_devices.max())],
        "batch": [1, int(table.batch.max())],
        "input_tokens": [int(table.input_tokens.min()), int(table.input_tokens.max())],
        "output_tokens": [int(table.output_tokens.min()), int(table.output_tokens.max())],
        "parameters": [min(parameters), max(parameters)],
    }
