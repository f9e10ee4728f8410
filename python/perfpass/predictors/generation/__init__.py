"""A language model generating: one offline batch, and its phases (prompt, tokens) one by one."""

from __future__ import annotations

__all__ = [
    "engines",
    "features",
    "habits",
    "phase_features",
    "phases",
    "prediction",
    "predictor",
]
