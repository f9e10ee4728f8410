"""A language model generating: one offline batch, and its phases (prompt, tokens) one by one."""

from __future__ import annotations

__all__ = [
    "features",
    "llama_cpp",
    "phase_features",
    "phases",
    "prediction",
    "predictor",
]
