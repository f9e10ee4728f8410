"""A run of any graph: time from a roofline and trees, memory, power."""

from __future__ import annotations

__all__ = [
    "analytic",
    "cpu",
    "cpu_halves",
    "cpu_operators",
    "engines",
    "features",
    "fusion",
    "operators",
    "predictor",
]
