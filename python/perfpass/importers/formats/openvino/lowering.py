"""Layers to the canonical operators: attributes, orders of inputs, and weights as they are stored."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from perfpass.importers.draft import Draft
from perfpass.importers.formats.openvino import shapes
from perfpass.importers.formats.openvino.document import Layer
from perfpass.importers.formats.openvino.operators import KIND_OF
from perfpass.importers.formats.openvino.shapes import Known, Unresolved, flag, numbers
from perfpass.importers.formats.shapes import Shape, columns

_PACKED = ("int8", "uint8", "int4", "uint4", "float8", "float4")
_BITS = {"int8": 8, "uint8": 8, "float8": 8, "int4": 4, "uint4": 4, "float4": 4}
_WITH_AXIS = ("softmax", "log_softmax", "concat", "top_k", "one_hot", "cumulative")
_VIEWS = ("reshape", "identity")
# Kinds without an attribute of which there are most, so that none of the rules below is asked.
_AS_THEY_ARE = frozenset({"add", "mul", "sub", "div", "relu", "sigmoid", "tanh", "gelu", "reshape", "transpose"})


@dataclass(frozen=True)
class Compressed:
    """A weight of few bits on its way to floats: the constant, scale and zero point, and the shape it has by now."""

    weight: int
    shape: Shape
    scale: int = -1
    zero: int = -1


@dataclass(slots=True)
class Operand:
    """An input of a layer: the number of its tensor, what is known of it, and whether it is a compressed weight."""

    tensor: int
    known: Known
    compressed: Compressed | None = None


def decompression(layer: Layer, operands: list[Operand], draft: Draft, out: Known) -> Compressed | None:
    """The compressed weight that a Convert, Subtract, Multiply or Reshape of one is; else None."""
    if not operands:
        return None
    first = operands[0]
    if first.compressed is None:
        is_packed = (
            first.known.dtype in _PACKED and draft.is_constant(first.tensor) and math.prod(first.known.shape) > 1
        )
        if layer.kind != "Convert" or not is_packed or not out.dtype.startswith(("float", "bfloat")):
            return None
        draft.tensors[first.tensor].role = "weight"
        return Compressed(first.tensor, out.shape)
    found = replace(first.compressed, shape=out.shape)
    if layer.kind in ("Convert", "Reshape"):
        return found
    if len(operands) != 2:
        return None
    other = operands[1]
    constant = other.tensor if other.compressed is None else other.compressed.weight
    if not draft.is_constant(constant):
        return None
    if layer.kind == "Subtract" and found.zero < 0 and found.scale < 0:
        return replace(found, zero=constant)
    if layer.kind == "Multiply" and found.scale < 0:
        return replace(found, scale=constant)
    return None


class Lowering:
    """Adds layers to a draft, one after another; ``repeat``: executions a run."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._decompressed: dict[Compressed, int] = {}
        self._quantized: set[int] = set()  # activations of a model that computes in whole numbers

    def plain(self, operand: Operand, repeat: float = 1.0) -> int:
        """The tensor of an operand; a compressed weight is dequantised first, once."""
        packed = operand.compressed
        if packed is None:
            return operand.tensor
        if packed not in self._decompressed:
            made = self.draft.tensor(operand.known.dtype, packed.shape)
            name = self.draft.tensors[packed.weight].name
            self.draft.node("dequantize", "Multiply", name, {}, self._parts(packed), [made], repeat)
            self._decompressed[packed] = made
        return self._decompressed[packed]

    @staticmethod
    def _parts(packed: Compressed) -> list[int]:
        return [packed.weight, packed.scale, *([packed.zero] if packed.zero >= 0 else [])]

    def add(self, layer: Layer, name: str, operands: list[Operand], outputs: list[Known], repeat: float) -> list[int]:
        """The tensors that the layer writes."""
        kind = KIND_OF.get(layer.kind, "unknown")
        made = [
            self.draft.tensor(k.dtype, k.shape, "activation", port.names[0] if port.names else "")
            for k, port in zip(outputs, layer.outputs, strict=True)
        ]
        attributes: dict[str, int] = {"view": 1} if kind in _VIEWS else {}
        packed = self._packed(layer, operands)
        if packed is not None:
            kind, tensors, more = packed
            attributes |= more
        else:
            tensors = [o.tensor if o.compressed is None else self.plain(o, repeat) for o in operands]
            if kind not in _AS_THEY_ARE:
                inputs = [o.known.shape for o in operands]
                kind, tensors = self._lowered(kind, layer, inputs, [k.shape for k in outputs], tensors, attributes)
        if kind == "quantize":
            self._quantized.update(made)
        self.draft.node(kind, layer.kind, name, attributes, tensors, made, repeat)
        return made

    def _packed(self, layer: Layer, operands: list[Operand]) -> tuple[str, list[int], dict[str, int]] | None:
        """A product or a look-up that reads a compressed weight as it is stored."""
        slot = {"MatMul": 1, "Gather": 0}.get(layer.kind, -1)
        if slot < 0 or slot >= len(operands) or (packed := operands[slot].compressed) is None or packed.scale < 0:
            return None
        if any(o.compressed is not None or o.tensor in self._quantized for i, o in enumerate(operands) if i != slot):
            return None
        stored = self.draft.tensors[packed.weight]
        attributes = {"weight_bits": _BITS[stored.dtype]}
        if layer.kind == "Gather":
            return "gather", [packed.weight, *(o.tensor for o in operands[1:]), *self._parts(packed)[1:]], attributes
        if len(packed.shape) != 2:
            return None
        attributes |= {"transpose_b": 1, "block_size": stored.shape[-1]}
        return "matmul_nbits", [operands[0].tensor, *self._parts(packed)], attributes

    def _lowered(
        self, kind: str, layer: Layer, ins: list[Shape], outs: list[Shape], tensors: list[int], found: dict[str, int]
    ) -> tuple[str, list[int]]:
        """Kind and inputs as other readers show them; attributes go into ``found``."""
        data = layer.data
        if kind in ("conv", "conv_transpose", "deform_conv"):
            self._convolution(layer, ins, tensors, found)
        elif kind in ("max_pool", "avg_pool"):
            return self._pool(kind, layer, ins[0], outs[0], found), tensors[:1]
        elif kind == "matmul":
            found |= {f"transpose_{side}": int(flag(data, f"transpose_{side}")) for side in "ab"}
            weight = tensors[1] if len(tensors) > 1 else -1
            if self.draft.is_constant(weight) and len(ins[1]) == 2:
                kind = "dense"
        elif kind == "reduce_mean" and len(ins[0]) in (4, 5) and outs[0] == (*ins[0][:2], *(1,) * (len(ins[0]) - 2)):
            kind, tensors = "global_avg_pool", tensors[:1]
            found |= {"spatial_rank": len(ins[0]) - 2, **columns(kernel=ins[0][2:])}
        elif kind == "layer_norm":
            tensors, found["axis"] = tensors[:1], len(ins[0]) - 1
        elif kind == "batch_norm" and layer.opset == "opset1":
            tensors = [tensors[2], *tensors[:2], *tensors[3:]]
        elif kind == "group_norm":
            found["groups"] = _first(data, "num_groups", 1)
        elif kind in _WITH_AXIS:
            rank = len(outs[0] if kind == "one_hot" else ins[0])
            found["axis"] = _first(data, "axis", -1) % max(rank, 1)
        elif kind == "split" and outs and len(outs[0]) == len(ins[0]):
            found["axis"] = next((i for i, (a, b) in enumerate(zip(ins[0], outs[0], strict=True)) if a != b), 0)
        elif kind == "resize":
            found["spatial_rank"] = max(len(ins[0]) - 2, 0)
        elif kind == "attention":
            heads = [shape[-3] if len(shape) > 3 else 1 for shape in ins[:2]]
            found |= {"causal": int(flag(data, "causal")), "num_heads": heads[0], "num_kv_heads": heads[1]}
            tensors = tensors[:4]
        elif kind in ("lstm", "gru", "rnn"):
            tensors = _as_onnx(layer.kind, tensors)
            found["hidden_size"] = _first(data, "hidden_size", 0)
            found["directions"] = 2 if data.get("direction") == "bidirectional" else 1
        elif kind == "einsum":
            try:
                found["contraction"] = _bounded(shapes.equation(layer, ins)[2])
            except (Unresolved, ValueError):
                kind = "unknown"
        elif kind == "roi_pool":
            height, width = (_first(data, n, 1) for n in ("pooled_h", "pooled_w"))
            found |= {"spatial_rank": 2, "kernel_0": height, "kernel_1": width}
        return kind, tensors

    def _convolution(self, layer: Layer, ins: list[Shape], tensors: list[int], found: dict[str, int]) -> None:
        deformable = layer.kind == "DeformableConvolution"
        weight_at = 2 if deformable else 1
        weight, grouped = ins[weight_at], layer.kind.startswith("Group")
        transposed = "Backprop" in layer.kind
        groups = weight[0] if grouped else _first(layer.data, "group", 1)
        kernel = weight[3:] if grouped else weight[2:]
        extents = ins[0][2:]
        try:
            stride, begin, end, dilation, _ = shapes.window(layer, extents, kernel)[0]
        except Unresolved:
            rank = len(kernel)
            stride, begin, end, dilation = [1] * rank, [0] * rank, [0] * rank, [1] * rank
        if grouped:
            # [groups, outputs, inputs / groups, ...] as others store it: groups and what varies with them in one axis.
            tensor = self.draft.tensors[tensors[1]]
            if self.draft.is_constant(tensors[1]) and tensor.shape == weight:
                tensor.shape = (weight[0] * weight[1], *weight[2:])
        found |= {"spatial_rank": len(kernel), "groups": groups, "weight_layout": 2 if transposed else 0}
        found |= columns(kernel=kernel, stride=stride, dilation=dilation, pad_begin=begin, pad_end=end)
        if deformable:
            tensors[1], tensors[2] = tensors[2], tensors[1]
        elif transposed:
            del tensors[2:]

    def _pool(self, kind: str, layer: Layer, x: Shape, out: Shape, found: dict[str, int]) -> str:
        extents, results = x[2:], out[2:]
        found["spatial_rank"] = len(extents)
        if layer.kind.startswith("Adaptive"):
            if all(size == 1 for size in results):
                found |= columns(kernel=extents)
                return f"global_{kind}"
            sizes = list(zip(extents, results, strict=True))
            found |= columns(
                kernel=[-(-a // max(b, 1)) for a, b in sizes], stride=[max(a // max(b, 1), 1) for a, b in sizes]
            )
            return kind
        try:
            stride, begin, end, dilation, kernel = shapes.window(layer, extents, tuple(numbers(layer.data, "kernel")))[
                0
            ]
        except Unresolved:
            return kind
        found |= columns(kernel=kernel, stride=stride, dilation=dilation, pad_begin=begin, pad_end=end)
        return kind


def _bounded(value: int) -> int:
    return max(-(2**31), min(2**31 - 1, value))


def _first(data: dict[str, str], name: str, default: int) -> int:
    try:
        return _bounded((numbers(data, name) or [default])[0])
    except Unresolved:
        return default


def _as_onnx(kind: str, tensors: list[int]) -> list[int]:
    """Data, weights, recurrent weights, biases, then states and lengths, as ONNX orders them."""
    states = 2 if kind.startswith("LSTM") else 1
    lengths = 1 if kind.endswith("Sequence") else 0
    first = 1 + states + lengths
    return [tensors[0], *tensors[first : first + 3], *tensors[1:first], *tensors[first + 3 :]]
