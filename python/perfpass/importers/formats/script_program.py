"""A TorchScript program read as text and followed statement by statement; its operators go to our own replay.

The text is never compiled or executed by Python: it is parsed to a syntax tree (`ast.parse`), and what is understood of
the tree is TorchScript's own small language - assignments, operators of PyTorch by name, calls of the archive's own
functions, if, for, while - each step counted.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from perfpass.errors import FormatError, LimitError, UnsupportedError, shown
from perfpass.importers.formats.bounded_arithmetic import computed
from perfpass.importers.formats.script_operators import (
    BINARY,
    COMPARED,
    NUMBERS,
    OF_LISTS,
    OF_NUMBERS,
    OF_TENSORS,
    UNARY,
)
from perfpass.importers.formats.script_pickle import Record, check_size

if TYPE_CHECKING:
    from perfpass.importers.formats.torch_replay import Replay

_MOST_STEPS = 1_000_000
_DEEPEST = 120  # calls within one another
_MOST_NESTED = 200  # brackets of the text
_LONGEST_LINE = 1 << 20
_MOST_LETTERS = 1 << 22  # of all files: a syntax tree takes a kilobyte a letter at worst
_MOST_ITEMS = 1 << 20  # that a program goes through
_VALUES_OF_STEP = 256  # of lists that an operator is given

Source = Callable[[str], str | None]


class _Returned(Exception):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


@dataclass(frozen=True)
class _Reference:
    """A function or class of the archive as a value."""

    path: str


class Definitions:
    """The functions and classes of an archive, by their qualified names; ``source`` gives a file's text or None."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._files: dict[str, dict[str, ast.stmt]] = {}
        self._parsed: dict[str, dict[str, ast.stmt]] = {}  # by the text without its own name
        self._letters = 0

    def method(self, kind: str, name: str) -> ast.FunctionDef | None:
        """A method of a class, None where it has none of that name."""
        found = self.definition(kind)
        if not isinstance(found, ast.ClassDef):
            raise FormatError(f"the program has no class {shown(kind[:80])}; save the model again")
        return next((s for s in found.body if isinstance(s, ast.FunctionDef) and s.name == name), None)

    def definition(self, name: str) -> ast.stmt | None:
        """A function or class, None where the archive has none of that name."""
        folder, _, last = name.rpartition(".")
        if folder not in self._files:
            text = self._source(folder.replace(".", "/") + ".py")
            self._letters += len(text or "")
            if self._letters > _MOST_LETTERS:
                raise LimitError(f"the text of the program has over {_MOST_LETTERS} letters; save a part of the model")
            alike = None if text is None else text.replace(f"(self: {folder}.", "(self: ")
            if alike is not None and alike not in self._parsed:
                self._parsed[alike] = _definitions(text or "", folder)
            self._files[folder] = {} if alike is None else self._parsed[alike]
        return self._files[folder].get(last)


