"""Memory in use: what allocators reserve, what a framework adds, what was recorded."""

from __future__ import annotations

__all__ = [
    "allocation",
    "allowance",
    "host",
    "predictor",
    "process",
    "recorded",
    "rows",
    "step",
]
