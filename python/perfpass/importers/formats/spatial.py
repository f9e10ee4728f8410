"""Convolutions, pools and contractions of channels-last programs: sizes of results, kernels as [O, I, spatial...].

Rules of sizes: the documentation of tf.nn.convolution ("SAME", "VALID") and of keras.layers.Conv2DTranspose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfpass.errors import ShapeError
from perfpass.importers.formats.channels_last import AXIS, IMAGE, ROWS, Program, Tensor, kernel_first
from perfpass.importers.formats.shapes import places, same_padding

_HIGHEST_RANK = 3

Pads = list[tuple[int, int]]


def slid(size: int, kernel: int, stride: int, dilation: int, padding: str | tuple[int, int]) -> tuple[int, int, int]:
    """(positions of a window along one axis, cells before it, cells after it). ``padding``: same, valid, causal, or
    the cells themselves.
    """
    if padding == "same":
        return -(-size // stride), *same_padding(size, kernel, stride, dilation)
    causal = (kernel - 1) * dilation if padding == "causal" else 0
    begin, end = padding if isinstance(padding, tuple) else (causal, 0)
    return max(places(size, kernel, stride, dilation, begin, end), 0), begin, end


def _columns(**columns: Sequence[int]) -> dict[str, int]:
    return {f"{name}_{i}": int(v) for name, values in columns.items() for i, v in enumerate(values[:_HIGHEST_RANK])}


def _spatial(x: Tensor, last: bool) -> tuple[int, ...]:
    return x.shape[1:-1] if last else x.shape[2:]


def _image(x: Tensor, channels: int, sizes: Sequence[int], last: bool) -> tuple[int, ...]:
    return (x.shape[0], *sizes, channels) if last else (x.shape[0], channels, *sizes)


def _paddings(padding: str | Pads, rank: int) -> list[str | tuple[int, int]]:
    return [padding] * rank if isinstance(padding, str) else list(padding)


def convolution(
    program: Program,
    source: str,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    padding: str | Pads,
    depthwise: bool = False,
    last: bool = True,
) -> Tensor:
    """A convolution of ``x`` [N, spatial..., C] (or [N, C, spatial...]) by a kernel [spatial..., I, O].

    The groups are C / I; of a depthwise one the kernel is [spatial..., C, M]. Raises ShapeError.
    """
    rank = len(x.shape) - 2
    if not 1 <= rank <= _HIGHEST_RANK or len(weight.shape) != rank + 2 or not len(strides) == len(dilations) == rank:
        raise ShapeError(f"{source} of {x.shape} by a kernel of {weight.shape}, which do not go together")
    *kernel, per_group, out = weight.shape
    channels = x.shape[-1] if last else x.shape[1]
    groups = channels if depthwise else channels // max(per_group, 1)
    if (per_group != channels) if depthwise else (groups * per_group != channels or groups < 1 or out % groups):
        raise ShapeError(f"{source} of {channels} channels by a kernel of {weight.shape}, which takes {per_group}")
    if depthwise:
        out *= channels
    steps = [
        slid(*axis)
        for axis in zip(_spatial(x, last), kernel, strides, dilations, _paddings(padding, rank), strict=True)
    ]
    attributes = {"spatial_rank": rank, "groups": groups, "weight_layout": 0}
    attributes |= _columns(
        kernel=kernel,
        stride=strides,
        dilation=dilations,
        pad_begin=[s[1] for s in steps],
        pad_end=[s[2] for s in steps],
    )
    order = [rank, rank + 1, *range(rank)] if depthwise else [rank + 1, rank, *range(rank)]
    inputs = [x, _kernel(program, weight, order, groups if depthwise else 1)]
    if bias is not None:
        inputs.append(bias)
    shape = _image(x, out, [s[0] for s in steps], last)
    return program.one("conv", source, inputs, shape, x.dtype, IMAGE if last else ROWS, columns=attributes)


def transposed(
    program: Program,
    source: str,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    sizes: Sequence[int],
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    last: bool = True,
) -> Tensor:
    """A transposed convolution by a kernel [spatial..., O, I] to results of ``sizes``. Raises ShapeError."""
    rank = len(x.shape) - 2
    channels = x.shape[-1 if last else 1] if rank >= 1 else 0
    if not 1 <= rank <= _HIGHEST_RANK or len(weight.shape) != rank + 2 or weight.shape[-1] != channels:
        raise ShapeError(f"{source} of {x.shape} by a kernel of {weight.shape}, which do not go together")
    kernel, out = weight.shape[:rank], weight.shape[rank]
    attributes = {"spatial_rank": rank, "groups": 1, "weight_layout": 2}
    attributes |= _columns(kernel=kernel, stride=strides, dilation=dilations)
    inputs = [x, _kernel(program, weight, [rank + 1, rank, *range(rank)], 1)]
    if bias is not None:
        inputs.append(bias)
    shape = _image(x, out, sizes, last)
    return program.one("conv_transpose", source, inputs, shape, x.dtype, IMAGE if last else ROWS, columns=attributes)


def _kernel(program: Program, weight: Tensor, order: Sequence[int], groups: int) -> Tensor:
    if weight.constant:
        return kernel_first(weight, order, groups)
    shown = program.transpose(weight, order, view=1)
    if groups == 1:
        return shown
    return program.reshape(shown, (math.prod(shown.shape[:2]), 1, *shown.shape[2:]))


def pool(
    program: Program,
    kind: str,
    source: str,
    x: Tensor,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: str | Pads,
    last: bool = True,
) -> Tensor:
    """``kind`` max_pool or avg_pool over windows. Raises ShapeError."""
    rank = len(x.shape) - 2
    if not 1 <= rank <= _HIGHEST_RANK or not len(kernel) == len(strides) == rank:
        raise ShapeError(f"{source} of {x.shape} by windows of {tuple(kernel)}, which do not go together")
    paddings = _paddings(padding, rank)
    steps = [slid(size, k, s, 1, p) for size, k, s, p in zip(_spatial(x, last), kernel, strides, paddings, strict=True)]
    attributes = {"spatial_rank": rank} | _columns(
        kernel=kernel,
        stride=strides,
        dilation=[1] * rank,
        pad_begin=[s[1] for s in steps],
        pad_end=[s[2] for s in steps],
    )
    shape = _image(x, x.shape[-1 if last else 1], [s[0] for s in steps], last)
    return program.one(kind, source, [x], shape, layout=IMAGE if last else ROWS, columns=attributes)


def global_pool(program: Program, kind: str, source: str, x: Tensor, keep: bool, last: bool = True) -> Tensor:
    """``kind`` global_avg_pool or global_max_pool over all of [N, spatial..., C]; [N, C] unless ``keep``."""
    if len(x.shape) < 3:
        raise ShapeError(f"{source} of {x.shape}, which has no axis to pool")
    sizes = _spatial(x, last)
    channels = x.shape[-1] if last else x.shape[1]
    attributes = {"spatial_rank": min(len(sizes), _HIGHEST_RANK)} | _columns(kernel=sizes)
    shape = _image(x, channels, [1] * len(sizes), last)
    pooled = program.one(kind, source, [x], shape, layout=IMAGE if last else ROWS, columns=attributes)
    return pooled if keep else program.reshape(pooled, (x.shape[0], channels))


def reduced(
    program: Program, kind: str, source: str, x: Tensor, axes: Sequence[int], keep: bool, dtype: str | None = None
) -> Tensor:
    """A reduction over ``axes``; a mean over the spatial axes of an image is a global average pool."""
    rank = len(x.shape)
    if any(not -rank <= a < rank for a in axes):
        raise ShapeError(f"{source} of {x.shape} over axes {list(axes)}, which it does not have")
    over = sorted({a % rank for a in axes})
    if kind in ("reduce_mean", "reduce_max") and rank in (4, 5) and over == list(range(1, rank - 1)):
        return global_pool(program, "global_avg_pool" if kind == "reduce_mean" else "global_max_pool", source, x, keep)
    shape = [1 if a in over else s for a, s in enumerate(x.shape) if keep or a not in over]
    attributes = {"axis": over[-1]} if over else {}
    return program.one(kind, source, [x], shape, dtype, AXIS, columns=attributes)


def contraction(program: Program, source: str, equation: str, a: Tensor, b: Tensor) -> Tensor:
    """An einsum of two operands as a matrix product between views: a dense layer where ``b`` is a constant.

    What is no product of matrices (a label that one operand alone has and that is summed, a repeated label) is an
    einsum. Raises ShapeError for an equation that does not fit the shapes.
    """
    left, right, out = _labels(equation, a, b, source)
    sizes: dict[str, int] = {}
    for labels, tensor in ((left, a), (right, b)):
        for label, size in zip(labels, tensor.shape, strict=True):
            if sizes.setdefault(label, size) != size and size != 1:
                if sizes[label] != 1:
                    raise ShapeError(f"{source} {equation} of {a.shape} and {b.shape}: two sizes for {label}")
                sizes[label] = size
    if any(label not in sizes for label in out):
        raise ShapeError(f"{source} {equation} has labels in its result that its operands do not have")
    shape = [sizes[label] for label in out]
    batch = [c for c in left if c in right and c in out]
    summed = [c for c in left if c in right and c not in out]
    rows, columns = [[c for c in side if c not in batch + summed] for side in (left, right)]
    plain = all(len(set(side)) == len(side) for side in (left, right, out)) and set(rows + columns) <= set(out)
    plain = plain and all(
        sizes[c] == s for side, t in ((left, a), (right, b)) for c, s in zip(side, t.shape, strict=True)
    )
    length = math.prod(sizes[c] for c in summed)
    if not plain or not summed:
        return program.one("einsum", source, [a, b], shape, a.dtype, contraction=max(length, 1))

    def of(labels: Sequence[str]) -> list[int]:
        return [sizes[c] for c in labels]

    def ordered(tensor: Tensor, labels: str, order: Sequence[str]) -> Tensor:
        by = [labels.index(c) for c in order]
        return tensor if by == sorted(by) else program.transpose(tensor, by, view=1)

    if b.constant and not batch:
        data = ordered(a, left, [*rows, *summed])
        data = program.reshape(data, (*of(rows), length))
        wide = math.prod(of(columns))
        if [right.index(c) for c in summed + columns] == list(range(len(right))):
            b.shown = (length, wide)
            product = program.one("dense", source, [data, b], (*of(rows), wide), a.dtype)
        else:
            b.shown = (wide, length)
            product = program.one("dense", source, [data, b], (*of(rows), wide), a.dtype, transpose_b=1)
    else:
        first = program.reshape(ordered(a, left, [*batch, *rows, *summed]), (*of(batch), math.prod(of(rows)), length))
        second = ordered(b, right, [*batch, *columns, *summed])
        second = program.reshape(second, (*of(batch), math.prod(of(columns)), length))
        made = (*of(batch), first.shape[-2], second.shape[-2])
        product = program.one("matmul", source, [first, second], made, a.dtype, transpose_b=1)
    whole = program.reshape(product, of([*batch, *rows, *columns]))
    return ordered(whole, "".join([*batch, *rows, *columns]), list(out))


def _labels(equation: str, a: Tensor, b: Tensor, source: str) -> tuple[str, str, str]:
    """The labels of both operands and of the result; "..." has become capital Greek letters, one an axis."""
    sides, arrow, out = equation.replace(" ", "").partition("->")
    terms = sides.split(",")
    if len(terms) != 2 or len(equation) > 200:
        raise ShapeError(f"{source} of the equation {equation[:100]!r} with two operands")
    spread: list[str] = []
    for term, tensor in zip(terms, (a, b), strict=True):
        more = len(tensor.shape) - len(term.replace("...", ""))
        if more < 0 or (more and "..." not in term):
            raise ShapeError(f"{source} {equation} of {a.shape} and {b.shape}, which do not go together")
        spread.append("".join(chr(0x391 + 20 - more + i) for i in range(more)))
    dots = max(spread, key=len)
    left, right = (term.replace("...", own) for term, own in zip(terms, spread, strict=True))
    if not arrow:
        both = left + right
        out = dots + "".join(sorted(c for c in set(both) if both.count(c) == 1 and c not in dots))
    return left, right, out.replace("...", dots)
