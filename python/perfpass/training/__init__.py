"""Training and grading: needs the packages of the training extra (pandas, pyarrow, scipy, xgboost)."""

from __future__ import annotations

from perfpass.training.evaluate import evaluate
from perfpass.training.train import train

__all__ = ["evaluate", "train"]
