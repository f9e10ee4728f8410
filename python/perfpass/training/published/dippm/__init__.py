"""DIPPM and its variants, learned from this repository's records (docs/research/dippm.md)."""

from __future__ import annotations

from perfpass.training.published.dippm.network import method
from perfpass.training.published.dippm.ship import train

__all__ = ["method", "train"]
