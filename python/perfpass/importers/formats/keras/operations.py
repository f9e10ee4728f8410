"""Keras's operations (keras.ops) in a functional model: tensors come as arguments, the rest stands in the config."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from perfpass import _core
from perfpass.errors import FormatError, ShapeError, UnsupportedError
from perfpass.importers.formats.channels_last import AXIS, FREE, ROWS, Tensor
from perfpass.importers.formats.keras.images import adaptive, pooled
from perfpass.importers.formats.keras.layer import ACTIVATIONS, Layer, tensors_in
from perfpass.importers.formats.keras.layers import filled, joined
from perfpass.importers.formats.shapes import broadcast, tiled
from perfpass.importers.formats.spatial import contraction, convolution, reduced
from perfpass.text import shown_value

Compute = Callable[..., Any]
_MOST_PARTS = 10_000

_ELEMENTWISE = {
    "add": "Add",
    "sub": "Subtract",
    "mul": "Multiply Square",
    "div": "Divide TrueDivide DivideNoNan FloorDivide",
    "pow": "Power",
    "mod": "Mod Fmod",
    "minimum": "Minimum Fmin",
    "maximum": "Maximum Fmax",
    "compare": "Equal NotEqual Greater GreaterEqual Less LessEqual Isclose",
    "logical": "LogicalAnd LogicalOr LogicalXor LogicalNot",
    "bitwise": "BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitwiseInvert BitwiseLeftShift BitwiseRightShift LeftShift "
    "RightShift",
    "abs": "Absolute Abs Fabs",
    "neg": "Negative",
    "exp": "Exp Exp2 Expm1",
    "log": "Log Log10 Log1p Log2 Logaddexp Logaddexp2",
    "sqrt": "Sqrt Cbrt",
    "rsqrt": "Rsqrt",
    "reciprocal": "Reciprocal",
    "erf": "Erf Erfc Erfinv",
    "trigonometric": "Sin Cos Tan Arcsin Arccos Arctan Arctan2 Sinh Cosh Arcsinh Arccosh Arctanh Sinc Deg2rad Rad2deg",
    "tanh": "Tanh",
    "round": "Round Floor Ceil Trunc",
    "sign": "Sign Signbit Heaviside",
    "is_special": "Isnan Isinf Isfinite Isneginf Isposinf",
    "clip": "Clip NanToNum",
}
_BOOLEAN = frozenset({"compare", "logical", "is_special"})
_ACTIVATIONS = {
    "Relu": "relu",
    "Relu6": "relu6",
    "Sigmoid": "sigmoid",
    "SparseSigmoid": "sparse_sigmoid",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "SoftShrink": "soft_shrink",
    "SparsePlus": "sparse_plus",
    "Silu": "silu",
    "Squareplus": "squareplus",
    "LogSigmoid": "log_sigmoid",
    "LeakyRelu": "leaky_relu",
    "HardSigmoid": "hard_sigmoid",
    "HardSilu": "hard_silu",
    "Elu": "elu",
    "Selu": "selu",
    "Gelu": "gelu",
    "Celu": "celu",
    "TanhShrink": "tanh_shrink",
    "HardTanh": "hard_tanh",
    "HardShrink": "hard_shrink",
    "Threshold": "threshold",
}
_REDUCTIONS = {
    "reduce_sum": "Sum Nansum CountNonzero",
    "reduce_mean": "Mean Nanmean",
    "reduce_max": "Max Amax Nanmax",
    "reduce_min": "Min Amin Nanmin",
    "reduce_prod": "Prod Nanprod",
    "reduce_variance": "Var Std Nanvar Nanstd",
    "reduce_any": "Any All",
    "reduce_log_sum_exp": "Logsumexp",
    "reduce_norm": "Norm",
    "arg_reduce": "Argmax Argmin Nanargmax Nanargmin",
}


def _operand(layer: Layer, value: Any, like: str) -> Tensor:
    """A tensor, or a number as a constant of the type ``like``."""
    if isinstance(value, Tensor):
        return value
    shape: list[int] = []
    while isinstance(value, list) and len(shape) < 16:
        shape.append(len(value))
        value = value[0] if value else None
    return layer.program.tensor(shape, like, "literal")


def elementwise(kind: str) -> Compute:
    """An operation of one tensor or two with broadcasting."""

    def compute(layer: Layer, *args: Any, **kwargs: Any) -> Tensor:
        values = [
            v for v in [*args, *kwargs.values()] if isinstance(v, Tensor | int | float) and not isinstance(v, bool)
        ]
        given = tensors_in(values)
        if not given:
            raise FormatError(f"operation {shown_value(layer.name)} has no tensor among its arguments")
        operands = [_operand(layer, v, given[0].dtype) for v in values[:2]]
        dtype = "bool" if kind in _BOOLEAN else None
        return layer.program.each(kind, layer.class_name, *operands, dtype=dtype)

    return compute


def activated(kind: str) -> Compute:
    """An activation function."""
    return lambda layer, x, *_, **__: layer.program.each(kind, layer.class_name, x)


def _axes(layer: Layer, rank: int, key: str = "axis") -> list[int]:
    return list(range(rank)) if layer.settings.config.get(key) is None else layer.settings.axes(key, rank)


def reduction(kind: str) -> Compute:
    """A reduction over ``axis``, or over all axes."""

    def compute(layer: Layer, x: Tensor, *_: Any, **__: Any) -> Tensor:
        dtype = {"reduce_any": "bool", "arg_reduce": "int32"}.get(kind)
        axes = _axes(layer, len(x.shape))
        return reduced(layer.program, kind, layer.class_name, x, axes, layer.settings.flag("keepdims"), dtype)

    return compute


def along(kind: str, dtype: str | None = None) -> Compute:
    """An operation along an axis that keeps the shape."""

    def compute(layer: Layer, x: Tensor, *_: Any, **__: Any) -> Tensor:
        axis = _axes(layer, len(x.shape))[-1] if x.shape else 0
        return layer.program.one(kind, layer.class_name, [x], x.shape, dtype, AXIS, axis=axis)

    return compute


def same(layer: Layer, x: Any, *_: Any, **__: Any) -> Any:
    """Nothing is computed."""
    return x


def cast(layer: Layer, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """keras.ops.cast."""
    dtype = layer.settings.text("dtype", "float32", _core.DTYPES)
    return x if dtype == x.dtype else layer.program.each("cast", layer.class_name, x, dtype=dtype)


def reshape(layer: Layer, x: Tensor, newshape: Any = None, *_: Any, **__: Any) -> Tensor:
    """keras.ops.reshape; -1 is worked out."""
    shape = layer.settings.shape("newshape")
    return layer.program.reshape(x, filled(shape, x.shape), layer.class_name)


def transpose(layer: Layer, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """keras.ops.transpose, swapaxes and moveaxis."""
    rank = len(x.shape)
    order = list(range(rank))
    if layer.class_name == "Swapaxes":
        first, second = layer.settings.axes("axis1", rank)[0], layer.settings.axes("axis2", rank)[0]
        order[first], order[second] = second, first
    elif layer.class_name == "Moveaxis":
        source, target = layer.settings.axes("source", rank), layer.settings.axes("destination", rank)
        order = [a for a in order if a not in source]
        for to, a in sorted(zip(target, source, strict=True)):
            order.insert(to, a)
    else:
        order = order[::-1] if layer.settings.config.get("axes") is None else layer.settings.axes("axes", rank)
    return layer.program.transpose(x, order, layer.class_name)


def expand_dims(layer: Layer, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """keras.ops.expand_dims."""
    shape = list(x.shape)
    count = len(layer.settings.shape("axis"))
    for axis in sorted(layer.settings.axes("axis", len(shape) + count)):
        shape.insert(axis, 1)
    return layer.program.reshape(x, shape, layer.class_name)


def squeeze(layer: Layer, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """keras.ops.squeeze."""
    axes = [a for a in _axes(layer, len(x.shape)) if x.shape[a] == 1]
    return layer.program.reshape(x, [s for a, s in enumerate(x.shape) if a not in axes], layer.class_name)


def concatenate(layer: Layer, x: Sequence[Tensor], *_: Any, **__: Any) -> Tensor:
    """keras.ops.concatenate, hstack and vstack."""
    rank = len(x[0].shape)
    axis = {"Hstack": 0 if rank == 1 else 1, "Vstack": 0}.get(layer.class_name)
    return joined(layer, list(x), layer.settings.axes("axis", rank)[0] if axis is None else axis)


def stack(layer: Layer, x: Sequence[Tensor], *_: Any, **__: Any) -> Tensor:
    """keras.ops.stack."""
    axis = layer.settings.axes("axis", len(x[0].shape) + 1, 0)[0]
    shape = [*x[0].shape[:axis], len(x), *x[0].shape[axis:]]
    return layer.program.one("concat", layer.class_name, list(x), shape, layout=ROWS, axis=axis)


def split(layer: Layer, x: Tensor, *_: Any, **__: Any) -> list[Tensor]:
    """keras.ops.split and unstack."""
    axis = layer.settings.axes("axis", len(x.shape), 0)[0]
    size, shapes = x.shape[axis], []
    unstacked = layer.class_name == "Unstack"
    sections = layer.settings.config.get("indices_or_sections")
    count = size if unstacked else sections if isinstance(sections, int) else 1
    if count > _MOST_PARTS:
        raise ShapeError(f"operation {layer.name} splits a tensor in {count} parts; at most {_MOST_PARTS} are read")
    if unstacked:
        shapes = [[*x.shape[:axis], *x.shape[axis + 1 :]]] * size
    else:
        parts = layer.settings.shape("indices_or_sections")
        cut = [size * i // parts[0] for i in range(1, parts[0] + 1)] if isinstance(sections, int) else [*parts, size]
        for begin, end in zip([0, *cut], cut, strict=False):
            shapes.append([*x.shape[:axis], max(end - begin, 0), *x.shape[axis + 1 :]])
    return layer.program.add("split", layer.class_name, [x], shapes, x.dtype, AXIS, axis=axis)


def get_item(layer: Layer, x: Tensor, key: Any = None, *_: Any, **__: Any) -> Tensor:
    """x[...] by numbers, slices, None and one ellipsis (a serialized key)."""
    keys = list(key) if isinstance(key, list | tuple) else [key]
    used = sum(k is not None and k is not Ellipsis for k in keys)
    if Ellipsis in keys:
        at = keys.index(Ellipsis)
        keys[at : at + 1] = [slice(None)] * (len(x.shape) - used)
    shape: list[int] = []
    axis = 0
    for k in keys:
        if k is None:
            shape.append(1)
            continue
        if axis >= len(x.shape):
            raise ShapeError(f"operation {layer.name} takes {len(keys)} indices of {x.shape}")
        if isinstance(k, slice):
            shape.append(len(range(*k.indices(x.shape[axis]))))
        elif not isinstance(k, int):
            raise UnsupportedError(
                f"operation {layer.name} takes elements by a tensor; export the model (model.export)"
            )
        axis += 1
    shape += x.shape[axis:]
    if shape == list(x.shape):
        return x
    if math.prod(shape) == math.prod(x.shape):
        return layer.program.reshape(x, shape, layer.class_name)
    return layer.program.one("slice", layer.class_name, [x], shape, layout=AXIS if len(shape) == len(x.shape) else ROWS)


def tile(layer: Layer, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """keras.ops.tile."""
    shape = tiled(x.shape, layer.settings.shape("repeats"))
    return layer.program.one("tile", layer.class_name, [x], shape)


def repeat(layer: Layer, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """keras.ops.repeat by one number."""
    axis, times = layer.settings.axes("axis", len(x.shape))[0], layer.settings.integer("repeats")
    shape = list(x.shape)
    shape[axis] *= times
    return layer.program.one("tile", layer.class_name, [x], shape, layout=AXIS, axis=axis)


def broadcast_to(layer: Layer, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """keras.ops.broadcast_to; an open size is the operand's."""
    shape = layer.settings.shape("shape")
    sizes = [(1,) * (len(shape) - len(x.shape)) + x.shape][0]
    return layer.program.one(
        "expand", layer.class_name, [x], [s if w == -1 else w for s, w in zip(sizes, shape, strict=True)]
    )


