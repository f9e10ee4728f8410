"""A graph as quantisation leaves it: the weights of matrix products and convolutions in fewer bits.

What is made is what a reader gives of a file that ONNX Runtime's tools have quantised: `quantized_matmul` and
`quantized_conv`, whose weights have 8 bits and whose inputs are quantised as they come (DynamicQuantizeMatMul), and
`matmul_nbits`, whose weights alone have 4 or 8 bits, in blocks with a scale each (MatMulNBits). Everything else stays
as it is.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

import numpy as np

from perfpass import _core
from perfpass.graph.opgraph import ATTRIBUTES, DTYPES, OPERATORS, ROLES, OpGraph

BLOCK = 128
_WEIGHT, _PRODUCTS, _CONV = ROLES.index("weight"), ("dense", "matmul"), "conv"
_FLOATING = tuple(i for i, name in enumerate(DTYPES) if name in ("float32", "float16", "bfloat16", "float64"))
_VIEW, _TRANSPOSED = ATTRIBUTES.index("view"), ATTRIBUTES.index("transpose_a")


@dataclass(frozen=True)
class Packing:
    """Weights that share a ``scale`` of this type: as GPTQ, AWQ and MatMulNBits have it."""

    block: int = BLOCK
    scale: str = "float16"


@dataclass(frozen=True, eq=False)
class Quantised:
    """``graph``, of whose nodes ``products`` have quantised weights; ``left``: nodes with weights of two dimensions or
    more that stay as they are, by their canonical operators.
    """

    graph: OpGraph
    products: int
    left: dict[str, int]


def quantised(graph: OpGraph, bits: int, *, alone: bool = False, packing: Packing | None = None) -> Quantised:
    """The weights of products in ``bits`` (8 or 4); in 8 bits, unless weights ``alone`` are quantised, also those of
    convolutions and the inputs of both. In 4 bits weights always are alone. ``packing``: of these, else `Packing`.

    A weight that another operator reads too (an embedding that is the output layer) stays as it is.
    """
    alone = alone or bits == 4
    readers = _readers(graph)
    found: dict[int, tuple[int, list[int]]] = {}
    for node in range(graph.node_count):
        name = OPERATORS[int(graph.op[node])]
        if name in _PRODUCTS or (name == _CONV and not alone):
            weight, views = _weight_of(graph, node)
            if weight >= 0 and _fits(graph, node, weight, alone):
                found[node] = (weight, views)
    # All that reads a weight, directly or through views, has to be quantised with it.
    between = {view for _, views in found.values() for view in views}
    weights = {weight for weight, _ in found.values()}
    shared = {weight for weight in weights if not _alone(graph, weight, readers, between, found)}
    found = {node: one for node, one in found.items() if one[0] not in shared}
    left: dict[str, int] = {}
    weights -= shared
    for node in range(graph.node_count):
        if node not in found and any(
            _is_matrix(graph, t) and t not in weights for t in graph.node_inputs(node).tolist()
        ):
            name = OPERATORS[int(graph.op[node])]
            left[name] = left.get(name, 0) + 1
    return Quantised(_rebuilt(graph, found, bits, alone, packing or Packing()), len(found), left)


def _readers(graph: OpGraph) -> dict[int, list[tuple[int, int]]]:
    """By tensor the nodes that read it, and as which of their inputs; node -1 is who runs the graph."""
    found: dict[int, list[tuple[int, int]]] = {}
    for node in range(graph.node_count):
        for place, tensor in enumerate(graph.node_inputs(node).tolist()):
            if tensor >= 0:
                found.setdefault(tensor, []).append((node, place))
    for tensor in (*graph.graph_inputs.tolist(), *graph.graph_outputs.tolist()):
        found.setdefault(tensor, []).append((-1, 0))
    return found


def _weight_of(graph: OpGraph, node: int) -> tuple[int, list[int]]:
    """The weight that a node reads as its second input, and the views that it is seen through; -1 for none."""
    inputs = graph.node_inputs(node).tolist()
    tensor, views = inputs[1] if len(inputs) > 1 else -1, list[int]()
    while tensor >= 0 and (maker := int(graph.producer[tensor])) >= 0:
        read = graph.node_inputs(maker).tolist()
        if not graph.attributes[maker, _VIEW] or not read:
            return -1, []
        views.append(maker)
        tensor = read[0]
    known = tensor >= 0 and graph.tensor_role[tensor] == _WEIGHT and int(graph.tensor_dtype[tensor]) in _FLOATING
    return (tensor, views) if known else (-1, [])


def _fits(graph: OpGraph, node: int, weight: int, alone: bool) -> bool:
    shape, data = graph.shape(weight), graph.shape(int(graph.node_inputs(node)[0]))
    if len(shape) < 2 or not data:
        return False
    if not alone:
        return True
    k = data[-1]
    return len(shape) == 2 and k in shape and not graph.attributes[node, _TRANSPOSED]


def _alone(
    graph: OpGraph,
    weight: int,
    readers: Mapping[int, list[tuple[int, int]]],
    views: Container[int],
    products: Container[int],
) -> bool:
    """Whether nothing but products as their weight, and views that they see it through, reads a weight."""
    seen = [weight]
    for tensor in seen:
        for node, place in readers.get(tensor, ()):
            if node in views and place == 0:
                seen += [t for t in graph.node_outputs(node).tolist() if t >= 0]
            elif node not in products or place != 1:
                return False
    return True


def _is_matrix(graph: OpGraph, tensor: int) -> bool:
    return tensor >= 0 and graph.tensor_role[tensor] == _WEIGHT and len(graph.shape(tensor)) >= 2


def _rebuilt(
    graph: OpGraph, found: dict[int, tuple[int, list[int]]], bits: int, alone: bool, packing: Packing
) -> OpGraph:
    builder, stated = _core.GraphBuilder(), graph.stated
    weights = {weight for weight, _ in found.values()}
    views = {view for _, seen in found.values() for view in seen}
    narrow = weights | {t for view in views for t in graph.node_outputs(view).tolist()}
    ids: dict[int, int] = {-1: -1}
    for tensor in range(graph.tensor_count):
        if alone and tensor in narrow:
            continue
        dtype = "int8" if tensor in narrow else DTYPES[int(graph.tensor_dtype[tensor])]
        role = ROLES[int(graph.tensor_role[tensor])]
        ids[tensor] = builder.add_tensor(_name(graph, tensor), dtype, list(graph.shape(tensor)), role)
    packed: dict[int, tuple[int, int]] = {}
    for node in range(graph.node_count):
        if alone and node in views:
            continue
        name = OPERATORS[int(graph.op[node])]
        attributes = {column: int(v) for column, v in zip(ATTRIBUTES, graph.attributes[node], strict=True)}
        reads = graph.node_inputs(node).tolist()
        if node in found and alone:
            weight, k = found[node][0], graph.shape(reads[0])[-1]
            if weight not in packed:
                packed[weight] = _packed(builder, graph, weight, k, bits, packing)
            inputs = [ids[reads[0]], *packed[weight], -1, -1, *(ids[t] for t in reads[2:3])]
            name, attributes = "matmul_nbits", {"weight_bits": bits, "block_size": packing.block}
        else:
            inputs = [ids[t] for t in reads]
            if node in found:
                name = "quantized_conv" if name == _CONV else "quantized_matmul"
        outputs = [ids[t] for t in graph.node_outputs(node).tolist()]
        label = graph.string(int(graph.node_name[node]))
        added = builder.add_node(
            name, graph.source_op_name(node), label, attributes, inputs, outputs, float(graph.repeat[node])
        )
        if node in stated:
            builder.state(added, stated[node])
    builder.add_notes(graph.core)
    core = builder.finish(*([ids[t] for t in each.tolist()] for each in (graph.graph_inputs, graph.graph_outputs)))
    single = frozenset(ids[t] for t in graph.single if t in ids)
    return replace(graph, core=core, frozen=frozenset(), single=single)


def _packed(
    builder: _core.GraphBuilder, graph: OpGraph, weight: int, k: int, bits: int, packing: Packing
) -> tuple[int, int]:
    """The blocks of a weight [n, k], 8 / ``bits`` values a byte, and their scales."""
    n = int(np.prod(graph.shape(weight))) // k
    blocks, name = -(-k // packing.block), _name(graph, weight)
    values = builder.add_tensor(name, "uint8", [n, blocks, packing.block * bits // 8], "weight")
    return values, builder.add_tensor(f"{name}.scales", packing.scale, [n * blocks], "weight")


def _name(graph: OpGraph, tensor: int) -> str:
    return str(graph.string(int(graph.tensor_name[tensor])))
