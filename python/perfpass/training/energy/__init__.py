"""Energy and power: training and grading of `perfpass.predictors.energy.predictor`."""

from __future__ import annotations

from perfpass.training.energy.evaluate import evaluate
from perfpass.training.energy.train import train

__all__ = [
    "dataset",
    "evaluate",
    "train",
]
