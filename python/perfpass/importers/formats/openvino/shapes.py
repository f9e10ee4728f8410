"""Sizes of outputs that a file leaves open, from those of the inputs and from what shape arithmetic computes.

Shapes after the opset pages of OpenVINO. Contents are followed for whole numbers of at most 4,096 elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from perfpass.errors import ShapeError
from perfpass.importers.formats.openvino.document import Layer
from perfpass.importers.formats.shapes import Shape, broadcast, einsum, places, same_padding, spread, tiled

MOST_VALUES = 4096
_WIDEST = 1 << 63
_FEW_LETTERS = 256  # of an attribute that is remembered


@dataclass(slots=True)
class Known:
    """A tensor: its type, sizes, and contents where they are followed; ``held``: themselves, or what reads them."""

    dtype: str
    shape: Shape
    held: np.ndarray | Callable[[], np.ndarray | None] | None = None

    @property
    def values(self) -> np.ndarray | None:
        """The contents. A constant's are read when a rule asks for them, and not kept."""
        return self.held() if callable(self.held) else self.held


class Unresolved(Exception):
    """A size that cannot be told from what is known."""


def numbers(data: dict[str, str], name: str, default: str = "") -> list[int]:
    """An attribute such as "1, 2": at most 4,096 numbers of 64 bits. Raises Unresolved for what is none."""
    text = data.get(name, default)
    found = _listed(text) if len(text) <= _FEW_LETTERS else _listed.__wrapped__(text)
    if found is None:
        raise Unresolved(f"attribute {name} is {text[:80]!r}")
    return [*found]


@lru_cache(maxsize=1024)  # a network has few attributes of numbers
def _listed(text: str) -> tuple[int, ...] | None:
    try:
        found = tuple(int(part) for part in text.split(",", MOST_VALUES) if part.strip())
    except ValueError:
        return None
    return None if any(abs(number) >= _WIDEST for number in found) else found


def flag(data: dict[str, str], name: str, default: bool = False) -> bool:
    return data.get(name, str(default)).strip().lower() in ("true", "1")


