"""Shape rules of ncnn's layers. A blob is (w), (h, w), (c, h, w) or (c, d, h, w): there is no batch in a file.

Source: ncnn's guide to its operators and its folder src/layer (BSD-3-Clause).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence

from perfpass.errors import ShapeError
from perfpass.importers.formats.ncnn.param import Layer
from perfpass.importers.formats.shapes import Shape, einsum, places, same_padding, spread, tiled

Rule = Callable[[Layer, "Sequence[Shape]"], list[Shape]]
_MISSING = -233
_MOST_WORDS, _LONGEST_NUMBER = 200, 18  # of the expression of a Reshape
_BINARY: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "max": max,
    "min": min,
}
# Order types of Permute: of (h, w), (c, h, w) and (c, d, h, w), which axis comes to each place.
_OF_FOUR = (
    "whdc hwdc wdhc dwhc hdwc dhwc whcd hwcd wchd cwhd hcwd chwd wdch dwch wcdh cwdh dcwh cdwh hdcw dhcw hcdw chdw "
    "dchw cdhw"
)
_AXES = ("", "w", "hw", "chw", "cdhw")  # of a blob by its rank
_ORDERS = {
    2: ((0, 1), (1, 0)),
    3: ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)),
    4: tuple(tuple("cdhw".index(axis) for axis in order[::-1]) for order in _OF_FOUR.split()),
}


def results(layer: Layer, given: Sequence[Shape]) -> list[Shape] | None:
    """Shapes of a layer's outputs in order; None where there is no rule for the layer.

    Raises ShapeError, and what Python raises where parameters and inputs do not fit one another.
    """
    rule = _RULES.get(layer.type)
    if rule is None:
        return None
    found = rule(layer, given)
    if any(size < 0 or size >= 1 << 48 for shape in found for size in shape):
        raise ShapeError(f"{layer}: inputs of {list(given)} leave {found} of its output; check input_shape")
    return found * len(layer.tops) if len(found) == 1 else found


def window(layer: Layer, sizes: Sequence[int], pooling: bool = False) -> list[tuple[int, int, int, int, int]]:
    """Per spatial axis, outer first: kernel, stride, dilation, padding before and after."""
    found = []
    for axis, size in zip("dhw"[-len(sizes) :], sizes, strict=True):
        kernel_w, dilation_w, stride_w, left = layer.whole(1), layer.whole(2, 1), layer.whole(3, 1), layer.whole(4)
        if pooling:
            dilation_w, stride_w, left = 1, layer.whole(2, 1), layer.whole(3)
        if axis == "w":
            kernel, dilation, stride, before = kernel_w, dilation_w, stride_w, left
            after = layer.whole(14 if pooling else 15, left)
        elif axis == "h":
            kernel = layer.whole(11, kernel_w)
            dilation = 1 if pooling else layer.whole(12, dilation_w)
            stride = layer.whole(12 if pooling else 13, stride_w)
            before = layer.whole(13 if pooling else 14, left)
            after = layer.whole(15 if pooling else 16, before)
        else:
            kernel, stride = layer.whole(21, kernel_w), layer.whole(22 if pooling else 23, stride_w)
            dilation = 1 if pooling else layer.whole(22, dilation_w)
            before = layer.whole(23 if pooling else 24, left)
            after = layer.whole(16 if pooling else 17, before)
        if min(kernel, stride, dilation) < 1:
            raise ShapeError(f"{layer}: a kernel of {kernel} with stride {stride} and dilation {dilation}")
        if before in (-233, -234):  # as many zeros as keep size / stride
            less, more = same_padding(size, kernel, stride, dilation)
            before, after = (less, more) if before == _MISSING else (more, less)
        found.append((kernel, stride, dilation, before, after))
    return found


def convolved(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    rank = 1 if "1D" in layer.type else 3 if "3D" in layer.type else 2
    sizes = given[0][-rank:]
    return [(layer.whole(0), *(places(size, *axis) for size, axis in zip(sizes, window(layer, sizes), strict=True)))]


def _transposed(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    rank = 1 if "1D" in layer.type else 3 if "3D" in layer.type else 2
    sizes = given[0][-rank:]
    right = layer.whole(18)
    extra = [layer.whole(20, right), layer.whole(19, right), right] if rank == 3 else [layer.whole(19, right), right]
    first = 25 if rank == 3 else 20
    wanted = [layer.whole(first + i, layer.whole(first)) for i in range(rank)][::-1]
    out = [
        spread(size, kernel, stride, dilation, max(before, 0), max(after, 0), more)
        for size, (kernel, stride, dilation, before, after), more in zip(
            sizes, window(layer, sizes), extra[-rank:], strict=True
        )
    ]
    return [(layer.whole(0), *(wanted if all(wanted) else out))]


def _pooled(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    rank = 1 if "1D" in layer.type else 3 if "3D" in layer.type else 2
    sizes, outer = given[0][-rank:], given[0][:-rank]
    if layer.whole(4):
        return [outer]
    if layer.whole(7):
        width = layer.whole(8)
        wanted = [layer.whole(28, width), layer.whole(18, width), width][-rank:]
        return [(*outer, *(size if want == _MISSING else want for want, size in zip(wanted, sizes, strict=True)))]
    mode, out = layer.whole(5), []
    for size, (kernel, stride, _, before, after) in zip(sizes, window(layer, sizes, pooling=True), strict=True):
        out.append(-(-size // stride) if mode > 1 else places(size, kernel, stride, 1, before, after, ceil=mode != 1))
    return [(*outer, *out)]


def _dense(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    shape, out = given[0], layer.whole(0)
    rows = len(shape) == 2 and shape[1] * out == layer.whole(2)
    return [(shape[0], out) if rows else (out,)]


def _reshaped(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    shape = given[0]
    if layer.text(6):
        return [_by_expression(layer, given)]
    wanted = [layer.whole(i, _MISSING) for i in (2, 11, 1, 0)]
    sizes = dict(zip(("whdc" if len(shape) == 4 else "whc"), shape[::-1], strict=False))
    found = [
        sizes.get(axis, 1) if want == 0 else want for axis, want in zip("cdhw", wanted, strict=True) if want != _MISSING
    ]
    return [_completed(layer, shape, found)]


def _by_expression(layer: Layer, given: Sequence[Shape]) -> Shape:
    """Sizes as pnnx writes them, w first: whole numbers, axes of inputs ("0w", "1h") and operators before their two
    operands ("//(768,2)"), so that the words are worked off from the last one.
    """
    found: list[int] = []
    words = [w for w in re.split(r"[(),\s]+", layer.text(6)) if w]
    if len(words) > _MOST_WORDS:
        raise ShapeError(f"{layer}: sizes of {len(words)} words; at most {_MOST_WORDS} are read")
    for word in reversed(words):
        if len(word) <= _LONGEST_NUMBER and word.lstrip("-").isdigit():
            found.append(int(word))
        elif len(word) == 2 and word[0].isdigit() and word[1] == "n":
            found.append(1)  # a blob has no batch
        elif len(word) == 2 and word[0].isdigit() and word[1] in "whdc":
            shape = given[int(word[0])]
            axes = "whdc" if len(shape) == 4 else "whc"
            found.append(shape[::-1][axes.index(word[1])])
        elif word in _BINARY and len(found) > 1:
            found.append(_BINARY[word](found.pop(), found.pop()))
        else:
            raise ShapeError(f"{layer}: a size of {word[:40]!r}; export the model with fixed shapes")
        if abs(found[-1]) >= 1 << 62:
            raise ShapeError(f"{layer}: a size of {found[-1]}; check the expression")
    return _completed(layer, given[0], found)


def _completed(layer: Layer, shape: Shape, found: list[int]) -> Shape:
    if found.count(-1) == 1:
        rest = math.prod(size for size in found if size != -1)
        found[found.index(-1)] = math.prod(shape) // rest if rest else 0
    if math.prod(found) != math.prod(shape):
        raise ShapeError(f"{layer}: {shape} cannot be shown as {tuple(found)}; check input_shape")
    return tuple(found)


def _permuted(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    shape = given[0]
    if len(shape) < 2:
        return [shape]
    return [tuple(shape[i] for i in _ORDERS.get(len(shape), ())[layer.whole(0)])]


def _joined(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    axis = layer.whole(0) % max(len(given[0]), 1)
    if len({(*s[:axis], *s[axis + 1 :]) for s in given}) > 1:
        raise ShapeError(f"{layer}: inputs of {list(given)} along axis {axis}; check input_shape")
    return [tuple(sum(s[i] for s in given) if i == axis else size for i, size in enumerate(given[0]))]


def broadcast(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    rank = max(len(s) for s in given)
    found = [1] * rank
    for shape in sorted(given, key=len):
        if len(shape) < rank and len(shape) == 1:  # along the outermost axis, where it fits there
            places = [0] if rank > 1 and shape[0] in (1, max(s[0] for s in given if len(s) == rank)) else [rank - 1]
        else:
            places = list(range(rank - len(shape), rank))
        for place, size in zip(places, shape, strict=True):
            if size != 1 and found[place] not in (1, size) and len(shape) == rank:
                raise ShapeError(f"{layer}: inputs of {list(given)} do not broadcast; check input_shape")
            found[place] = max(found[place], size)
    return [tuple(found)]


def _sliced(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    shape = given[0]
    axis = layer.whole(1) % max(len(shape), 1)
    indices, parts, used = layer.list_of(2), [], 0
    if indices:
        ends = [i + shape[axis] if i < 0 else i for i in indices] + [shape[axis]]
        parts = [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    else:
        asked = layer.list_of(0)
        for i, part in enumerate(asked):
            part = (shape[axis] - used) // (len(asked) - i) if part == _MISSING else part
            parts.append(part)
            used += part
    return [tuple(part if i == axis else size for i, size in enumerate(shape)) for part in parts]


def _cropped(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    shape = list(given[0])
    starts, ends, axes = layer.list_of(9), layer.list_of(10), layer.list_of(11)
    if starts:
        for axis, start, end in zip(axes or range(len(starts)), starts, ends, strict=True):
            shape[axis] = len(range(*slice(start, None if end == _MISSING else end).indices(shape[axis])))
        return [tuple(shape)]
    if len(given) > 1:
        return [given[1]]
    # (offset, size, offset from the end) of w, h, c and d
    numbers = {"w": (0, 3, 6), "h": (1, 4, 7), "c": (2, 5, 8), "d": (13, 14, 15)}
    for i, name in enumerate(_AXES[len(shape)]):
        offset, size, back = (layer.whole(n) for n in numbers[name])
        shape[i] = shape[i] - offset - back if size in (_MISSING, 0) else size
    return [tuple(shape)]


def _reduced(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    shape = given[0]
    axes = set(range(len(shape))) if layer.whole(1, 1) else {a % len(shape) for a in layer.list_of(3)}
    kept = bool(layer.whole(4))
    found = tuple(1 if i in axes else size for i, size in enumerate(shape) if kept or i not in axes)
    return [found or (1,)]


def _resized(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    shape = given[0]
    if len(given) > 1 and layer.whole(5):
        return [(shape[0], *given[1][-2:])]
    height, width = layer.whole(3), layer.whole(4)
    if len(shape) == 1:
        return [(shape[0], height or 1, width or 1)]
    if len(shape) == 2:
        return [(shape[0], width or int(shape[1] * layer.real(2, 1.0)))]
    return [(shape[0], height or int(shape[1] * layer.real(1, 1.0)), width or int(shape[2] * layer.real(2, 1.0)))]


def _padded(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    shape = list(given[0])
    shape[-1] += layer.whole(2) + layer.whole(3)
    if len(shape) > 1:
        shape[-2] += layer.whole(0) + layer.whole(1)
    if len(shape) > 2:
        shape[-3] += layer.whole(7) + layer.whole(8)
    return [tuple(shape)]


def _product(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    a, b = given[0], given[1]
    if layer.whole(0) and len(b) > 1:
        b = (*b[:-2], b[-1], b[-2])
    outer = broadcast(layer, [a[:-2] or (1,), b[:-2] or (1,)])[0] if max(len(a), len(b)) > 2 else ()
    return [(*outer, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))]


def gemm_sizes(layer: Layer, given: Sequence[Shape]) -> tuple[int, int, int]:
    """M, N and K of Gemm. Operands that the file holds have their sizes in its parameters."""
    blobs = list(given)
    a = None if layer.whole(4) else blobs.pop(0)
    b = None if layer.whole(5) else blobs.pop(0)
    if a is None:
        m, k = layer.whole(7), layer.whole(9)
    else:
        rows, columns = (a[-2] if len(a) > 1 else 1, a[-1])
        m, k = (columns, rows) if layer.whole(2) else (rows, columns)
    n = layer.whole(8) if b is None else b[-2 if layer.whole(3) else -1]
    return m, n, k


def _gemm(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    m, n, _ = gemm_sizes(layer, given)
    if layer.whole(14):
        m, n = n, m
    return [(m, 1, n) if layer.whole(11) else (m, n)]


def _recurrent(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    directions = 2 if layer.whole(2) == 2 else 1
    rows, hidden = given[0][0], layer.whole(0)
    states: list[Shape] = [(directions, hidden)] * (len(layer.tops) - 1)
    return [(rows, hidden * directions), *states]


def _squeezed(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    shape, axes = given[0], set()
    names = _AXES[len(shape)]
    asked = layer.list_of(3)
    for i, (name, size) in enumerate(zip(names, shape, strict=True)):
        flag = layer.whole({"w": 0, "h": 1, "c": 2, "d": 11}[name])
        if size == 1 and ((asked and i in {a % len(shape) for a in asked}) or (not asked and flag)):
            axes.add(i)
    return [tuple(size for i, size in enumerate(shape) if i not in axes) or (1,)]


def _expanded(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    found = list(given[0])
    for axis in layer.list_of(3) or [a for a, n in ((0, 2), (0, 1), (0, 0)) if layer.whole(n)]:
        found.insert(axis if axis >= 0 else axis + len(found) + 1, 1)
    return [tuple(found)]


def _tiled(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    shape, times = list(given[0]), layer.list_of(2)
    if times:
        return [tiled(shape, times)]
    shape[layer.whole(0) % len(shape)] *= layer.whole(1, 1)
    return [tuple(shape)]


def _shuffled(up: bool) -> Callable[[Layer, Sequence[Shape]], list[Shape]]:
    def shape_of(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
        (c, h, w), by = given[0], layer.whole(0, 1)
        return [(c // by**2, h * by, w * by) if up else (c * by**2, h // by, w // by)]

    return shape_of


def _memory(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    return [tuple(n for i in (2, 11, 1, 0) if (n := layer.whole(i))) or (1,)]


def _attended(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    queries = given[0]
    out = layer.whole(2) // max(layer.whole(0), 1) or queries[-1]
    return [(*queries[:-1], out if layer.type == "MultiHeadAttention" else given[2][-1])]


def _einsum(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    sizes, kept, _ = einsum(layer.text(0), given)
    if not set(kept) <= sizes.keys():
        raise ShapeError(f"{layer}: an equation of {layer.text(0)[:80]!r}")
    return [tuple(sizes[letter] for letter in kept)]


def _unfolded(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    c, *sizes = given[0]
    axes = window(layer, sizes)
    steps = [places(size, *axis) for size, axis in zip(sizes, axes, strict=True)]
    return [(c * math.prod(axis[0] for axis in axes), math.prod(steps))]


def _chosen(layer: Layer, given: Sequence[Shape]) -> list[Shape]:
    return [(layer.whole(1, 1),) if not layer.whole(0) else (2, layer.whole(1, 1))]


_SAME = (
    "AbsVal BatchNorm Bias BNLL Cast CELU Clip CopyTo CumulativeSum DeepCopy Dequantize Dropout ELU Erf Exp Flip GELU "
    "GroupNorm HardSigmoid HardSwish InstanceNorm LayerNorm Log LRN Mish MVN Noop Normalize Packing Power PReLU "
    "Quantize ReLU Requantize RMSNorm RotaryEmbed SELU ShuffleChannel Shrink Sigmoid Softmax Softplus Split Swish TanH "
    "Threshold UnaryOp"
)
_LISTED: tuple[tuple[str, Rule], ...] = (
    (_SAME, lambda layer, given: [given[0]]),
    (
        "Convolution ConvolutionDepthWise Convolution1D ConvolutionDepthWise1D Convolution3D "
        "ConvolutionDepthWise3D DeformableConv2D",
        convolved,
    ),
    (
        "Deconvolution DeconvolutionDepthWise Deconvolution1D DeconvolutionDepthWise1D Deconvolution3D "
        "DeconvolutionDepthWise3D",
        _transposed,
    ),
    ("Pooling Pooling1D Pooling3D", _pooled),
    ("InnerProduct", _dense),
    ("Embed", lambda layer, given: [(*given[0], layer.whole(0))]),
    ("Flatten", lambda layer, given: [(math.prod(given[0]),)]),
    ("Reshape", _reshaped),
    ("Permute", _permuted),
    ("Concat", _joined),
    ("BinaryOp", lambda layer, given: broadcast(layer, given[:1] if layer.whole(1) else given)),
    ("Eltwise", broadcast),
    ("Scale", lambda layer, given: [given[0]]),
    ("Slice", _sliced),
    ("Crop", _cropped),
    ("Reduction", _reduced),
    ("Interp", _resized),
    ("Padding", _padded),
    ("MatMul", _product),
    ("Gemm", _gemm),
    ("LSTM GRU RNN", _recurrent),
    ("Squeeze", _squeezed),
    ("ExpandDims", _expanded),
    ("Tile", _tiled),
    ("PixelShuffle", _shuffled(True)),
    ("Reorg", _shuffled(False)),
    ("MemoryData", _memory),
    ("MultiHeadAttention SDPA", _attended),
    ("Einsum", _einsum),
    ("Unfold", _unfolded),
    ("GLU", lambda layer, given: [_halved(given[0], layer.whole(0))]),
    ("ROIPooling ROIAlign", lambda layer, given: [(given[0][0], layer.whole(1), layer.whole(0))]),
    ("GridSample", lambda layer, given: [(given[0][0], *_grid(given[1]))]),
    ("ArgMax", _chosen),
    ("StatisticsPooling", lambda layer, given: [(given[0][0] * (2 if layer.whole(0) else 1),)]),
    ("Diag", lambda layer, given: [(given[0][0] + abs(layer.whole(0)),) * (2 if len(given[0]) == 1 else 1)]),
)
_RULES = {name: rule for names, rule in _LISTED for name in names.split()}


def _halved(shape: Shape, axis: int) -> Shape:
    axis %= len(shape)
    return tuple(size // 2 if i == axis else size for i, size in enumerate(shape))


def _grid(shape: Shape) -> Shape:
    """(h, w, 2), or (2, h, w) where pnnx has permuted it."""
    return shape[:2] if shape[-1] == 2 else shape[1:]
