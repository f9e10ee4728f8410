"""TraPPM and its baselines, learned from this repository's records (docs/research/trappm.md)."""

from __future__ import annotations

from perfpass.training.published.trappm.network import method
from perfpass.training.published.trappm.ship import train

__all__ = [
    "method",
    "network",
    "pretrained",
    "train",
]