class ScriptProgram:
    """One run of a program; ``constants`` are what it calls CONSTANTS.c0 and so on."""

    def __init__(self, definitions: Definitions, constants: tuple[Any, ...], replay: Replay) -> None:
        self._definitions, self._constants, self._replay = definitions, constants, replay
        self._steps = self._depth = 0
        self._modules: list[str] = []

    def call(self, function: ast.FunctionDef, arguments: list[Any], given: Mapping[str, Any] | None = None) -> Any:
        """Follows a function of the program."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise LimitError(f"functions of the program call one another over {_DEEPEST} deep")
        parameters = function.args.args
        scope: dict[str, Any] = dict(zip((p.arg for p in parameters), arguments, strict=False)) | dict(given or {})
        optional = parameters[len(parameters) - len(function.args.defaults) :]
        for parameter, default in zip(optional, function.args.defaults, strict=True):
            if parameter.arg not in scope:
                scope[parameter.arg] = self._value(default, scope)
        missing = [p.arg for p in parameters if p.arg not in scope]
        if missing:
            raise FormatError(f"{function.name} of the program is called without {shown(missing[0])}")
        try:
            self._follow(function.body, scope)
        except _Returned as done:
            return done.value
        finally:
            self._depth -= 1
        return None

    # -- statements ----------------------------------------------------------------------------------------------------

    def _count(self, steps: int = 1) -> None:
        self._steps += steps
        if self._steps > _MOST_STEPS:
            raise LimitError(f"the program takes over {_MOST_STEPS} steps; a loop of it may have no end")

    def _count_values(self, values: Any) -> None:
        """Counts a step for every 256 values that are gone through, however they stand in one another."""
        self._count(check_size(values, "an argument of the program") // _VALUES_OF_STEP)

    def _computed(self, function: Callable[..., Any], values: list[Any]) -> Any:
        self._count_values(values)
        return computed(function, values)

    def _follow(self, body: list[ast.stmt], scope: dict[str, Any]) -> None:
        for statement in body:
            self._count()
            match statement:
                case ast.Assign(targets=[target], value=value):
                    self._assign(target, self._value(value, scope), scope)
                case ast.AnnAssign(target=target, value=value):
                    if value is not None:
                        self._assign(target, self._value(value, scope), scope)
                case ast.Expr(value=value):
                    self._value(value, scope)
                case ast.Return(value=value):
                    raise _Returned(None if value is None else self._value(value, scope))
                case ast.If(test=test, body=then, orelse=other):
                    self._follow(then if self._truth(self._value(test, scope)) else other, scope)
                case ast.While(test=test, body=inner):
                    while self._truth(self._value(test, scope)):
                        self._count()
                        self._follow(inner, scope)
                case ast.For(target=target, iter=over, body=inner):
                    for item in self._items(self._value(over, scope)):
                        self._count()
                        self._assign(target, item, scope)
                        self._follow(inner, scope)
                case ast.Pass():
                    pass
                case ast.Raise() | ast.Assert():
                    raise UnsupportedError(
                        f"the program raises an error for these inputs (line {statement.lineno}); check their shapes"
                    )
                case _:
                    raise _unread(statement)

    def _assign(self, target: ast.expr, value: Any, scope: dict[str, Any]) -> None:
        match target:
            case ast.Name(id=name):
                scope[name] = value
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                items = self._items(value)
                if len(items) != len(parts):
                    raise FormatError(f"the program unpacks {len(items)} values into {len(parts)} names")
                for part, item in zip(parts, items, strict=True):
                    self._assign(part, item, scope)
            case ast.Attribute(value=owner, attr=name):
                record = self._value(owner, scope)
                if not isinstance(record, Record):
                    raise _unread(target)
                record.fields[name] = value
            case ast.Subscript(value=owner, slice=key):
                computed(operator.setitem, [self._value(owner, scope), self._key(key, scope), value])
            case _:
                raise _unread(target)

    def _items(self, value: Any) -> list[Any]:
        if isinstance(value, torch.Tensor):
            return list(self._replay.call("aten.unbind.int", [value], {}, self._module()))
        if isinstance(value, Record):
            return list(value.fields.values())
        if isinstance(value, dict):
            return list(value)
        if not isinstance(value, (list, tuple, range, str)) or len(value) > _MOST_ITEMS:
            raise FormatError(f"the program goes through a {type(value).__name__}")
        return list(value)

    def _truth(self, value: Any) -> bool:
        return bool(self._number(value))

    def _number(self, value: Any) -> Any:
        """The number in a tensor; the recorder says where none is known."""
        if isinstance(value, torch.Tensor):
            return self._replay.call("aten._local_scalar_dense.default", [value], {}, self._module())
        return value

    def _module(self) -> str:
        return self._modules[-1] if self._modules else ""

    # -- expressions ---------------------------------------------------------------------------------------------------

    def _value(self, tree: ast.expr, scope: dict[str, Any]) -> Any:
        self._count()
        match tree:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                if name in scope:
                    return scope[name]
                if name in NUMBERS:
                    return NUMBERS[name]
                raise FormatError(f"the program reads {shown(name[:80])} before it has a value")
            case ast.Attribute():
                return self._attribute(tree, scope)
            case ast.Call():
                return self._called(tree, scope)
            case ast.List(elts=parts):
                return [self._value(part, scope) for part in parts]
            case ast.Tuple(elts=parts):
                return tuple(self._value(part, scope) for part in parts)
            case ast.Dict(keys=keys, values=values):
                return {
                    self._key(key, scope): self._value(value, scope)
                    for key, value in zip(keys, values, strict=True)
                    if key is not None
                }
            case ast.Subscript(value=owner, slice=key):
                return self._item(self._value(owner, scope), self._key(key, scope))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in UNARY:
                name, by_number = UNARY[type(op)]
                return self._arithmetic(name, by_number, [self._value(operand, scope)])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
                name, by_number = BINARY[type(op)]
                return self._arithmetic(name, by_number, [self._value(left, scope), self._value(right, scope)])
            case ast.BoolOp(op=op, values=parts):
                for part in parts:
                    found = self._truth(self._value(part, scope))
                    if found != isinstance(op, ast.And):
                        break
                return found
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARED:
                name, by_number = COMPARED[type(op)]
                return self._arithmetic(name, by_number, [self._value(left, scope), self._value(right, scope)])
            case ast.IfExp(test=test, body=then, orelse=other):
                return self._value(then if self._truth(self._value(test, scope)) else other, scope)
            case _:
                raise _unread(tree)

    def _key(self, tree: ast.expr, scope: dict[str, Any]) -> Any:
        """A key of a list or a dict; a tuple's would be computed from all that stands in it."""
        key = self._value(tree, scope)
        if isinstance(key, (list, tuple, dict)):
            raise FormatError(f"the program has a {type(key).__name__} for a key, which TorchScript does not write")
        return key

    def _arithmetic(self, name: str, by_number: Callable[..., Any], values: list[Any]) -> Any:
        if any(isinstance(v, torch.Tensor) for v in values):
            return self._replayed(f"aten.{name}", values, {})
        return self._computed(by_number, values)

    def _item(self, owner: Any, key: Any) -> Any:
        if isinstance(owner, torch.Tensor):
            return self._replay.call("aten.select.int", [owner, 0, key], {}, self._module())
        if isinstance(owner, Record):
            owner = list(owner.fields.values())
        return computed(operator.getitem, [owner, key])

    def _attribute(self, tree: ast.Attribute, scope: dict[str, Any]) -> Any:
        if (path := _dotted(tree, scope)).startswith("__torch__."):
            return _Reference(path)
        if isinstance(tree.value, ast.Name) and tree.value.id not in scope:
            if tree.value.id == "CONSTANTS":
                return self._constant(tree.attr)
            if tree.value.id == "torch" and tree.attr in NUMBERS:
                return NUMBERS[tree.attr]
        return self._field(self._value(tree.value, scope), tree.attr)

    def _constant(self, name: str) -> Any:
        place = name.removeprefix("c")
        if not place.isdigit() or int(place) >= len(self._constants):
            raise FormatError(f"the program reads the constant {shown(name[:40])}, which the archive does not have")
        return self._constants[int(place)]

    def _field(self, owner: Any, name: str) -> Any:
        if isinstance(owner, Record):
            if name in owner.fields:
                return owner.fields[name]
            found = self._definitions.definition(owner.kind)
            for statement in found.body if isinstance(found, ast.ClassDef) else ():
                if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
                    continue
                if statement.target.id == name and statement.value is not None:
                    return self._value(statement.value, {})
            raise FormatError(f"{shown(owner.kind[:80])} of the program has no {shown(name[:80])}")
        if isinstance(owner, torch.Tensor):
            known: dict[str, Callable[[torch.Tensor], Any]] = {
                "shape": lambda t: list(t.shape),
                "device": lambda _: torch.device("meta"),
                "dtype": lambda t: t.dtype,
                "is_cuda": lambda _: False,
                "ndim": lambda t: t.dim(),
                "requires_grad": lambda _: False,
                "layout": lambda t: t.layout,
                "itemsize": lambda t: t.itemsize,
            }
            if name in known:
                return known[name](owner)
            if name in ("T", "mT", "H", "mH", "real", "imag", "grad", "data"):
                if name in ("data", "grad"):
                    return owner if name == "data" else None
                target = {"T": "numpy_T", "mT": "mT", "H": "matrix_H", "mH": "mH"}.get(name, name)
                return self._replay.call(f"aten.{target}", [owner], {}, self._module())
        if isinstance(owner, torch.device) and name in ("type", "index"):
            return "cpu" if name == "type" else None
        raise FormatError(f"the program reads {shown(name[:80])} of a {type(owner).__name__}")

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _called(self, tree: ast.Call, scope: dict[str, Any]) -> Any:
        path = _dotted(tree.func, scope)
        if path in ("annotate", "unchecked_cast", "ops.prim.unchecked_cast"):
            return self._value(tree.args[-1], scope)
        if path == "uninitialized":
            return None
        if path == "isinstance":
            raise UnsupportedError("the program asks for the type of a value (isinstance), which is not followed")
        arguments = [self._value(argument, scope) for argument in tree.args]
        given = {k.arg: self._value(k.value, scope) for k in tree.keywords if k.arg is not None}
        if path == "getattr":
            if not isinstance(arguments[1], str):
                raise FormatError(f"the program reads a field that a {type(arguments[1]).__name__} names")
            return self._field(arguments[0], arguments[1])
        if path.startswith("__torch__."):
            return self._own(path, arguments, given)
        if path.startswith("torch."):
            return self._operator(path.removeprefix("torch."), arguments, given)
        if path.startswith("ops."):
            return self._of_namespace(path.removeprefix("ops."), arguments, given)
        if path:
            return self._operator(path, arguments, given)
        if isinstance(tree.func, ast.Name) and isinstance(own := scope[tree.func.id], _Reference):
            return self._own(own.path, arguments, given)
        if not isinstance(tree.func, ast.Attribute):
            raise _unread(tree)
        owner = self._value(tree.func.value, scope)
        if not isinstance(owner, Record):
            return self._operator(tree.func.attr, [owner, *arguments], given)
        method = self._definitions.method(owner.kind, tree.func.attr)
        if method is None:
            raise UnsupportedError(
                f"the program calls {shown(tree.func.attr[:60])} of {shown(owner.kind[:80])}, which the archive does "
                "not define: an object of a C++ extension"
            )
        self._modules.append(str(owner.fields.get("", "")) or self._module())
        try:
            return self.call(method, [owner, *arguments], given)
        finally:
            self._modules.pop()

    def _own(self, path: str, arguments: list[Any], given: Mapping[str, Any]) -> Any:
        if path.endswith(".__new__"):
            return Record(path.removesuffix(".__new__"))
        found = self._definitions.definition(path)
        if isinstance(found, ast.FunctionDef):
            return self.call(found, arguments, given)
        if isinstance(found, ast.ClassDef):  # a named tuple
            names = [s.target.id for s in found.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
            return Record(path, dict(zip(names, arguments, strict=False)))
        raise UnsupportedError(f"the program calls {shown(path[:100])}, which the archive does not define")

    def _of_namespace(self, path: str, arguments: list[Any], given: Mapping[str, Any]) -> Any:
        namespace, _, name = path.partition(".")
        if namespace in ("prim", "aten"):
            return self._operator(name, arguments, given)
        if namespace != "torchvision":
            raise UnsupportedError(
                f"the program calls the operator {shown(path[:80])} of an extension, whose work is not known; export "
                "the model to ONNX (torch.onnx.export), or save it without that extension"
            )
        return self._replayed(path, arguments, given)

    def _operator(self, name: str, arguments: list[Any], given: Mapping[str, Any]) -> Any:
        if name in _PRIM:
            return self._prim(name, arguments)
        with_tensor = any(isinstance(v, torch.Tensor) for v in (*arguments, *given.values()))
        if name in OF_LISTS and arguments and isinstance(arguments[0], (list, tuple, dict, str, range, Record)):
            first = arguments[0]
            rest = [list(first.fields.values()) if isinstance(first, Record) else first, *arguments[1:]]
            return self._computed(OF_LISTS[name], rest)
        if name in OF_TENSORS and arguments and isinstance(arguments[0], torch.Tensor):
            return self._computed(OF_TENSORS[name], arguments)
        if name in OF_NUMBERS and not with_tensor:
            return self._computed(OF_NUMBERS[name], arguments)
        return self._replayed(f"aten.{name}", arguments, given)

    def _replayed(self, target: str, arguments: list[Any], given: Mapping[str, Any]) -> Any:
        self._count_values([arguments, given])
        return self._replay.call(target, arguments, given, self._module())

    def _prim(self, name: str, arguments: list[Any]) -> Any:
        if name in _CASTS:
            return computed(_CASTS[name], [self._number(arguments[0])])
        match name:
            case "NumToTensor" | "data" | "rethrow":
                return arguments[0]
            case "ScalarImplicit" | "item":
                return self._number(arguments[0])
            case "RaiseException":
                said = arguments[0] if arguments else None
                raise UnsupportedError(
                    f"the program raises {shown(said[:200]) if isinstance(said, str) else 'an error'} for these inputs"
                )
            case "dtype" | "layout" | "shape" | "is_cuda" | "requires_grad":
                return self._field(arguments[0], name)
            case "__is__" | "__isnot__":
                same = arguments[0] is arguments[1]
                return same if name == "__is__" else not same
            case "__not__":
                return not self._truth(arguments[0])
            case "format" | "str" | "warn" | "print" | "percentFormat":
                return ""
            case "fork" | "wait":
                raise UnsupportedError("the program runs parts of itself side by side (fork), which is not followed")
            case "manual_seed" | "save" | "load":
                raise UnsupportedError(f"the program calls {name}, which is not called here")
        raise UnsupportedError(f"the program calls {shown(name[:60])}, which is not followed")


_CASTS: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "Int": int,
    "IntImplicit": int,
    "Float": float,
    "FloatImplicit": float,
    "float": float,
    "bool": bool,
    "Bool": bool,
}
_PRIM = _CASTS.keys() | {
    "NumToTensor",
    "data",
    "rethrow",
    "ScalarImplicit",
    "item",
    "RaiseException",
    "dtype",
    "layout",
    "shape",
    "is_cuda",
    "requires_grad",
    "__is__",
    "__isnot__",
    "__not__",
    "format",
    "str",
    "warn",
    "print",
    "percentFormat",
    "fork",
    "wait",
    "manual_seed",
    "save",
    "load",
}


