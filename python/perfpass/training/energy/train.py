"""Fits the energy and power predictors on all records and writes their artefact."""

from __future__ import annotations

from pathlib import Path

from perfpass.training.components.train import train_quantities
from perfpass.training.energy import widths
from perfpass.training.energy.dataset import load


def train(folder: str | None = None, output: str | None = None, *, seed: int = 0, quiet: bool = False) -> Path:
    """Learn from the records of ``folder`` and write the artefact to ``output``; returns that folder."""
    return train_quantities("energy", load(folder), output, seed=seed, quiet=quiet, widths=widths.learn)
