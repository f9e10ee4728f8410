"""ONNX models to operator graphs, without the weights and without the onnx package.

The core maps the file and reads its structure alone; tensor data and external data files are never opened. Shapes come
from the file where it has them all, else from shape inference in the core.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfpass import _core
from perfpass.errors import ArgumentError, ShapeError, about
from perfpass.graph import OpGraph
from perfpass.graph.assumed import DETECTIONS, Assumed, checked
from perfpass.late import dataclass
from perfpass.text import shown_value

if TYPE_CHECKING:
    import onnx

    Model = str | os.PathLike[str] | bytes | bytearray | memoryview | onnx.ModelProto


@dataclass(frozen=True)
class Input:
    """One input of a model as its file declares it.

    ``shape`` holds a size per axis: an int where the file fixes it, a symbol's name where it does not, and
    ``"name:axis"`` where it leaves the axis open without a name. Such a string is a key for ``dims``. None: no shape.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None


def read(
    model: Model,
    *,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    assume: Mapping[str, int] | None = None,
) -> OpGraph:
    """Read an ONNX model, given as a path, as serialized bytes or as a ``ModelProto``.

    ``dims`` gives values to symbolic dimensions by name (``{"seq": 128}``), ``input_shapes`` whole shapes to inputs by
    name, and ``batch`` sets the first dimension of the inputs, also where the file fixes another. ``assume``: how many
    boxes of an image a detector finds (`perfpass.graph.assumed`), where its scores decide a size: of a NonZero of
    scores over a threshold, 100 if not stated; of a NonMaxSuppression, its own limit.

    Raises FileError (nothing readable there), FormatError (not an ONNX model, or a damaged one), LimitError (a bound is
    exceeded), GraphError (a cycle, a missing tensor), ShapeError (a symbolic dimension without a value, shapes that
    contradict each other), ArgumentError (a name that the model does not have, a size below 1) and UnsupportedError.
    """
    stated = checked(assume)
    arguments = reading(dims, input_shapes, batch)
    arguments |= {"detections": stated.get(DETECTIONS, 0), "operators": _Described()}
    if isinstance(model, (str, os.PathLike)):
        with about(model), _held_to(model, batch):
            return with_load(OpGraph(_core.read_onnx_file(os.fsencode(model), **arguments)), stated)
    if isinstance(model, (bytes, bytearray, memoryview)):
        return with_load(OpGraph(_core.read_onnx_bytes(model, **arguments)), stated)
    serialize = getattr(model, "SerializeToString", None)
    if serialize is None:
        raise ArgumentError(
            f"cannot read a model from {type(model).__name__}; give a path, bytes or an onnx.ModelProto"
        )
    return with_load(OpGraph(_core.read_onnx_bytes(serialize(), **arguments)), stated)


@contextmanager
def _held_to(path: str | os.PathLike[str], batch: int | None) -> Iterator[None]:
    """Inside, an error of shapes at another batch than the file fixes says so."""
    try:
        yield
    except ShapeError as error:
        own = None if batch is None else next((i.shape[0] for i in inputs(path) if i.shape), None)
        if isinstance(own, int) and own != batch:
            raise ShapeError(
                f"{error}; the file fixes its batch to {own}, and what it holds does not follow another: leave the "
                "batch out, or export the model with an open batch"
            ) from None
        raise


class _Described:
    """What the core asks of operators that it does not know (cpp_kernels/include/perfpass/onnx_reader.hpp): nothing of
    descriptions is imported before it meets one.
    """

    def outputs(self, *node: Any) -> Any:
        from perfpass.importers import operators

        return operators.outputs_of(*node)

    def lowered(self, *node: Any) -> Any:
        from perfpass.importers import operators

        return operators.lowered(*node)


def with_load(graph: OpGraph, stated: Mapping[str, int]) -> OpGraph:
    """``graph``, which says what the reader had to assume."""
    if not any(note.startswith(_core.ASSUMED_DETECTIONS) for note in graph.notes):
        return graph
    found = Assumed.detections(None, stated.get(DETECTIONS))
    return replace(graph, assumed=(found,))


def reading(
    dims: Mapping[str, int] | None, input_shapes: Mapping[str, Sequence[int]] | None, batch: int | None
) -> dict[str, Any]:
    """How the core reads a model: the arguments of `read`, checked. Raises ArgumentError."""
    for argument, given in (("dims", dims), ("input_shapes", input_shapes)):
        if not isinstance(given, Mapping | type(None)):
            raise ArgumentError(f"{argument} {shown_value(given)}; it maps names to sizes")
    return {
        "dims": {_text(name): _size(name, value) for name, value in (dims or {}).items()},
        "input_shapes": {
            _text(name): [_size(name, value) for value in shape] for name, shape in (input_shapes or {}).items()
        },
        "batch": 0 if batch is None else _size("batch", batch),
    }


def inputs(path: str | os.PathLike[str]) -> tuple[Input, ...]:
    """The inputs of a model file, initializers excluded, in the file's order. Raises as ``read`` does."""
    with about(path):
        return listed(_core.onnx_inputs_file(os.fsencode(path)))


def listed(declared: Iterable[tuple[str, str, bool, Sequence[int], Sequence[str]]]) -> tuple[Input, ...]:
    """Inputs as the core lists them: name, type, whether there is a shape, its sizes and the names of its open axes."""
    found = []
    for name, dtype, has_shape, shape, symbols in declared:
        axes = tuple(
            size if size >= 0 else symbol or f"{name}:{axis}"
            for axis, (size, symbol) in enumerate(zip(shape, symbols, strict=True))
        )
        found.append(Input(name, dtype, axes if has_shape else None))
    return tuple(found)


def _text(name: Any) -> str:
    if not isinstance(name, str):
        raise ArgumentError(f"the name of a dimension or input must be a str, got {name!r}")
    return name


def _size(name: str, value: Any) -> int:
    """A size as the core takes it: an int (NumPy's included) from 1 to 2^48."""
    try:
        size = value.__index__()
    except AttributeError:
        raise ArgumentError(f"{name} must be a whole number, got {shown_value(value)}") from None
    if not 1 <= size <= 1 << 48:
        raise ArgumentError(f"{name} = {shown_value(size)}; it must be from 1 to 2^48")
    return size
