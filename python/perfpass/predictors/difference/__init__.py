"""How well the ratio of two runs is known: what they do not share, and how wide it makes the interval."""

from __future__ import annotations

__all__ = [
    "unlike",
    "widths",
]
