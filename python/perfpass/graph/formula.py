"""Formulas that a user writes over the sizes of an operator: ``2 * x[0].elements * heads``.

Whole numbers, attributes of the node by their names, ``x[i]`` and ``y[i]`` (inputs and outputs) with ``shape[j]``,
``elements``, ``bytes``, ``bits`` and ``rank``, the operators + - * / // %, and min, max, ceil and floor. Python's
parser reads them, an allow-list of its nodes is all that is understood, and nothing is ever run as code. Arithmetic is
exact: ``/`` gives a fraction, and what a formula gives has to be whole.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from perfpass import _core
from perfpass.errors import ArgumentError, LimitError, shown
from perfpass.text import unknown

LONGEST = 500  # characters
_MOST_NODES = 200
_LARGEST = 1 << 62  # of a result, as of every count in the core
_WIDEST = 1 << 256  # of what stands between
_BITS = dict(zip(_core.DTYPES, _core.DTYPE_BITS, strict=True))
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: Fraction(a) / b,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "ceil": math.ceil, "floor": math.floor}
_OF_ONE = ("ceil", "floor")


@dataclass(frozen=True)
class TensorType:
    """The type and shape of a tensor that a formula may ask for."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """1 for a scalar."""
        return math.prod(self.shape)

    @property
    def bits(self) -> int:
        """Of an element."""
        return int(_BITS[self.dtype])

    @property
    def bytes(self) -> int:
        """Of the whole."""
        return -(-self.elements * self.bits // 8)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)


_FIELDS = ("shape", "elements", "bytes", "bits", "rank")
Tensors = Sequence[TensorType | None]


class Formula:
    """One formula, read and checked; `value` computes it."""

    def __init__(self, text: str | int, where: str = "formula") -> None:
        """``where`` begins every error. Raises ArgumentError for what the grammar has not, LimitError for its size."""
        self.text, self._where = str(text), where
        if len(self.text) > LONGEST:
            raise LimitError(f"{where}: {len(self.text)} characters; at most {LONGEST} are read")
        try:
            self._root = ast.parse(self.text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ArgumentError(f"{where} {shown(self.text)} is no formula: {getattr(error, 'msg', error)}") from None
        if sum(1 for _ in ast.walk(self._root)) > _MOST_NODES:
            raise LimitError(f"{where}: over {_MOST_NODES} terms; state a simpler formula")
        self._check(self._root)

    def __repr__(self) -> str:
        return f"Formula({self.text!r})"

    def value(self, inputs: Tensors, outputs: Tensors, attributes: Mapping[str, Any]) -> int:
        """What it gives for a node.

        Raises ArgumentError for a name, tensor or dimension that the node has not, for a division by zero and for what
        is negative or no whole number, LimitError past 2^62.
        """
        found = self._of(self._root, {"x": inputs, "y": outputs}, attributes)
        if isinstance(found, (TensorType, list, tuple, str)) or found != math.floor(found):
            raise self._error(f"gives {found!s}, no whole number; use //, ceil or floor")
        if found < 0:
            raise self._error(f"gives {found}; sizes and counts are 0 or more")
        if found > _LARGEST:
            raise LimitError(f"{self._where} {shown(self.text)} gives more than 2^62")
        return int(found)

    def _error(self, what: str) -> ArgumentError:
        return ArgumentError(f"{self._where} {shown(self.text)} {what}")

    def _check(self, node: ast.AST) -> None:
        """Raises ArgumentError for anything but the grammar."""
        match node:
            case ast.Constant(value=value) if type(value) is int and value <= _LARGEST:
                return None
            case ast.Name():
                return None
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return self._check(inner)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                self._check(left)
                return self._check(right)
            case ast.Attribute(value=inner, attr=field) if field in _FIELDS:
                return self._check(inner)
            case ast.Attribute(attr=field):
                raise self._error(f"asks for {unknown('field', field, _FIELDS)}")
            case ast.Subscript(value=inner, slice=index):
                self._check(inner)
                return self._check(index)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                if name not in _FUNCTIONS:
                    raise self._error(f"calls an {unknown('function', name, tuple(_FUNCTIONS))}")
                if (len(arguments) != 1) if name in _OF_ONE else (len(arguments) < 2):
                    raise self._error(f"calls {name} with {len(arguments)} values")
                for one in arguments:
                    self._check(one)
                return None
        what = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
        raise self._error(
            f"has {shown(what)}, which no formula has; allowed are whole numbers, attributes, x[i] and y[i] with "
            f"{', '.join(_FIELDS)}, + - * / // %, and {', '.join(_FUNCTIONS)}"
        )

    def _of(self, node: ast.AST, tensors: Mapping[str, Tensors], attributes: Mapping[str, Any]) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._named(name, tensors, attributes)
            case ast.UnaryOp(operand=inner):
                return -self._number(inner, tensors, attributes)
            case ast.Attribute(value=inner, attr=field):
                found = self._of(inner, tensors, attributes)
                if not isinstance(found, TensorType):
                    raise self._error(f"asks {shown(ast.unparse(inner))} for its {field}; only x[i] and y[i] have one")
                return getattr(found, field)
            case ast.Subscript(value=inner, slice=index):
                return self._item(inner, self._number(index, tensors, attributes), tensors, attributes)
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return _FUNCTIONS[name](*(self._number(one, tensors, attributes) for one in arguments))
            case ast.BinOp(left=left, op=op, right=right):
                values = self._number(left, tensors, attributes), self._number(right, tensors, attributes)
                try:
                    found = _ARITHMETIC[type(op)](*values)
                except ZeroDivisionError:
                    raise self._error(f"divides by {shown(ast.unparse(right))}, which is 0") from None
                if abs(found) > _WIDEST:
                    raise LimitError(f"{self._where} {shown(self.text)} passes 2^256 on its way")
                return found
        raise AssertionError(node)

    def _named(self, name: str, tensors: Mapping[str, Tensors], attributes: Mapping[str, Any]) -> Any:
        if name in tensors:
            return tensors[name]
        if name not in attributes:
            raise self._error(f"asks for {unknown('attribute', name, ('x', 'y', *attributes))}")
        return attributes[name]

    def _item(self, inner: ast.AST, index: Any, tensors: Mapping[str, Tensors], attributes: Mapping[str, Any]) -> Any:
        held, what = self._of(inner, tensors, attributes), ast.unparse(inner)
        if not isinstance(held, (list, tuple)):
            raise self._error(f"asks for an item of {shown(what)}, which has none")
        if index != int(index) or not -len(held) <= index < len(held):
            raise self._error(f"asks for {what}[{index}], and {what} has {len(held)}")
        found = held[int(index)]
        if found is None:
            raise self._error(f"asks for {what}[{index}], which this node leaves out")
        return found

    def _number(self, node: ast.AST, tensors: Mapping[str, Tensors], attributes: Mapping[str, Any]) -> Any:
        found = self._of(node, tensors, attributes)
        if isinstance(found, bool) or not isinstance(found, (int, float, Fraction)):
            raise self._error(f"counts with {shown(ast.unparse(node))}, which is no number")  # type: ignore[arg-type]
        if isinstance(found, float):
            if not math.isfinite(found):
                raise self._error(f"counts with {shown(ast.unparse(node))}, which is {found}")  # type: ignore[arg-type]
            return Fraction(found)
        return found
