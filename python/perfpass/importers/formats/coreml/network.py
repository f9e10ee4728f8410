"""The older neural networks of Core ML: layers by name, whose sizes follow from those of the inputs.

Layers after NeuralNetwork.proto (specification 1 to 9). What no rule is here for is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfpass.errors import FormatError, ShapeError, UnsupportedError
from perfpass.importers.draft import Draft
from perfpass.importers.formats.coreml.layer_kinds import BINARY, LAYERS, REDUCTIONS, UNARY
from perfpass.importers.formats.coreml.program import Value
from perfpass.importers.formats.protobuf import EMPTY, Message, message_of
from perfpass.importers.formats.shapes import Shape, broadcast, columns, places, same_padding, spread

_ACTIVATIONS = {
    5: "mul", 10: "relu", 15: "leaky_relu", 20: "clip", 25: "prelu", 30: "tanh", 31: "tanh", 40: "sigmoid",
    41: "hard_sigmoid", 50: "elu", 60: "softsign", 70: "softplus", 71: "softplus",
}  # fmt: skip
_HIGHEST_RANK = 16
_UNARY_FUNCTIONS = ("sqrt", "rsqrt", "reciprocal", "pow", "exp", "log", "abs", "clip")


@dataclass
class Layer:
    """One layer: its kind, its own message, its inputs, and how many outputs it has."""

    kind: str
    name: str
    params: Message
    inputs: list[Value]
    outputs: list[str]

    @property
    def x(self) -> Shape:
        if not self.inputs:
            raise FormatError(f"layer '{self.name[:200]}' ({self.kind}) reads nothing; the file is damaged")
        return self.inputs[0].shape


@dataclass
class Lowered:
    """What a layer becomes: kind, sizes of its outputs, weights behind its inputs, attributes."""

    kind: str
    shapes: list[Shape]
    weights: Sequence[tuple[Shape, Message]]
    attributes: dict[str, int]


def add(message: Message, draft: Draft, names: dict[str, Value]) -> list[int]:
    """All layers of a network into ``draft``; the tensors of the last. Raises UnsupportedError by the layer's name."""
    if not message.has(5):
        for name, value in names.items():  # images and arrays of the first specifications have no batch of their own
            if len(value.shape) == 3:
                names[name] = Value(value.dtype, (1, *value.shape), value.tensor)
                draft.tensors[value.tensor].shape = (1, *value.shape)
    made: list[int] = []
    for layer in message.all(1):
        made = _layer(layer, draft, names)
    return made


def _layer(message: Message, draft: Draft, names: dict[str, Value]) -> list[int]:
    number = message.first_from(100)
    kind, name = LAYERS.get(number, f"layer {number}"), message.text(1)
    inputs = []
    for source in message.texts(2):
        if source not in names:
            raise FormatError(f"layer '{name[:200]}' ({kind}) reads '{source[:200]}', which nothing writes before it")
        inputs.append(names[source])
    layer = Layer(kind, name, message.one(number), inputs, message.texts(3))
    if not layer.outputs:
        raise FormatError(f"layer '{name[:200]}' ({kind}) writes nothing; the file is damaged")
    try:
        found = _lowered(layer)
    except (IndexError, ValueError, OverflowError, ZeroDivisionError):
        shapes = ", ".join(str(v.shape) for v in inputs)
        raise ShapeError(f"layer '{name[:200]}' ({kind}) does not fit its inputs of shape {shapes or 'none'}") from None
    if len(found.shapes) < len(layer.outputs):
        found.shapes += [found.shapes[-1]] * (len(layer.outputs) - len(found.shapes))
    dtype = next((v.dtype for v in inputs), "float32")
    if found.kind == "constant":  # a tensor, no operator
        shape, weight = found.weights[0]
        tensor = _weight(draft, shape, weight, name)
        names[layer.outputs[0]] = Value("float32", shape, tensor)
        return [tensor]
    weights = [_weight(draft, shape, weight, name) for shape, weight in found.weights]
    made = []
    for output, shape in zip(layer.outputs, found.shapes, strict=False):
        if any(size < 0 for size in shape):
            raise ShapeError(f"layer '{name[:200]}' ({kind}) would write the shape {shape}; its inputs are too small")
        made.append(draft.tensor(dtype, shape, "activation", output))
        names[output] = Value(dtype, shape, made[-1])
    draft.node(found.kind, kind, name, found.attributes, [v.tensor for v in inputs] + weights, made)
    return made


