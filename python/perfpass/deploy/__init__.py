"""Deployment advice derived from predictions."""

from __future__ import annotations

__all__ = [
    "cost",
    "outputs",
    "pack",
]
