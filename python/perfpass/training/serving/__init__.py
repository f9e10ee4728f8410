"""LLM serving: training and grading of `perfpass.predictors.serving.predictor` (docs/predictors/serving.md)."""

from __future__ import annotations

from perfpass.training.serving.evaluate import evaluate
from perfpass.training.serving.train import train

__all__ = [
    "baselines",
    "breakdown",
    "dataset",
    "evaluate",
    "held_out",
    "outside",
    "train",
    "widths",
]