def shapes(layer: Layer, inputs: list[Known | None]) -> list[Shape]:
    """The shape of every output. Raises Unresolved, and ShapeError for inputs that do not go together."""
    found = [k for k in inputs if k is not None]
    if not found or len(found) != len(inputs):
        raise Unresolved("an input is missing")
    try:
        rule = _RULES.get(layer.kind)
        if rule is not None:
            return rule(layer, found)
        if layer.kind in _SAME:
            return [found[0].shape] * len(layer.outputs)
        if layer.kind in _BROADCAST:
            return [broadcast([k.shape for k in found], layer.label)]
    except (IndexError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise Unresolved(str(error)) from None
    raise Unresolved("no rule for it")


def window(layer: Layer, extents: Shape, kernel: Shape) -> tuple[list[list[int]], Shape]:
    """Strides, paddings before and behind, dilations, kernel; and the output's extents."""
    rank, data = len(extents), layer.data
    stride, dilation = (numbers(data, n) or [1] * rank for n in ("strides", "dilations"))
    begin, end = (numbers(data, n) or [0] * rank for n in ("pads_begin", "pads_end"))
    if not len(stride) == len(dilation) == len(begin) == len(end) == len(kernel) == rank:
        raise Unresolved("its window has another rank than its input")
    auto, out = data.get("auto_pad", "explicit").lower(), []
    up = data.get("rounding_type", "floor")
    for i, extent in enumerate(extents):
        step = max(stride[i], 1)
        if auto.startswith("same"):
            size = -(-extent // step)
            less, more = same_padding(extent, kernel[i], step, dilation[i])
            begin[i], end[i] = (less, more) if auto == "same_upper" else (more, less)
        else:
            if auto == "valid":
                begin[i] = end[i] = 0
            ceil = auto != "valid" and up.startswith("ceil")
            size = places(extent, kernel[i], step, dilation[i], begin[i], end[i], ceil)
            if ceil and up == "ceil_torch" and (size - 1) * step >= extent + begin[i]:
                size -= 1
        out.append(size)
    return [stride, begin, end, dilation, list(kernel)], tuple(out)


def contents(known: Known) -> np.ndarray:
    """What a tensor holds. Raises Unresolved where it is not known."""
    values = known.values
    if values is None:
        raise Unresolved("it depends on numbers that are not known")
    return values


def given(known: Known) -> list[int]:
    return [int(v) for v in contents(known).reshape(-1)]


def _axes(known: Known, rank: int) -> list[int]:
    return [a % rank for a in given(known)] if rank else []


def _convolution(layer: Layer, ins: list[Known]) -> list[Shape]:
    x, weight = ins[0].shape, ins[1].shape
    if layer.kind == "DeformableConvolution":
        weight = ins[2].shape
    grouped = layer.kind.startswith("Group")
    channels = weight[0] * weight[1] if grouped else weight[0]
    _, extents = window(layer, x[2:], weight[3:] if grouped else weight[2:])
    return [(x[0], channels, *extents)]


def _transposed(layer: Layer, ins: list[Known]) -> list[Shape]:
    x, weight = ins[0].shape, ins[1].shape
    grouped = layer.kind.startswith("Group")
    channels, kernel = (weight[0] * weight[2], weight[3:]) if grouped else (weight[1], weight[2:])
    rank = len(kernel)
    if len(ins) > 2:
        return [(x[0], channels, *given(ins[2]))]
    data = layer.data
    stride, dilation = (numbers(data, n) or [1] * rank for n in ("strides", "dilations"))
    begin, end, more = (numbers(data, n) or [0] * rank for n in ("pads_begin", "pads_end", "output_padding"))
    if data.get("auto_pad", "explicit").lower() != "explicit":
        begin = end = [0] * rank
    axes = zip(x[2:], kernel, stride, dilation, begin, end, more, strict=True)
    return [(x[0], channels, *(spread(*axis) for axis in axes))]


def _pool(layer: Layer, ins: list[Known]) -> list[Shape]:
    x = ins[0].shape
    _, extents = window(layer, x[2:], tuple(numbers(layer.data, "kernel")))
    return [(*x[:2], *extents)] * len(layer.outputs)


def _adaptive(layer: Layer, ins: list[Known]) -> list[Shape]:
    x = ins[0].shape
    return [(*x[:2], *given(ins[1]))] * len(layer.outputs)


def _product(layer: Layer, ins: list[Known]) -> list[Shape]:
    a, b = ins[0].shape, ins[1].shape
    one_a, one_b = len(a) == 1, len(b) == 1
    a, b = ((1, *a) if one_a else a), ((*b, 1) if one_b else b)
    if flag(layer.data, "transpose_a") and not one_a:
        a = (*a[:-2], a[-1], a[-2])
    if flag(layer.data, "transpose_b") and not one_b:
        b = (*b[:-2], b[-1], b[-2])
    if a[-1] != b[-2]:
        raise ShapeError(f"{layer.label} multiplies {a} by {b}; the inner sizes differ")
    rows, columns = (() if one_a else a[-2:-1]), (() if one_b else b[-1:])
    return [(*broadcast([a[:-2], b[:-2]], layer.label), *rows, *columns)]


def _concat(layer: Layer, ins: list[Known]) -> list[Shape]:
    shape = list(ins[0].shape)
    axis = numbers(layer.data, "axis")[0] % len(shape)
    shape[axis] = sum(k.shape[axis] for k in ins)
    return [tuple(shape)]


def split_shapes(layer: Layer, ins: list[Known]) -> list[Shape]:
    x = ins[0].shape
    axis = _axes(ins[1], len(x))[0]
    if layer.kind == "Split":
        parts = [x[axis] // len(layer.outputs)] * len(layer.outputs)
    else:
        parts = given(ins[2])
        rest = x[axis] - sum(p for p in parts if p >= 0)
        parts = [rest if p < 0 else p for p in parts]
    return [(*x[:axis], part, *x[axis + 1 :]) for part in parts]


def _reshape(layer: Layer, ins: list[Known]) -> list[Shape]:
    x, wanted = ins[0].shape, given(ins[1])
    if flag(layer.data, "special_zero"):
        wanted = [x[i] if size == 0 else size for i, size in enumerate(wanted)]
    rest = math.prod(size for size in wanted if size >= 0)
    return [tuple(math.prod(x) // max(rest, 1) if size < 0 else size for size in wanted)]


def _squeeze(layer: Layer, ins: list[Known]) -> list[Shape]:
    x = ins[0].shape
    axes = _axes(ins[1], len(x)) if len(ins) > 1 else [i for i, size in enumerate(x) if size == 1]
    return [tuple(size for i, size in enumerate(x) if i not in axes)]


def _unsqueeze(layer: Layer, ins: list[Known]) -> list[Shape]:
    shape, added = list(ins[0].shape), given(ins[1])
    rank = len(shape) + len(added)
    for axis in sorted(a % rank for a in added):
        shape.insert(axis, 1)
    return [tuple(shape)]


def _transpose(layer: Layer, ins: list[Known]) -> list[Shape]:
    x = ins[0].shape
    order = given(ins[1]) or list(reversed(range(len(x))))
    return [tuple(x[i] for i in order)]


def _gather(layer: Layer, ins: list[Known]) -> list[Shape]:
    x, indices = ins[0].shape, ins[1].shape
    axis = _axes(ins[2], len(x))[0]
    batch = numbers(layer.data, "batch_dims", "0")[0] % max(len(indices), 1) if indices else 0
    return [(*x[:axis], *indices[batch:], *x[axis + 1 :])]


def _gather_nd(layer: Layer, ins: list[Known]) -> list[Shape]:
    x, indices, batch = ins[0].shape, ins[1].shape, numbers(layer.data, "batch_dims", "0")[0]
    return [(*indices[:-1], *x[batch + indices[-1] :])]


def bounds(layer: Layer, ins: list[Known]) -> tuple[slice | int | None, ...]:
    """What Slice or StridedSlice takes, as NumPy writes it; None adds an axis."""
    rank = len(ins[0].shape)
    if layer.kind == "Slice":
        begin, end, step = (given(k) for k in ins[1:4])
        axes = _axes(ins[4], rank) if len(ins) > 4 else list(range(len(begin)))
        taken: list[slice | int | None] = [slice(None)] * rank
        for i, axis in enumerate(axes):
            stop = None if step[i] < 0 and end[i] <= -(2**31) else end[i]
            taken[axis] = slice(begin[i], stop, step[i])
        return tuple(taken)
    begin, end = given(ins[1]), given(ins[2])
    step = given(ins[3]) if len(ins) > 3 else [1] * len(begin)
    masks = {n: numbers(layer.data, f"{n}_mask") for n in ("begin", "end", "new_axis", "shrink_axis", "ellipsis")}

    def masked(name: str, i: int) -> bool:
        return i < len(masks[name]) and masks[name][i] == 1

    found: list[slice | int | None] = []
    for i in range(len(begin)):
        if masked("ellipsis", i):
            added = sum(masks["new_axis"])
            found += [slice(None)] * (rank - (len(begin) - 1 - added))
        elif masked("new_axis", i):
            found.append(None)
        elif masked("shrink_axis", i):
            found.append(begin[i])
        else:
            first = None if masked("begin", i) else begin[i]
            found.append(slice(first, None if masked("end", i) else end[i], step[i]))
    return tuple(found)


def _slice(layer: Layer, ins: list[Known]) -> list[Shape]:
    shape, out = list(ins[0].shape), []
    for taken in bounds(layer, ins):
        if taken is None:
            out.append(1)
            continue
        size = shape.pop(0)
        if isinstance(taken, slice):
            out.append(len(range(*taken.indices(size))))
    return [(*out, *shape)]


def _shape_of(layer: Layer, ins: list[Known]) -> list[Shape]:
    return [(len(ins[0].shape),)]


def _broadcast(layer: Layer, ins: list[Known]) -> list[Shape]:
    wanted = tuple(given(ins[1]))
    return [broadcast([ins[0].shape, wanted], layer.label) if layer.data.get("mode") == "bidirectional" else wanted]


def _tile(layer: Layer, ins: list[Known]) -> list[Shape]:
    return [tiled(ins[0].shape, given(ins[1]))]


def _range(layer: Layer, ins: list[Known]) -> list[Shape]:
    start, stop, step = (given(k)[0] for k in ins)
    return [(max(0, -(-(stop - start) // step)),)]


def _reduce(layer: Layer, ins: list[Known]) -> list[Shape]:
    x = ins[0].shape
    axes = _axes(ins[1], len(x))
    keep = flag(layer.data, "keep_dims")
    return [tuple(1 if i in axes else size for i, size in enumerate(x) if keep or i not in axes)]


def _pad(layer: Layer, ins: list[Known]) -> list[Shape]:
    begin, end = given(ins[1]), given(ins[2])
    return [tuple(size + b + e for size, b, e in zip(ins[0].shape, begin, end, strict=True))]


def _top_k(layer: Layer, ins: list[Known]) -> list[Shape]:
    shape = list(ins[0].shape)
    shape[numbers(layer.data, "axis")[0] % len(shape)] = given(ins[1])[0]
    return [tuple(shape)] * len(layer.outputs)


def _one_hot(layer: Layer, ins: list[Known]) -> list[Shape]:
    shape, axis = list(ins[0].shape), numbers(layer.data, "axis", "-1")[0]
    shape.insert(axis % (len(shape) + 1), given(ins[1])[0])
    return [tuple(shape)]


def _interpolate(layer: Layer, ins: list[Known]) -> list[Shape]:
    x, data = list(ins[0].shape), layer.data
    newest = layer.opset == "opset11"
    axes_slot = 2 if newest else 3
    axes = _axes(ins[axes_slot], len(x)) if len(ins) > axes_slot else list(range(len(x)))
    begin, end = (numbers(data, n) or [0] * len(x) for n in ("pads_begin", "pads_end"))
    padded = [size + b + e for size, b, e in zip(x, begin, end, strict=False)] if len(begin) == len(x) else x
    if data.get("shape_calculation_mode") == "sizes":
        for axis, size in zip(axes, given(ins[1]), strict=False):
            padded[axis] = size
    else:
        for axis, scale in zip(axes, contents(ins[1 if newest else 2]).reshape(-1), strict=False):
            padded[axis] = math.floor(padded[axis] * float(scale) + 1e-6)
    return [tuple(padded)]


def _attention(layer: Layer, ins: list[Known]) -> list[Shape]:
    return [(*ins[0].shape[:-1], ins[2].shape[-1])]


def _recurrent(layer: Layer, ins: list[Known]) -> list[Shape]:
    x, hidden = ins[0].shape, numbers(layer.data, "hidden_size")[0]
    if layer.kind.endswith("Cell"):
        return [(x[0], hidden)] * len(layer.outputs)
    directions = 2 if layer.data.get("direction") == "bidirectional" else 1
    state = (x[0], directions, hidden)
    return [(x[0], directions, x[1], hidden), *[state] * (len(layer.outputs) - 1)]


def _depth(layer: Layer, ins: list[Known]) -> list[Shape]:
    x, block = ins[0].shape, numbers(layer.data, "block_size", "1")[0]
    many = block ** (len(x) - 2)
    if layer.kind == "DepthToSpace":
        return [(x[0], x[1] // many, *(size * block for size in x[2:]))]
    return [(x[0], x[1] * many, *(size // block for size in x[2:]))]


def _scatter_like(layer: Layer, ins: list[Known]) -> list[Shape]:
    return [ins[0].shape] * len(layer.outputs)


def _gather_elements(layer: Layer, ins: list[Known]) -> list[Shape]:
    return [ins[1].shape]


def _grid(layer: Layer, ins: list[Known]) -> list[Shape]:
    return [(*ins[0].shape[:2], *ins[1].shape[1:3])]


def _roi(layer: Layer, ins: list[Known]) -> list[Shape]:
    height, width = (numbers(layer.data, n)[0] for n in ("pooled_h", "pooled_w"))
    return [(ins[1].shape[0], ins[0].shape[1], height, width)]


def _einsum(layer: Layer, ins: list[Known]) -> list[Shape]:
    sizes, kept, _ = equation(layer, [k.shape for k in ins])
    return [tuple(sizes[label] for label in kept)]


def equation(layer: Layer, operands: list[Shape]) -> tuple[dict[str, int], str, int]:
    """What `einsum` tells of a layer's equation. Raises Unresolved where it leaves labels out."""
    written = layer.data.get("equation", "")
    left, arrow, _ = written.partition("->")
    if not arrow or "." in left:
        raise Unresolved("an equation without labels of its result, or with an ellipsis")
    return einsum(written, operands)


def _random(layer: Layer, ins: list[Known]) -> list[Shape]:
    return [tuple(given(ins[0]))]


def _eye(layer: Layer, ins: list[Known]) -> list[Shape]:
    batch = given(ins[3]) if len(ins) > 3 else []
    return [(*batch, given(ins[0])[0], given(ins[1])[0])]


_RULES: dict[str, Callable[[Layer, list[Known]], list[Shape]]] = {
    **dict.fromkeys(("Convolution", "GroupConvolution", "BinaryConvolution", "DeformableConvolution"), _convolution),
    **dict.fromkeys(("ConvolutionBackpropData", "GroupConvolutionBackpropData"), _transposed),
    **dict.fromkeys(("MaxPool", "AvgPool"), _pool),
    **dict.fromkeys(("AdaptiveAvgPool", "AdaptiveMaxPool"), _adaptive),
    **dict.fromkeys(("Slice", "StridedSlice"), _slice),
    **dict.fromkeys(("Split", "VariadicSplit"), split_shapes),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _depth),
    **dict.fromkeys((f"{kind}{part}" for kind in ("LSTM", "GRU", "RNN") for part in ("Cell", "Sequence")), _recurrent),
    **dict.fromkeys(
        (f"Reduce{n}" for n in ("L1", "L2", "LogicalAnd", "LogicalOr", "Max", "Mean", "Min", "Prod", "Sum")), _reduce
    ),
    **dict.fromkeys(
        ("ScatterElementsUpdate", "ScatterNDUpdate", "ScatterUpdate", "SliceScatter", "FakeQuantize"), _scatter_like
    ),
    "MatMul": _product,
    "Concat": _concat,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "GatherElements": _gather_elements,
    "ShapeOf": _shape_of,
    "Broadcast": _broadcast,
    "Tile": _tile,
    "Range": _range,
    "Pad": _pad,
    "TopK": _top_k,
    "OneHot": _one_hot,
    "Interpolate": _interpolate,
    "ScaledDotProductAttention": _attention,
    "GridSample": _grid,
    "ROIAlign": _roi,
    "Einsum": _einsum,
    "RandomUniform": _random,
    "Eye": _eye,
}
_BROADCAST_KINDS = (
    "Add Subtract Multiply Divide Power Maximum Minimum Mod FloorMod SquaredDifference Equal NotEqual Greater "
    "GreaterEqual Less LessEqual LogicalAnd LogicalOr LogicalXor Xor BitwiseAnd BitwiseOr BitwiseXor "
    "BitwiseLeftShift BitwiseRightShift Select"
)
_BROADCAST = frozenset(_BROADCAST_KINDS.split())
_SAME_KINDS = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BatchNormInference BitwiseNot Ceiling Clamp Convert ConvertLike Cos "
    "Cosh CumSum Elu Erf ErfInv Exp FakeConvert Floor Gelu GRN GroupNormalization HSigmoid HSwish HardSigmoid "
    "Identity IsFinite IsInf IsNaN LRN Log LogSoftmax LogicalNot MVN Mish Negative NormalizeL2 PReLU PRelu ReLU "
    "Relu Reverse ReverseSequence Roll Round Selu ShuffleChannels Sigmoid Sign Sin Sinh SoftMax SoftPlus "
    "SoftSign Softmax Sqrt Swish Tan Tanh Assign ReadValue Inverse RegionYolo"
)
_SAME = frozenset(_SAME_KINDS.split())
