"""Training and grading: needs the packages of the training extra (pandas, pyarrow, scipy, xgboost, matplotlib)."""

from __future__ import annotations

from perfpass.training.report import evaluate, train

__all__ = [
    "evaluate",
    "metrics",
    "ratio_trees",
    "section",
    "train",
]
