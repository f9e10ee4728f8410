"""Fits the energy and power predictors on all records and writes their artefact."""

from __future__ import annotations

from pathlib import Path

from perfpass.predictors.energy.predictor import AT_RATE, EnergyPredictor
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.spread import Spread
from perfpass.training.components.grade import Quantity
from perfpass.training.components.train import Splits, train_quantities
from perfpass.training.energy import outside, widths
from perfpass.training.energy.dataset import load
from perfpass.training.spread import Errors


def train(folder: str | None = None, output: str | None = None, *, seed: int = 0, quiet: bool = False) -> Path:
    """Learn from the records of ``folder`` and write the artefact to ``output``; returns that folder."""
    held: dict[str, list[Errors]] = {}

    def fitted(q: Quantity, splits: Splits) -> Spread:
        held[q.name] = widths.held_out(q, splits)
        return widths.fit(held[q.name])

    place = train_quantities("energy", load(folder), output, seed=seed, quiet=quiet, widths=fitted)
    # Other laboratories tell of a server's energy too: the predictor that was just written is asked.
    found = outside.answers(EnergyPredictor(place), outside.load(folder))[1]
    entry = artefacts.Artefact(place).manifest[AT_RATE]
    artefacts.annotate(place, {AT_RATE: {**entry, "spread": widths.fit([*held[AT_RATE], found]).to_dict()}})
    return place