def _dotted(tree: ast.expr, scope: Mapping[str, Any]) -> str:
    """torch.nn.functional.relu of a name that is no variable; "" of anything else."""
    parts: list[str] = []
    while isinstance(tree, ast.Attribute):
        parts.append(tree.attr)
        tree = tree.value
    if not isinstance(tree, ast.Name) or tree.id in scope or tree.id == "CONSTANTS":
        return ""
    return ".".join([tree.id, *reversed(parts)])


_BRACKET = re.compile(r"[\[\](){}]")


def _definitions(text: str, where: str) -> dict[str, ast.stmt]:
    """The functions and classes of a file of the program. Raises FormatError, LimitError."""
    depth = most = 0
    for line in text.split("\n"):
        if len(line) > _LONGEST_LINE:
            raise LimitError(f"{where} of the program has a line of {len(line)} letters")
        for letter in _BRACKET.findall(line):
            if letter in "([{":
                depth += 1
                most = max(most, depth)
            else:
                depth -= 1
        if most > _MOST_NESTED or line.count("  ") > 2 * _MOST_NESTED + 4096:
            raise LimitError(f"{where} of the program nests over {_MOST_NESTED} deep")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise FormatError(f"{where} of the program is no TorchScript ({type(error).__name__})") from error
    return {s.name: s for s in tree.body if isinstance(s, (ast.FunctionDef, ast.ClassDef))}


def _unread(tree: ast.AST) -> UnsupportedError:
    return UnsupportedError(
        f"the program has {type(tree).__name__} in line {getattr(tree, 'lineno', 0)}, which TorchScript does not write"
    )
