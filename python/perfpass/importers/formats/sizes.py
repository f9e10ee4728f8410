"""The sizes at which a file is read: what the user states, laid over what the file leaves open.

The rules are those of ONNX files (docs/internals/onnx-reader.md): dimensions by name, whole shapes by input, and the
batch, which is the first axis of the first input that has axes and of those that begin alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perfpass.errors import ArgumentError, ShapeError
from perfpass.text import shown_value

if TYPE_CHECKING:
    from perfpass.importers.onnx import Input

_MOST = 1 << 48
_MOST_SHOWN = 8


@dataclass(frozen=True)
class Sizes:
    """What `perfpass.load` was told; ``input_shapes`` are whole shapes by the name of an input."""

    batch: int | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    assume: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Fixed:
    """What was made of them. ``shapes``: a whole shape for each input; ``symbols``: a size for each open dimension.

    ``declared_batch`` and ``batch``: where the file fixes the batch to one number and the user asks for another, both;
    else None: the reader reads the file as it is and `perfpass.importers.formats.batch.scaled` makes the other of it.
    """

    shapes: Mapping[str, tuple[int, ...]]
    symbols: Mapping[str, int]
    declared_batch: int | None = None
    batch: int | None = None


def fixed(inputs: Sequence[Input], sizes: Sizes) -> Fixed:
    """A size for every dimension of the inputs.

    Where the file fixes the batch, ``shapes`` have the file's. Raises ArgumentError for a name that the file does not
    have or a size below 1, ShapeError for a dimension without a value and for values that contradict each other.
    """
    symbols = {_known_symbol(name, inputs): _size(name, value) for name, value in sizes.dims.items()}
    given = {_known_input(name, inputs): tuple(_size(name, d) for d in s) for name, s in sizes.input_shapes.items()}
    for item in inputs:
        if item.name in given:
            _bind_shape(item, given[item.name], symbols)
    declared = _bind_batch(inputs, given, sizes.batch, symbols)
    shapes, open_dims = {}, []
    for item in inputs:
        if item.shape is None:
            if item.name not in given:
                raise _shapeless(item)
            shapes[item.name] = given[item.name]
            continue
        open_dims += [d for d in item.shape if isinstance(d, str) and d not in symbols]
        shapes[item.name] = tuple(d if isinstance(d, int) else symbols.get(d, 0) for d in item.shape)
    if open_dims:
        raise _open(list(dict.fromkeys(open_dims)))
    return Fixed(shapes, symbols, declared, None if declared is None else sizes.batch)


def _shapeless(item: Input) -> ShapeError:
    return ShapeError(
        f"input {item.name!r} has no shape in the file; give one with --input-shape {item.name}=1x3x224x224"
        f" (input_shape={{{item.name!r}: (...)}})"
    )


def _bind_shape(item: Input, shape: tuple[int, ...], symbols: dict[str, int]) -> None:
    if item.shape is None:
        return
    if len(item.shape) != len(shape):
        raise ShapeError(
            f"input {item.name!r} has {len(item.shape)} dimensions ({_text(item.shape)}); the shape given has "
            f"{len(shape)}"
        )
    for dim, size in zip(item.shape, shape, strict=True):
        if isinstance(dim, str):
            _bind(dim, size, symbols, f"the shape of input {item.name!r}")
        elif dim != size:
            raise ShapeError(
                f"input {item.name!r} is of {_text(item.shape)} in the file, which fixes {dim}; {_text(shape)} cannot "
                "be read from it: set the batch with --batch, or export the model again with that size open"
            )


def _bind_batch(
    inputs: Sequence[Input], given: Mapping[str, tuple[int, ...]], batch: int | None, symbols: dict[str, int]
) -> int | None:
    """Sets the first axes; the batch that the file fixes where that is another than asked."""
    if batch is None:
        return None
    size = _size("batch", batch)
    shaped = [(item, item.shape if item.shape is not None else given.get(item.name, ())) for item in inputs]
    first = next((shape[0] for _, shape in shaped if shape), None)
    if first is None:
        for item in inputs:
            if item.shape is None and item.name not in given:
                raise _shapeless(item)
        raise ArgumentError("a batch is given, but the model has no input with dimensions; leave it out")
    if isinstance(first, str):
        _bind(first, size, symbols, "the batch")
        for item, shape in shaped:
            if shape and shape[0] == f"{item.name}:0":
                symbols.setdefault(shape[0], size)
        return None
    return first if first != size else None


def _bind(symbol: str, value: int, symbols: dict[str, int], source: str) -> None:
    before = symbols.setdefault(symbol, value)
    if before != value:
        raise ShapeError(f"dimension {symbol!r} is set to {before} and, by {source}, to {value}; give one value")


def _known_symbol(name: Any, inputs: Sequence[Input]) -> str:
    known = dict.fromkeys(d for item in inputs for d in item.shape or () if isinstance(d, str))
    if name not in known:
        raise ArgumentError(f"the model has no symbolic dimension {name!r}; its inputs have {_list(list(known))}")
    return str(name)


def _known_input(name: Any, inputs: Sequence[Input]) -> str:
    known = [item.name for item in inputs]
    if name not in known:
        raise ArgumentError(f"the model has no input {name!r}; its inputs are {_list(known)}")
    return str(name)


def _size(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentError(f"{name} must be a whole number, got {shown_value(value)}")
    size = int(value.__index__())
    if not 1 <= size <= _MOST:
        raise ArgumentError(f"{name} = {shown_value(size)}; it must be from 1 to 2^48")
    return size


def _open(names: list[str]) -> ShapeError:
    shown = names[:_MOST_SHOWN]
    flags = " ".join(f"--dim {name}=N" for name in shown)
    keys = ", ".join(f"{name!r}: N" for name in shown)
    return ShapeError(
        f"symbolic dimensions without a value: {_list(names)}; set them with {flags} (dims={{{keys}}}); --batch N sets "
        "the first one of an input"
    )


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return (", ".join(map(repr, names[:_MOST_SHOWN])) or "none") + more


def _text(shape: Sequence[int | str]) -> str:
    return " x ".join(map(str, shape)) or "a scalar"
