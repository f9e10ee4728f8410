"""Latency of vision inference: fitting, choosing and grading of `perfpass.predictors.inference.predictor`."""

from __future__ import annotations

from perfpass.training.inference.evaluate import evaluate
from perfpass.training.inference.train import train

__all__ = [
    "calibrate",
    "cpu",
    "dataset",
    "evaluate",
    "host_tables",
    "model",
    "operators",
    "outside",
    "train",
]
