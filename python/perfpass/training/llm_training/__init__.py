"""Training of language models on many devices: what is fitted, and how it is graded."""

from __future__ import annotations

from perfpass.training.llm_training.evaluate import evaluate

__all__ = ["evaluate", "memory", "questions", "rates"]
