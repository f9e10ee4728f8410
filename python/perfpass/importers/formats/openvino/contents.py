"""What shape arithmetic computes: whole numbers of at most 4,096 elements, followed through a model's layers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from perfpass.importers.formats.openvino.document import Layer
from perfpass.importers.formats.openvino.shapes import (
    MOST_VALUES,
    Known,
    Unresolved,
    bounds,
    contents,
    given,
    numbers,
    shapes,
    split_shapes,
)
from perfpass.importers.formats.shapes import Shape


def follow(layer: Layer, inputs: list[Known | None], outputs: list[Known]) -> None:
    """Writes what outputs hold, where the inputs' contents are followed and they are small."""
    ins = [k for k in inputs if k is not None]
    if not ins or len(ins) != len(inputs) or not outputs or math.prod(outputs[0].shape) > MOST_VALUES:
        return
    if layer.kind == "ShapeOf":
        outputs[0].held = np.array(ins[0].shape, np.int64)
        return
    rule = _CONTENTS.get(layer.kind)
    if rule is None or any(k.held is None for k in ins):
        return
    try:
        if shapes(layer, inputs)[0] != outputs[0].shape:  # before anything of another size is made
            return
        with np.errstate(all="ignore"):
            found = rule(layer, ins, outputs[0].shape)
    except (IndexError, ValueError, TypeError, OverflowError, Unresolved):
        return
    for known, value in zip(outputs, found if isinstance(found, list) else [found], strict=False):
        if value.shape == known.shape:
            kind = np.bool_ if known.dtype == "bool" else np.float64 if "float" in known.dtype else np.int64
            known.held = value.astype(kind)


def _binary(function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda layer, ins, shape: np.asarray(function(contents(ins[0]), contents(ins[1])))


def _divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a // b if a.dtype.kind == "i" and b.dtype.kind == "i" else a / b


def _parts(layer: Layer, ins: list[Known], shape: Shape) -> list[np.ndarray]:
    axis = given(ins[1])[0]
    ends = np.cumsum([s[axis] for s in split_shapes(layer, ins)])[:-1]
    return np.split(contents(ins[0]), ends, axis)


_CONTENTS: dict[str, Callable[[Layer, list[Known], Shape], np.ndarray | list[np.ndarray]]] = {
    **dict.fromkeys(("Split", "VariadicSplit"), _parts),
    "Add": _binary(np.add),
    "Subtract": _binary(np.subtract),
    "Multiply": _binary(np.multiply),
    "Divide": _binary(_divided),
    "Maximum": _binary(np.maximum),
    "Minimum": _binary(np.minimum),
    "Mod": _binary(np.mod),
    "FloorMod": _binary(np.mod),
    "Equal": _binary(np.equal),
    "NotEqual": _binary(np.not_equal),
    "Less": _binary(np.less),
    "LessEqual": _binary(np.less_equal),
    "Greater": _binary(np.greater),
    "GreaterEqual": _binary(np.greater_equal),
    "Convert": lambda layer, ins, shape: contents(ins[0]),
    "Floor": lambda layer, ins, shape: np.floor(contents(ins[0])),
    "Ceiling": lambda layer, ins, shape: np.ceil(contents(ins[0])),
    "Negative": lambda layer, ins, shape: -contents(ins[0]),
    "Sqrt": lambda layer, ins, shape: np.sqrt(contents(ins[0])),
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze"), lambda layer, ins, shape: contents(ins[0]).reshape(shape)),
    "Concat": lambda layer, ins, shape: np.concatenate([contents(k) for k in ins], axis=numbers(layer.data, "axis")[0]),
    "Gather": lambda layer, ins, shape: np.take(
        contents(ins[0]), contents(ins[1]).astype(np.int64), axis=given(ins[2])[0]
    ),
    "Select": lambda layer, ins, shape: np.where(contents(ins[0]).astype(bool), contents(ins[1]), contents(ins[2])),
    "Broadcast": lambda layer, ins, shape: np.broadcast_to(contents(ins[0]), shape),
    "Range": lambda layer, ins, shape: np.arange(*(given(k)[0] for k in ins)),
    "ReduceProd": lambda layer, ins, shape: np.prod(contents(ins[0]), axis=tuple(given(ins[1]))).reshape(shape),
    "ReduceSum": lambda layer, ins, shape: np.sum(contents(ins[0]), axis=tuple(given(ins[1]))).reshape(shape),
    "ReduceMax": lambda layer, ins, shape: np.max(contents(ins[0]), axis=tuple(given(ins[1]))).reshape(shape),
    "ReduceMin": lambda layer, ins, shape: np.min(contents(ins[0]), axis=tuple(given(ins[1]))).reshape(shape),
    **dict.fromkeys(("Slice", "StridedSlice"), lambda layer, ins, shape: contents(ins[0])[bounds(layer, ins)]),
}
