"""The ratio of two runs: pairs of records that differ in one thing, the widths that follow, and their grading."""

from __future__ import annotations

from perfpass.training.difference.evaluate import evaluate
from perfpass.training.difference.train import train

__all__ = [
    "evaluate",
    "train",
]
