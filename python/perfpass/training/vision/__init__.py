"""Latency of vision inference: fitting, choosing and grading of `perfpass.predictors.trees`."""

from __future__ import annotations

from perfpass.training.vision.evaluate import evaluate
from perfpass.training.vision.train import train

__all__ = ["evaluate", "train"]
