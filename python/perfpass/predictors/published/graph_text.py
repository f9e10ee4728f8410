"""What a language model reads about a graph and a run: a soft token aside, words, numbers and JSON.

`summary` is the text that graph-to-text training asks for ("Summarise the graph") and the high-level text
representation; `structure` the semi-structured one (JSON of the distinct operators and the edges between them).
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from perfpass.graph import OPERATORS

if TYPE_CHECKING:
    from perfpass.graph import OpGraph

INSTRUCTION = "summarise the graph"
_MOST_OPERATORS = 8
_UNITS = ((1e12, "t"), (1e9, "g"), (1e6, "m"), (1e3, "k"))


def number(value: float) -> str:
    """Two significant digits and a unit letter: 4.1g, 25m, 980."""
    for size, unit in _UNITS:
        if value >= size:
            scaled = value / size
            return f"{scaled:.1f}{unit}" if scaled < 9.95 else f"{scaled:.0f}{unit}"
    return f"{value:.0f}"


def summary(graph: OpGraph, totals: np.ndarray) -> str:
    """Sizes, costs and operators. ``totals`` [10]: the first statics of the operator schema, as logarithms."""
    macs, _, read, written, parameters, _, nodes, edges, depth, batch = np.expm1(np.asarray(totals, dtype=np.float64))
    samples = max(batch, 1.0)
    counted = Counter(OPERATORS[o] for o in np.asarray(graph.op))
    most = ", ".join(f"{count} {name}" for name, count in sorted(counted.items(), key=lambda x: (-x[1], x[0])))
    listed = ", ".join(most.split(", ")[:_MOST_OPERATORS])
    return (
        f"a graph of {nodes:.0f} operators and {edges:.0f} edges, {depth:.0f} deep: {listed}. "
        f"per sample {number(macs / samples)} macs and {number((read + written) / samples)} bytes moved; "
        f"{number(parameters)} parameters."
    )


def structure(graph: OpGraph, member: np.ndarray, edge_index: np.ndarray) -> str:
    """JSON of the classes of nodes in order, with their members, and what a first member reads from.

    ``member`` [N]: the class of each node; ``edge_index`` [2, E]: producers and consumers.
    """
    _, example, member, count = np.unique(member, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(example, kind="stable")
    place = np.argsort(order, kind="stable")
    offset, outputs = np.asarray(graph.output_offset), np.asarray(graph.outputs)
    nodes = []
    for c in order:
        node = int(example[c])
        tensor = int(outputs[offset[node]]) if offset[node + 1] > offset[node] else -1
        shape = list(graph.shape(tensor)) if tensor >= 0 else []
        nodes.append([graph.op_name(node), int(count[c]), shape])
    producer, consumer = edge_index
    kept = example[member[consumer]] == consumer
    edges = {
        (int(place[member[s]]), int(place[member[t]])) for s, t in zip(producer[kept], consumer[kept], strict=True)
    }
    return json.dumps({"operators": nodes, "edges": sorted(edges)}, separators=(",", ":"))


def prompt(
    device: str,
    precision: str,
    runtime: str,
    layout: str,
    batch: int,
    *,
    training: bool = False,
    optimizer: str = "",
    asked: str = "latency",
) -> str:
    """The run in words, and the question."""
    mode = f"training {optimizer}".rstrip() if training else "inference"
    return f"{device} {precision} {runtime} {layout} {mode} batch {batch}. {asked}?"