def pad(layer: Layer, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """keras.ops.pad."""
    pads = layer.settings.pairs("pad_width", len(x.shape))
    shape = [before + s + after for s, (before, after) in zip(x.shape, pads, strict=True)]
    return layer.program.one("pad", layer.class_name, [x], shape, layout=AXIS)


def where(layer: Layer, *args: Any, **kwargs: Any) -> Tensor:
    """keras.ops.where of three operands."""
    given = [*args, *kwargs.values()]
    data = [t for t in given[1:] if isinstance(t, Tensor)] or tensors_in(given)
    operands = [_operand(layer, v, data[0].dtype) for v in given[:3]]
    return layer.program.each("where", layer.class_name, *operands, dtype=data[0].dtype)


def take(layer: Layer, x: Tensor, indices: Any = None, *_: Any, **__: Any) -> Tensor:
    """keras.ops.take and take_along_axis."""
    ids = _operand(layer, indices, "int32")
    if layer.class_name == "TakeAlongAxis":
        return layer.program.one("gather", layer.class_name, [x, ids], ids.shape, x.dtype)
    if layer.settings.config.get("axis") is None:
        return layer.program.one("gather", layer.class_name, [x, ids], ids.shape, x.dtype)
    axis = layer.settings.axes("axis", len(x.shape))[0]
    shape = [*x.shape[:axis], *ids.shape, *x.shape[axis + 1 :]]
    return layer.program.one("gather", layer.class_name, [x, ids], shape, x.dtype, axis=axis)


def matmul(layer: Layer, a: Tensor, b: Tensor, *_: Any, **__: Any) -> Tensor:
    """keras.ops.matmul and dot."""
    if min(len(a.shape), len(b.shape)) < 2 or a.shape[-1] != b.shape[-2]:
        if len(b.shape) == 1 and a.shape and a.shape[-1] == b.shape[0]:
            return layer.program.one("matmul", layer.class_name, [a, b], a.shape[:-1])
        raise ShapeError(f"operation {layer.name} is a product of {a.shape} by {b.shape}, which do not go together")
    batch = broadcast([a.shape[:-2], b.shape[:-2]], layer.class_name)
    kind = "dense" if b.constant and len(b.shape) == 2 else "matmul"
    return layer.program.one(kind, layer.class_name, [a, b], (*batch, a.shape[-2], b.shape[-1]))


def einsum(layer: Layer, *operands: Any, **_: Any) -> Tensor:
    """keras.ops.einsum of two operands."""
    if len(operands) != 2:
        raise UnsupportedError(f"operation {layer.name} is an einsum of {len(operands)} operands; two are read")
    return contraction(layer.program, layer.class_name, layer.settings.text("subscripts", ""), *operands)


def dot_product_attention(layer: Layer, *args: Any, **kwargs: Any) -> Tensor:
    """keras.ops.dot_product_attention over [N, length, heads, width]."""
    p = layer.program
    q, k, v = (p.transpose(t, [0, 2, 1, 3], view=1) for t in tensors_in([*args, *kwargs.values()])[:3])
    shape = (*q.shape[:-1], v.shape[-1])
    heads = {"num_heads": q.shape[1], "num_kv_heads": k.shape[1], "causal": int(layer.settings.flag("is_causal"))}
    found = p.one("attention", layer.class_name, [q, k, v], shape, q.dtype, columns=heads)
    return p.transpose(found, [0, 2, 1, 3], view=1)


def normalized(kind: str) -> Compute:
    """A norm whose statistics or factors are arguments."""

    def compute(layer: Layer, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        others = tensors_in([*args, *kwargs.values()])
        axis = layer.settings.axes("axis", len(x.shape))[-1]
        return layer.program.one(kind, layer.class_name, [x, *others], x.shape, x.dtype, axis=axis)

    return compute


def convolved(depthwise: bool) -> Compute:
    """keras.ops.conv and depthwise_conv by a kernel that is an argument."""

    def compute(layer: Layer, x: Tensor, kernel: Tensor, *_: Any, **__: Any) -> Tensor:
        rank, settings = len(x.shape) - 2, layer.settings
        return convolution(
            layer.program,
            layer.class_name,
            x,
            kernel,
            None,
            strides=settings.integers("strides", rank, 1),
            dilations=settings.integers("dilation_rate", rank, 1),
            padding=settings.text("padding", "valid", ("valid", "same")),
            depthwise=depthwise,
            last=settings.last,
        )

    return compute


def one_hot(layer: Layer, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """keras.ops.one_hot."""
    axis = layer.settings.axes("axis", len(x.shape) + 1)[0]
    shape = [*x.shape[:axis], layer.settings.integer("num_classes"), *x.shape[axis:]]
    dtype = layer.settings.text("dtype", "float32", _core.DTYPES)
    return layer.program.one("one_hot", layer.class_name, [x], shape, dtype)


def top_k(layer: Layer, x: Tensor, *_: Any, **__: Any) -> list[Tensor]:
    """keras.ops.top_k."""
    shape = (*x.shape[:-1], layer.settings.integer("k"))
    values = layer.program.one("top_k", layer.class_name, [x], shape, axis=len(shape) - 1)
    indices = layer.program.tensor(shape, "int32")
    layer.program.nodes[-1].outputs.append(indices)
    return [values, indices]


def resize(layer: Layer, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """keras.ops.image.resize."""
    height, width = layer.settings.integers("size", 2)
    last = layer.settings.last
    shape = (*x.shape[:-3], height, width, x.shape[-1]) if last else (*x.shape[:-2], height, width)
    how = layer.settings.text("interpolation", "bilinear")
    layout = "image" if last and len(shape) == 4 else ROWS
    return layer.program.one("resize", f"resize.{how}", [x], shape, layout=layout, spatial_rank=2)


def filled_like(layer: Layer, x: Any, *_: Any, **__: Any) -> Tensor:
    """keras.ops.ones_like, zeros_like and full_like."""
    return layer.program.one("fill", layer.class_name, [], x.shape, x.dtype, FREE)


OPERATIONS: dict[str, Compute] = {
    **{name: elementwise(kind) for kind, names in _ELEMENTWISE.items() for name in names.split()},
    **{name: activated(ACTIVATIONS[kind]) for name, kind in _ACTIVATIONS.items()},
    **{name: reduction(kind) for kind, names in _REDUCTIONS.items() for name in names.split()},
    "Softmax": along("softmax"),
    "LogSoftmax": along("log_softmax"),
    "Sparsemax": along("softmax"),
    "Cumsum": along("cumulative"),
    "Cumprod": along("cumulative"),
    "Sort": along("sort"),
    "Argsort": along("sort", "int32"),
    "Roll": along("roll"),
    "Flip": along("reverse"),
    "Normalize": along("l2_norm"),
    "Tril": along("triangular"),
    "Triu": along("triangular"),
    "Copy": same,
    "StopGradient": same,
    "ConvertToTensor": same,
    "Cast": cast,
    "SaturateCast": cast,
    "Reshape": reshape,
    "Transpose": transpose,
    "Swapaxes": transpose,
    "Moveaxis": transpose,
    "ExpandDims": expand_dims,
    "Squeeze": squeeze,
    "Concatenate": concatenate,
    "Hstack": concatenate,
    "Vstack": concatenate,
    "Stack": stack,
    "Split": split,
    "Unstack": split,
    "GetItem": get_item,
    "Tile": tile,
    "Repeat": repeat,
    "BroadcastTo": broadcast_to,
    "Pad": pad,
    "Where": where,
    "Take": take,
    "TakeAlongAxis": take,
    "Matmul": matmul,
    "Einsum": einsum,
    "DotProductAttention": dot_product_attention,
    "LayerNorm": normalized("layer_norm"),
    "RMSNorm": normalized("rms_norm"),
    "BatchNorm": normalized("batch_norm"),
    "MaxPool": pooled("max_pool"),
    "AveragePool": pooled("avg_pool"),
    "AdaptiveMaxPool": adaptive("max_pool"),
    "AdaptiveAveragePool": adaptive("avg_pool"),
    "Conv": convolved(False),
    "DepthwiseConv": convolved(True),
    "OneHot": one_hot,
    "TopK": top_k,
    "Resize": resize,
    "OnesLike": filled_like,
    "ZerosLike": filled_like,
    "FullLike": filled_like,
}