def _weight(draft: Draft, shape: Shape, message: Message, name: str) -> int:
    """A weight of ``shape`` as it is stored: floats of 32 or 16 bits, or whole numbers of a few."""
    if len(shape) > _HIGHEST_RANK:
        raise FormatError(f"layer '{name[:200]}' has a weight of {len(shape)} axes; at most {_HIGHEST_RANK} are read")
    count = math.prod(shape)
    halves, raw, whole = (message.size(number) for number in (2, 30, 31))
    if raw or whole:
        bits = message.one(40).integer(1, 8)
        stored = {8: "uint8", 4: "uint4"}.get(bits)
        if stored is None:  # 1, 2, 3, 5, 6 and 7 bits fit no type of a graph: as packed bytes
            return draft.tensor("uint8", (1, raw or whole), "weight", name)
        return draft.tensor(stored, shape, "weight", name)
    floats = message.size(1) // 4
    if (stored_count := halves // 2 or floats) and stored_count != count:
        raise FormatError(f"layer '{name[:200]}' holds {stored_count:,} numbers where {count:,} belong; it is damaged")
    return draft.constant("float16" if halves else "float32", shape, name)


def _lowered(layer: Layer) -> Lowered:
    kind = layer.kind
    if kind in _RULES:
        return _RULES[kind](layer)
    if kind in BINARY:
        return Lowered(BINARY[kind], [broadcast([v.shape for v in layer.inputs], layer.kind)], [], {})
    if kind in REDUCTIONS:
        return _reduction(layer)
    if kind in UNARY:
        return Lowered(UNARY[kind], [layer.x], [], {})
    raise UnsupportedError(
        f"layer '{layer.name[:200]}' is a {kind}, whose sizes no rule here tells; convert the network as an ML Program "
        "(coremltools.convert(..., convert_to='mlprogram'))"
    )


def _window(layer: Layer, extents: Shape, kernel: list[int], fields: tuple[int, int], ceil: bool = False):  # type: ignore[no-untyped-def]
    """Attributes and extents of a window; ``fields``: those of valid padding and of same."""
    params, rank = layer.params, len(kernel)
    stride = (params.integers(30 if layer.kind == "convolution" else 20) or [1] * rank)[:rank]
    dilation = (params.integers(40) if layer.kind == "convolution" else []) or [1] * rank
    valid, same = fields
    begin, end = [0] * rank, [0] * rank
    if params.has(same):
        for i, extent in enumerate(extents):
            begin[i], end[i] = same_padding(extent, kernel[i], stride[i], dilation[i])
    elif params.has(32) and layer.kind == "pooling":
        begin = end = (params.one(32).integers(10) or [0] * rank)[:rank]
    else:
        for i, edge in zip(range(rank), params.one(valid).one(1).all(10), strict=False):
            begin[i], end[i] = edge.integer(1), edge.integer(2)
    out = tuple(
        places(extent, kernel[i], stride[i], dilation[i], begin[i], end[i], ceil) for i, extent in enumerate(extents)
    )
    found = {"spatial_rank": rank}
    found |= columns(kernel=kernel, stride=stride, dilation=dilation, pad_begin=begin, pad_end=end)
    return found, out, stride, dilation, begin, end


def _convolution(layer: Layer) -> Lowered:
    params, x = layer.params, layer.x
    kernel, groups = params.integers(20) or [3, 3], max(params.integer(10, 1), 1)
    if len(x) != 4:
        raise ValueError
    channels, per_group = params.integer(1), params.integer(2)
    found, extents, stride, dilation, begin, end = _window(layer, x[2:], kernel, (50, 51))
    transposed = bool(params.integer(60))
    if transposed:
        given = params.integers(100)
        extents = tuple(given) or tuple(
            spread(x[2 + i], k, stride[i], dilation[i], begin[i], end[i]) for i, k in enumerate(kernel)
        )
    weight = (per_group, channels // groups, *kernel) if transposed else (channels, per_group, *kernel)
    weights = [(weight, params.one(90))] + ([((channels,), params.one(91))] if params.integer(70) else [])
    found |= {"groups": groups, "weight_layout": 2 if transposed else 0}
    return Lowered("conv_transpose" if transposed else "conv", [(x[0], channels, *extents)], weights, found)


def _pooling(layer: Layer) -> Lowered:
    params, x = layer.params, layer.x
    kind = {0: "max_pool", 1: "avg_pool", 2: "lp_pool"}.get(params.integer(1), "max_pool")
    if params.integer(60):
        found = {"spatial_rank": 2} | columns(kernel=x[2:])
        return Lowered(kind if kind == "lp_pool" else f"global_{kind}", [(*x[:2], 1, 1)], [], found)
    found, extents, *_ = _window(layer, x[2:], params.integers(10) or [3, 3], (30, 31), params.has(32))
    return Lowered(kind, [(*x[:2], *extents)], [], found)


def _activation(layer: Layer) -> Lowered:
    number = next((n for n in _ACTIVATIONS if layer.params.has(n)), 10)
    weights = []
    if number == 25:
        weights = [((layer.x[1],), layer.params.one(25).one(1))]
    return Lowered(_ACTIVATIONS[number], [layer.x], weights, {})


def _inner_product(layer: Layer) -> Lowered:
    params, x = layer.params, layer.x
    rows, columns = params.integer(1), params.integer(2)
    if len(x) == 4 and x[2:] == (1, 1) and x[1] == rows:  # [batch, channels, 1, 1] of the first specifications
        out: Shape = (x[0], columns, 1, 1)
    elif x[-1] == rows:
        out = (*x[:-1], columns)
    else:
        raise ValueError
    weights = [((columns, rows), params.one(20))] + ([((columns,), params.one(21))] if params.integer(10) else [])
    return Lowered("dense", [out], weights, {"transpose_b": 1})


def _batched_matmul(layer: Layer) -> Lowered:
    params, first = layer.params, layer.x
    rows, columns = params.integer(5), params.integer(6)
    flip_a, flip_b = params.integer(1), params.integer(2)
    weights, kind = [], "matmul"
    if len(layer.inputs) > 1:
        second = layer.inputs[1].shape
    else:
        second, kind = (rows, columns), "dense"
        weights = [(second, params.one(8))] + ([((columns,), params.one(9))] if params.integer(7) else [])
    a = (*first[:-2], first[-1], first[-2]) if flip_a else first
    b = (*second[:-2], second[-1], second[-2]) if flip_b else second
    if a[-1] != b[-2]:
        raise ValueError
    out = (*broadcast([a[:-2], b[:-2]], layer.kind), a[-2], b[-1])
    return Lowered(kind, [out], weights, {"transpose_a": flip_a, "transpose_b": flip_b})


def _batchnorm(layer: Layer) -> Lowered:
    channels = layer.params.integer(1)
    kind = "instance_norm" if layer.params.integer(6) else "batch_norm"
    weights = [((channels,), layer.params.one(n)) for n in (15, 16, 17, 18) if layer.params.has(n)]
    return Lowered(kind, [layer.x], weights, {})


def _layer_norm(layer: Layer) -> Lowered:
    shape = tuple(layer.params.integers(1))
    weights = [(shape, layer.params.one(n)) for n in (3, 4)]
    return Lowered("layer_norm", [layer.x], weights, {"axis": len(layer.x) - len(shape)})


def _scaled(layer: Layer) -> Lowered:
    params = layer.params
    if layer.kind == "bias":
        return Lowered("add", [layer.x], [(tuple(params.integers(1)), params.one(2))], {})
    weights = [(tuple(params.integers(1)), params.one(2))]
    if params.integer(3):
        return Lowered("batch_norm", [layer.x], [*weights, (tuple(params.integers(4)), params.one(5))], {})
    return Lowered("mul", [layer.x], weights, {})


def _constant(layer: Layer) -> Lowered:
    shape = tuple(layer.params.integers(1))
    return Lowered("constant", [shape], [(shape, layer.params.one(2))], {})


def _unary(layer: Layer) -> Lowered:
    kind = layer.params.integer(1)
    return Lowered(_UNARY_FUNCTIONS[kind] if 0 <= kind < len(_UNARY_FUNCTIONS) else "abs", [layer.x], [], {})


def _view(layer: Layer, shape: Shape) -> Lowered:
    return Lowered("reshape", [shape], [], {"view": 1})


def _reshape(layer: Layer) -> Lowered:
    wanted, x = layer.params.integers(1), layer.x
    if layer.kind == "reshape" and len(wanted) == 3:
        wanted = [x[0], *wanted]
    if layer.kind == "rankPreservingReshape":
        wanted = [x[i] if size == 0 else size for i, size in enumerate(wanted)]
    if len(wanted) > _HIGHEST_RANK:
        raise ValueError
    rest = math.prod(size for size in wanted if size >= 0)
    shape = tuple(math.prod(x) // max(rest, 1) if size < 0 else size for size in wanted)
    if math.prod(shape) != math.prod(x):
        raise ValueError
    return _view(layer, shape)


def _flatten(layer: Layer) -> Lowered:
    x = layer.x
    if layer.kind == "flatten":
        return _view(layer, (x[0], math.prod(x[1:]), 1, 1))
    axis = layer.params.integer(1) % len(x)
    return _view(layer, (math.prod(x[:axis]), math.prod(x[axis:])))


def _squeeze(layer: Layer) -> Lowered:
    x = layer.x
    axes = [a % len(x) for a in layer.params.integers(1)]
    if layer.params.integer(2):
        axes = [i for i, size in enumerate(x) if size == 1]
    return _view(layer, tuple(size for i, size in enumerate(x) if i not in axes))


def _expand(layer: Layer) -> Lowered:
    shape, axes = list(layer.x), layer.params.integers(1)
    rank = len(shape) + len(axes)
    for axis in sorted(a % rank for a in axes):
        shape.insert(axis, 1)
    return _view(layer, tuple(shape))


def _transpose(layer: Layer) -> Lowered:
    order, x = layer.params.integers(1), layer.x
    if sorted(order) != list(range(len(x))):
        raise ValueError
    return Lowered("transpose", [tuple(x[i] for i in order)], [], {})


def _concat(layer: Layer) -> Lowered:
    shape = list(layer.x)
    axis = layer.params.integer(1) % len(shape) if layer.kind == "concatND" else max(len(shape) - 3, 0)
    shape[axis] = sum(v.shape[axis] for v in layer.inputs)
    return Lowered("concat", [tuple(shape)], [], {"axis": axis})


def _stack(layer: Layer) -> Lowered:
    shape = list(layer.x)
    shape.insert(layer.params.integer(1) % (len(shape) + 1), len(layer.inputs))
    return Lowered("concat", [tuple(shape)], [], {})


def _split(layer: Layer) -> Lowered:
    x, params = layer.x, layer.params
    count = len(layer.outputs)
    axis = params.integer(1) % len(x) if layer.kind == "splitND" else max(len(x) - 3, 0)
    parts = params.integers(3) if layer.kind == "splitND" else []
    parts = parts or [x[axis] // count] * count
    return Lowered("split", [(*x[:axis], part, *x[axis + 1 :]) for part in parts], [], {"axis": axis})


def _slice(layer: Layer) -> Lowered:
    params, x = layer.params, layer.x
    begins, ends, steps = (params.integers(n) for n in (1, 3, 5))
    begin_masks, end_masks, squeezed = (params.integers(n) or [0] * len(x) for n in (2, 4, 6))
    shape = []
    for i, size in enumerate(x):
        taken = slice(None if begin_masks[i] else begins[i], None if end_masks[i] else ends[i], steps[i])
        if not squeezed[i]:
            shape.append(len(range(*taken.indices(size))))
    return Lowered("slice", [tuple(shape)], [], {})


def _embedding(layer: Layer) -> Lowered:
    vocabulary, width = layer.params.integer(1), layer.params.integer(2)
    x = layer.x
    out = (*x[:-1], width) if layer.kind == "embeddingND" else (x[0], width, 1, 1)
    return Lowered("embedding", [out], [((width, vocabulary), layer.params.one(20))], {})


def _reduction(layer: Layer) -> Lowered:
    x, params = layer.x, layer.params
    axes = list(range(len(x))) if params.integer(3) else [a % len(x) for a in params.integers(1)]
    keep = params.integer(2)
    shape = tuple(1 if i in axes else size for i, size in enumerate(x) if keep or i not in axes)
    kind = REDUCTIONS[layer.kind]
    if kind == "reduce_mean" and keep and len(x) in (4, 5) and sorted(axes) == list(range(2, len(x))):
        return Lowered("global_avg_pool", [shape], [], {"spatial_rank": len(x) - 2} | columns(kernel=x[2:]))
    return Lowered(kind, [shape], [], {"axis": axes[0]} if axes else {})


def _resized(layer: Layer) -> Lowered:
    x, params = layer.x, layer.params
    if layer.kind == "resizeBilinear":
        extents = tuple(params.integers(1))
    else:
        extents = tuple(e * f for e, f in zip(x[-2:], params.integers(1) or [1, 1], strict=True))
    return Lowered("resize", [(*x[:-2], *extents)], [], {"spatial_rank": 2})


def _padded(layer: Layer) -> Lowered:
    x, params = layer.x, layer.params
    if layer.kind == "constantPad":
        amounts = params.integers(2)
        return Lowered("pad", [tuple(s + amounts[2 * i] + amounts[2 * i + 1] for i, s in enumerate(x))], [], {})
    edges = params.one(10).all(10)
    extents = tuple(e + edge.integer(1) + edge.integer(2) for e, edge in zip(x[-2:], edges, strict=True))
    return Lowered("pad", [(*x[:-2], *extents)], [], {})


def _gather(layer: Layer) -> Lowered:
    x, axis = layer.x, layer.params.integer(1) % len(layer.x)
    return Lowered("gather", [(*x[:axis], *layer.inputs[1].shape, *x[axis + 1 :])], [], {"axis": axis})


def _reorganized(layer: Layer) -> Lowered:
    x, block = layer.x, layer.params.integer(2)
    to_depth = layer.params.integer(1) == 0
    if to_depth:
        return Lowered("space_to_depth", [(x[0], x[1] * block**2, x[2] // block, x[3] // block)], [], {})
    return Lowered("depth_to_space", [(x[0], x[1] // block**2, x[2] * block, x[3] * block)], [], {})


def _tiled(layer: Layer) -> Lowered:
    times = layer.params.integers(1)
    return Lowered("tile", [tuple(size * t for size, t in zip(layer.x, times, strict=True))], [], {})


def _recurrent(layer: Layer) -> Lowered:
    params, x = layer.params, layer.x
    inputs, hidden = params.integer(1), params.integer(2)
    directions = 2 if layer.kind == "biDirectionalLSTM" else 1
    gates = {"gru": 3, "simpleRecurrent": 1}.get(layer.kind, 4)
    kind = {4: "lstm", 3: "gru", 1: "rnn"}[gates]
    rows = gates * hidden
    weights = [((rows, inputs), message_of(EMPTY, params.budget))] * directions
    weights += [((rows, hidden), message_of(EMPTY, params.budget))] * directions
    out = (*x[:2], hidden * directions, *x[3:])
    return Lowered(kind, [out], weights, {"hidden_size": hidden, "directions": directions})


_RULES: dict[str, Callable[[Layer], Lowered]] = {
    "convolution": _convolution,
    "pooling": _pooling,
    "activation": _activation,
    "innerProduct": _inner_product,
    "batchedMatmul": _batched_matmul,
    "batchnorm": _batchnorm,
    "layerNormalization": _layer_norm,
    **dict.fromkeys(("scale", "bias"), _scaled),
    **dict.fromkeys(("loadConstant", "loadConstantND"), _constant),
    "unary": _unary,
    **dict.fromkeys(("reshape", "reshapeStatic", "rankPreservingReshape"), _reshape),
    **dict.fromkeys(("flatten", "flattenTo2D"), _flatten),
    "squeeze": _squeeze,
    "expandDims": _expand,
    **dict.fromkeys(("transpose", "permute"), _transpose),
    **dict.fromkeys(("concat", "concatND"), _concat),
    "stack": _stack,
    **dict.fromkeys(("split", "splitND"), _split),
    "sliceStatic": _slice,
    **dict.fromkeys(("embedding", "embeddingND"), _embedding),
    **dict.fromkeys(("upsample", "resizeBilinear"), _resized),
    **dict.fromkeys(("padding", "constantPad"), _padded),
    "gather": _gather,
    "reorganizeData": _reorganized,
    "tile": _tiled,
    **dict.fromkeys(("simpleRecurrent", "gru", "uniDirectionalLSTM", "biDirectionalLSTM"), _recurrent),
}
