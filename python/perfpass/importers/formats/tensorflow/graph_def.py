"""TensorFlow's graphs as they are written: nodes, attributes, functions, signatures.

Fields by number: tensorflow/core/framework (graph.proto, node_def.proto, attr_value.proto, function.proto,
tensor.proto, tensor_shape.proto) and core/protobuf (saved_model.proto, meta_graph.proto).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from perfpass import _core
from perfpass.errors import FormatError, LimitError
from perfpass.importers.formats.protobuf import Span, entry, fields, inside, packed, signed, text
from perfpass.text import shown_value

MOST_NODES = 400_000
_MOST_ITEMS = 65_536  # of a list in an attribute
_KNOWN_ELEMENTS = 4_096  # constants up to this size may decide shapes and are read
MOST_FLOATING = 2  # of floating ones: the scales of an image's axes are no parameters
# tensorflow/core/framework/types.proto
DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64", 9: "int64",
    10: "bool", 11: "int8", 12: "uint8", 13: "int32", 14: "bfloat16", 15: "int16", 16: "uint16", 17: "uint16",
    18: "complex128", 19: "float16", 20: "resource", 21: "variant", 22: "uint32", 23: "uint64", 24: "float8",
    25: "float8", 26: "float8", 27: "float8", 28: "float8", 29: "int4", 30: "uint4",
}  # fmt: skip
_NUMPY = {
    "float32": "<f4", "float64": "<f8", "float16": "<f2", "int8": "i1", "int16": "<i2", "int32": "<i4", "int64": "<i8",
    "uint8": "u1", "uint16": "<u2", "uint32": "<u4", "uint64": "<u8", "bool": "?",
}  # fmt: skip
_FEW_AXES = 256  # bytes of a shape that is remembered: six axes with their sizes take 50
_REFERENCE = 100  # types above are references to those below

Shape = tuple[int, ...] | None  # None: not even the rank is known; -1: an open size


def dtype(number: int) -> str:
    """A type's name here. Raises FormatError."""
    if number > _REFERENCE:
        number -= _REFERENCE
    found = DTYPES.get(number)
    if found is None:
        raise FormatError(f"a tensor of TensorFlow's type {number}, which does not exist; the file is damaged")
    return found


def shape(span: Span | None) -> Shape:
    """A TensorShapeProto."""
    content = inside(span)
    return _known_shape(content.content) if content.size <= _FEW_AXES else _shape(content)


@lru_cache(maxsize=4096)  # a network has few shapes
def _known_shape(content: bytes) -> Shape:
    return _shape(Span(content, 0, len(content)))


def _shape(span: Span) -> Shape:
    sizes: list[int] = []
    for number, value, part in fields(span):
        if number == 2:
            size = next((signed(v) for n, v, _ in fields(inside(part)) if n == 1), 0)
            if len(sizes) >= 254:
                raise LimitError("a tensor of more than 254 axes; TensorFlow allows no more")
            sizes.append(max(size, -1))
        elif number == 3 and value:
            return None
    return tuple(sizes)


@dataclass(frozen=True)
class Constant:
    """A constant: its values only where it is small enough to decide a shape."""

    dtype: str
    shape: tuple[int, ...]
    known: np.ndarray | None


def constant(span: Span | None) -> Constant:
    """A TensorProto. Raises FormatError."""
    kind, content = "float32", None
    sizes: tuple[int, ...] = ()
    listed: list[tuple[int, int, Span | None]] = []
    for number, value, part in fields(inside(span)):
        if number == 1:
            kind = dtype(value)
        elif number == 2:
            found = shape(part)
            if found is None or -1 in found:
                raise FormatError("a constant whose shape is open; the file is damaged")
            sizes = found
        elif number == 4:
            content = part
        elif number in (5, 6, 7, 10, 11, 13, 16, 17):
            listed.append((number, value, part))
    known = None
    count = math.prod(sizes)
    if count <= (MOST_FLOATING if kind.startswith("float") else _KNOWN_ELEMENTS) and kind in _NUMPY:
        known = _values(kind, count, content, listed)
    return Constant(kind, sizes, None if known is None else known.reshape(sizes))


def _values(
    kind: str, count: int, content: Span | None, listed: list[tuple[int, int, Span | None]]
) -> np.ndarray | None:
    form = np.dtype(_NUMPY[kind])
    if content is not None and content.size:
        if content.size != count * form.itemsize:
            raise FormatError(f"a constant of {count} elements in {content.size} bytes; the file is damaged")
        return np.frombuffer(content.content, form).copy()
    values: list[float] = []
    for number, value, part in listed:
        if number in (5, 6):
            single = "<f4" if number == 5 else "<f8"
            width = 4 if number == 5 else 8
            raw = inside(part).content
            if len(raw) % width:
                raise FormatError("a constant whose numbers are cut short; the file is damaged")
            values += np.frombuffer(raw, single).tolist()
        elif number == 13:
            values += [float(np.array([v & 0xFFFF], "<u2").view("<f2")[0]) for v in packed(value, part)]
        else:
            values += [signed(v) for v in packed(value, part)]
        if len(values) > _KNOWN_ELEMENTS:
            raise FormatError(f"a constant of {count} elements with more values; the file is damaged")
    if len(values) > count:
        raise FormatError(f"a constant of {count} elements with {len(values)} values; the file is damaged")
    found = np.zeros(count, form)
    if values and count:
        with np.errstate(all="ignore"):
            found[: len(values)] = np.array(values).astype(form)
        found[len(values) :] = found[len(values) - 1]  # the last value stands for the rest
    return found


