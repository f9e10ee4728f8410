"""Several graphs as one, each run so many times: the networks of a pipeline, one after another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from perfpass import _core
from perfpass.graph.assumed import Assumed
from perfpass.graph.opgraph import ATTRIBUTES, DTYPES, OPERATORS, ROLES, OpGraph


@dataclass(frozen=True)
class Part:
    """A graph that runs ``runs`` times; names of its nodes and tensors begin with ``name`` and a full stop."""

    name: str
    graph: OpGraph
    runs: float = 1.0


def joined(parts: Sequence[Part], notes: Iterable[str] = (), assumed: tuple[Assumed, ...] = ()) -> OpGraph:
    """One graph of all parts in order; nothing flows between them, and the results are those of the last one.

    All weights are held, activations are those of one part at a time.
    """
    builder = _core.GraphBuilder()
    inputs: list[int] = []
    outputs: list[int] = []
    single: set[int] = set()
    for part in parts:
        number = appended(builder, part.graph, prefix=f"{part.name}.", runs=part.runs)
        single |= {number[t] for t in part.graph.single}
        inputs += [number[int(t)] for t in part.graph.graph_inputs]
        outputs = [number[int(t)] for t in part.graph.graph_outputs]
    for note in dict.fromkeys(notes):
        builder.add_note(note)
    for part in parts:
        builder.add_notes(part.graph.core)
    return OpGraph(builder.finish(inputs, outputs), assumed=assumed, single=frozenset(single))


def appended(
    builder: _core.GraphBuilder,
    graph: OpGraph,
    *,
    prefix: str = "",
    runs: float = 1.0,
    types: Mapping[int, str] | None = None,
) -> dict[int, int]:
    """Adds every tensor and node of ``graph``, without its notes, and returns the builder's ids of its tensors.

    ``prefix``: what names begin with; ``runs``: how often all of it runs; ``types``: those of tensors that have others.
    """
    number, types = {-1: -1}, types or {}
    for t in range(graph.tensor_count):
        name = graph.string(int(graph.tensor_name[t]))
        kind, role = types.get(t) or DTYPES[int(graph.tensor_dtype[t])], ROLES[int(graph.tensor_role[t])]
        number[t] = builder.add_tensor(f"{prefix}{name}" if name else "", kind, list(graph.shape(t)), role)
    attributes, repeat, stated = graph.attributes, graph.repeat, graph.stated
    for node in range(graph.node_count):
        name = graph.string(int(graph.node_name[node]))
        added = builder.add_node(
            OPERATORS[int(graph.op[node])],
            graph.source_op_name(node),
            f"{prefix}{name or node}" if prefix else name,
            {name: int(v) for name, v in zip(ATTRIBUTES, attributes[node], strict=True)},
            [number[int(t)] for t in graph.node_inputs(node)],
            [number[int(t)] for t in graph.node_outputs(node)],
            float(repeat[node]) * runs,
        )
        if node in stated:
            builder.state(added, stated[node])
    return number
