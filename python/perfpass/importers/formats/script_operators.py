"""What TorchScript's own operators make of lists, numbers and a tensor's sizes; all others are PyTorch's.

Every function is called by `bounded_arithmetic.computed`, which bounds what it makes.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from perfpass.importers.formats.bounded_arithmetic import appended, multiplied, power, ranged, remainder


def _sized(value: Any, *axis: int) -> Any:
    return value.shape[axis[0]] if axis else list(value.shape)


def _sliced(values: Any, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return values[slice(start, end, step)]


OF_LISTS: dict[str, Callable[..., Any]] = {
    "len": len,
    "append": appended,
    "extend": lambda a, b: [appended(a, v) for v in list(b)] and None,
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
    "add_": lambda a, b: [appended(a, v) for v in list(b)] and a,
    "mul": multiplied,
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
OF_TENSORS: dict[str, Callable[..., Any]] = {
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
    "is_nested": lambda _: False,
    "get_device": lambda _: 0,
    "device": lambda _: torch.device("meta"),
}
OF_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "rsub": lambda a, b: b - a,
    "mul": multiplied,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "floor_divide": operator.floordiv,
    "remainder": remainder,
    "fmod": math.fmod,
    "neg": operator.neg,
    "pow": power,
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
    "range": ranged,
    "__range_length": lambda low, high, step: len(range(low, high, step)),
    "__derive_index": lambda index, start, step: start + index * step,
    "device": lambda *_: torch.device("meta"),
    "type": lambda device: device.type,
    "dict": dict,
    "list": list,
    "ord": ord,
    "chr": chr,
    "_assert": lambda *_: None,
}
NUMBERS: dict[str, Any] = {"inf": math.inf, "nan": math.nan, "pi": math.pi}
UNARY: dict[type, tuple[str, Callable[..., Any]]] = {
    ast.USub: ("neg", operator.neg),
    ast.Not: ("logical_not", operator.not_),
    ast.Invert: ("bitwise_not", operator.invert),
    ast.UAdd: ("positive", operator.pos),
}
BINARY: dict[type, tuple[str, Callable[..., Any]]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("sub", operator.sub),
    ast.Mult: ("mul", multiplied),
    ast.Div: ("div", operator.truediv),
    ast.FloorDiv: ("floor_divide", operator.floordiv),
    ast.Mod: ("remainder", remainder),
    ast.Pow: ("pow", power),
    ast.BitAnd: ("__and__", operator.and_),
    ast.BitOr: ("__or__", operator.or_),
    ast.BitXor: ("__xor__", operator.xor),
    ast.MatMult: ("matmul", operator.matmul),
}
COMPARED: dict[type, tuple[str, Callable[..., Any]]] = {
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
