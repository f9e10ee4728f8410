"""Predictors of language models on one task: trees on a table, a graph network, and the shipped design."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfpass.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from pathlib import Path


def method(name: str) -> Any:
    """One of "llm-trees", "llm-gnn" and "llm-process". Raises ArgumentError for another name."""
    if name == "llm-trees":
        from perfpass.training.published.llm_trees.trees import Trees

        return Trees(traced=False)
    if name == "llm-gnn":
        from perfpass.training.published.llm_trees.gnn import Sage

        return Sage()
    if name == "llm-process":
        from perfpass.training.published.llm_trees.ours import Process

        return Process()
    raise ArgumentError(f"unknown predictor {name!r}; allowed are llm-trees, llm-gnn, llm-process")


def train(
    name: str, records: str | None = None, output: str | None = None, *, seed: int = 0, published: bool = False
) -> Path:
    """The trees that ship, as `ship.train`. Raises UnsupportedError for the other methods, ArgumentError for sizes."""
    from perfpass.training.published.llm_trees import ship

    if name != "llm-trees":
        raise UnsupportedError(f"{name} is trained within `perfpass evaluate` alone; what ships is llm-trees")
    if published:
        raise ArgumentError("--published: no sizes of the published trees are known; leave it out for llm-trees")
    return ship.train(records, output, seed=seed)
