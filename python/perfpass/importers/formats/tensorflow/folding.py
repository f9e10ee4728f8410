"""The arithmetic of shapes in a TensorFlow graph, on values that are small and known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from perfpass.errors import FormatError, LimitError
from perfpass.importers.formats.tensorflow.graph_def import NodeDef

_MOST_ELEMENTS = 4_096
_BY_DTYPE = {
    "float32": np.float32, "float64": np.float64, "float16": np.float16, "int8": np.int8, "int16": np.int16,
    "int32": np.int32, "int64": np.int64, "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32,
    "uint64": np.uint64, "bool": np.bool_,
}  # fmt: skip
_NAMES = {np.dtype(form): name for name, form in _BY_DTYPE.items()}


def dtype_of(value: np.ndarray) -> str:
    """The name of a value's type."""
    return _NAMES.get(value.dtype, "undefined")


_TWO: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "Add": np.add, "AddV2": np.add, "Sub": np.subtract, "Mul": np.multiply, "FloorDiv": np.floor_divide,
    "FloorMod": np.mod, "Mod": np.fmod, "RealDiv": np.divide, "Maximum": np.maximum, "Minimum": np.minimum,
    "Equal": np.equal, "NotEqual": np.not_equal, "Less": np.less, "LessEqual": np.less_equal, "Greater": np.greater,
    "GreaterEqual": np.greater_equal, "LogicalAnd": np.logical_and, "LogicalOr": np.logical_or,
}  # fmt: skip
_ONE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Neg": np.negative, "Abs": np.abs, "Floor": np.floor, "Ceil": np.ceil, "Round": np.round, "Sqrt": np.sqrt,
    "LogicalNot": np.logical_not, "Square": np.square, "Sign": np.sign, "Rint": np.rint, "Identity": np.asarray,
    "StopGradient": np.asarray, "Snapshot": np.asarray, "ZerosLike": np.zeros_like, "OnesLike": np.ones_like,
}  # fmt: skip
_REDUCE: dict[str, Callable[..., np.ndarray]] = {
    "Prod": np.prod, "Sum": np.sum, "Max": np.max, "Min": np.min, "Mean": np.mean, "All": np.all, "Any": np.any
}  # fmt: skip


