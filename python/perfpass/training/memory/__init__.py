"""Peak memory of training: fitting and grading of `perfpass.predictors.memory.predictor`."""

from __future__ import annotations

from perfpass.training.memory.evaluate import evaluate
from perfpass.training.memory.train import train

__all__ = [
    "dataset",
    "evaluate",
    "fit",
    "host_plans",
    "measured_runs",
    "runs",
    "serving",
    "sources",
    "train",
]
