"""Broken and hostile ONNX files, each built from nothing, with the one error that it must give.

``python tests/hostile_files.py DIR`` writes those that are bytes into DIR, for the fuzz target to replay.
"""

from __future__ import annotations

import itertools
import os
import random
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FLOAT, INT32, INT64, BOOL = 1, 6, 7, 9


# ---- The wire format, as little of it as the files need


def varint(number: int) -> bytes:
    """A base-128 varint; negative numbers as 64-bit two's complement."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: int | bytes | str | float) -> bytes:
    """One field: an int as varint, a float as fixed32, text and bytes with their length."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    payload = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def attribute(name: str, value: object) -> bytes:
    """An AttributeProto of the type that fits the value; ("graph", bytes) and ("tensor", bytes) as they are."""
    out = field(1, name)
    if isinstance(value, int):
        return out + field(3, value) + field(20, 2)
    if isinstance(value, float):
        return out + field(2, value) + field(20, 1)
    if isinstance(value, str):
        return out + field(4, value) + field(20, 3)
    if isinstance(value, tuple):
        kind, payload = value
        return out + (field(6, payload) + field(20, 5) if kind == "graph" else field(5, payload) + field(20, 4))
    return out + b"".join(field(8, v) for v in value) + field(20, 7)  # type: ignore[attr-defined]


def node(op: str, inputs: list[str], outputs: list[str], name: str = "n", domain: str = "", **attributes) -> bytes:
    """A NodeProto."""
    out = b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs) + field(3, name) + field(4, op)
    out += b"".join(field(5, attribute(key, value)) for key, value in attributes.items())
    return out + (field(7, domain) if domain else b"")


def tensor(name: str, shape: list[int], dtype: int = FLOAT, values: list | None = None) -> bytes:
    """A TensorProto; without data unless values are given (int64, int32, bool or float)."""
    out = b"".join(field(1, d) for d in shape) + field(2, dtype) + field(8, name)
    if values is not None:
        code = {FLOAT: "f", INT32: "i", INT64: "q", BOOL: "?"}[dtype]
        out += field(9, struct.pack(f"<{len(values)}{code}", *values))
    return out


def value(name: str, shape: list[int | str | None], dtype: int = FLOAT) -> bytes:
    """A ValueInfoProto; a str is a symbolic dimension, None one without a name."""
    dims = b""
    for d in shape:
        dims += field(1, b"" if d is None else field(2, d) if isinstance(d, str) else field(1, d))
    return field(1, name) + field(2, field(1, field(1, dtype) + field(2, dims)))


def graph(nodes: list[bytes], inputs=(), outputs=(), initializers=(), infos=(), sparse=()) -> bytes:
    """A GraphProto."""
    out = b"".join(field(1, n) for n in nodes) + field(2, "g") + b"".join(field(5, t) for t in initializers)
    out += b"".join(field(11, i) for i in inputs) + b"".join(field(12, o) for o in outputs)
    return out + b"".join(field(13, v) for v in infos) + b"".join(field(15, s) for s in sparse)


def function(name: str, inputs: list[str], outputs: list[str], nodes: list[bytes]) -> bytes:
    """A FunctionProto of the domain "local"."""
    out = field(1, name) + b"".join(field(4, i) for i in inputs) + b"".join(field(5, o) for o in outputs)
    return out + b"".join(field(7, n) for n in nodes) + field(9, field(1, "") + field(2, 17)) + field(10, "local")


def model(graph_bytes: bytes, functions=(), opset: int | None = 17, ir: int = 8) -> bytes:
    """A ModelProto."""
    out = field(1, ir) + field(7, graph_bytes) + b"".join(field(25, f) for f in functions)
    return out if opset is None else out + field(8, field(1, "") + field(2, opset))


X = value("x", [1, 4, 8, 8])
Y = value("y", [])


def one(op: str, *constants: bytes, shape: list | None = None, extra: tuple[str, ...] = (), **attributes) -> bytes:
    """A model of one node that reads x (1 x 4 x 8 x 8 or another shape), then the constants, and writes y."""
    names = [c.name for c in map(_Named, constants)]
    made = node(op, ["x", *names, *extra], ["y"], **attributes)
    return model(graph([made], [X if shape is None else value("x", shape)], [field(1, "y")], constants))


