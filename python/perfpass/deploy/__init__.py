"""Deployment advice derived from predictions."""

from __future__ import annotations

__all__ = [
    "choose",
    "cost",
    "difference",
    "money",
    "outputs",
    "pack",
    "sweep",
    "tune",
]
