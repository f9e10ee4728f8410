"""DIPPM and its variants, learned from this repository's records (docs/predictors.md)."""

from __future__ import annotations

from perfpass.training.dippm.method import method

__all__ = ["method"]
