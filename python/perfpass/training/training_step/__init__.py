"""Time of training steps: fitting and grading of `perfpass.predictors.training_step.predictor`."""

from __future__ import annotations

from perfpass.training.training_step.evaluate import evaluate
from perfpass.training.training_step.train import train

__all__ = [
    "dataset",
    "evaluate",
    "model",
    "operators",
    "outside",
    "questions",
    "train",
]
