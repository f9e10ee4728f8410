"""Latency in MIG slices shared by processes: training and grading of `perfpass.predictors.mig.latency`."""

from __future__ import annotations

from perfpass.training.mig.evaluate import evaluate
from perfpass.training.mig.train import train

__all__ = [
    "dataset",
    "evaluate",
    "train",
]
