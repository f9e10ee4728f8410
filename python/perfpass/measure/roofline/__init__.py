"""The roofline of this machine, measured and drawn."""

from __future__ import annotations

__all__ = [
    "figure",
    "measurement",
]