def indices(node: NodeDef, begin: Sequence[int], end: Sequence[int], steps: Sequence[int], rank: int) -> list[object]:
    """The keys of a StridedSlice: slices, numbers, None for a new axis, and no ellipsis."""
    masks = {
        name: node.attributes.integer(f"{name}_mask")
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    if not len(begin) == len(end) == len(steps):
        raise FormatError("a StridedSlice with unequal numbers of begins, ends and steps; the file is damaged")
    bits = [{name: bool(mask >> i & 1) for name, mask in masks.items()} for i in range(len(begin))]
    used = sum(not b["ellipsis"] and not b["new_axis"] for b in bits)
    keys: list[object] = []
    for b, first, last, step in zip(bits, begin, end, steps, strict=True):
        if b["ellipsis"]:
            keys += [slice(None)] * max(rank - used, 0)
        elif b["new_axis"]:
            keys.append(None)
        elif b["shrink_axis"]:
            keys.append(first)
        elif step == 0:
            raise FormatError("a StridedSlice of step 0; the file is damaged")
        else:
            keys.append(slice(None if b["begin"] else first, None if b["end"] else last, step))
    return keys


def _strided(node: NodeDef, values: list[np.ndarray]) -> np.ndarray:
    data, *rest = values
    begin, end, steps = ([int(v) for v in part.reshape(-1)] for part in rest)
    keys = indices(node, begin, end, steps, data.ndim)
    return np.asarray(data[tuple(keys)])  # type: ignore[arg-type]


def _reduced(node: NodeDef, values: list[np.ndarray]) -> np.ndarray:
    axes = tuple(int(a) for a in values[1].reshape(-1))
    found = _REDUCE[node.op](values[0], axis=axes, keepdims=node.attributes.flag("keep_dims"))
    return np.asarray(found).astype(bool if node.op in ("All", "Any") else values[0].dtype)


def _each(function: Callable[..., np.ndarray], operands: int) -> Callable[[NodeDef, list[np.ndarray]], np.ndarray]:
    """Element by element, where not too much comes of it."""

    def compute(_: NodeDef, values: list[np.ndarray]) -> np.ndarray:
        _bounded(np.broadcast_shapes(*(value.shape for value in values[:operands])))
        return function(*values[:operands])

    return compute


def _fill(_: NodeDef, values: list[np.ndarray]) -> np.ndarray:
    return np.full(_bounded(values[0].reshape(-1)), values[1])


def _bounded(sizes: Sequence[int] | np.ndarray) -> tuple[int, ...]:
    found = tuple(int(s) for s in sizes)
    if math.prod(found) > _MOST_ELEMENTS:
        raise LimitError("more elements than are followed")
    return found


def _range(_: NodeDef, values: list[np.ndarray]) -> np.ndarray:
    start, limit, step = (v.item() for v in values)
    _bounded([max(math.ceil((limit - start) / step), 0)])
    return np.arange(start, limit, step, dtype=values[0].dtype)


def _cast(node: NodeDef, values: list[np.ndarray]) -> np.ndarray | None:
    form = _BY_DTYPE.get(node.attributes.dtype("DstT"))
    return None if form is None else values[0].astype(form)


def _gather(node: NodeDef, values: list[np.ndarray]) -> np.ndarray:
    if node.attributes.integer("batch_dims"):
        raise LimitError("a gather by batches is not followed")
    axis = int(values[2]) if len(values) > 2 else 0
    _bounded([values[1].size, *np.delete(values[0].shape, axis)])
    return np.take(values[0], values[1], axis)


def _tile(_: NodeDef, values: list[np.ndarray]) -> np.ndarray:
    times = [int(t) for t in values[1].reshape(-1)]
    _bounded([values[0].size, *times])
    return np.tile(values[0], times)


def _squeeze(node: NodeDef, values: list[np.ndarray]) -> np.ndarray:
    axes = node.attributes.integers("squeeze_dims") or node.attributes.integers("axis")
    return np.squeeze(values[0], tuple(axes) if axes else None)


FOLDED: dict[str, Callable[[NodeDef, list[np.ndarray]], np.ndarray | None]] = {
    **{name: _each(f, 2) for name, f in _TWO.items()},
    **{name: lambda n, v, f=f: f(v[0]) for name, f in _ONE.items()},  # type: ignore[misc]
    **dict.fromkeys(_REDUCE, _reduced),
    "StridedSlice": _strided,
    "Cast": _cast,
    "Fill": _fill,
    "Range": _range,
    "Tile": _tile,
    "Gather": _gather,
    "GatherV2": _gather,
    "Select": _each(np.where, 3),
    "SelectV2": _each(np.where, 3),
    "Squeeze": _squeeze,
    "Pack": lambda n, v: np.stack(v, n.attributes.integer("axis")),
    "ConcatV2": lambda n, v: np.concatenate(v[:-1], int(v[-1])),
    "Concat": lambda n, v: np.concatenate(v[1:], int(v[0])),
    "Reshape": lambda n, v: v[0].reshape([int(s) for s in v[1].reshape(-1)]),
    "ExpandDims": lambda n, v: np.expand_dims(v[0], int(v[1].reshape(-1)[0])),
    "Transpose": lambda n, v: np.transpose(v[0], [int(a) for a in v[1]]),
    "Slice": lambda n, v: v[0][
        tuple(slice(int(b), None if s < 0 else int(b) + int(s)) for b, s in zip(v[1], v[2], strict=True))
    ],
    "BroadcastTo": lambda n, v: np.broadcast_to(v[0], _bounded(v[1])).copy(),
    "InvertPermutation": lambda n, v: np.argsort(v[0]).astype(v[0].dtype),
    "ReverseV2": lambda n, v: np.flip(v[0], tuple(int(a) for a in v[1].reshape(-1))),
    "BroadcastArgs": lambda n, v: np.array(
        np.broadcast_shapes(*[tuple(int(s) for s in part) for part in v]), v[0].dtype
    ),
}


def fold(node: NodeDef, values: list[np.ndarray]) -> list[np.ndarray] | None:
    """What a node makes of known values; None where that is too large to follow, or no arithmetic of these."""
    if sum(value.size for value in values) > 4 * _MOST_ELEMENTS:
        return None
    try:
        with np.errstate(all="ignore"):
            found = FOLDED[node.op](node, values)
    except (ValueError, IndexError, TypeError, OverflowError, ZeroDivisionError, LimitError, MemoryError):
        return None
    if found is None or np.asarray(found).size > _MOST_ELEMENTS or np.asarray(found).dtype not in _NAMES:
        return None
    return [np.asarray(found)]


def whole(value: int) -> np.ndarray:
    """A number as TensorFlow counts."""
    return np.array(value, np.int32)
