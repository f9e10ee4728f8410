"""TensorFlow models: what is read of real files, calls and loops, and what damage and bombs come to."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import perfpass
from perfpass.errors import ArgumentError, FormatError, GraphError, LimitError, PerfPassError, UnsupportedError
from perfpass.graph import OpGraph, costs
from perfpass.importers.formats import Content, Sizes, recognised
from perfpass.importers.formats.tensorflow import graph_def, inputs, read

FILES = Path(__file__).parent / "files"
SAVED, FROZEN, LOOP = FILES / "convolutions.saved_model", FILES / "frozen.pb", FILES / "loop.saved_model"
FLOAT, INT32 = 1, 3


def totals(graph: OpGraph) -> tuple[int, int]:
    """Parameters and MACs."""
    counted = costs.count(graph).totals
    return counted["parameters"], counted["macs"]


def kinds(graph: OpGraph) -> list[str]:
    """The operators in order."""
    return [graph.op_name(node) for node in range(graph.node_count)]


# -- messages, as protobuf writes them ---------------------------------------------------------------------------------


def number(value: int) -> bytes:
    """A varint."""
    out = bytearray()
    while True:
        out.append(value & 127 | (128 if value > 127 else 0))
        value >>= 7
        if not value:
            return bytes(out)


def part(field: int, content: bytes | str) -> bytes:
    """A field of bytes."""
    data = content.encode() if isinstance(content, str) else content
    return number(field << 3 | 2) + number(len(data)) + data


def value(field: int, content: int) -> bytes:
    """A field of a number."""
    return number(field << 3) + number(content)


def shape(*sizes: int) -> bytes:
    """A TensorShapeProto."""
    return b"".join(part(2, value(1, size % 2**64)) for size in sizes)


def tensor(kind: int, sizes: tuple[int, ...], content: bytes) -> bytes:
    """A TensorProto."""
    return value(1, kind) + part(2, shape(*sizes)) + part(4, content)


def node(name: str, op: str, *reads: str, **attributes: bytes) -> bytes:
    """A NodeDef."""
    found = part(1, name) + part(2, op) + b"".join(part(3, read) for read in reads)
    return found + b"".join(part(5, part(1, key) + part(2, own)) for key, own in attributes.items())


def constant(name: str, *numbers: int) -> bytes:
    """A Const of whole numbers."""
    content = tensor(INT32, (len(numbers),), struct.pack(f"<{len(numbers)}i", *numbers))
    return node(name, "Const", dtype=value(6, INT32), value=part(8, content))


def function(name: str, arguments: list[str], returns: str, *nodes: bytes) -> bytes:
    """A FunctionDef of one result."""
    signature = part(1, name) + b"".join(part(2, part(1, own)) for own in arguments) + part(3, part(1, "out"))
    return part(1, signature) + b"".join(part(3, own) for own in nodes) + part(4, part(1, "out") + part(2, returns))


def graph(folder: Path, *nodes: bytes, functions: tuple[bytes, ...] = ()) -> Path:
    """A frozen graph whose input is ``x`` [2, 3]."""
    first = node("x", "Placeholder", dtype=value(6, FLOAT), shape=part(7, shape(2, 3)))
    library = part(2, b"".join(part(1, own) for own in functions))
    path = folder / "graph"
    path.write_bytes(b"".join(part(1, own) for own in (first, *nodes)) + library)
    return path


def call(name: str, to: str, *reads: str) -> bytes:
    """A node that calls a function."""
    return node(name, "PartitionedCall", *reads, f=part(10, part(1, to)))


# -- real files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [SAVED, SAVED / "saved_model.pb", FROZEN])
def test_a_folder_its_file_and_a_frozen_graph_are_one_model(path: Path) -> None:
    found = recognised(Content.of(path))
    assert found is not None and found.name == "tensorflow"
    graph = perfpass.load(path, batch=2)
    # A kernel of 3 x 3 x 3 x 4 with a bias, four factors of a batch norm, a matrix of 4 x 5.
    assert totals(graph) == (108 + 4 + 16 + 20, 2 * (16 * 4 * 27 + 20))
    assert kinds(graph) == ["conv", "batch_norm", "relu", "reshape", "reduce_mean", "dense"]


def test_images_are_shown_channels_first() -> None:
    graph = read(SAVED, Sizes(batch=2))
    data, kernel, bias = (graph.shape(int(t)) for t in graph.node_inputs(0))
    assert (data, kernel, bias) == ((2, 3, 8, 8), (4, 3, 3, 3), (4,))


def test_a_loop_repeats_its_body_as_often_as_its_condition_says() -> None:
    graph = read(LOOP, Sizes(batch=2))
    assert totals(graph) == (12 + 16, 2 * 7 * (12 + 16))
    assert set(graph.core.repeat.tolist()) == {1.0, 7.0} and not graph.notes


def test_inputs_are_those_of_the_signature() -> None:
    (image,) = inputs(SAVED)
    assert (image.name, image.dtype, image.shape) == ("image", "float32", ("batch", 8, 8, 3))
    with pytest.raises(ArgumentError, match="its inputs are 'image'"):
        read(SAVED, Sizes(input_shapes={"img": (1, 8, 8, 3)}))


def test_weights_are_never_read() -> None:
    assert not (SAVED / "variables").exists()


def test_another_signature_must_be_saved_under_the_name_that_is_served(tmp_path: Path) -> None:
    content = (SAVED / "saved_model.pb").read_bytes().replace(b"serving_default", b"other_signature", 99)
    path = tmp_path / "saved_model.pb"
    path.write_bytes(content)
    assert totals(read(path, Sizes(batch=1)))[0] == 148  # the only one
    content = content.replace(b"__saved_model_init_op", b"x_saved_model_init_op")
    path.write_bytes(content)
    with pytest.raises(UnsupportedError, match=r"'other_signature', 'x_saved_model_init_op'.*none called serving"):
        read(path, Sizes(batch=1))


# -- graphs made here --------------------------------------------------------------------------------------------------


def test_calls_are_inlined_and_their_functions_may_call_others(tmp_path: Path) -> None:
    inner = function("inner", ["a"], "r:activations:0", node("r", "Relu", "a"))
    outer = function("outer", ["a"], "c:output:0", node("n", "Neg", "a"), call("c", "inner", "n:y:0"))
    found = read(graph(tmp_path, call("y", "outer", "x"), functions=(inner, outer)), Sizes())
    assert kinds(found) == ["neg", "relu"]


def test_functions_that_call_themselves_are_refused(tmp_path: Path) -> None:
    own = function("own", ["a"], "c:output:0", call("c", "own", "a"))
    with pytest.raises(LimitError, match="call one another"):
        read(graph(tmp_path, call("y", "own", "x"), functions=(own,)), Sizes())


def test_functions_that_double_at_every_call_are_refused_in_time(tmp_path: Path) -> None:
    made = [function("f0", ["a"], "r:y:0", node("r", "Neg", "a"))]
    for level in range(1, 40):
        twice = call("c", f"f{level - 1}", "a"), call("d", f"f{level - 1}", "c:output:0")
        made.append(function(f"f{level}", ["a"], "d:output:0", *twice))
    with pytest.raises(LimitError, match="call one another"):
        read(graph(tmp_path, call("y", "f39", "x"), functions=tuple(made)), Sizes())


def test_a_cycle_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="cycle"):
        read(graph(tmp_path, node("a", "Add", "x", "b"), node("b", "Neg", "a"), node("y", "Neg", "b")), Sizes())


def test_shapes_follow_from_the_arithmetic_of_shapes(tmp_path: Path) -> None:
    nodes = [
        node("s", "Shape", "x"),
        constant("zero", 0),
        constant("one", 1),
        node("n", "StridedSlice", "s", "zero", "one", "one"),
        constant("rest", -1),
        node("to", "ConcatV2", "n", "rest", "at"),
        node("at", "Const", dtype=value(6, INT32), value=part(8, tensor(INT32, (), struct.pack("<i", 0)))),
        node("r", "Reshape", "x", "to"),
        node("y", "Relu", "r"),
    ]
    found = read(graph(tmp_path, *nodes), Sizes())
    assert kinds(found) == ["relu"]  # [2, 3] to [2, -1] is no reshape


def test_an_unknown_operator_keeps_the_shape_that_the_file_declares(tmp_path: Path) -> None:
    shapes = part(1, part(7, shape(-1, 5)))
    odd = node("odd", "OddOp", "x", T=value(6, FLOAT), _output_shapes=shapes)
    found = read(graph(tmp_path, odd, node("y", "Relu", "odd")), Sizes())
    assert found.unknown_operators == {"OddOp": 1} and found.shape(int(found.graph_outputs[0])) == (2, 5)
    with pytest.raises(UnsupportedError, match="'OddOp', which is not known here"):
        read(graph(tmp_path, node("odd", "OddOp", "x"), node("y", "Relu", "odd")), Sizes())


def test_a_size_that_only_a_run_knows_is_refused_by_its_node(tmp_path: Path) -> None:
    nodes = node("n", "Cast", "x", DstT=value(6, INT32)), node("y", "Reshape", "x", "n")
    with pytest.raises(UnsupportedError, match=r"'y' gives depends on values"):
        read(graph(tmp_path, *nodes), Sizes())


def test_a_graph_whose_batch_is_fixed_is_read_at_another(tmp_path: Path) -> None:
    found = read(graph(tmp_path, node("y", "Relu", "x")), Sizes(batch=8))
    assert found.shape(int(found.graph_outputs[0])) == (8, 3)


def test_a_tensor_larger_than_any_memory_is_refused(tmp_path: Path) -> None:
    nodes = constant("times", 2**30, 2**30), node("y", "Tile", "x", "times")
    with pytest.raises(LimitError, match=r"2\^48"):
        read(graph(tmp_path, *nodes), Sizes())


def test_more_nodes_than_any_model_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_def, "MOST_NODES", 100)
    with pytest.raises(LimitError, match="more than 100 nodes"):
        read(graph(tmp_path, *[node(f"n{i}", "Neg", "x") for i in range(200)]), Sizes())


def test_a_constant_of_gigabytes_costs_its_length_alone(tmp_path: Path) -> None:
    path = graph(tmp_path, node("y", "MatMul", "x", "w"))
    size = 3 * (1 << 26) * 4
    head = value(1, FLOAT) + part(2, shape(3, 1 << 26)) + number(4 << 3 | 2) + number(size)
    for field, inner in ((8, None), (2, "value"), (5, None)):
        own = part(1, inner) if inner else b""
        head = own + number(field << 3 | 2) + number(len(head) + size) + head
    body = part(1, "w") + part(2, "Const") + head
    with path.open("ab") as file:
        file.write(number(1 << 3 | 2) + number(len(body) + size) + body)
        file.truncate(file.tell() + size)  # a hole: nothing is written, and nothing may read it
    assert totals(read(path, Sizes())) == (3 << 26, 2 * (3 << 26))


@pytest.mark.parametrize("content", [b"\x0a", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x02\x0a\x00", b"\x0b\x00"])
def test_what_is_no_graph_is_one_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "graph"
    path.write_bytes(content)
    with pytest.raises(FormatError):
        read(path, Sizes())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), path=st.sampled_from([SAVED / "saved_model.pb", FROZEN, LOOP / "saved_model.pb"]))
def test_a_damaged_graph_is_read_or_refused(tmp_path: Path, data: st.DataObject, path: Path) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    damaged = tmp_path / "damaged"
    damaged.write_bytes(bytes(content[: data.draw(st.one_of(st.just(len(content)), st.integers(1, len(content))))]))
    result: Any = None
    try:
        result = read(damaged, Sizes(batch=1))
    except PerfPassError as error:
        assert str(error)
    assert result is None or result.node_count > 0
