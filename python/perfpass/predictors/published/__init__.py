"""Predictors of the literature behind the interface of ours."""

from __future__ import annotations

__all__ = [
    "answer",
    "graph_classes",
    "graph_language",
    "graph_network",
    "graph_text",
    "language_model",
    "llm_trees",
    "run_features",
]
