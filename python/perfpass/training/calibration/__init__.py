"""Devices learned from few records (`perfpass.predictors.calibration.posterior`): priors, and how well it works."""

from __future__ import annotations

from perfpass.training.calibration.evaluate import evaluate
from perfpass.training.calibration.train import train

__all__ = [
    "evaluate",
    "experiments",
    "train",
]
