"""Training of language models on many devices: the time of a step by cause, and what a run costs."""

from __future__ import annotations

__all__ = [
    "constants",
    "in_use",
    "predict",
    "step",
]
