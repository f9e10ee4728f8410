"""TraPPM and its baselines, learned from this repository's records (docs/trappm.md)."""

from __future__ import annotations

from perfpass.training.trappm.network import method
from perfpass.training.trappm.ship import train

__all__ = ["method", "train"]
