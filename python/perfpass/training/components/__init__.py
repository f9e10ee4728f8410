"""Fitting and grading areas that are sums of learned components."""

from __future__ import annotations

__all__ = [
    "fit",
    "grade",
    "train",
    "widths",
]