class _Named:
    """The name of a serialized TensorProto made above (field 8)."""

    def __init__(self, serialized: bytes) -> None:
        start = serialized.index(b"\x42") if b"\x42" in serialized else 0
        length = serialized[start + 1]
        self.name = serialized[start + 2 : start + 2 + length].decode()


def plain(depth: int = 3) -> bytes:
    """A good model: a chain of Relu."""
    names = ["x", *(f"t{i}" for i in range(depth - 1)), "y"]
    nodes = [node("Relu", [a], [b], f"n{a}") for a, b in itertools.pairwise(names)]
    infos = [value(n, [1, 4, 8, 8]) for n in names[1:-1]]
    return model(graph(nodes, [X], [value("y", [1, 4, 8, 8])], infos=infos))


def small_network() -> bytes:
    """A good model with every kind of message: convolution, shape arithmetic, If, Loop, a function."""
    branch = graph([node("Relu", ["c"], ["b"], "r")], [], [field(1, "b")])
    other = graph([node("Neg", ["c"], ["b2"], "r")], [], [field(1, "b2")])
    body = graph(
        [node("Identity", ["go"], ["go_on"], "i"), node("Sigmoid", ["s"], ["s_next"], "s")],
        [value("i", [], INT64), value("go", [], BOOL), value("s", [1, 6, 8, 8])],
        [value("go_on", [], BOOL), value("s_next", [1, 6, 8, 8])],
    )
    nodes = [
        node("Conv", ["x", "w"], ["c"], "conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]),
        node("If", ["flag"], ["d"], "if", then_branch=("graph", branch), else_branch=("graph", other)),
        node("Loop", ["trips", "", "d"], ["e"], "loop", body=("graph", body)),
        node("Act", ["e"], ["f"], "call", domain="local"),
        node("Constant", [], ["target"], "k", value=("tensor", tensor("", [2], INT64, [1, -1]))),
        node("Reshape", ["f", "target"], ["y"], "flat"),
    ]
    return model(
        graph(
            nodes,
            [value("x", ["batch", 4, 8, 8]), value("flag", [], BOOL)],
            [field(1, "y")],
            [tensor("w", [6, 4, 3, 3]), tensor("trips", [], INT64, [5])],
        ),
        [function("Act", ["a"], ["b"], [node("Tanh", ["a"], ["b"], "t")])],
    )


def weighted_network() -> bytes:
    """A good model with tensor data wherever data can be, long and short, and shape constants among it."""
    bias = tensor("k", [2000], FLOAT) + field(9, bytes(8000))
    branch = graph(
        [node("Add", ["c", "s"], ["b"], "a")], [], [field(1, "b")], [tensor("s", [1, 20, 8, 8]) + field(9, bytes(5120))]
    )
    other = graph([node("Neg", ["c"], ["b2"], "r")], [], [field(1, "b2")])
    table = list(range(3000))
    nodes = [
        node("Conv", ["x", "w"], ["c"], "conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("If", ["flag"], ["d"], "if", then_branch=("graph", branch), else_branch=("graph", other)),
        node("Constant", [], ["k"], "k", value=("tensor", bias)),
        node("Custom", ["d", "k"], ["e"], "blob", "acme", blob="z" * 9000),
        node("Gather", ["table", "index"], ["target"], "pick"),
        node("Reshape", ["c", "target"], ["y"], "flat"),
    ]
    constants = [
        tensor("w", [20, 4, 3, 3]) + field(4, bytes(4 * 720)),
        tensor("unused", [64, 64], FLOAT) + field(9, bytes(4 * 4096)),
        tensor("half", [3000], 10) + field(5, bytes(6000)),
        tensor("table", [3000], INT64, table),
        tensor("typed", [4096], INT64) + field(7, b"".join(map(varint, range(4096)))),
        tensor("longer", [9000], INT64, list(range(9000))),
        tensor("index", [2], INT64, [1, 1280]),
    ]
    inputs = [value("x", ["batch", 4, 8, 8]), value("flag", [], BOOL)]
    infos = [value("e", [1, 2])]
    return model(graph(nodes, inputs, [field(1, "y")], constants, infos)) + field(14, "m" * 5000)


def shape_constant(name: str, values: list[int]) -> bytes:
    """A one-dimensional int64 constant."""
    return tensor(name, [len(values)], INT64, values)


# ---- The files


@dataclass(frozen=True)
class Hostile:
    """A file, the class of error it must give ("": it must be read) and words of the message."""

    name: str
    error: str
    says: str
    build: Callable[[], bytes]


def _nested_subgraphs(depth: int) -> bytes:
    inner = graph([node("Relu", ["x"], ["b"])], [], [field(1, "b")])
    for _ in range(depth):
        made = field(2, "b") + field(4, "If") + field(1, "c") + field(5, attribute("then_branch", ("graph", inner)))
        inner = field(1, made) + field(12, field(1, "b"))
    return model(inner)


def _nested_type(depth: int) -> bytes:
    kind = field(1, field(1, FLOAT))
    for _ in range(depth):
        kind = field(4, field(1, kind))
    return model(graph([node("Relu", ["x"], ["y"])], [field(1, "x") + field(2, kind)], [Y]))


def _function_bomb(levels: int, calls: int = 2) -> bytes:
    functions = []
    for level in range(levels):
        names = ["a", *(f"t{i}" for i in range(calls - 1)), "b"]
        inner = "Relu" if level == levels - 1 else f"f{level + 1}"
        domain = "" if level == levels - 1 else "local"
        nodes = [node(inner, [p], [q], "n", domain) for p, q in itertools.pairwise(names)]
        functions.append(function(f"f{level}", ["a"], ["b"], nodes))
    return model(graph([node("f0", ["x"], ["y"], "n", "local")], [X], [Y]), functions)


def _functions_in_a_circle(count: int) -> bytes:
    made = [
        function(f"f{i}", ["a"], ["b"], [node(f"f{(i + 1) % count}", ["a"], ["b"], "n", "local")]) for i in range(count)
    ]
    return model(graph([node("f0", ["x"], ["y"], "n", "local")], [X], [Y]), made)


def _loop(trips: int, outputs: int = 1) -> bytes:
    body = graph(
        [node("Identity", ["c"], ["c2"]), node("Relu", ["s"], ["s2"])],
        [value("i", [], INT64), value("c", [], BOOL), value("s", [1, 4, 8, 8])],
        [field(1, "c2"), field(1, "s2")],
    )
    made = node("Loop", ["m", "", "x"], ["y", "z", "u"][:outputs], body=("graph", body))
    return model(graph([made], [X], [Y], [tensor("m", [], INT64, [trips])]))


def _scan(axis: int, count: int) -> bytes:
    body = graph([node("Relu", ["s"], ["s2"])], [value("s", [4, 8, 8])], [field(1, "s2")])
    made = node("Scan", ["x"], ["y"], body=("graph", body), num_scan_inputs=count, scan_input_axes=[axis])
    return model(graph([made], [X], [Y]))


def _if(then: bytes | None, outputs: int = 1) -> bytes:
    attributes = {} if then is None else {"then_branch": ("graph", then), "else_branch": ("graph", then)}
    made = node("If", ["c"], ["y", "z"][:outputs], **attributes)
    return model(graph([made], [X, value("c", [], BOOL)], [Y]))


def _input(shape: list, *more: bytes) -> bytes:
    return model(graph([node("Relu", ["x"], ["y"])], [value("x", shape), *more], [Y]))


def _two(first: bytes, second: bytes, *constants: bytes) -> bytes:
    return model(graph([first, second], [X], [Y], constants))


def _damaged(position: int, mask: int) -> bytes:
    data = bytearray(plain())
    data[position] ^= mask
    return bytes(data)


def _external(path: str) -> bytes:
    entry = field(1, "location") + field(2, path)
    weight = b"".join(field(1, d) for d in [6, 4, 3, 3]) + field(2, FLOAT) + field(8, "w") + field(13, entry)
    made = node("Conv", ["x", "w"], ["y"], kernel_shape=[3, 3])
    return model(graph([made], [X], [field(1, "y")], [weight + field(14, 1)]))


def _sparse() -> bytes:
    sparse = field(1, tensor("w", [2])) + field(2, tensor("", [2], INT64)) + field(3, 8) + field(3, 5)
    return model(graph([node("MatMul", ["x", "w"], ["y"])], [X], [field(1, "y")], sparse=[sparse]))


def _conv(**attributes) -> bytes:
    return one("Conv", tensor("w", [6, 4, 3, 3]), **attributes)


def _single(read: str, written: str, name: str) -> bytes:
    return model(graph([node("Relu", [read], [written], name)], [X], [Y]))


def _safetensors() -> bytes:
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    return struct.pack("<Q", len(header)) + header + bytes(4)


_HUGE = 1 << 40
_RELU = node("Relu", ["x"], ["y"])

FILES: tuple[Hostile, ...] = (
    # Not ONNX at all
    Hostile("zero-byte", "FormatError", "empty", lambda: b""),
    Hostile("all-zeros", "FormatError", "zero bytes", lambda: bytes(4096)),
    Hostile("renamed-jpeg", "FormatError", "JPEG", lambda: b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(range(256))),
    Hostile("renamed-png", "FormatError", "PNG", lambda: b"\x89PNG\r\n\x1a\n" + bytes(64)),
    Hostile("renamed-zip", "FormatError", "ZIP", lambda: b"PK\x03\x04" + bytes(64)),
    Hostile("renamed-gzip", "FormatError", "gzip", lambda: b"\x1f\x8b\x08" + bytes(64)),
    Hostile("renamed-pickle", "FormatError", "pickle", lambda: b"\x80\x04\x95" + bytes(64)),
    Hostile("renamed-safetensors", "FormatError", "safetensors", _safetensors),
    Hostile("renamed-gguf", "FormatError", "GGUF", lambda: b"GGUF\x03\x00\x00\x00" + bytes(64)),
    Hostile("web-page", "FormatError", "HTML", lambda: b"\n<!DOCTYPE html><html><body>Sign in</body></html>"),
    Hostile("text", "FormatError", "text", lambda: b"this is not a model\n" * 20),
    Hostile("lfs-pointer", "FormatError", "LFS", lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
    Hostile("random", "FormatError", "", lambda: random.Random(5).randbytes(4096)),
    # Cut or damaged
    *(
        Hostile(f"truncated-{percent:02d}", "FormatError", "", lambda p=percent: plain()[: len(plain()) * p // 100])
        for percent in (1, 5, 10, 25, 50, 75, 90, 97)
    ),
    *(
        Hostile(f"flipped-{position}-{mask}", "FormatError", "", lambda p=position, m=mask: _damaged(p, m))
        for position, mask in ((0, 4), (2, 1), (2, 4), (3, 64), (5, 1), (5, 4), (6, 32))
    ),
    Hostile("varint-of-11-bytes", "FormatError", "64 bits", lambda: b"\x08" + b"\xff" * 10 + b"\x01" + plain()),
    Hostile("varint-without-end", "FormatError", "number", lambda: b"\x08" + b"\xff" * 5),
    Hostile("field-number-zero", "FormatError", "tag", lambda: b"\x00\x01" + plain()),
    Hostile("group", "FormatError", "wire type 3", lambda: b"\x0b\x0c" + plain()),
    Hostile("wire-type-7", "FormatError", "wire type 7", lambda: b"\x0f" + plain()),
    Hostile("length-past-the-end", "FormatError", "left", lambda: field(1, 8) + varint(7 << 3 | 2) + varint(1 << 30)),
    Hostile("length-2-64", "FormatError", "left", lambda: field(1, 8) + varint(7 << 3 | 2) + varint(-1)),
    Hostile("billion-nodes-claimed", "FormatError", "left", lambda: model(varint(10) + varint(10**9) + _RELU)),
    Hostile("ir-version-as-text", "FormatError", "ir_version", lambda: field(1, "8") + field(7, graph([_RELU]))),
    Hostile("graph-as-number", "FormatError", "graph", lambda: field(1, 8) + field(7, 1)),
    Hostile("node-as-number", "FormatError", "node", lambda: model(field(1, 7))),
    Hostile("op-type-as-number", "FormatError", "op_type", lambda: model(field(1, field(2, "y") + field(4, 3)))),
    Hostile("dims-as-fixed32", "FormatError", "dims", lambda: model(graph([_RELU], [X], [Y], [field(1, 2.0)]))),
    Hostile("two-graphs", "FormatError", "two graphs", lambda: plain() + field(7, graph([_RELU], [X], [Y]))),
    Hostile("no-graph", "FormatError", "graph", lambda: field(1, 8) + field(2, "exporter")),
    Hostile("empty-graph", "GraphError", "no operator", lambda: model(graph([], [X], [field(1, "x")]))),
    Hostile("node-without-operator", "FormatError", "op_type", lambda: model(graph([node("", ["x"], ["y"])], [X]))),
    Hostile("node-without-output", "FormatError", "output", lambda: model(graph([node("Relu", ["x"], [])], [X]))),
    Hostile("raw-data-too-short", "FormatError", "stores 4", lambda: one("Add", tensor("w", [3]) + field(9, b"1234"))),
    Hostile(
        "too-few-typed-values",
        "FormatError",
        "stores 1",
        lambda: one("Reshape", field(1, 2) + field(2, INT64) + field(7, 5) + field(8, "w")),
    ),
    Hostile(
        "attribute-of-another-type",
        "FormatError",
        "declared as INTS and stores FLOAT",
        lambda: model(graph([_RELU + field(5, field(1, "axes") + field(2, 1.5) + field(20, 7))], [X], [Y])),
    ),
    Hostile("unknown-element-type", "UnsupportedError", "99", lambda: _input([2], value("w", [1], 99))),
    Hostile(
        "initializer-without-name", "FormatError", "name", lambda: model(graph([_RELU], [X], [Y], [tensor("", [1])]))
    ),
    # Beyond bounds
    Hostile("million-empty-nodes", "LimitError", "nodes", lambda: model(b"\x0a\x00" * 1_000_001)),
    Hostile("nodes-without-content", "FormatError", "op_type", lambda: model(b"\x0a\x00" * 999_999)),
    Hostile("million-nodes", "LimitError", "nodes", lambda: model(graph([_RELU] * 1_000_001, [X], [Y]))),
    Hostile("subgraphs-10000-deep", "LimitError", "deep", lambda: _nested_subgraphs(10_000)),
    Hostile("types-10000-deep", "LimitError", "deep", lambda: _nested_type(10_000)),
    Hostile("function-calls-itself", "GraphError", "calls itself", lambda: _functions_in_a_circle(1)),
    Hostile("functions-in-a-circle", "GraphError", "calls itself", lambda: _functions_in_a_circle(7)),
    Hostile("function-bomb", "LimitError", "inlined", lambda: _function_bomb(30)),
    Hostile("function-bomb-wide", "LimitError", "inlined", lambda: _function_bomb(5, 100)),
    Hostile("function-chain", "LimitError", "deep", lambda: _function_bomb(5_000, 1)),
    Hostile(
        "huge-name", "LimitError", "name", lambda: model(graph([node("Relu", ["x"], ["y"], "n" * (1 << 20))], [X], [Y]))
    ),
    Hostile("giant-dimension", "LimitError", r"2\^48", lambda: _input([1 << 62])),
    Hostile("overflowing-product", "LimitError", r"2\^48", lambda: _input([1 << 32, 1 << 32, 4])),
    Hostile("giant-weight", "LimitError", r"2\^48", lambda: one("Add", tensor("w", [1 << 40, 1 << 40]))),
    Hostile("negative-dimension", "LimitError", "-7", lambda: _input([-7, 4])),
    Hostile("negative-weight", "LimitError", "-3", lambda: one("Add", tensor("w", [-3]))),
    Hostile("rank-1000", "LimitError", "16", lambda: _input([1] * 1000)),
    Hostile("weight-of-rank-1000", "LimitError", "16", lambda: one("Add", tensor("w", [1] * 1000))),
    Hostile("loop-2-62-times", "LimitError", "times", lambda: _loop(1 << 62)),
    Hostile("loop-minus-one-times", "LimitError", "times", lambda: _loop(-1)),
    Hostile("opset-9999", "UnsupportedError", "9999", lambda: model(graph([_RELU], [X], [Y]), opset=9999)),
    Hostile("opset-0", "UnsupportedError", "opset 0", lambda: model(graph([_RELU], [X], [Y]), opset=0)),
    Hostile("opset-missing", "FormatError", "opset", lambda: model(graph([_RELU], [X], [Y]), opset=None)),
    # Graphs that are none
    Hostile("cycle", "GraphError", "cycle", lambda: _two(node("Relu", ["y"], ["a"]), node("Relu", ["a"], ["y"]))),
    Hostile("self-loop", "GraphError", "cycle", lambda: _two(node("Relu", ["a"], ["a"]), _RELU)),
    Hostile(
        "cycle-through-a-branch",
        "GraphError",
        "cycle",
        lambda: _if(graph([node("Relu", ["y"], ["b"])], [], [field(1, "b")])),
    ),
    Hostile("two-producers", "GraphError", "one producer", lambda: _two(_RELU, node("Neg", ["x"], ["y"]))),
    Hostile("node-writes-an-input", "GraphError", "input", lambda: _two(node("Relu", ["x"], ["x"]), _RELU)),
    Hostile(
        "initializer-twice", "GraphError", "unique", lambda: _two(_RELU, _RELU, tensor("w", [1]), tensor("w", [2]))
    ),
    Hostile("input-twice", "GraphError", "unique", lambda: _input([4], value("x", [4]))),
    Hostile(
        "missing-input", "GraphError", "neither", lambda: model(graph([node("Relu", ["nowhere"], ["y"])], [X], [Y]))
    ),
    Hostile("missing-output", "GraphError", "no node", lambda: model(graph([_RELU], [X], [value("z", [1])]))),
    Hostile(
        "names-not-utf-8",
        "GraphError",
        r"\\xff\\xfe",
        lambda: model(graph([field(1, b"\xff\xfe") + field(2, "y") + field(4, "Relu")], [X], [Y])),
    ),
    Hostile(
        "function-twice",
        "GraphError",
        "twice",
        lambda: model(graph([_RELU], [X], [Y]), [function("f", [], [], [])] * 2),
    ),
    Hostile("if-without-branches", "FormatError", "then_branch", lambda: _if(None)),
    Hostile("if-with-more-outputs", "GraphError", "outputs", lambda: _if(graph([_RELU], [], [field(1, "y")]), 2)),
    Hostile("loop-with-more-outputs", "GraphError", "outputs", lambda: _loop(3, 3)),
    Hostile("scan-of-axis-9", "ShapeError", "axis 9", lambda: _scan(9, 1)),
    Hostile("scan-of-nothing", "FormatError", "num_scan_inputs", lambda: _scan(0, 0)),
    # Shapes that cannot be
    Hostile("symbol-without-value", "ShapeError", "--dim seq=N", lambda: _input(["seq", 4])),
    Hostile("axis-without-value", "ShapeError", "x:1", lambda: _input([4, None])),
    Hostile("reshape-to-another-size", "ShapeError", "", lambda: one("Reshape", shape_constant("s", [3, 5]))),
    Hostile("reshape-with-two-minus-ones", "ShapeError", "", lambda: one("Reshape", shape_constant("s", [-1, -1]))),
    Hostile("reshape-to-minus-five", "ShapeError", "", lambda: one("Reshape", shape_constant("s", [-5, 4]))),
    Hostile("reshape-to-giants", "*", "", lambda: one("Reshape", shape_constant("s", [1 << 62, 1 << 62]))),
    Hostile("concat-of-other-ranks", "ShapeError", "", lambda: one("Concat", tensor("w", [1, 4]), axis=1)),
    Hostile("concat-of-other-sizes", "ShapeError", "", lambda: one("Concat", tensor("w", [1, 4, 8, 9]), axis=1)),
    Hostile("concat-along-axis-9", "ShapeError", "", lambda: one("Concat", tensor("w", [1, 4, 8, 8]), axis=9)),
    Hostile("conv-of-another-rank", "ShapeError", "", lambda: one("Conv", tensor("w", [6, 4, 3]))),
    Hostile("conv-with-stride-zero", "ShapeError", "", lambda: _conv(strides=[0, 0])),
    Hostile("conv-with-groups-zero", "ShapeError", "", lambda: _conv(group=0)),
    Hostile("conv-of-other-channels", "ShapeError", "", lambda: one("Conv", tensor("w", [6, 5, 3, 3]))),
    Hostile("conv-with-dilation-zero", "ShapeError", "", lambda: _conv(dilations=[0, 0])),
    Hostile("conv-kernel-past-input", "ShapeError", "", lambda: one("Conv", tensor("w", [6, 4, 30, 30]))),
    Hostile("pool-with-stride-zero", "ShapeError", "", lambda: one("MaxPool", kernel_shape=[2, 2], strides=[0, 1])),
    Hostile("matmul-of-other-sizes", "ShapeError", "", lambda: one("MatMul", tensor("w", [9, 2]))),
    Hostile("gemm-of-other-sizes", "ShapeError", "", lambda: one("Gemm", tensor("w", [9, 2]), shape=[4, 8])),
    Hostile("add-of-other-sizes", "ShapeError", "", lambda: one("Add", tensor("w", [3]))),
    Hostile("transpose-by-no-permutation", "ShapeError", "", lambda: one("Transpose", perm=[0, 0, 1, 9])),
    Hostile("squeeze-of-a-long-axis", "ShapeError", "", lambda: one("Squeeze", shape_constant("a", [1]))),
    Hostile("split-of-other-sizes", "ShapeError", "", lambda: one("Split", shape_constant("s", [1, 99]), axis=1)),
    Hostile(
        "slice-with-step-zero",
        "ShapeError",
        "",
        lambda: one("Slice", *(shape_constant(n, [v]) for n, v in (("a", 0), ("b", 1), ("c", 0), ("d", 0)))),
    ),
    Hostile("gather-along-axis-9", "ShapeError", "", lambda: one("Gather", tensor("i", [2], INT64, [0, 1]), axis=9)),
    Hostile("einsum-of-nonsense", "ShapeError", "", lambda: one("Einsum", equation="ij,,jk-->")),
    Hostile("tile-to-giants", "*", "", lambda: one("Tile", shape_constant("r", [_HUGE, _HUGE, 1, 1]))),
    Hostile("expand-to-giants", "*", "", lambda: one("Expand", shape_constant("s", [2 * _HUGE, 4, 8, 8]))),
    Hostile("pad-to-giants", "*", "", lambda: one("Pad", shape_constant("p", [0, 0, 0, 0, 0, 0, 0, 1 << 61]))),
    Hostile(
        "range-to-giants",
        "*",
        "",
        lambda: model(
            graph(
                [node("Range", ["a", "b", "c"], ["y"])],
                [X],
                [field(1, "y")],
                [tensor(n, [], INT64, [v]) for n, v in (("a", -(1 << 62)), ("b", 1 << 62), ("c", 1))],
            )
        ),
    ),
    Hostile(
        "fill-of-giants",
        "*",
        "",
        lambda: model(
            graph([node("ConstantOfShape", ["s"], ["y"])], [X], [field(1, "y")], [shape_constant("s", [_HUGE, _HUGE])])
        ),
    ),
    *(
        Hostile(
            f"resize-by-{scale}",
            "*",
            "",
            lambda s=scale: one("Resize", tensor("r", [0]), tensor("k", [4], FLOAT, [1.0, 1.0, float(s), 1.0])),
        )
        for scale in ("nan", "inf", "-1", "1e30")
    ),
    Hostile(
        "unknown-operator-without-shape",
        "ShapeError",
        "acme::Mystery",
        lambda: model(
            graph([node("Mystery", ["x"], ["h"], "m", "acme"), node("Relu", ["h"], ["y"])], [X], [field(1, "y")])
        ),
    ),
    # Looks hostile, is read
    Hostile("external-data-elsewhere", "", "", lambda: _external("../../../../etc/passwd")),
    Hostile("external-data-absolute", "", "", lambda: _external("/etc/shadow")),
    Hostile("external-data-missing", "", "", lambda: _external("no-such-file.bin")),
    Hostile("sparse-initializer", "", "", _sparse),
    Hostile("chain-of-30000", "", "", lambda: plain(30_000)),
    Hostile("unknown-fields", "", "", lambda: plain() + field(500, "more") + field(501, 7) + field(502, 1.0)),
    Hostile("metadata-appended", "", "", lambda: plain() + field(14, field(1, "key") + field(2, "value"))),
)


def write(directory: Path) -> list[Path]:
    """Write every file, and the good ones that mutation starts from; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    good = (("good-plain", plain), ("good-network", small_network), ("good-weights", weighted_network))
    for hostile in (*FILES, *(Hostile(name, "", "", build) for name, build in good)):
        path = directory / f"{hostile.name}.onnx"
        path.write_bytes(hostile.build())
        paths.append(path)
    return paths


if __name__ == "__main__":
    print(f"{len(write(Path(sys.argv[1])))} files in {os.path.abspath(sys.argv[1])}")
