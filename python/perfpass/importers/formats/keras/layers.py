"""Keras's layers without time: what each makes of its inputs (keras.layers, as documented in 3.15)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from perfpass.errors import FormatError, ShapeError, UnsupportedError
from perfpass.importers.formats.channels_last import AXIS, IMAGE, ROWS, Tensor
from perfpass.importers.formats.keras.layer import Layer, activation
from perfpass.importers.formats.spatial import (
    contraction,
)


def identity(layer: Layer, x: Any, *_: Any, **__: Any) -> Any:
    """What an inference leaves as it is: dropout, noise, random augmentation, masks."""
    return x


def activated(kind: str) -> Callable[..., Tensor]:
    """A layer that is an activation."""
    return lambda layer, x, **_: layer.program.each(kind, layer.class_name, x)


def activation_layer(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.Activation."""
    return activation(layer, x, layer.settings.config.get("activation"))


def relu(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.ReLU, which may be leaky or have an upper bound."""
    config = layer.settings.config
    kind = "leaky_relu" if config.get("negative_slope") else "clip" if config.get("max_value") is not None else "relu"
    return layer.program.each(kind, layer.class_name, x)


def prelu(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.PReLU: a slope an element, or one along ``shared_axes``."""
    shared = layer.settings.config.get("shared_axes") or []
    axes = layer.settings.axes("shared_axes", len(x.shape)) if shared else []
    alpha = layer.weight("alpha", [1 if a in axes else s for a, s in enumerate(x.shape)][1:])
    return layer.program.each("prelu", layer.class_name, x, alpha)


def softmax(layer: Layer, x: Tensor, mask: Any = None, **_: Any) -> Tensor:
    """keras.layers.Softmax."""
    axes = layer.settings.axes("axis", len(x.shape))
    return layer.program.one("softmax", layer.class_name, [x], x.shape, layout=AXIS, axis=axes[-1])


def dense(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.Dense over the last axis."""
    units = layer.settings.integer("units")
    product = _product(layer, "kernel", x, units)
    return layer.activate(product)


def _product(layer: Layer, key: str, x: Tensor, units: int) -> Tensor:
    """``x`` [..., I] by a kernel [I, units], with a bias; quantised as the layer's policy says."""
    program, length = layer.program, x.shape[-1]
    bias = layer.weight("bias", [units]) if layer.settings.flag("use_bias", True) else None
    out = (*x.shape[:-1], units)
    if layer.mode == "int8":
        kernel, scale = layer.weight(key, [length, units], "int8"), layer.weight(f"{key}_scale", [units])
        scales = [*x.shape[:-1], 1]
        data, own = (
            program.add("dynamic_quantize", "abs_max_quantize", [x], [x.shape], "int8")[0],
            program.tensor(scales, x.dtype),
        )
        program.nodes[-1].outputs.append(own)
        found = program.one("quantized_matmul", "matmul", [data, kernel], out, "int32")
        found = program.each("dequantize", "divide", found, own, scale, dtype=x.dtype)
        return program.each("add", "add", found, bias) if bias is not None else found
    if layer.mode in ("int4", "gptq", "awq"):
        return _packed(layer, key, x, units, bias)
    if layer.mode not in ("", "float8"):
        raise UnsupportedError(
            f"layer {layer.name} is quantised as {layer.mode}, which is not read; save it unquantised"
        )
    inputs = [x, layer.weight(key, [length, units])] + ([bias] if bias is not None else [])
    if layer.mode == "float8":
        layer.program.notes["float8 layers are shown in the type that they compute in: their scaling is left out"] = (
            False
        )
    lora = layer.settings.config.get("lora_rank")
    found = program.one("dense", layer.class_name, inputs, out, x.dtype)
    if lora:
        rank = layer.settings.integer("lora_rank")
        low = program.one(
            "dense", "lora", [x, layer.weight("lora_kernel_a", [length, rank])], (*out[:-1], rank), x.dtype
        )
        high = program.one("dense", "lora", [low, layer.weight("lora_kernel_b", [rank, units])], out, x.dtype)
        found = program.each("add", "lora", found, high)
    return found


def _packed(layer: Layer, key: str, x: Tensor, units: int, bias: Tensor | None) -> Tensor:
    """A product by weights of 4 bits, two a byte, with a scale an output or a block of inputs."""
    length, bits = x.shape[-1], 4
    config = layer.settings.config.get("quantization_config")
    inner = config.get("config") if isinstance(config, dict) else None
    block = inner.get("block_size") or inner.get("group_size") if isinstance(inner, dict) else None
    if isinstance(inner, dict) and layer.mode == "gptq":
        bits = inner.get("weight_bits") or 4
    # Without a configuration of its own, a layer has the default of its mode (128 inputs a block).
    block = 128 if block is None else block
    if not isinstance(block, int) or not isinstance(bits, int) or bits not in (2, 3, 4, 8):
        raise FormatError(f"layer {layer.name} is quantised with blocks of {block!r} and {bits!r} bits")
    size = length if block < 1 else min(block, length)
    blocks = -(-length // size)
    kernel = layer.weight(key, [units, blocks, -(-size * bits // 8)], "uint8")
    inputs = [x, kernel, layer.weight(f"{key}_scale", [units * blocks]), None, None, bias]
    return layer.program.one(
        "matmul_nbits", layer.class_name, inputs, (*x.shape[:-1], units), x.dtype, weight_bits=bits, block_size=size
    )


def einsum_dense(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.EinsumDense: a product whose axes an equation names."""
    equation = layer.settings.text("equation", "")
    sides, _arrow, out = equation.replace(" ", "").partition("->")
    left, _comma, right = sides.partition(",")
    shape = layer.settings.shape("output_shape")
    if not out or not right:
        raise layer.settings.wrong("equation", "an einsum of two operands, such as 'abc,cd->abd'")
    sizes = dict(zip(out.replace("...", "")[::-1], reversed(shape), strict=False))
    sizes |= dict(zip(left.replace("...", "")[::-1], reversed(x.shape), strict=False))
    if any(sizes.get(c, -1) < 0 for c in right):
        raise layer.settings.wrong("output_shape", "the sizes of the equation's result")
    kernel = [sizes[c] for c in right]
    axes = layer.settings.text("bias_axes", "")
    bias = None
    if axes:
        first = min(out.find(c) for c in axes)
        bias = layer.weight("bias", [sizes[c] if c in axes else 1 for c in out[first:] if c != "."])
    summed = math.prod(sizes[c] for c in right if c not in out)
    if layer.mode and math.prod(kernel) == summed * math.prod(sizes[c] for c in right if c in out):
        made = math.prod(sizes[c] for c in right if c in out)
        shown = [sizes[c] for c in out if c != "."]
        rows = layer.program.reshape(x, (math.prod(x.shape) // summed, summed))
        own = layer.own("product", "Dense", {"units": made, "use_bias": False})
        found = layer.program.reshape(_product(own, "kernel", rows, made), shown)
    else:
        found = contraction(layer.program, layer.class_name, equation, x, layer.weight("kernel", kernel))
    if bias is not None:
        found = layer.program.each("add", "bias", found, bias)
    return layer.activate(found)


def embedding(layer: Layer, x: Tensor, reverse: Any = False, **_: Any) -> Tensor:
    """keras.layers.Embedding and ReversibleEmbedding, whose table may also give the scores of all rows."""
    rows, width = layer.settings.integer("input_dim"), layer.settings.integer("output_dim")
    low = layer.mode in ("int8", "int4")
    kind = {"int8": "int8", "int4": "uint8"}.get(layer.mode, "")
    table = layer.weight("embeddings", [rows, -(-width // 2) if layer.mode == "int4" else width], kind)
    if reverse:
        if layer.settings.flag("tie_weights", True):
            return layer.program.one(
                "dense", layer.class_name, [x, table], (*x.shape[:-1], rows), x.dtype, transpose_b=1
            )
        other = layer.weight("reverse_embeddings", [width, rows])
        return layer.program.one("dense", layer.class_name, [x, other], (*x.shape[:-1], rows), x.dtype)
    found = layer.program.one("embedding", layer.class_name, [table, x], (*x.shape, width), layer.dtype)
    if low:
        scales = layer.weight("embeddings_scale", [rows, 1])
        scale = layer.program.one("embedding", "take", [scales, x], (*x.shape, 1), layer.dtype)
        found = layer.program.each("dequantize", "divide", found, scale)
    return found


def batch_norm(layer: Layer, x: Tensor, mask: Any = None, **_: Any) -> Tensor:
    """keras.layers.BatchNormalization with its moving statistics."""
    axis = layer.settings.axes("axis", len(x.shape))[0]
    keys = [("gamma", layer.settings.flag("scale", True)), ("beta", layer.settings.flag("center", True))]
    # Statistics and factors are kept in float32 where the layer computes in less.
    inputs = [layer.weight(key, [x.shape[axis]]) if there else None for key, there in keys]
    inputs += [layer.weight(key, [x.shape[axis]]) for key in ("moving_mean", "moving_variance")]
    layout = IMAGE if axis == len(x.shape) - 1 else ROWS
    return layer.program.one("batch_norm", layer.class_name, [x, *inputs], x.shape, x.dtype, layout)


def layer_norm(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.LayerNormalization and RMSNormalization."""
    axes = layer.settings.axes("axis", len(x.shape))
    shape = [x.shape[a] for a in axes]
    root = layer.class_name == "RMSNormalization" or layer.settings.flag("rms_scaling")
    if layer.class_name == "RMSNormalization":
        inputs: list[Tensor | None] = [layer.weight("scale", shape)]
    else:
        inputs = [layer.weight("gamma", shape) if layer.settings.flag("scale", True) else None]
        if not root:
            inputs.append(layer.weight("beta", shape) if layer.settings.flag("center", True) else None)
    kind = "rms_norm" if root else "layer_norm"
    return layer.program.one(kind, layer.class_name, [x, *inputs], x.shape, x.dtype, axis=min(axes))


def group_norm(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.GroupNormalization."""
    axis = layer.settings.axes("axis", len(x.shape))[0]
    channels = x.shape[axis]
    groups = layer.settings.integer("groups", 32, least=-1)
    groups = channels if groups == -1 else groups
    if groups < 1 or channels % groups:
        raise ShapeError(f"layer {layer.name} has {groups} groups for {channels} channels")
    inputs = [x]
    inputs += [
        layer.weight(k, [channels]) for k, s in (("gamma", "scale"), ("beta", "center")) if layer.settings.flag(s, True)
    ]
    layout = IMAGE if axis == len(x.shape) - 1 else ROWS
    return layer.program.one("group_norm", layer.class_name, inputs, x.shape, x.dtype, layout, groups=groups)


def unit_norm(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.UnitNormalization."""
    axis = layer.settings.axes("axis", len(x.shape))[0]
    return layer.program.one("l2_norm", layer.class_name, [x], x.shape, layout=AXIS, axis=axis)


def spectral_norm(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.SpectralNormalization: its layer as it is, since the kernel changes while training alone."""
    out = layer.part("layer")(x)
    kernel = next((w for k, w in layer.part("layer").weights.items() if k in ("kernel", "embeddings")), None)
    if kernel is not None:
        layer.weight("vector_u", [1, kernel.shape[-1]])
    return out


def normalization(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.Normalization by a mean and a variance that were adapted, or that the file states."""
    rank, p = len(x.shape), layer.program
    axes = layer.settings.axes("axis", rank) if layer.settings.config.get("axis") is not None else []
    stated = layer.settings.config.get("mean") is not None
    kept = [x.shape[a] for a in axes]

    def figure(key: str) -> Tensor:
        if stated or not kept:
            return p.tensor([1] * rank if kept else [], layer.dtype, "literal")
        return layer.weight(key, kept)

    across = [x.shape[a] if a in axes else 1 for a in range(rank)]
    mean, variance = (
        p.reshape(t, across) if t.role == "weight" and axes != [rank - 1] else t
        for t in map(figure, ("mean", "variance"))
    )
    if layer.settings.flag("invert"):
        return p.each("add", "add", p.each("mul", "multiply", x, variance), mean)
    return p.each("div", "divide", p.each("sub", "subtract", x, mean), variance)


def rescaling(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.Rescaling: x * scale + offset."""
    p = layer.program
    if not x.dtype.startswith(("float", "bfloat")):
        x = p.each("cast", "cast", x, dtype=layer.dtype)
    scaled = p.each("mul", "multiply", x, p.tensor([], x.dtype, "literal"))
    return p.each("add", "add", scaled, p.tensor([], x.dtype, "literal"))


def layer_scale(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """ConvNeXt's LayerScale (keras.applications)."""
    width = layer.settings.integer("projection_dim")
    return layer.program.each("mul", layer.class_name, x, layer.weight("gamma", [width]))


def custom_scale(layer: Layer, x: Any, **_: Any) -> Tensor:
    """Inception-ResNet's CustomScaleLayer (keras.applications): x + y * scale."""
    p = layer.program
    return p.each("add", "add", x[0], p.each("mul", "multiply", x[1], p.tensor([], x[1].dtype, "literal")))


def flatten(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.Flatten."""
    return layer.program.reshape(x, (x.shape[0], math.prod(x.shape[1:])), layer.class_name)


def reshape(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.Reshape of all axes but the batch."""
    return layer.program.reshape(x, (x.shape[0], *filled(layer.settings.shape("target_shape"), x.shape[1:])), "Reshape")


def filled(shape: Sequence[int], before: Sequence[int]) -> list[int]:
    """``shape`` with its one -1 worked out from the elements of ``before``. Raises ShapeError."""
    known = math.prod(s for s in shape if s != -1)
    if list(shape).count(-1) > 1 or (-1 in shape and (known == 0 or math.prod(before) % known)):
        raise ShapeError(f"a reshape of {tuple(before)} to {tuple(shape)}, which does not fit")
    return [math.prod(before) // known if s == -1 else s for s in shape]


def permute(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.Permute of all axes but the batch, counted from 1."""
    return layer.program.transpose(x, [0, *layer.settings.shape("dims")], layer.class_name)


def repeat_vector(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.RepeatVector."""
    return layer.program.one("tile", layer.class_name, [x], (x.shape[0], layer.settings.integer("n"), *x.shape[1:]))


def concatenate(layer: Layer, x: Sequence[Tensor], **_: Any) -> Tensor:
    """keras.layers.Concatenate."""
    return joined(layer, list(x), layer.settings.axes("axis", len(x[0].shape))[0])


def joined(layer: Layer, x: list[Tensor], axis: int) -> Tensor:
    """Tensors one after the other along ``axis``. Raises ShapeError."""
    others = {tuple(s for a, s in enumerate(t.shape) if a != axis) for t in x}
    if len(others) != 1:
        raise ShapeError(f"layer {layer.name} joins {', '.join(str(t.shape) for t in x[:4])} along axis {axis}")
    shape = list(x[0].shape)
    shape[axis] = sum(t.shape[axis] for t in x)
    return layer.program.one("concat", layer.class_name, x, shape, layout=AXIS, axis=axis)


def merged(kind: str) -> Callable[..., Tensor]:
    """keras.layers.Add, Subtract, Multiply, Minimum, Maximum, Average: two tensors at a time."""

    def compute(layer: Layer, x: Sequence[Tensor], **_: Any) -> Tensor:
        out = x[0]
        for other in x[1:]:
            if len(other.shape) > len(out.shape):
                out, other = other, out
            if len(other.shape) < len(out.shape):  # Keras adds axes behind the batch
                more = len(out.shape) - len(other.shape)
                other = layer.program.reshape(other, (*other.shape[:1], *[1] * more, *other.shape[1:]))
            out = layer.program.each(kind, layer.class_name, out, other)
        if layer.class_name == "Average":
            out = layer.program.each("div", "divide", out, layer.program.tensor([], out.dtype, "literal"))
        return out

    return compute


def category_encoding(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.CategoryEncoding."""
    tokens = layer.settings.integer("num_tokens")
    if layer.settings.text("output_mode", "multi_hot") == "one_hot":
        shape = (*x.shape[:-1], tokens) if x.shape and x.shape[-1] == 1 else (*x.shape, tokens)
    else:
        shape = (*x.shape[:-1], tokens)
    return layer.program.one("one_hot", layer.class_name, [x], shape, layer.dtype)


def discretization(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.Discretization to numbers of bins."""
    if layer.settings.text("output_mode", "int") != "int":
        raise UnsupportedError(
            f"layer {layer.name} gives bins as {layer.settings.config['output_mode']}, which is not read"
        )
    return layer.program.one("sort", "searchsorted", [x], x.shape, "int64")