class Attributes:
    """The attributes of a node; one that is not there has the default that is asked with."""

    __slots__ = ("_data", "_values")

    def __init__(self, data: memoryview | bytes, values: dict[str, Any]) -> None:
        self._data = data
        self._values = values  # as `node_def` gives them: few of them are asked for

    def _value(self, name: str, kind: int) -> tuple[int, Span | None] | None:
        found = self._values.get(name)
        if found is None:
            return None
        for number, value, end in (found,) if type(found) is tuple else reversed(found):
            if number == kind:
                return (value, None) if end < 0 else (0, Span(self._data, value, end))
        return None

    def integer(self, name: str, default: int = 0) -> int:
        """A number."""
        found = self._value(name, 3)
        return default if found is None else signed(found[0])

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false; protobuf leaves out what is false."""
        found = self._value(name, 5)
        return default if found is None else bool(found[0])

    def text(self, name: str, default: str = "") -> str:
        """A text."""
        found = self._value(name, 2)
        return default if found is None else text(found[1])

    def dtype(self, name: str, default: str = "float32") -> str:
        """A type."""
        found = self._value(name, 6)
        return default if found is None else dtype(found[0])

    def shape(self, name: str) -> Shape:
        """A shape; None where there is none."""
        found = self._value(name, 7)
        return None if found is None else shape(found[1])

    def function(self, name: str) -> str:
        """The name of a function; its own attributes are not read."""
        found = self._value(name, 10)
        if found is None:
            return ""
        return next((text(part) for number, _, part in fields(inside(found[1])) if number == 1), "")

    def constant(self, name: str) -> Constant:
        """A constant. Raises FormatError where there is none."""
        found = self._value(name, 8)
        if found is None:
            raise FormatError("a constant without its value; the file is damaged")
        return constant(found[1])

    def _items(self, name: str, kind: int) -> list[tuple[int, Span | None]]:
        found = self._value(name, 1)
        items = [] if found is None else [(v, p) for n, v, p in fields(inside(found[1])) if n == kind]
        if len(items) > _MOST_ITEMS:
            raise LimitError(f"an attribute {shown_value(name)} of {len(items)} items; at most {_MOST_ITEMS} are read")
        return items

    def integers(self, name: str) -> list[int]:
        """Numbers."""
        return [signed(v) for value, part in self._items(name, 3) for v in packed(value, part)]

    def dtypes(self, name: str) -> list[str]:
        """Types."""
        return [dtype(v) for value, part in self._items(name, 6) for v in packed(value, part)]

    def shapes(self, name: str) -> list[Shape]:
        """Shapes."""
        return [shape(part) for _, part in self._items(name, 7)]

    def functions(self, name: str) -> list[str]:
        """Names of functions."""
        return [next((text(p) for n, _, p in fields(inside(part)) if n == 1), "") for _, part in self._items(name, 9)]


@dataclass(eq=False, slots=True)
class NodeDef:
    """One node: ``inputs`` name other nodes' results; those of control alone are left out."""

    name: str
    op: str
    inputs: list[str]
    attributes: Attributes


def node(span: Span) -> NodeDef:
    """A NodeDef. Raises FormatError."""
    name, op, inputs, attributes = _core.node_def(*span)
    if not name or not op:
        raise FormatError("a node without a name or an operator; the file is damaged or no TensorFlow graph")
    return NodeDef(name, op, inputs, Attributes(span.data, attributes))


def _named(span: Span, number: int) -> tuple[list[tuple[str, int, int]], Iterator[tuple[int, int, Span | None]]]:
    """The nodes in a field as (name, begin, end), and the other fields as `fields` gives them. Raises LimitError."""
    found, others = _core.message_index(*span, number, MOST_NODES)
    if len(found) > MOST_NODES:
        raise LimitError(f"a TensorFlow graph of more than {MOST_NODES} nodes; save a part of it")
    if len(others) > MOST_NODES:
        raise LimitError(f"a TensorFlow graph of more than {MOST_NODES} fields beside its nodes; save a part of it")
    return found, ((n, value, None if end < 0 else Span(span.data, begin, end)) for n, value, begin, end in others)


