"""The operator table with a dictionary: equal nodes counted together, in order of first appearance."""

from __future__ import annotations

from math import prod

from perfpass.graph import OPERATOR_CLASS_OF, OPERATOR_CLASSES, OpGraph
from twins.costs import Node, gemm, kernel_area, step_sizes

COLUMNS = ("op", "dtype", "view", "macs", "flops", "bytes_read", "bytes_written", "weight_bytes")
COLUMNS += ("input_elements", "output_elements", "b", "m", "n", "k", "kernel_area", "stride", "groups", "constant")


def keys(graph: OpGraph, costs: dict[str, list[int]]) -> list[tuple[int, ...] | None]:
    """What makes each node equal to others; None for nodes that never run."""
    found: list[tuple[int, ...] | None] = []
    varying = set(graph.graph_inputs.tolist())  # tensors that the inputs of the graph decide
    for index in range(graph.node_count):
        node = Node(graph, index)
        constant = not any(int(t) in varying for t in graph.node_inputs(index))
        if not constant:
            varying |= {int(t) for t in graph.node_outputs(index) if t >= 0}
        if node.repeat == 0:
            found.append(None)
            continue

        def once(name: str, index: int = index, repeat: float = node.repeat) -> int:
            total = costs[name][index]
            return total // int(repeat) if repeat == int(repeat) else round(total / repeat)

        kind = OPERATOR_CLASSES[OPERATOR_CLASS_OF[graph.op[index]]]
        spatial = kind in ("convolution", "pooling")
        found.append(
            (
                int(graph.op[index]),
                int(graph.tensor_dtype[node.output(0)]) if node.output(0) >= 0 else 0,
                int(node.attribute["view"] != 0),
                *(once(name) for name in ("macs", "flops", "bytes_read", "bytes_written")),
                costs["weight_bytes"][index],
                node.elements(node.input(0)),
                node.elements(node.output(0)),
                *sizes(node, kind),
                kernel_area(node) if spatial else 0,
                node.attribute["stride_0"] if spatial else 0,
                node.attribute["groups"] if spatial else 0,
                int(constant),
            )
        )
    return found


def sizes(node: Node, kind: str) -> tuple[int, int, int, int]:
    """Of a product, of the steps of a loop, or of what is resized: its planes and their pixels."""
    if node.op == "resize":
        shape = node.shape(node.output(0))
        known = len(shape) > 2 and prod(shape) > 0
        return (shape[0] * shape[1], prod(shape[2:]), 0, 0) if known else (0, 0, 0, 0)
    return step_sizes(node) if kind == "recurrent" else gemm(node)


def rows(graph: OpGraph, costs: dict[str, list[int]]) -> list[dict[str, float]]:
    """One dictionary per row, with ``count``, ``first_node`` and the columns above."""
    table: dict[tuple[int, ...], dict[str, float]] = {}
    for index, key in enumerate(keys(graph, costs)):
        if key is not None:
            row = table.setdefault(key, {"count": 0.0, "first_node": index, **dict(zip(COLUMNS, key, strict=True))})
            row["count"] += float(graph.repeat[index])
    return list(table.values())
