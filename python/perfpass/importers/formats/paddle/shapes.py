"""Sizes that a Paddle program leaves open: of an operator's results, from its operands.

A rule gives the shape of the first results in order. Sources: paddle/phi/infermeta of PaddlePaddle 3.3 (Apache-2.0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from perfpass.errors import ShapeError
from perfpass.importers.formats.paddle.call import Call
from perfpass.importers.formats.paddle.kinds import ELEMENTWISE, REDUCTIONS, SAME
from perfpass.importers.formats.shapes import Shape, broadcast, einsum, places, same_padding, spread, tiled

Rule = Callable[[Call], list[Shape]]


def results(call: Call) -> list[Shape] | None:
    """Shapes of the first results; None where there is no rule."""
    rule = _RULES.get(call.op.name)
    if rule is not None:
        return rule(call)
    if call.kind in ELEMENTWISE:
        return [_elementwise(call)]
    if call.kind in SAME:
        return [call.shape(0)] * (2 if call.kind == "sort" else 1)
    if call.kind in REDUCTIONS:
        return [reduced(call)]
    if call.kind in ("conv", "deform_conv"):
        return [convolved(call)]
    return None


def _elementwise(call: Call) -> Shape:
    shapes = [t.shape for t in call.flat()]
    axis = call.attribute("axis")
    if len(shapes) == 2 and len(shapes[1]) < len(shapes[0]) and isinstance(axis, int) and axis >= 0:
        return shapes[0]  # of Paddle 1: the second lies along the first from `axis` on
    return broadcast(shapes, call.op.source)


def reduced(call: Call) -> Shape:
    shape = call.shape(0)
    axes = call.numbers(1, "axis", "dim")
    kept = bool(call.attribute("keepdim", "keep_dim", "keepdims"))
    if not axes or call.attribute("reduce_all"):
        axes = list(range(len(shape)))
    gone = {a % max(len(shape), 1) for a in axes}
    return tuple(1 if i in gone else size for i, size in enumerate(shape) if kept or i not in gone)


def windows(call: Call, sizes: Sequence[int], kernel: Sequence[int]) -> list[tuple[int, int, int, int, int]]:
    """Per spatial axis: kernel, stride, dilation, padding before and after."""
    rank = len(sizes)
    stride = _each(call.attribute("strides"), rank, 1)
    dilation = _each(call.attribute("dilations"), rank, 1)
    given = call.attribute("paddings")
    pads = [int(p) for p in given] if isinstance(given, list) else []
    pairs = [(pads[2 * i], pads[2 * i + 1]) for i in range(rank)] if len(pads) == 2 * rank else []
    pairs = pairs or [(p, p) for p in _each(pads, rank, 0)]
    how = str(call.attribute("padding_algorithm") or "EXPLICIT")
    found = []
    for i, size in enumerate(sizes):
        if how == "VALID":
            pairs[i] = (0, 0)
        elif how == "SAME":
            dilation[i] = 1  # as Paddle does
            pairs[i] = same_padding(size, kernel[i], stride[i])
        found.append((int(kernel[i]), stride[i], dilation[i], *pairs[i]))
    return found


def _each(value: object, rank: int, otherwise: int) -> list[int]:
    values = [int(v) for v in value] if isinstance(value, list) else [int(value)] if isinstance(value, int) else []
    if len(values) == 1:
        values *= rank
    return values if len(values) == rank and all(v > 0 or otherwise == 0 for v in values) else [otherwise] * rank


def spatial(call: Call, shape: Shape) -> slice:
    """Where the spatial axes of [batch, channels, ...] or [batch, ..., channels] are."""
    return slice(1, len(shape) - 1) if call.channels_last() else slice(2, len(shape))


def _placed(call: Call, batch: int, channels: int, sizes: Sequence[int]) -> Shape:
    return (batch, *sizes, channels) if call.channels_last() else (batch, channels, *sizes)


def convolved(call: Call) -> Shape:
    data, weight = call.shape(0), call.shape(call.weight_slot())
    sizes = data[spatial(call, data)]
    out = [places(size, *axis) for size, axis in zip(sizes, windows(call, sizes, weight[2:]), strict=True)]
    return _placed(call, data[0], weight[0], out)


def _transposed(call: Call) -> list[Shape]:
    data, weight = call.shape(0), call.shape(1)
    sizes = data[spatial(call, data)]
    wanted = call.numbers(2, "output_size")
    extra = _each(call.attribute("output_padding"), len(sizes), 0)
    axes = zip(sizes, windows(call, sizes, weight[2:]), extra, strict=True)
    out = [spread(size, *axis, more) for size, axis, more in axes]
    groups = max(int(call.attribute("groups") or 1), 1)
    return [_placed(call, data[0], weight[1] * groups, wanted or out)]


def _pooled(call: Call) -> list[Shape]:
    data = call.shape(0)
    sizes = data[spatial(call, data)]
    channels = data[-1] if call.channels_last() else data[1]
    kernel = call.numbers(1, "kernel_size", "ksize")
    if call.attribute("global_pooling"):
        out = [1] * len(sizes)
    elif call.attribute("adaptive"):
        out = _each(kernel, len(sizes), 1)
    else:
        axes = zip(sizes, windows(call, sizes, _each(kernel, len(sizes), 1)), strict=True)
        ceil = bool(call.attribute("ceil_mode"))
        out = [places(size, width, stride, 1, before, after, ceil) for size, (width, stride, _, before, after) in axes]
    return [_placed(call, data[0], channels, out)] * 2


def _product(call: Call) -> list[Shape]:
    a, b = call.shape(0), call.shape(1)
    if call.op.name == "addmm":
        a, b = b, call.shape(2)
    if call.attribute("transpose_x", "trans_x", "transpose_X") and len(a) > 1:
        a = (*a[:-2], a[-1], a[-2])
    if call.attribute("transpose_y", "trans_y", "transpose_Y") and len(b) > 1:
        b = (*b[:-2], b[-1], b[-2])
    if call.op.name == "dot":
        return [a[:-1]]
    left, right = (a[-2:-1], b[-1:] if len(b) > 1 else ())
    return [(*broadcast([a[:-2], b[:-2]], call.op.source), *left, *right)]


def _by_rows(call: Call) -> list[Shape]:
    x, y = call.shape(0), call.shape(1)
    rows = int(call.attribute("x_num_col_dims", "in_num_col_dims") or 1)
    columns = int(call.attribute("y_num_col_dims") or 1)
    return [(*x[:rows], *y[columns:])]


def _linear(call: Call) -> list[Shape]:
    (out, *_) = [s for s in call.declared() if s is not None] or [()]
    return [(*call.shape(0)[:-1], out[-1])] if out else [()]


def _reshaped(call: Call) -> list[Shape]:
    shape, wanted = call.shape(0), call.numbers(1, "shape")
    if not wanted and call.declared()[0]:
        wanted = list(call.declared()[0] or ())
    found = [shape[i] if size == 0 and i < len(shape) else size for i, size in enumerate(wanted)]
    if found.count(-1) == 1:
        rest = math.prod(size for size in found if size != -1)
        found[found.index(-1)] = math.prod(shape) // rest if rest else 0
    if -1 in found or math.prod(found) != math.prod(shape):
        raise ShapeError(
            f"{call.op.source} of {shape} to {tuple(wanted)}: its sizes do not follow; export fixed shapes"
        )
    return [tuple(found)]


def _squeezed(call: Call) -> list[Shape]:
    shape = call.shape(0)
    axes = {a % max(len(shape), 1) for a in call.numbers(1, "axis", "axes")} or set(range(len(shape)))
    return [tuple(size for i, size in enumerate(shape) if not (i in axes and size == 1))]


def _unsqueezed(call: Call) -> list[Shape]:
    found = list(call.shape(0))
    for axis in call.numbers(1, "axis", "axes"):
        found.insert(axis if axis >= 0 else axis + len(found) + 1, 1)
    return [tuple(found)]


def _flattened(call: Call) -> list[Shape]:
    shape = call.shape(0)
    rank = max(len(shape), 1)
    start, stop = (int(call.attribute(n) or 0) % rank for n in ("start_axis", "stop_axis"))
    return [(*shape[:start], math.prod(shape[start : stop + 1]), *shape[stop + 1 :])]


def _to_matrix(call: Call) -> list[Shape]:
    shape, axis = call.shape(0), int(call.attribute("axis") or 1)
    return [(math.prod(shape[:axis]), math.prod(shape[axis:]))]


def _permuted(call: Call) -> list[Shape]:
    shape = call.shape(0)
    return [tuple(shape[i] for i in call.numbers(9, "perm", "axis"))]


def _concatenated(call: Call) -> list[Shape]:
    shapes = [t.shape for t in call.members(0)]
    axis = call.number(1, "axis") % max(len(shapes[0]), 1)
    if len({(*s[:axis], *s[axis + 1 :]) for s in shapes}) > 1:
        raise ShapeError(f"{call.op.source} of {', '.join(map(str, shapes))} along axis {axis}; give sizes that fit")
    return [tuple(sum(s[i] for s in shapes) if i == axis else size for i, size in enumerate(shapes[0]))]


def _stacked(call: Call) -> list[Shape]:
    found = list(call.members(0)[0].shape)
    axis = int(call.attribute("axis") or 0)
    found.insert(axis if axis >= 0 else axis + len(found) + 1, len(call.members(0)))
    return [tuple(found)]


def _unstacked(call: Call) -> list[Shape]:
    shape = call.shape(0)
    axis = int(call.attribute("axis") or 0) % max(len(shape), 1)
    return [tuple(size for i, size in enumerate(shape) if i != axis)] * len(call.op.outputs)


def _split(call: Call) -> list[Shape]:
    shape, count = call.shape(0), len(call.op.outputs)
    by_number = call.op.name == "split_with_num"
    axis = call.number(1 if by_number else 2, "axis") % max(len(shape), 1)
    sections = [] if by_number else call.numbers(1, "sections")
    parts = sections or [shape[axis] // max(count, 1)] * count
    if parts.count(-1) == 1:
        parts = [shape[axis] - sum(parts) - 1 if p == -1 else p for p in parts]
    return [tuple(part if i == axis else size for i, size in enumerate(shape)) for part in parts]


def _sliced(call: Call) -> list[Shape]:
    shape = call.shape(0)
    strided = call.op.name == "strided_slice"
    starts, ends = call.numbers(1, "starts"), call.numbers(2, "ends")
    axes = call.numbers(9, "axes")
    steps = call.numbers(3, "strides") if strided else [1] * len(axes)
    found = list(shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        found[axis] = len(range(*slice(start, end if step > 0 or end != -1 else None, step).indices(shape[axis])))
    gone = set(call.numbers(9, "decrease_axis"))
    return [tuple(size for i, size in enumerate(found) if i not in gone)]


def _expanded(call: Call) -> list[Shape]:
    shape, wanted = call.shape(0), call.numbers(1, "shape")
    shape = (1,) * (len(wanted) - len(shape)) + shape
    return [tuple(size if want in (-1, 0) else want for size, want in zip(shape, wanted, strict=True))]


def _tiled(call: Call) -> list[Shape]:
    return [tiled(call.shape(0), call.numbers(1, "repeat_times", "expand_times"))]


def _interleaved(call: Call) -> list[Shape]:
    shape = call.shape(0)
    axis = int(call.attribute("axis", "dim") or 0) % max(len(shape), 1)
    times = call.numbers(1, "repeats", "Repeats")
    return [
        tuple(
            (sum(times) if len(times) > 1 else size * times[0]) if i == axis else size for i, size in enumerate(shape)
        )
    ]


def _regions(call: Call) -> list[Shape]:
    height, width = int(call.attribute("pooled_height") or 1), int(call.attribute("pooled_width") or 1)
    return [(call.shape(1)[0], call.shape(0)[1], height, width)]


def _embedded(call: Call) -> list[Shape]:
    ids = call.shape(0)
    if call.op.source == "lookup_table" and ids[-1:] == (1,):
        ids = ids[:-1]
    return [(*ids, call.shape(1)[-1])]


def _gathered(call: Call) -> list[Shape]:
    shape, index = call.shape(0), call.shape(1)
    axis = call.number(2, "axis", "dim") % max(len(shape), 1)
    return [(*shape[:axis], *(index if call.op.name == "gather" else (math.prod(index),)), *shape[axis + 1 :])]


def _gathered_nd(call: Call) -> list[Shape]:
    shape, index = call.shape(0), call.shape(1)
    return [(*index[:-1], *shape[index[-1] :])]


def _largest(call: Call) -> list[Shape]:
    shape = call.shape(0)
    axis = int(call.attribute("axis") if call.attribute("axis") is not None else -1) % max(len(shape), 1)
    return [tuple(call.number(1, "k") if i == axis else size for i, size in enumerate(shape))] * 2


def _chosen(call: Call) -> list[Shape]:
    shape = call.shape(0)
    if call.attribute("flatten"):
        return [()]
    axis = call.number(1, "axis") % max(len(shape), 1)
    kept = bool(call.attribute("keepdims", "keepdim"))
    return [tuple(1 if i == axis else size for i, size in enumerate(shape) if kept or i != axis)]


def _filled(slot: int) -> Callable[[Call], list[Shape]]:
    return lambda call: [tuple(call.numbers(slot, "shape"))]


def _like_batch(call: Call) -> list[Shape]:
    found = call.numbers(9, "shape")
    place, source = (int(call.attribute(n) or 0) for n in ("output_dim_idx", "input_dim_idx"))
    found[place] = call.shape(0)[source]
    return [tuple(found)]


def _counted(call: Call) -> list[Shape]:
    start, end, step = (call.scalar(i) for i in range(3))
    return [(max(0, math.ceil((end - start) / step)) if step else 0,)]


def _hot(call: Call) -> list[Shape]:
    return [(*call.shape(0), call.number(1, "depth", "num_classes"))]


def _resized(call: Call) -> list[Shape]:
    shape = call.shape(0)
    where = spatial(call, shape)
    rank = len(shape) - 2
    out = call.numbers(2) or call.numbers(1)
    if not out:
        out = [int(v) for n in ("out_d", "out_h", "out_w")[3 - rank :] if (v := call.attribute(n)) and int(v) > 0]
    scale = call.attribute("scale") or []
    scale = scale if isinstance(scale, list) else [scale]
    if len(out) != rank:
        scale = list(scale) * (rank if len(scale) == 1 else 1)
        if len(scale) != rank:
            raise ShapeError(f"{call.op.source} of {shape}: its size follows from no value known here; export it fixed")
        out = [int(size * float(by)) for size, by in zip(shape[where], scale, strict=True)]
    return [_placed(call, shape[0], shape[-1] if call.channels_last() else shape[1], out)]


def _padded(call: Call) -> list[Shape]:
    shape, pads = list(call.shape(0)), call.numbers(1, "paddings")
    if call.op.name == "pad":
        return [tuple(size + pads[2 * i] + pads[2 * i + 1] for i, size in enumerate(shape))]
    axes = range(len(shape))[spatial(call, tuple(shape))]
    if call.op.source == "pad2d":
        pairs = [pads[2 * i : 2 * i + 2] for i in range(len(pads) // 2)]
    else:  # from the last axis on
        pairs = [pads[2 * i : 2 * i + 2] for i in range(len(pads) // 2)][::-1]
    for axis, pair in zip(axes, pairs, strict=True):
        shape[axis] += sum(pair)
    return [tuple(shape)]


def _shuffled(up: bool) -> Callable[[Call], list[Shape]]:
    def shape_of(call: Call) -> list[Shape]:
        data = call.shape(0)
        by = int(call.attribute("upscale_factor", "downscale_factor", "blocksize") or 1)
        channels = data[-1] if call.channels_last() else data[1]
        sizes = data[spatial(call, data)]
        out = [size * by if up else size // by for size in sizes]
        return [_placed(call, data[0], channels // by**2 if up else channels * by**2, out)]

    return shape_of


def _unfolded(call: Call) -> list[Shape]:
    batch, channels, *sizes = call.shape(0)
    kernel = call.numbers(9, "kernel_sizes")
    pads = call.numbers(9, "paddings")
    pads = pads * 2 if len(pads) == 2 else pads * 4 if len(pads) == 1 else pads
    stride, dilation = (_each(call.attribute(n), 2, 1) for n in ("strides", "dilations"))
    out = [places(size, kernel[i], stride[i], dilation[i], pads[i], pads[i + 2]) for i, size in enumerate(sizes)]
    return [(batch, channels * math.prod(kernel), math.prod(out))]


def _sampled(call: Call) -> list[Shape]:
    data, grid = call.shape(0), call.shape(1)
    return [(*data[:2], *grid[1:-1])]


def _recurrent(call: Call) -> list[Shape]:
    directions = 2 if call.attribute("is_bidirec") else 1
    return [(*call.shape(0)[:-1], int(call.attribute("hidden_size") or 0) * directions)]


def _attended(call: Call) -> list[Shape]:
    if call.op.name == "multihead_matmul":
        return [call.shape(0)]
    q, v = call.shape(0), call.shape(2)
    return [(*q[:-1], v[-1])]


def _einsum(call: Call) -> list[Shape]:
    sizes, kept, _ = einsum(str(call.attribute("equation") or ""), [t.shape for t in call.members(0)])
    return [tuple(sizes[letter] for letter in kept)]


def _gated(call: Call) -> list[Shape]:
    shape = call.shape(0)
    return [(*shape[:-1], shape[-1] // 2) if len(call.flat()) == 1 else shape]


_LISTED: tuple[tuple[str, Rule], ...] = (
    ("conv2d_transpose conv3d_transpose depthwise_conv2d_transpose conv2d_transpose_bias", _transposed),
    ("pool2d pool3d max_pool2d_with_index max_pool3d_with_index lp_pool2d max_pool2d_v2", _pooled),
    ("matmul legacy_matmul bmm mv dot addmm baddbmm fused_gemm_epilogue", _product),
    ("matmul_with_flatten fc", _by_rows),
    ("weight_only_linear llm_int8_linear", _linear),
    ("reshape legacy_reshape", _reshaped),
    ("squeeze", _squeezed),
    ("unsqueeze", _unsqueezed),
    ("flatten", _flattened),
    ("flatten_to_matrix", _to_matrix),
    ("transpose", _permuted),
    ("concat", _concatenated),
    ("stack", _stacked),
    ("unstack unbind", _unstacked),
    ("split split_with_num", _split),
    ("slice strided_slice", _sliced),
    ("expand", _expanded),
    ("expand_as", lambda call: [call.shape(1) if len(call.inputs) > 1 else tuple(call.numbers(9, "target_shape"))]),
    ("tile", _tiled),
    ("repeat_interleave repeat_interleave_with_tensor_index", _interleaved),
    ("roi_align roi_pool", _regions),
    ("embedding c_embedding", _embedded),
    ("gather index_select", _gathered),
    ("gather_nd", _gathered_nd),
    ("take_along_axis index_sample", lambda call: [call.shape(1)]),
    ("topk", _largest),
    ("argmax argmin", _chosen),
    ("full assign_value zeros ones", _filled(0)),
    ("full_with_tensor", _filled(1)),
    ("empty gaussian uniform randint truncated_gaussian_random", _filled(0)),
    ("full_like empty_like zeros_like ones_like fill bernoulli", lambda call: [call.shape(0)]),
    ("full_batch_size_like", _like_batch),
    ("arange", _counted),
    ("one_hot", _hot),
    ("shape shape64", lambda call: [(len(call.shape(0)),)]),
    ("numel", lambda call: [()]),
    ("nearest_interp bilinear_interp bicubic_interp trilinear_interp linear_interp interp_antialias", _resized),
    ("pad pad3d", _padded),
    ("pixel_shuffle", _shuffled(True)),
    ("pixel_unshuffle space_to_depth", _shuffled(False)),
    ("channel_shuffle temporal_shift set_value set_value_with_tensor increment", lambda call: [call.shape(0)]),
    ("prelu scale swish clip pow", lambda call: [call.shape(0)]),
    ("select_input", lambda call: [call.shape(1)]),
    ("unfold", _unfolded),
    ("grid_sample", _sampled),
    ("rnn", _recurrent),
    ("flash_attn memory_efficient_attention multihead_matmul self_dp_attention", _attended),
    ("einsum", _einsum),
    ("swiglu", _gated),
    ("quantize_linear dequantize_linear", lambda call: [call.shape(0)]),
    ("add_n", lambda call: [broadcast([t.shape for t in call.members(0)], call.op.source)]),
    ("meshgrid", lambda call: [tuple(t.shape[0] for t in call.members(0))] * len(call.op.outputs)),
)
_RULES = {name: rule for names, rule in _LISTED for name in names.split()}
