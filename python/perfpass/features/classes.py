"""Classes of equal nodes of an operator graph, told apart by their features (docs/internals/quotient.md)."""

from __future__ import annotations

from perfpass.graph import OpGraph
from perfpass.graph.quotient import Directions, Round, refine


def classes(
    graph: OpGraph, schema: str = "dippm", *, rounds: int = 3, directions: Directions = "both"
) -> tuple[Round, ...]:
    """The classes of an operator graph, its nodes told apart by the features of ``schema`` (docs/reference/schemas.md).

    The schema `operator` holds each node's position, so that hardly two are equal under it.
    """
    from perfpass.features import extract

    found = extract(graph, schema)
    return refine(found.edge_index, found.nodes, rounds=rounds, directions=directions)
