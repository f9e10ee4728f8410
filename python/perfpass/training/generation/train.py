"""Fits the generation predictors (a batch's latency, its phases) on all records and writes their artefact."""

from __future__ import annotations

from pathlib import Path

from perfpass.predictors.generation.engines import SECTION
from perfpass.predictors.generation.predictor import GenerationPredictor
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.spread import Spread
from perfpass.training.components.fit import covariance_of
from perfpass.training.components.grade import Quantity, both_split, group_split, hold_out, random_split
from perfpass.training.components.train import Lesson, Splits, train_quantities
from perfpass.training.generation import engines, phases, widths
from perfpass.training.generation.dataset import Dataset, corpus, load
from perfpass.training.spread import Errors

MODEL_FOLDS = 10


def train(folder: str | None = None, output: str | None = None, *, seed: int = 0, quiet: bool = False) -> Path:
    """Learn from the records of ``folder`` and write the artefact to ``output``; returns that folder."""
    data = load(folder)
    q = data.quantity
    splits = {
        "random rows": random_split(q, seed=seed),
        "model": group_split(q.model, MODEL_FOLDS, seed),
        "device": group_split(q.device),
        "device and model": both_split(q, seed),
        "runtime": group_split(q.others["runtime"]),
    }
    others = {name: found.quantity for name, found in phases.load(folder).items()}
    lessons = {q.name: Lesson(splits, ranges(data), corpus(data))}
    held: dict[str, list[Errors]] = {}

    def fitted(quantity: Quantity, own: Splits) -> Spread:
        covariance = covariance_of(quantity.form, quantity.rows)
        held[quantity.name] = [
            widths.held_out_errors(quantity, hold_out(quantity, folds, covariance), folds, name)[0]
            for name, folds in own.items()
        ]
        return widths.fit(held[quantity.name], quantity.name)

    place = train_quantities(
        "generation", {q.name: q, **others}, output, seed=seed, quiet=quiet, lessons=lessons, widths=fitted
    )
    # Other laboratories tell of the latency too: the predictor that was just written is asked.
    asked, _ = widths.load(folder)
    found = widths.answers(GenerationPredictor(place), asked)[1]
    entry = artefacts.Artefact(place).manifest[q.name]
    spread = widths.fit([*held[q.name], found], q.name)
    artefacts.annotate(place, {q.name: {**entry, "spread": spread.to_dict()}, SECTION: engines.section(folder)})
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
