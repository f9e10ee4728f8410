"""A TorchScript program read as text and followed statement by statement; its operators go to our own replay.

The text is never compiled or executed by Python: it is parsed to a syntax tree (`ast.parse`), and what is understood of
the tree is TorchScript's own small language - assignments, operators of PyTorch by name, calls of the archive's own
functions, if, for, while - each step counted.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from perfpass.errors import FormatError, LimitError, UnsupportedError, shown
from perfpass.importers.formats.script_pickle import Record

if TYPE_CHECKING:
    from perfpass.importers.formats.torch_replay import Replay

_MOST_STEPS = 1_000_000
_DEEPEST = 120  # calls within one another
_MOST_NESTED = 200  # brackets of the text
_LONGEST_LINE = 1 << 20
_MOST_ITEMS = 1 << 20  # of a list that a program makes

Source = Callable[[str], str | None]


class _Returned(Exception):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


@dataclass(frozen=True)
class _Reference:
    """A function or class of the archive as a value."""

    path: str


class ScriptProgram:
    """The functions and classes of an archive, by their qualified names; ``source`` gives a file's text or None."""

    def __init__(self, source: Source, constants: tuple[Any, ...], replay: Replay) -> None:
        self._source, self._constants, self._replay = source, constants, replay
        self._files: dict[str, dict[str, ast.stmt]] = {}
        self._steps = self._depth = 0
        self._modules: list[str] = []

    # -- what the archive defines --------------------------------------------------------------------------------------

    def method(self, kind: str, name: str) -> ast.FunctionDef | None:
        """A method of a class, None where it has none of that name."""
        found = self._definition(kind)
        if not isinstance(found, ast.ClassDef):
            raise FormatError(f"the program has no class {shown(kind[:80])}; save the model again")
        return next((s for s in found.body if isinstance(s, ast.FunctionDef) and s.name == name), None)

    def _definition(self, name: str) -> ast.stmt | None:
        folder, _, last = name.rpartition(".")
        if folder not in self._files:
            text = self._source(folder.replace(".", "/") + ".py")
            self._files[folder] = {} if text is None else _definitions(text, folder)
        return self._files[folder].get(last)

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

    def _count(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise LimitError(f"the program takes over {_MOST_STEPS} steps; a loop of it may have no end")

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
                self._value(owner, scope)[self._value(key, scope)] = value
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
        return bool(self._number(value, "aten.Bool.Tensor"))

    def _number(self, value: Any, _: str = "") -> Any:
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
                if name in _NUMBERS:
                    return _NUMBERS[name]
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
                    self._value(key, scope): self._value(value, scope)
                    for key, value in zip(keys, values, strict=True)
                    if key is not None
                }
            case ast.Subscript(value=owner, slice=key):
                return self._item(self._value(owner, scope), self._value(key, scope))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                name, by_number = _UNARY[type(op)]
                return self._arithmetic(name, by_number, [self._value(operand, scope)])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                name, by_number = _BINARY[type(op)]
                return self._arithmetic(name, by_number, [self._value(left, scope), self._value(right, scope)])
            case ast.BoolOp(op=op, values=parts):
                for part in parts:
                    found = self._truth(self._value(part, scope))
                    if found != isinstance(op, ast.And):
                        break
                return found
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
                name, by_number = _COMPARED[type(op)]
                return self._arithmetic(name, by_number, [self._value(left, scope), self._value(right, scope)])
            case ast.IfExp(test=test, body=then, orelse=other):
                return self._value(then if self._truth(self._value(test, scope)) else other, scope)
            case _:
                raise _unread(tree)

    def _arithmetic(self, name: str, by_number: Callable[..., Any], values: list[Any]) -> Any:
        if any(isinstance(v, torch.Tensor) for v in values):
            return self._replay.call(f"aten.{name}", values, {}, self._module())
        return self._plain(by_number, values)

    @staticmethod
    def _plain(function: Callable[..., Any], values: list[Any]) -> Any:
        try:
            return function(*values)
        except (ArithmeticError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise FormatError(f"the program's arithmetic fails: {type(error).__name__}: {str(error)[:100]}") from error

    def _item(self, owner: Any, key: Any) -> Any:
        if isinstance(owner, torch.Tensor):
            return self._replay.call("aten.select.int", [owner, 0, key], {}, self._module())
        if isinstance(owner, Record):
            owner = list(owner.fields.values())
        return self._plain(operator.getitem, [owner, key])

    def _attribute(self, tree: ast.Attribute, scope: dict[str, Any]) -> Any:
        if (path := _dotted(tree, scope)).startswith("__torch__."):
            return _Reference(path)
        if isinstance(tree.value, ast.Name) and tree.value.id not in scope:
            if tree.value.id == "CONSTANTS":
                return self._constant(tree.attr)
            if tree.value.id == "torch" and tree.attr in _NUMBERS:
                return _NUMBERS[tree.attr]
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
            found = self._definition(owner.kind)
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
            return self._field(arguments[0], str(arguments[1]))
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
        method = self.method(owner.kind, tree.func.attr)
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
        found = self._definition(path)
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
        return self._replay.call(path, arguments, given, self._module())

    def _operator(self, name: str, arguments: list[Any], given: Mapping[str, Any]) -> Any:
        if name in _PRIM:
            return self._prim(name, arguments)
        with_tensor = any(isinstance(v, torch.Tensor) for v in (*arguments, *given.values()))
        if name in _OF_LISTS and arguments and isinstance(arguments[0], (list, tuple, dict, str, range, Record)):
            first = arguments[0]
            rest = [list(first.fields.values()) if isinstance(first, Record) else first, *arguments[1:]]
            return self._plain(_OF_LISTS[name], rest)
        if name in _OF_TENSORS and arguments and isinstance(arguments[0], torch.Tensor):
            return self._plain(_OF_TENSORS[name], arguments)
        if name in _OF_NUMBERS and not with_tensor:
            return self._plain(_OF_NUMBERS[name], arguments)
        return self._replay.call(f"aten.{name}", arguments, given, self._module())

    def _prim(self, name: str, arguments: list[Any]) -> Any:
        match name:
            case "NumToTensor" | "data" | "detach_number" | "rethrow":
                return arguments[0]
            case (
                "int"
                | "Int"
                | "IntImplicit"
                | "Float"
                | "FloatImplicit"
                | "ScalarImplicit"
                | "item"
                | "float"
                | "bool"
                | "Bool"
            ):
                found = self._number(arguments[0])
                kind = {"i": int, "f": float, "b": bool}.get(name[0].lower() if name[0] != "S" else "")
                return self._plain(kind, [found]) if kind is not None and name != "item" else found
            case "RaiseException":
                raise UnsupportedError(
                    f"the program raises {shown(str(arguments[0])[:200]) if arguments else 'an error'} for these inputs"
                )
            case "dtype" | "device" | "layout" | "shape" | "is_cuda" | "requires_grad":
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


def _sized(value: Any, *axis: int) -> Any:
    return value.shape[axis[0]] if axis else list(value.shape)


def _append(values: list[Any], item: Any) -> list[Any]:
    if len(values) >= _MOST_ITEMS:
        raise LimitError(f"the program makes a list of over {_MOST_ITEMS} items")
    values.append(item)
    return values


def _repeated(values: Any, times: int) -> Any:
    if len(values) * max(times, 0) > _MOST_ITEMS:
        raise LimitError(f"the program makes a list of over {_MOST_ITEMS} items")
    return values * times


def _mul(a: Any, b: Any) -> Any:
    return _repeated(a, b) if isinstance(a, (list, tuple, str)) else a * b


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and b > 128:
        raise LimitError("the program's arithmetic passes 128 bits")
    return a**b


def _sliced(values: Any, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return values[slice(start, end, step)]


def _ranged(*bounds: int) -> list[int]:
    found = range(*bounds)
    if len(found) > _MOST_ITEMS:
        raise LimitError(f"the program makes a list of over {_MOST_ITEMS} items")
    return list(found)


_OF_LISTS: dict[str, Callable[..., Any]] = {
    "len": len,
    "append": _append,
    "extend": lambda a, b: [_append(a, v) for v in list(b)] and None,
    "insert": lambda a, i, v: a.insert(i, v),
    "pop": lambda a, *i: a.pop(*i),
    "clear": lambda a: a.clear(),
    "reverse": lambda a: a.reverse(),
    "copy": lambda a: a.copy(),
    "list": list,
    "index": lambda a, v: a.index(v),
    "__getitem__": operator.getitem,
    "__contains__": lambda a, v: v in a,
    "_set_item": operator.setitem,
    "__setitem__": operator.setitem,
    "slice": _sliced,
    "add": operator.add,
    "add_": lambda a, b: [_append(a, v) for v in list(b)] and a,
    "mul": _mul,
    "eq": operator.eq,
    "ne": operator.ne,
    "keys": lambda a: list(a.keys()),
    "values": lambda a: list(a.values()),
    "items": lambda a: list(a.items()),
    "get": lambda a, k, *d: a.get(k, *d),
    "sum": sum,
    "max": max,
    "min": min,
    "sorted": sorted,
    "all": all,
    "any": any,
    "join": lambda a, v: "",
    "zip": lambda *v: list(zip(*v, strict=False)),
    "enumerate": lambda v: list(enumerate(v)),
}
_OF_TENSORS: dict[str, Callable[..., Any]] = {
    "size": _sized,
    "dim": lambda t: t.dim(),
    "len": lambda t: t.shape[0],
    "numel": lambda t: t.numel(),
    "is_floating_point": lambda t: t.is_floating_point(),
    "is_complex": lambda t: t.is_complex(),
    "is_contiguous": lambda t, *_: t.is_contiguous(),
    "stride": lambda t, *axis: t.stride(*axis) if axis else list(t.stride()),
    "element_size": lambda t: t.element_size(),
    "storage_offset": lambda t: t.storage_offset(),
    "get_device": lambda _: 0,
    "device": lambda _: torch.device("meta"),
}
_OF_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "rsub": lambda a, b: b - a,
    "mul": _mul,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "fmod": math.fmod,
    "neg": operator.neg,
    "pow": _power,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "abs": abs,
    "min": min,
    "max": max,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": round,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "log": math.log,
    "log2": math.log2,
    "__and__": operator.and_,
    "__or__": operator.or_,
    "__xor__": operator.xor,
    "__lshift__": lambda a, b: a << min(b, 64),
    "__rshift__": operator.rshift,
    "range": _ranged,
    "__range_length": lambda low, high, step: len(range(low, high, step)),
    "__derive_index": lambda index, start, step: start + index * step,
    "device": lambda *_: torch.device("meta"),
    "dict": dict,
    "list": list,
    "str": lambda v: "",
    "ord": ord,
    "chr": chr,
    "_assert": lambda *_: None,
}
_PRIM = frozenset(
    [
        "NumToTensor",
        "data",
        "rethrow",
        "int",
        "Int",
        "IntImplicit",
        "Float",
        "FloatImplicit",
        "ScalarImplicit",
        "item",
        "float",
        "bool",
        "Bool",
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
    ]
)
_NUMBERS: dict[str, Any] = {"inf": math.inf, "nan": math.nan, "pi": math.pi}
_UNARY: dict[type, tuple[str, Callable[..., Any]]] = {
    ast.USub: ("neg", operator.neg),
    ast.Not: ("logical_not", operator.not_),
    ast.Invert: ("bitwise_not", operator.invert),
    ast.UAdd: ("positive", operator.pos),
}
_BINARY: dict[type, tuple[str, Callable[..., Any]]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("sub", operator.sub),
    ast.Mult: ("mul", _mul),
    ast.Div: ("div", operator.truediv),
    ast.FloorDiv: ("floor_divide", operator.floordiv),
    ast.Mod: ("remainder", operator.mod),
    ast.Pow: ("pow", _power),
    ast.BitAnd: ("__and__", operator.and_),
    ast.BitOr: ("__or__", operator.or_),
    ast.BitXor: ("__xor__", operator.xor),
    ast.MatMult: ("matmul", operator.matmul),
}
_COMPARED: dict[type, tuple[str, Callable[..., Any]]] = {
    ast.Eq: ("eq", operator.eq),
    ast.NotEq: ("ne", operator.ne),
    ast.Lt: ("lt", operator.lt),
    ast.LtE: ("le", operator.le),
    ast.Gt: ("gt", operator.gt),
    ast.GtE: ("ge", operator.ge),
    ast.Is: ("__is__", operator.is_),
    ast.IsNot: ("__isnot__", operator.is_not),
    ast.In: ("__contains__", lambda a, b: a in b),
    ast.NotIn: ("__contains__", lambda a, b: a not in b),
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


def _definitions(text: str, where: str) -> dict[str, ast.stmt]:
    """The functions and classes of a file of the program. Raises FormatError, LimitError."""
    depth = most = 0
    for line in text.split("\n"):
        if len(line) > _LONGEST_LINE:
            raise LimitError(f"{where} of the program has a line of {len(line)} letters")
        for letter in line:
            if letter in "([{":
                depth += 1
                most = max(most, depth)
            elif letter in ")]}":
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
