"""One operator of a Paddle program with its operands: their fixed shapes, and the values of small integer ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.errors import ShapeError
from perfpass.importers.formats.paddle.kinds import KIND_OF
from perfpass.importers.formats.paddle.program import Op, Value

MOST_ELEMENTS = 1024  # of a value that is kept: shapes, axes, sizes


@dataclass
class Tensor:
    """``index``: on the graph; ``value``: what small constants and shapes hold, where it is known."""

    index: int
    dtype: str
    shape: tuple[int, ...]
    role: str = "activation"
    value: np.ndarray | None = None


@dataclass
class Call:
    """``inputs`` by slot of PIR; several tensors of one slot are a list."""

    op: Op
    inputs: list[Tensor | list[Tensor] | None]
    results: list[Value]

    @property
    def kind(self) -> str:
        return KIND_OF.get(self.op.name, "unknown")

    def flat(self) -> list[Tensor]:
        return [t for i in range(len(self.inputs)) for t in self.members(i)]

    def members(self, slot: int) -> list[Tensor]:
        found = self.inputs[slot] if slot < len(self.inputs) else None
        return found if isinstance(found, list) else [] if found is None else [found]

    def shape(self, slot: int) -> tuple[int, ...]:
        members = self.members(slot)
        if not members:
            raise ShapeError(f"{self.op.source} has no operand {slot}; export the program again with paddle.jit.save")
        return members[0].shape

    def declared(self) -> list[tuple[int, ...] | None]:
        return [value.shape for value in self.results]

    def attribute(self, *names: str) -> Any:
        """The first that is there of attributes of several releases, None without one."""
        return next((v for n in names if (v := self.op.attributes.get(n)) is not None), None)

    def numbers(self, slot: int, *names: str) -> list[int]:
        """Whole numbers that an operand holds, or an attribute where there is no such operand.

        Raises ShapeError where the operand's values are not known.
        """
        members = self.members(slot)
        given = self.attribute(*names)
        if members and all(t.value is not None for t in members):
            return [int(v) for t in members if t.value is not None for v in t.value.reshape(-1)]
        if given is not None and (given != [] or not members):
            return [int(v) for v in (given if isinstance(given, list) else [given])]
        if members:
            raise ShapeError(
                f"{self.op.source}: its sizes depend on values that are not in the program; export it with fixed shapes"
            )
        return []

    def number(self, slot: int, *names: str) -> int:
        """The first of `numbers`, 0 without one."""
        return next(iter(self.numbers(slot, *names)), 0)

    def scalar(self, slot: int) -> float:
        value = next(iter(self.members(slot)), None)
        if value is None or value.value is None:
            raise ShapeError(f"{self.op.source}: its size depends on values that are not in the program")
        return float(value.value.reshape(-1)[0])

    def channels_last(self) -> bool:
        form = str(self.attribute("data_format", "data_layout") or "")
        return len(form) > 2 and form.endswith("C")

    def weight_slot(self) -> int:
        return 2 if self.kind == "deform_conv" else 1


def value_of(call: Call) -> np.ndarray | None:
    """The first result of a small operator whose operands are known; None where they are not."""
    how = _VALUES.get(call.op.name)
    if how is None:
        return None
    if call.op.name not in _FROM_SHAPE and any(t.value is None for t in call.flat()):
        return None
    given = [t.value for t in call.flat() if t.value is not None]
    if sum(value.size for value in given) > 4 * MOST_ELEMENTS:
        return None
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(how(call, given))
    except (ValueError, IndexError, TypeError, OverflowError, ZeroDivisionError, KeyError, FloatingPointError):
        return None
    if found.size > MOST_ELEMENTS or found.dtype.kind not in "iufb":
        return None
    dtype = call.results[0].dtype if call.results else ""
    if not dtype.startswith(("int", "uint", "float32", "float64", "bool")):
        return found
    with np.errstate(all="ignore"):
        return found.astype(dtype)


def _full(call: Call, given: list[np.ndarray]) -> Any:
    shape = call.numbers(0, "shape")
    if len(shape) > 2 or np.prod(shape, dtype=float) > MOST_ELEMENTS:
        raise ValueError
    value = call.attribute("value", "str_value")
    return np.full(shape, float(value))


def _assigned(call: Call, _: list[np.ndarray]) -> Any:
    for name in ("values", "int32_values", "int64_values", "fp32_values", "bool_values"):
        found = call.attribute(name)
        if found:
            return np.asarray(found).reshape(call.attribute("shape"))
    raise ValueError


def _part(call: Call, given: list[np.ndarray]) -> Any:
    """The part of one axis that `slice` and `strided_slice` take of a shape."""
    if given[0].ndim != 1 or call.numbers(9, "axes") != [0]:
        raise ValueError
    start, end = call.number(1, "starts"), call.number(2, "ends")
    step = call.number(3, "strides") if call.op.name == "strided_slice" else 1
    found = given[0][start : (None if end == -1 and step < 0 else end) : step]
    return found.reshape(()) if call.attribute("decrease_axis") else found


def _scaled(call: Call, given: list[np.ndarray]) -> Any:
    by = given[1] if len(given) > 1 else call.attribute("scale")
    bias = call.attribute("bias") or 0.0
    after = call.attribute("bias_after_scale")
    return given[0] * by + bias if after is None or after else (given[0] + bias) * by


def _each(function: Callable[..., Any]) -> Callable[[Call, list[np.ndarray]], Any]:
    """Element by element, where not too much comes of it."""

    def compute(call: Call, given: list[np.ndarray]) -> Any:
        if math.prod(np.broadcast_shapes(*(value.shape for value in given))) > MOST_ELEMENTS:
            raise ValueError
        return function(*given)

    return compute


def _ranged(call: Call, given: list[np.ndarray]) -> Any:
    start, end, step = (v.reshape(-1)[0] for v in given[:3])
    if not step or abs((float(end) - float(start)) / float(step)) > MOST_ELEMENTS:
        raise ValueError
    return np.arange(start, end, step)


def _taken(call: Call, given: list[np.ndarray]) -> Any:
    if given[1].size * given[0][:1].size > MOST_ELEMENTS:
        raise ValueError
    return np.take(given[0], given[1], axis=0)


def _reduced(function: Callable[..., Any]) -> Callable[[Call, list[np.ndarray]], Any]:
    def reduce(call: Call, given: list[np.ndarray]) -> Any:
        if given[0].ndim > 1:
            raise ValueError
        return function(given[0])

    return reduce


_VALUES: dict[str, Callable[[Call, list[np.ndarray]], Any]] = {
    "full": _full,
    "full_int_array": lambda call, _: np.asarray(call.attribute("value"), dtype=np.int64),
    "assign_value": _assigned,
    "shape": lambda call, _: np.asarray(call.shape(0), dtype=np.int64),
    "shape64": lambda call, _: np.asarray(call.shape(0), dtype=np.int64),
    "numel": lambda call, _: np.prod(call.shape(0), dtype=np.int64),
    "slice": _part,
    "strided_slice": _part,
    "scale": _scaled,
    "cast": lambda call, given: given[0],
    "assign": lambda call, given: given[0],
    "share_data": lambda call, given: given[0],
    "memcpy_d2h": lambda call, given: given[0],
    "memcpy_h2d": lambda call, given: given[0],
    "increment": lambda call, given: given[0] + (call.attribute("value", "step") or 1),
    "concat": lambda call, given: np.concatenate([t.value for t in call.members(0)]),  # type: ignore[misc]
    "stack": lambda call, given: np.stack([t.value for t in call.members(0)]),  # type: ignore[misc]
    "add": _each(np.add),
    "subtract": _each(np.subtract),
    "multiply": _each(np.multiply),
    "divide": _each(np.true_divide),
    "floor_divide": _each(np.floor_divide),
    "remainder": _each(np.remainder),
    "maximum": _each(np.maximum),
    "minimum": _each(np.minimum),
    "floor": _each(np.floor),
    "ceil": _each(np.ceil),
    "equal": _each(np.equal),
    "not_equal": _each(np.not_equal),
    "less_than": _each(np.less),
    "greater_than": _each(np.greater),
    "where": _each(np.where),
    "gather": _taken,
    "sum": _reduced(np.sum),
    "prod": _reduced(np.prod),
    "max": _reduced(np.max),
    "min": _reduced(np.min),
    "squeeze": lambda call, given: given[0].reshape(()) if given[0].size == 1 else given[0],
    "unsqueeze": lambda call, given: given[0].reshape(1) if given[0].ndim == 0 else _no_value(),
    "reshape": lambda call, given: given[0].reshape(call.numbers(1, "shape")),
    "arange": _ranged,
}
_FROM_SHAPE = frozenset({"shape", "shape64", "numel"})


def _no_value() -> Any:
    raise ValueError
