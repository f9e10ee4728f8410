"""Engines under requests that arrive: nothing is fitted, so there is nothing to train."""

from __future__ import annotations

from perfpass.training.engine.evaluate import evaluate

__all__ = ["evaluate"]
