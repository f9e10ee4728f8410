"""Energy and power: the learned predictor, its features, and power while a training step runs."""

from __future__ import annotations

__all__ = [
    "features",
    "power",
    "predictor",
]
