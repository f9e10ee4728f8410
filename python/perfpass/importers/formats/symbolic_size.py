"""Sizes as torch.export writes them: ``Mul(Integer(2), Symbol('s0'))`` or ``2*s0``, read and evaluated, never run."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from functools import lru_cache, reduce

from perfpass.errors import FormatError, ShapeError

_LONGEST = 4096
_MOST = 1 << 62
_CALLS: dict[str, Callable[..., int]] = {
    "Add": lambda *v: sum(v),
    "Mul": lambda *v: math.prod(v),
    "Max": lambda *v: max(v),
    "Min": lambda *v: min(v),
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "ModularIndexing": lambda a, b, c: (a // b) % c,
    "Integer": lambda a: a,
    "Pow": lambda a, b: a**b if 0 <= b <= 8 and abs(a) < 1 << 48 else _MOST,
    "floor": lambda a: a,
}
_BINARY: dict[type, Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: lambda a, b: _CALLS["Pow"](a, b),
}


def symbol(expression: str) -> str:
    """The name of an expression that is one symbol, else ""."""
    tree = _tree(expression)
    if isinstance(tree, ast.Name):
        return tree.id
    return _symbol_of(tree) if isinstance(tree, ast.Call) else ""


def value(expression: str, symbols: Mapping[str, int]) -> int | None:
    """The number that an expression is; None where a symbol or a function has no value."""
    try:
        return _value(_tree(expression), symbols)
    except (KeyError, ZeroDivisionError):
        return None


def bind(expression: str, size: int, symbols: dict[str, int], where: str) -> None:
    """Gives the one symbol of a linear expression the value at which it is ``size``.

    Raises ShapeError where none is or where the symbol has another one.
    """
    names = sorted(_names(_tree(expression)) - symbols.keys())
    if len(names) == 1:
        (name,) = names
        at = [value(expression, symbols | {name: n}) for n in (0, 1, 2)]
        if None not in at and (slope := at[1] - at[0]) and at[2] - at[1] == slope:  # type: ignore[operator]
            symbols[name] = (size - at[0]) // slope  # type: ignore[operator]
    found = value(expression, symbols)
    if found is not None and found != size:
        shown_expression = _shown(_tree(expression))
        raise ShapeError(
            f"{where} is {shown_expression} in the program and cannot be {size}; it is {found} by the others"
        )


@lru_cache(maxsize=4096)
def _tree(expression: str) -> ast.expr:
    if len(expression) > _LONGEST or expression.count("(") + expression.count("-") > _LONGEST // 16:
        raise FormatError("a size of the program is longer than any that torch.export writes")
    try:
        return ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise FormatError(f"a size of the program is not readable: {expression[:80]!r}") from error


def _symbol_of(tree: ast.Call) -> str:
    if isinstance(tree.func, ast.Name) and tree.func.id == "Symbol" and tree.args:
        first = tree.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            return first.value
    return ""


def _names(tree: ast.expr) -> set[str]:
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    plain = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called}
    return plain | {name for node in ast.walk(tree) if isinstance(node, ast.Call) and (name := _symbol_of(node))}


def _value(tree: ast.expr, symbols: Mapping[str, int]) -> int:
    match tree:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            found = number
        case ast.Name(id=name):
            found = symbols[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            found = -_value(operand, symbols)
        case ast.BinOp(left=left, op=op, right=right):
            found = _BINARY[type(op)](_value(left, symbols), _value(right, symbols))
        case ast.Call(func=ast.Name(id=name), args=args):
            inner = _symbol_of(tree)
            found = symbols[inner] if inner else _CALLS[name](*(_value(arg, symbols) for arg in args))
        case _:
            raise KeyError
    if abs(found) > _MOST:
        raise FormatError("a size of the program passes 2^62")
    return found


def _shown(tree: ast.expr) -> str:
    """The expression as a person writes it."""
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        if name := _symbol_of(tree):
            return name
        signs = {"Mul": "*", "Add": "+"}
        if tree.func.id in signs:
            return reduce(lambda a, b: f"{a}{signs[tree.func.id]}{b}", map(_shown, tree.args))  # type: ignore[attr-defined]
        if tree.func.id == "Integer":
            return _shown(tree.args[0])
    return ast.unparse(tree)
