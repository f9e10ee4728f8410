"""Predictors of language models on one task: trees on a table, a graph network, and the shipped design."""

from __future__ import annotations

from typing import Any

from perfpass.errors import ArgumentError


def method(name: str) -> Any:
    """One of "llm-trees", "llm-gnn" and "llm-process". Raises ArgumentError for another name."""
    if name == "llm-trees":
        from perfpass.training.llm.trees import Trees

        return Trees(traced=False)
    if name == "llm-gnn":
        from perfpass.training.llm.gnn import Sage

        return Sage()
    if name == "llm-process":
        from perfpass.training.llm.ours import Process

        return Process()
    raise ArgumentError(f"unknown predictor {name!r}; allowed are llm-trees, llm-gnn, llm-process")


def train(*given: Any, **options: Any) -> Any:
    """The trees that ship, as `ship.train`."""
    from perfpass.training.llm import ship

    return ship.train(*given, **options)
