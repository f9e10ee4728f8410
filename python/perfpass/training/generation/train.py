"""Fits the generation predictors (a batch's latency, its phases) on all records and writes their artefact."""

from __future__ import annotations

from pathlib import Path

from perfpass.training.components.grade import both_split, group_split, random_split
from perfpass.training.components.train import Lesson, train_quantities
from perfpass.training.generation import phases
from perfpass.training.generation.dataset import Dataset, corpus, load

MODEL_FOLDS = 10


def train(folder: str | None = None, output: str | None = None, *, seed: int = 0, quiet: bool = False) -> Path:
    """Learn from the records of ``folder`` and write the artefact to ``output``; returns that folder."""
    data = load(folder)
    q = data.quantity
    splits = {
        "random rows": (random_split(q, seed=seed), False),
        "model": (group_split(q.model, MODEL_FOLDS, seed), False),
        "device": (group_split(q.device), True),
        "device and model": (both_split(q, seed), True),
        "runtime": (group_split(q.others["runtime"]), True),
    }
    lessons = {q.name: Lesson(splits, ranges(data), corpus(data))}
    quantities = {q.name: q, **{name: found.quantity for name, found in phases.load(folder).items()}}
    return train_quantities("generation", quantities, output, seed=seed, quiet=quiet, lessons=lessons)


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