class Nodes:
    """The nodes of a graph or a function by name, each read when it is asked for: most are of training alone."""

    __slots__ = ("_read", "_spans")

    def __init__(self) -> None:
        self._spans: dict[str, Span] = {}
        self._read: dict[str, NodeDef] = {}

    def add(self, data: memoryview | bytes, found: list[tuple[str, int, int]]) -> None:
        """Takes nodes of ``data``. Raises FormatError where two have one name."""
        for name, begin, end in found:
            if name in self._spans:
                raise FormatError(f"two nodes of the name {shown_value(name)}; the file is damaged")
            self._spans[name] = Span(data, begin, end)

    def get(self, name: str) -> NodeDef | None:
        """The node of that name; None where there is none. Raises FormatError."""
        if name not in self._read:
            span = self._spans.get(name)
            if span is None:
                return None
            self._read[name] = node(span)
        return self._read[name]

    def op(self, name: str) -> str:
        """Its operator, "" where there is none of that name."""
        found = self.get(name)
        return found.op if found is not None else ""

    def all(self) -> list[NodeDef]:
        """Every node, in the file's order."""
        return [found for name in self._spans if (found := self.get(name)) is not None]

    def __len__(self) -> int:
        return len(self._spans)


@dataclass(eq=False)
class Function:
    """A function of the library: ``results`` are references to nodes of its body, in the order of its signature."""

    name: str
    arguments: list[str]
    results: list[str]
    nodes: Nodes


@dataclass
class Graph:
    """A GraphDef; functions are read when they are called."""

    nodes: Nodes = field(default_factory=Nodes)
    library: dict[str, Span] = field(default_factory=dict)
    _functions: dict[str, Function] = field(default_factory=dict)
    read_nodes: int = 0

    def function(self, name: str) -> Function:
        """A function by its name. Raises FormatError for one that is not there."""
        if name not in self._functions:
            span = self.library.get(name)
            if span is None:
                raise FormatError(f"a call of the function {shown_value(name)}, which the file does not have")
            self._functions[name] = self._function(name, span)
        return self._functions[name]

    def _function(self, name: str, span: Span) -> Function:
        arguments: list[str] = []
        results: list[str] = []
        nodes, returned = Nodes(), {}
        found, others = _named(span, 3)
        self.count(len(found))
        nodes.add(span.data, found)
        for number, _, part in others:
            if number == 1:
                for kind, _, argument in fields(inside(part)):
                    if kind in (2, 3):
                        own = next((text(p) for n, _, p in fields(inside(argument)) if n == 1), "")
                        (arguments if kind == 2 else results).append(own)
            elif number == 4:
                key, value = entry(part)
                returned[key] = text(value)
        missing = [result for result in results if result not in returned]
        if missing:
            raise FormatError(f"function {shown_value(name)} does not say what its result {missing[0]} is")
        return Function(name, arguments, [returned[result] for result in results], nodes)

    def count(self, nodes: int) -> None:
        """Takes note of nodes that are there. Raises LimitError beyond `MOST_NODES`."""
        self.read_nodes += nodes
        if self.read_nodes > MOST_NODES:
            raise LimitError(f"a TensorFlow graph of more than {MOST_NODES} nodes; save a part of it")


def graph(span: Span) -> Graph:
    """A GraphDef. Raises FormatError and LimitError."""
    whole = Graph()
    found, others = _named(span, 1)
    whole.count(len(found))
    whole.nodes.add(span.data, found)
    for number, _, part in others:
        if number == 2:
            for kind, _, function in fields(inside(part)):
                if kind == 1:
                    whole.library[_function_name(inside(function))] = inside(function)
                if len(whole.library) > MOST_NODES:
                    raise LimitError(f"a TensorFlow graph of more than {MOST_NODES} functions")
    return whole


def _function_name(span: Span) -> str:
    signature = next((inside(part) for number, _, part in fields(span) if number == 1), None)
    return "" if signature is None else next((text(part) for number, _, part in fields(signature) if number == 1), "")


@dataclass(frozen=True)
class Declared:
    """A tensor of a signature: its name in the signature, the result that it stands for, type and shape."""

    key: str
    result: str
    dtype: str
    shape: Shape


@dataclass(frozen=True)
class Signature:
    """What a caller gives and gets."""

    inputs: tuple[Declared, ...]
    outputs: tuple[Declared, ...]


def signature(span: Span) -> Signature:
    """A SignatureDef."""
    sides: dict[int, list[Declared]] = {1: [], 2: []}
    for number, _, part in fields(span):
        if number in sides:
            key, value = entry(part)
            sides[number].append(_declared(key, value))
    ordered = [tuple(sorted(side, key=lambda d: d.key)) for side in sides.values()]
    return Signature(*ordered)


def _declared(key: str, span: Span) -> Declared:
    name, kind, sizes = "", "float32", None
    for number, value, part in fields(span):
        if number == 1:
            name = text(part)
        elif number == 2:
            kind = dtype(value)
        elif number == 3:
            sizes = shape(part)
    return Declared(key, name, kind, sizes)
