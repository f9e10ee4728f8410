"""Generation and its phases: training and grading of `perfpass.predictors.generation`."""

from __future__ import annotations

from perfpass.training.generation.evaluate import evaluate
from perfpass.training.generation.train import train

__all__ = [
    "dataset",
    "evaluate",
    "phases",
    "train",
    "widths",
]
