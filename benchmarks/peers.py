"""What people do today to get features of a model, written plainly: the peers of featurize.py.

Each does at most what perfpass does in the same measurement (operator, shapes, MACs, bytes, parameters, edges), so the
ratios lean in the peers' favour.
"""

from __future__ import annotations

import contextlib
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx
import numpy as np
import onnx

if TYPE_CHECKING:
    import tvm

_RANK = 6


@dataclass(frozen=True)
class Featurized:
    """Features of a graph as the peers give them: nodes [N, F], edges [2, E], multiply-accumulates in total."""

    nodes: np.ndarray
    edges: np.ndarray
    macs: int


def onnx_featurized(path: Path, dims: dict[str, int], infer: bool) -> Featurized:
    """`onnx.load`, `onnx.shape_inference` if asked, then one pass in Python over nodes and attributes."""
    model = onnx.load(path)
    if dims:
        for value in model.graph.input:
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param in dims:
                    dim.dim_value = dims[dim.dim_param]
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")
    if infer:
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    return _featurize(model.graph)


def _featurize(graph: onnx.GraphProto) -> Featurized:
    shapes: dict[str, tuple[int, ...]] = {}
    item_bytes: dict[str, int] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        shapes[value.name] = tuple(dim.dim_value for dim in tensor.shape.dim)
        item_bytes[value.name] = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).itemsize
    weights = set()
    for initializer in graph.initializer:
        shapes[initializer.name] = tuple(initializer.dims)
        item_bytes[initializer.name] = onnx.helper.tensor_dtype_to_np_dtype(initializer.data_type).itemsize
        weights.add(initializer.name)
    operators = {name: i for i, name in enumerate(sorted({node.op_type for node in graph.node}))}
    producer = {output: i for i, node in enumerate(graph.node) for output in node.output}
    rows = np.zeros((len(graph.node), len(operators) + 2 * _RANK + 4), dtype=np.float32)
    edges: list[tuple[int, int]] = []
    total = 0
    for i, node in enumerate(graph.node):
        attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        inputs = [name for name in node.input if name]
        outputs = [name for name in node.output if name]
        edges.extend((producer[name], i) for name in inputs if name in producer)
        macs = _macs(node.op_type, attributes, [shapes.get(name, ()) for name in inputs], shapes.get(outputs[0], ()))
        total += macs
        row = rows[i]
        row[operators[node.op_type]] = 1.0
        for start, name in ((len(operators), inputs[0] if inputs else ""), (len(operators) + _RANK, outputs[0])):
            shape = shapes.get(name, ())[:_RANK]
            row[start : start + len(shape)] = shape
        row[-4] = macs
        row[-3] = sum(math.prod(shapes.get(name, ())) * item_bytes.get(name, 4) for name in inputs)
        row[-2] = sum(math.prod(shapes.get(name, ())) * item_bytes.get(name, 4) for name in outputs)
        row[-1] = sum(math.prod(shapes[name]) for name in inputs if name in weights)
    return Featurized(rows, np.array(edges, dtype=np.int32).T, total)


def _macs(op: str, attributes: dict[str, Any], inputs: list[tuple[int, ...]], output: tuple[int, ...]) -> int:
    if op == "MatMul":
        return math.prod(output) * inputs[0][-1]
    if op == "Gemm":
        return math.prod(output) * inputs[0][0 if attributes.get("transA") else 1]
    if op == "Conv":
        return math.prod(output) * math.prod(inputs[1][1:])
    return 0


def onnx_tool_macs(path: Path, inputs: dict[str, np.ndarray]) -> int:
    """onnx-tool from PyPI: load, shape inference, profile. Returns its count of multiply-accumulates."""
    import onnx_tool

    with contextlib.redirect_stdout(io.StringIO()):
        model = onnx_tool.Model(str(path), {"verbose": False})
        model.graph.shape_infer(inputs)
        model.graph.profile()
    return int(model.graph.macs[0])


def relay_networkx(mod: tvm.IRModule) -> networkx.DiGraph:
    """Python's `post_order_visit`: a node per call with operator, output shape, attributes; edges follow the data."""
    import tvm
    from tvm import relay

    graph = networkx.DiGraph()
    index: dict[relay.Expr, int] = {}

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, (relay.Function, tvm.ir.Op)):
            return
        index[expr] = number = len(index)
        kind = expr.checked_type
        shape = tuple(int(dim) for dim in kind.shape)
        if not isinstance(expr, relay.Call):
            graph.add_node(number, operator=type(expr).__name__, shape=shape, dtype=kind.dtype)
            return
        attributes = {} if expr.attrs is None else {key: expr.attrs[key] for key in expr.attrs.keys()}  # noqa: SIM118
        graph.add_node(number, operator=expr.op.name, shape=shape, dtype=kind.dtype, attributes=attributes)
        graph.add_edges_from((index[argument], number) for argument in expr.args)

    relay.analysis.post_order_visit(mod["main"], visit)
    return graph
