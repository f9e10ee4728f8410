"""Predictors of language models on one task: trees on a table, a graph network, and the shipped design."""

from __future__ import annotations

from perfpass.training.published.llm_trees.methods import method, train

__all__ = [
    "graphs",
    "method",
    "ours",
    "train",
]
