"""Speculative decoding: grading of `perfpass.predictors.switches.speculative` on measured speed-ups."""

from __future__ import annotations

from perfpass.training.speculation.evaluate import evaluate

__all__ = ["evaluate"]
