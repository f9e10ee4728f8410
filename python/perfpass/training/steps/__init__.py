"""Time of training steps: fitting and grading of `perfpass.predictors.steps`."""

from __future__ import annotations

from perfpass.training.steps.evaluate import evaluate
from perfpass.training.steps.train import train

__all__ = ["evaluate", "train"]
