"""Several graphs as one, each run so many times: the networks of a pipeline, one after another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    for part in parts:
        graph, number = part.graph, {-1: -1}
        for t in range(graph.tensor_count):
            name = graph.string(int(graph.tensor_name[t]))
            kind, role = DTYPES[int(graph.tensor_dtype[t])], ROLES[int(graph.tensor_role[t])]
            number[t] = builder.add_tensor(f"{part.name}.{name}" if name else "", kind, list(graph.shape(t)), role)
        attributes, repeat, stated = graph.attributes, graph.repeat, graph.stated
        for node in range(graph.node_count):
            added = builder.add_node(
                OPERATORS[int(graph.op[node])],
                graph.source_op_name(node),
                f"{part.name}.{graph.string(int(graph.node_name[node])) or node}",
                {name: int(v) for name, v in zip(ATTRIBUTES, attributes[node], strict=True)},
                [number[int(t)] for t in graph.node_inputs(node)],
                [number[int(t)] for t in graph.node_outputs(node)],
                float(repeat[node]) * part.runs,
            )
            if node in stated:
                builder.state(added, stated[node])
        inputs += [number[int(t)] for t in graph.graph_inputs]
        outputs = [number[int(t)] for t in graph.graph_outputs]
    for note in dict.fromkeys(notes):
        builder.add_note(note)
    for part in parts:
        builder.add_notes(part.graph.core)
    return OpGraph(builder.finish(inputs, outputs), assumed=assumed)
