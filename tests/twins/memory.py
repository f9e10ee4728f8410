"""Peak memory by brute force: at every node, ask of every buffer whether it is alive."""

from __future__ import annotations

from math import ceil

from perfpass.graph import ROLES, OpGraph
from twins.costs import Node, size_in_bytes


def plan(graph: OpGraph, float_as: str | None = None, alignment: int = 1) -> dict[str, object]:
    """The fields of perfpass.graph.liveness.MemoryPlan."""
    nodes = [Node(graph, i) for i in range(graph.node_count)]
    running = [n for n in nodes if n.repeat > 0]
    roles = [ROLES[r] for r in graph.tensor_role]

    owner: dict[int, int] = {t: t for t, role in enumerate(roles) if role != "activation"}
    for node in running:
        for slot, tensor in enumerate(node.outputs):
            shared = node.attribute["view"] or (node.attribute["in_place"] and slot == 0)
            source = owner.get(node.input(0)) if shared else None
            if tensor >= 0:
                owner[tensor] = tensor if source is None else source

    def size(tensor: int) -> int:
        return ceil(size_in_bytes(nodes[0], tensor, float_as) / alignment) * alignment

    def alive(buffer: int, at: int) -> bool:
        if roles[buffer] == "input":
            return True
        aliases = {t for t, o in owner.items() if o == buffer}
        touched = [n.index for n in running if aliases & {*n.inputs, *n.outputs}]
        if aliases & set(graph.graph_outputs.tolist()):
            touched.append(len(nodes) - 1)
        return int(graph.producer[buffer]) <= at <= max(touched)

    buffers = sorted({o for o in owner.values() if roles[o] in ("activation", "input")})
    live = [sum(size(b) for b in buffers if alive(b, n.index)) for n in nodes]
    inputs = sum(size(t) for t, role in enumerate(roles) if role == "input")
    peak = max((live[n.index] for n in running), default=inputs)
    peak_node = next((n.index for n in running if live[n.index] == peak), -1)
    at_peak = sorted((-size(b), b) for b in buffers if alive(b, max(peak_node, 0)))
    return {
        "weight_bytes": sum(size(t) for t, role in enumerate(roles) if role in ("weight", "literal")),
        "input_bytes": inputs,
        "peak_activation_bytes": peak,
        "peak_node": peak_node,
        "peak_tensors": [b for _, b in at_peak],
        "peak_producers": [int(graph.producer[b]) for _, b in at_peak],
        "peak_bytes": [-s for s, _ in at_peak],
        "live_bytes": live,
    }
