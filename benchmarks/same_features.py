"""The schema `operator` from `onnx.load` in plain Python: the same numbers as perfpass, written as one would by hand.

It knows the operators of the models that featurize.py measures, and names any other. Its formulas are those of
docs/internals/costs.md and docs/reference/schemas.md.
Sums are taken once per graph and shapes are looked up once per tensor: it is plain,
not slow on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log1p, prod
from pathlib import Path

import numpy as np
import onnx

from perfpass.graph import OPERATOR_CLASS_OF, OPERATOR_CLASSES, OPERATORS

# ONNX operator: (canonical operator, FLOPs per element of the output, per element of the first input)
_KNOWN: dict[str, tuple[str, int, int]] = {
    "Abs": ("abs", 1, 0),
    "Add": ("add", 1, 0),
    "And": ("logical", 1, 0),
    "Cast": ("cast", 0, 0),
    "Ceil": ("round", 1, 0),
    "Clip": ("clip", 2, 0),
    "Concat": ("concat", 0, 0),
    "ConstantOfShape": ("fill", 0, 0),
    "Div": ("div", 1, 0),
    "Equal": ("compare", 1, 0),
    "Erf": ("erf", 1, 0),
    "Expand": ("expand", 0, 0),
    "Gather": ("gather", 0, 0),
    "GatherElements": ("gather", 0, 0),
    "Greater": ("compare", 1, 0),
    "Identity": ("identity", 0, 0),
    "Less": ("compare", 1, 0),
    "LessOrEqual": ("compare", 1, 0),
    "Log": ("log", 1, 0),
    "MatMul": ("matmul", 0, 0),
    "Mul": ("mul", 1, 0),
    "Neg": ("neg", 1, 0),
    "Not": ("logical", 1, 0),
    "Pow": ("pow", 1, 0),
    "Range": ("range", 0, 0),
    "Reciprocal": ("reciprocal", 1, 0),
    "ReduceMean": ("reduce_mean", 0, 1),
    "Reshape": ("reshape", 0, 0),
    "Shape": ("shape_of", 0, 0),
    "Sigmoid": ("sigmoid", 4, 0),
    "Sign": ("sign", 1, 0),
    "Slice": ("slice", 0, 0),
    "Softmax": ("softmax", 5, 0),
    "Sqrt": ("sqrt", 1, 0),
    "Squeeze": ("reshape", 0, 0),
    "Sub": ("sub", 1, 0),
    "Tile": ("tile", 0, 0),
    "Transpose": ("transpose", 0, 0),
    "Unsqueeze": ("reshape", 0, 0),
    "Where": ("where", 1, 0),
}
_VIEWS = frozenset(("identity", "reshape"))
_GENERATORS = frozenset(("fill", "range", "shape_of"))  # read at most a shape
_RETURNS_PART = frozenset(("gather", "slice"))  # read what they return, and their indices
_BITS = {
    onnx.TensorProto.FLOAT: 32,
    onnx.TensorProto.FLOAT16: 16,
    onnx.TensorProto.BFLOAT16: 16,
    onnx.TensorProto.DOUBLE: 64,
    onnx.TensorProto.INT32: 32,
    onnx.TensorProto.INT64: 64,
    onnx.TensorProto.BOOL: 8,
}
_FLOATING = frozenset(
    (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)
)
_CLASSES = len(OPERATOR_CLASSES)
_NUMBERS = {name: number for number, name in enumerate(OPERATORS)}


@dataclass
class _Tensor:
    dims: tuple[int, ...]
    bits: int
    floating: bool
    role: str
    known: bool = True  # the shape is given or could be inferred
    producer: int = -1
    elements: int = field(init=False)
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.elements = prod(self.dims)
        self.bytes = self.elements * self.bits // 8


@dataclass(frozen=True)
class SameFeatures:
    """As perfpass.features.Features: nodes [N, 71], edge_index [2, E], statics [48].

    `known` [N] is false for nodes with a shape that onnx.shape_inference leaves open.
    """

    nodes: np.ndarray
    edge_index: np.ndarray
    statics: np.ndarray
    known: np.ndarray


def onnx_same_features(path: Path, dims: dict[str, int], infer: bool) -> SameFeatures:
    """`onnx.load` without external data, `onnx.shape_inference` if asked, then plain Python."""
    model = onnx.load(path, load_external_data=False)
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]
    if infer:
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    return _features(model.graph)


def _tensors(graph: onnx.GraphProto) -> dict[str, _Tensor]:
    tensors: dict[str, _Tensor] = {}
    for values, role in ((graph.value_info, "activation"), (graph.output, "activation"), (graph.input, "input")):
        for value in values:
            kind = value.type.tensor_type
            shape = kind.shape.dim
            known = kind.HasField("shape") and all(dim.HasField("dim_value") for dim in shape)
            tensors[value.name] = _Tensor(
                tuple(dim.dim_value for dim in shape), _BITS[kind.elem_type], kind.elem_type in _FLOATING, role, known
            )
    for initializer in graph.initializer:
        floating = initializer.data_type in _FLOATING
        role = "weight" if floating and initializer.dims else "literal"
        tensors[initializer.name] = _Tensor(tuple(initializer.dims), _BITS[initializer.data_type], floating, role)
    for node in graph.node:
        if node.op_type == "Constant":
            value = next(attribute.t for attribute in node.attribute if attribute.name == "value")
            floating = value.data_type in _FLOATING
            role = "weight" if floating and any(dim != 1 for dim in value.dims) else "literal"
            tensors[node.output[0]] = _Tensor(tuple(value.dims), _BITS[value.data_type], floating, role)
    return tensors


def _shown_weights(nodes: list[onnx.NodeProto], tensors: dict[str, _Tensor]) -> list[dict[str, str]]:
    """[N] of every product the weights that it reads through views alone, by the name that it reads."""

    def behind(name: str) -> str:
        found = name
        while (maker := tensors[found].producer) >= 0:
            if _KNOWN.get(nodes[maker].op_type, ("",))[0] not in _VIEWS or not nodes[maker].input:
                return ""
            found = nodes[maker].input[0]
        return found if found != name and tensors[found].role == "weight" else ""

    products = [_KNOWN.get(node.op_type, ("",))[0] == "matmul" for node in nodes]
    return [
        {name: weight for name in node.input if name and (weight := behind(name))} if product else {}
        for node, product in zip(nodes, products, strict=True)
    ]


def _gemm(a: _Tensor, b: _Tensor, out: _Tensor, weight: _Tensor | None) -> tuple[int, int, int, int]:
    """Batch, m, n, k of a matrix product; ``weight``: what the second operand shows through views."""
    k = a.dims[-1] if a.dims else 0
    if len(b.dims) <= 2:
        n = 1 if len(b.dims) == 1 else out.dims[-1] if out.dims else 0
        return 1, out.elements // n if n else 0, n, k
    m, n = (1 if len(a.dims) < 2 else a.dims[-2]), b.dims[-1]
    if weight is not None and weight.elements == n * k:
        return 1, out.elements // n if n else 0, n, k
    return out.elements // (m * n) if m * n else 0, m, n, k


def _features(graph: onnx.GraphProto) -> SameFeatures:
    tensors = _tensors(graph)
    unknown = _Tensor((), 0, False, "activation", known=False)
    nodes = [node for node in graph.node if node.op_type != "Constant"]
    count = len(nodes)
    for index, node in enumerate(nodes):
        for name in node.output:
            tensors.setdefault(name, _Tensor((), 0, False, "activation", known=False)).producer = index
    edges: list[tuple[int, int]] = []
    in_degree, out_degree, depth = [0] * count, [0] * count, [0] * count
    rows: list[list[float]] = []
    known: list[bool] = []
    counted: set[str] = set()  # weights, at their first reader, or at the product that reads them through views
    shown = _shown_weights(nodes, tensors)
    owner: dict[str, int] = {}
    for index, weights_of in enumerate(shown):
        for weight in weights_of.values():
            owner.setdefault(weight, index)
    totals = [0] * 6
    class_counts, class_bytes = [0] * _CLASSES, [0] * _CLASSES
    for index, node in enumerate(nodes):
        if node.op_type not in _KNOWN:
            raise NotImplementedError(f"{node.op_type}: the plain featurization knows the operators of the benchmark")
        op, per_output, per_input = _KNOWN[node.op_type]
        number = _NUMBERS[op]
        operator_class = OPERATOR_CLASS_OF[number]
        inputs = [tensors[name] for name in node.input if name]
        outputs = [tensors[name] for name in node.output if name]
        first = tensors[node.input[0]] if node.input and node.input[0] else unknown
        out = tensors[node.output[0]]
        distinct = {name: tensors[name] for name in node.input if name}
        parameters = weight_bytes = activations = weights = from_input = 0
        for tensor in inputs:
            activations += tensor.role == "activation"
            weights += tensor.role == "weight"
            from_input |= tensor.role == "input"
        for name, tensor in distinct.items():
            if tensor.producer >= 0:
                edges.append((tensor.producer, index))
                in_degree[index] += 1
                out_degree[tensor.producer] += 1
                depth[index] = max(depth[index], depth[tensor.producer] + 1)
            held = shown[index].get(name, name)
            if tensors[held].role == "weight" and held not in counted and owner.get(held, index) == index:
                counted.add(held)
                parameters += tensors[held].elements
                weight_bytes += tensors[held].bytes
        macs = flops = read = written = 0
        second = shown[index].get(node.input[1]) if op == "matmul" else None
        gemm = _gemm(first, inputs[1], out, tensors[second] if second else None) if op == "matmul" else (0, 0, 0, 0)
        if op not in _VIEWS:
            macs = out.elements * gemm[3]
            flops = 2 * macs + per_output * out.elements + per_input * (first.elements if inputs else 0)
            if op in ("add", "mul") and len(inputs) > 2:
                flops = out.elements * (len(inputs) - 1)
            written = sum(tensor.bytes for tensor in outputs)
            if op in _RETURNS_PART:
                indices = {name: tensors[name] for name in node.input[1:] if name}
                read = sum(tensor.elements * first.bits // 8 for tensor in outputs)
                read += sum(tensor.bytes for tensor in indices.values())
            elif op not in _GENERATORS:
                read = sum(
                    min(tensor.bytes, tensors[shown[index].get(name, name)].bytes) for name, tensor in distinct.items()
                )
        costs = (macs, flops, read, written, parameters, weight_bytes)
        for i, cost in enumerate(costs):
            totals[i] += cost
        class_counts[operator_class] += 1
        class_bytes[operator_class] += read + written
        row = [0.0] * 71
        row[operator_class] = 1.0
        row[19] = number
        row[20:26] = [log1p(cost) for cost in costs]
        row[26] = log1p(round(16 * flops / (read + written))) if read + written else 0.0
        row[27:31] = [log1p(size) for size in gemm]
        row[31] = log1p(first.elements) if inputs else 0.0
        row[32] = log1p(out.elements)
        row[33], row[34] = len(first.dims), len(out.dims)
        for i, size in enumerate(out.dims[:5]):
            row[35 + i] = log1p(size)
        row[40], row[41] = out.bits / 32, out.floating
        row[61] = op in _VIEWS
        row[63] = log1p(1.0)  # runs once
        row[66], row[67] = activations, weights
        row[68] = index / count
        row[70] = from_input
        rows.append(row)
        known.append(all(tensor.known for tensor in (*inputs, *outputs)))
    deepest = max(depth)
    for index, row in enumerate(rows):
        row[64], row[65] = log1p(in_degree[index]), log1p(out_degree[index])
        row[69] = depth[index] / deepest if deepest else 0.0
    initializers = {initializer.name for initializer in graph.initializer}
    leading = next((value for value in graph.input if value.name not in initializers), None)
    batch = tensors[leading.name].dims[0] if leading is not None and tensors[leading.name].dims else 1
    all_bytes = sum(class_bytes)
    statics = [log1p(total) for total in (*totals, count, len(edges), deepest, batch)]
    statics += [log1p(number) for number in class_counts]
    statics += [moved / all_bytes if all_bytes else 0.0 for moved in class_bytes]
    return SameFeatures(
        np.array(rows, dtype=np.float32),
        np.array(edges, dtype=np.int32).T,
        np.array(statics, dtype=np.float32),
        np.array(known),
    )
