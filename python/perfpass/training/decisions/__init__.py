"""Grading of decisions: `perfpass evaluate --area decisions`. Nothing is fitted: they are made from predictions."""

from __future__ import annotations

from perfpass.training.decisions.evaluate import evaluate

__all__ = ["evaluate"]
