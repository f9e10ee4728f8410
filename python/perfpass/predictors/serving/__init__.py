"""Language models as they are served: time to the first token, per token, throughput, energy."""

from __future__ import annotations

__all__ = [
    "base",
    "energy",
    "features",
    "loads",
    "prediction",
    "predictor",
    "widths",
]
