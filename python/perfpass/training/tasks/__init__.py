"""Tasks, splits, graphs, methods and baselines that every predictor is trained and graded on."""

from __future__ import annotations

__all__ = [
    "baselines",
    "graphs",
    "methods",
    "named",
    "ours",
    "simple_baselines",
    "splits",
    "tasks",
]
