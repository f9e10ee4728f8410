"""Prefill and decode from second sources: training and grading of `perfpass.predictors.generation.phases`."""

from __future__ import annotations

from perfpass.training.phases.evaluate import evaluate
from perfpass.training.phases.train import train

__all__ = ["evaluate", "train"]
