"""Single kernels on GPUs: training and grading (docs/predictors/kernels.md)."""

from __future__ import annotations

from perfpass.training.kernels.evaluate import evaluate
from perfpass.training.kernels.train import train

__all__ = ["evaluate", "train"]
