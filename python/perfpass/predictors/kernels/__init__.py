"""Single kernels on GPUs and CPUs: physics, learned efficiency, software versions, power."""

from __future__ import annotations

__all__ = [
    "efficiency",
    "model",
    "network",
    "physics",
    "power",
    "predictor",
    "software",
]
