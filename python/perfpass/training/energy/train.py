"""Fits the energy and power predictors on all records and writes their artefact."""

from __future__ import annotations

from pathlib import Path

from perfpass.predictors.energy.predictor import AT_RATE, EnergyPredictor
from perfpass.predictors.learned import artefacts
from perfpass.training.components.fit import covariance_of
from perfpass.training.components.grade import Quantity, held_out_errors, hold_out
from perfpass.training.components.train import lesson, train_quantities
from perfpass.training.energy import widths
from perfpass.training.energy.dataset import load
from perfpass.training.spread import Errors


def train(folder: str | None = None, output: str | None = None, *, seed: int = 0, quiet: bool = False) -> Path:
    """Learn from the records of ``folder`` and write the artefact to ``output``; returns that folder."""
    quantities = load(folder)
    place = train_quantities("energy", quantities, output, seed=seed, quiet=quiet)
    # Other laboratories tell of a server's energy too: the predictor that was just written is asked.
    outside = widths.answers(EnergyPredictor(place), widths.load(folder))[1]
    fitted = widths.fit([*held_out(quantities[AT_RATE], seed), outside])
    entry = artefacts.Artefact(place).manifest[AT_RATE]
    kept = {key: value for key, value in entry.items() if key != "bounds"}
    artefacts.annotate(place, {AT_RATE: {**kept, "spread": fitted.to_dict()}})
    return place


def held_out(q: Quantity, seed: int) -> list[Errors]:
    """Errors of a quantity's own rows, held out in every way."""
    covariance = covariance_of(q.form, q.rows)
    return [
        held_out_errors(q, hold_out(q, folds, covariance), folds, name)[0]
        for name, (folds, _) in lesson(q, seed).splits.items()
    ]
