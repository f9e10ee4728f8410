"""What the ONNX reader promises: the file's own graph, true data flow, inferred shapes, and no weight touched."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hostile_files as wire
from perfpass import errors
from perfpass.graph import OpGraph, costs
from perfpass.importers import onnx as importer

OUTPUT = wire.field(1, "y")  # a graph output without a type
ROLES = {"activation": 0, "input": 1, "weight": 2, "literal": 3}


def tensor_names(graph: OpGraph) -> list[str]:
    return [graph.string(int(i)) for i in graph.tensor_name]


def shapes_by_name(graph: OpGraph) -> dict[str, tuple[int, ...]]:
    return {name: graph.shape(t) for t, name in enumerate(tensor_names(graph))}


def role_of(graph: OpGraph, name: str) -> int:
    return int(graph.tensor_role[tensor_names(graph).index(name)])


def repeats(graph: OpGraph) -> dict[str, float]:
    return {graph.op_name(n): float(graph.repeat[n]) for n in range(graph.node_count)}


def make(nodes: list, inputs: list, outputs: list, initializers: list | None = None, **model_arguments: Any) -> Any:
    made = helper.make_graph(nodes, "g", inputs, outputs, initializers or [])
    model_arguments.setdefault("opset_imports", [helper.make_opsetid("", 17)])
    return helper.make_model(made, ir_version=8, **model_arguments)


def floats(name: str, shape: list | None) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


# ---- Real exports


@pytest.fixture(scope="module")
def exports() -> dict[str, bytes]:
    """A convolutional network and a transformer layer by the legacy exporter, and the network by the dynamo one."""
    import torch

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = torch.nn.Linear(32, 96)
            self.norm = torch.nn.LayerNorm(32)
            self.out = torch.nn.Linear(32, 32)

        def forward(self, x: Any) -> Any:
            b, n, c = x.shape
            q, k, v = self.qkv(self.norm(x)).reshape(b, n, 3, 4, c // 4).permute(2, 0, 3, 1, 4).unbind(0)
            weights = (q @ k.transpose(-2, -1) * 0.35).softmax(-1)
            return x + self.out((weights @ v).transpose(1, 2).reshape(b, n, c))

    convolutional = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.Hardswish(),
        torch.nn.Conv2d(8, 16, 3, groups=4),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 10),
    ).eval()
    made = {}
    for name, module, shape, dynamo in (
        ("cnn", convolutional, (2, 3, 32, 32), False),
        ("attention", Attention().eval(), (2, 7, 32), False),
        ("cnn_dynamo", convolutional, (2, 3, 32, 32), True),
    ):
        file = io.BytesIO()
        if dynamo:
            program = torch.onnx.export(module, (torch.zeros(shape),), dynamo=True, verbose=False)
            file.write(program.model_proto.SerializeToString())
        else:
            torch.onnx.export(module, (torch.zeros(shape),), file, dynamo=False, opset_version=17)
        made[name] = file.getvalue()
    return made


EXPORTS = ["cnn", "attention", "cnn_dynamo"]


@pytest.mark.parametrize("name", EXPORTS)
def test_every_node_but_constants_is_a_node_of_the_graph(name: str, exports: dict[str, bytes]) -> None:
    model = onnx.load_from_string(exports[name])
    graph = importer.read(exports[name])
    found = sorted(graph.source_op_name(n) for n in range(graph.node_count))
    assert found == sorted(n.op_type for n in model.graph.node if n.op_type != "Constant")
    assert not graph.unknown_operators


@pytest.mark.parametrize("name", EXPORTS)
def test_shapes_are_those_that_onnx_infers(name: str, exports: dict[str, bytes]) -> None:
    model = onnx.load_from_string(exports[name])
    del model.graph.value_info[:]
    ours = shapes_by_name(importer.read(model))
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True, strict_mode=True)
    compared = 0
    for info in [*inferred.graph.value_info, *inferred.graph.output]:
        dims = info.type.tensor_type.shape.dim
        if info.name in ours and info.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            assert ours[info.name] == tuple(d.dim_value for d in dims), info.name
            compared += 1
    assert compared >= 0.8 * len(inferred.graph.node)


@pytest.mark.parametrize("name", EXPORTS)
def test_declared_and_inferred_shapes_make_the_same_graph(name: str, exports: dict[str, bytes]) -> None:
    bare = onnx.load_from_string(exports[name])
    del bare.graph.value_info[:]
    full = onnx.shape_inference.infer_shapes(bare, data_prop=True)
    one, two = importer.read(bare), importer.read(full)
    assert shapes_by_name(one) == shapes_by_name(two)
    for column in ("op", "attributes", "repeat", "inputs", "outputs", "tensor_dtype", "tensor_role", "edge_tensor"):
        assert np.array_equal(getattr(one, column), getattr(two, column)), column


@pytest.mark.parametrize("name", EXPORTS)
def test_edges_are_producer_to_consumer(name: str, exports: dict[str, bytes]) -> None:
    model = onnx.load_from_string(exports[name])
    graph = importer.read(exports[name])
    producers = {o: n.name for n in model.graph.node if n.op_type != "Constant" for o in n.output}
    expected = {(producers[i], n.name, i) for n in model.graph.node for i in n.input if i in producers}
    names = tensor_names(graph)
    found = {
        (graph.label(int(p)), graph.label(int(c)), names[t])
        for p, c, t in zip(*graph.edge_index, graph.edge_tensor, strict=True)
    }
    assert found == expected
    assert graph.edge_count == len(expected)


@pytest.mark.parametrize("name", EXPORTS)
def test_another_batch_than_the_exported_one_scales_every_activation(name: str, exports: dict[str, bytes]) -> None:
    at_two, at_six = importer.read(exports[name]), importer.read(exports[name], batch=6)
    assert np.array_equal(at_two.op, at_six.op)
    names = tensor_names(at_two)
    for t, name_ in enumerate(names):
        if at_two.tensor_role[t] in (ROLES["weight"], ROLES["literal"]):
            continue
        before, after = at_two.shape(t), at_six.shape(t)
        assert len(before) == len(after)
        if before and at_two.tensor_dtype[t] == 1:
            assert np.prod(after) == 3 * np.prod(before), name_


@pytest.mark.parametrize("name", ["cnn", "attention"])
def test_weights_inside_outside_or_absent_make_the_same_graph(
    name: str, exports: dict[str, bytes], tmp_path: Path
) -> None:
    inside = onnx.load_from_string(exports[name])
    outside = tmp_path / "outside.onnx"
    onnx.save(onnx.load_from_string(exports[name]), outside, save_as_external_data=True, size_threshold=64)
    (data,) = (p for p in tmp_path.iterdir() if p != outside)
    data.unlink()  # its absence must not be noticed
    absent = onnx.load_from_string(exports[name])
    for tensor in absent.graph.initializer:
        if int(np.prod(tensor.dims)) > 16:
            tensor.ClearField("raw_data")
    graphs = [importer.read(m) for m in (inside, outside, absent)]
    for other in graphs[1:]:
        assert shapes_by_name(other) == shapes_by_name(graphs[0])
        assert np.array_equal(other.tensor_role, graphs[0].tensor_role)


# ---- What goes in


def test_paths_bytes_views_and_protos_are_all_read(tmp_path: Path) -> None:
    data = wire.plain()
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    sources = [path, str(path), data, bytearray(data), memoryview(data), onnx.load_from_string(data)]
    assert {importer.read(source).node_count for source in sources} == {3}
    with pytest.raises(errors.ArgumentError, match="int"):
        importer.read(5)  # type: ignore[arg-type]


def test_inputs_are_listed_with_their_symbols(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    weight = wire.tensor("w", [3])
    declared = [wire.value("x", ["batch", 3, None]), wire.value("w", [3])]
    path.write_bytes(wire.model(wire.graph([wire.node("Add", ["x", "w"], ["y"])], declared, [OUTPUT], [weight])))
    assert importer.inputs(path) == (importer.Input("x", "float32", ("batch", 3, "x:2")),)


def test_a_file_that_holds_to_its_batch_is_said_to(tmp_path: Path) -> None:
    noise = helper.make_tensor("noise", TensorProto.FLOAT, [2, 2, 4], [0.0] * 16)
    nodes = [helper.make_node("Add", ["x", "noise"], ["y"])]
    ends = [helper.make_tensor_value_info(*of) for of in (("x", 1, [1, 2, 4]), ("y", 1, [2, 2, 4]))]
    model = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], [noise]))
    onnx.save(model, path := tmp_path / "m.onnx")
    assert importer.read(path, batch=1).node_count == 1
    with pytest.raises(errors.ShapeError, match=r"broadcast.*the file fixes its batch to 1.*open batch"):
        importer.read(path, batch=3)


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [
        ({"dims": {"batch": 2, "x:2": 3}}, (2, 3, 3)),
        ({"batch": 4, "dims": {"x:2": 3}}, (4, 3, 3)),
        ({"input_shapes": {"x": (5, 3, 3)}}, (5, 3, 3)),
        ({"dims": {"batch": np.int64(2), "x:2": 3}}, (2, 3, 3)),
    ],
)
def test_symbols_are_set_by_name_batch_or_shape(arguments: dict, shape: tuple[int, ...]) -> None:
    model = wire.model(wire.graph([wire.node("Relu", ["x"], ["y"])], [wire.value("x", ["batch", 3, None])], [OUTPUT]))
    graph = importer.read(model, **arguments)
    assert graph.shape(int(graph.graph_outputs[0])) == shape


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({}, errors.ShapeError, r"'batch', 'x:2'.*--dim batch=N --dim x:2=N"),
        ({"dims": {"batch": 0}}, errors.ArgumentError, "batch = 0"),
        ({"dims": {"batch": 1.5}}, errors.ArgumentError, "whole number"),
        ({"dims": {"bach": 2}}, errors.ArgumentError, "no symbolic dimension 'bach'.*'batch'"),
        ({"input_shapes": {"z": (1,)}}, errors.ArgumentError, "no input 'z'.*'x'"),
        ({"input_shapes": {"x": (1, 3)}}, errors.ShapeError, "3 dimensions"),
        ({"input_shapes": {"x": (5, 3, 3)}, "batch": 4}, errors.ShapeError, "contradicts"),
        ({"dims": {"batch": 2, "x:2": 1}, "batch": 3}, errors.ShapeError, "one value"),
        ({"batch": -1}, errors.ArgumentError, "-1"),
    ],
)
def test_arguments_that_cannot_be_met_are_explained(arguments: dict, error: type, says: str) -> None:
    model = wire.model(wire.graph([wire.node("Relu", ["x"], ["y"])], [wire.value("x", ["batch", 3, None])], [OUTPUT]))
    with pytest.raises(error, match=says):
        importer.read(model, **arguments)


def test_declared_shapes_are_stale_once_an_input_has_another_size() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Exp", ["h"], ["y"])]
    model = make(nodes, [floats("x", [1, 8])], [floats("y", [1, 8])])
    model.graph.value_info.append(floats("h", [1, 8]))
    graph = importer.read(model, input_shapes={"x": (1, 16)})
    assert shapes_by_name(graph) == {"x": (1, 16), "h": (1, 16), "y": (1, 16)}


# ---- Constants and their roles


def test_floating_constants_with_dimensions_are_weights_and_integers_are_not() -> None:
    weight = numpy_helper.from_array(np.zeros((4, 3), np.float32), "w")
    scale = numpy_helper.from_array(np.float32(2.0).reshape(()), "s")
    target = numpy_helper.from_array(np.array([1, -1]), "t")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Mul", ["a", "s"], ["b"]),
        helper.make_node("Reshape", ["b", "t"], ["c"]),
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.zeros((6,), np.float32))),
        helper.make_node("Add", ["c", "k"], ["y"]),
    ]
    graph = importer.read(make(nodes, [floats("x", [2, 4])], [floats("y", None)], [weight, scale, target]))
    assert [role_of(graph, n) for n in "wstk"] == [ROLES[r] for r in ("weight", "literal", "literal", "weight")]
    assert "Constant" not in {graph.source_op_name(n) for n in range(graph.node_count)}


def test_scales_of_a_resizing_are_no_parameters() -> None:
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest")]
    info = helper.make_tensor_value_info
    given, made = info("x", TensorProto.FLOAT, [1, 2, 4, 4]), info("y", TensorProto.FLOAT, [1, 2, 8, 8])
    scales = numpy_helper.from_array(np.array([1, 1, 2, 2], "float32"), "scales")
    model = helper.make_model(helper.make_graph(nodes, "g", [given], [made], [scales]))
    assert costs.count(importer.read(model)).totals["parameters"] == 0


def test_quantized_operands_are_weights_although_they_are_integers() -> None:
    weight = numpy_helper.from_array(np.zeros((4, 6), np.int8), "w")
    scale = numpy_helper.from_array(np.ones((6,), np.float32), "s")
    zero = numpy_helper.from_array(np.zeros((6,), np.int8), "z")
    bias = numpy_helper.from_array(np.zeros((6,), np.int32), "b")
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["wf"], axis=1),
        helper.make_node("DequantizeLinear", ["b", "s"], ["bf"], axis=0),
        helper.make_node("Gemm", ["x", "wf", "bf"], ["y"]),
    ]
    graph = importer.read(make(nodes, [floats("x", [2, 4])], [floats("y", None)], [weight, scale, zero, bias]))
    assert [role_of(graph, n) for n in "wbsz"] == [ROLES[r] for r in ("weight", "weight", "weight", "literal")]


def test_initializers_that_are_inputs_too_are_constants() -> None:
    weight = numpy_helper.from_array(np.zeros((4, 3), np.float32), "w")
    model = make(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], [floats("x", [2, 4])], [floats("y", [2, 3])], [weight]
    )
    model.graph.input.append(floats("w", [4, 3]))
    graph = importer.read(model)
    assert len(graph.graph_inputs) == 1
    assert role_of(graph, "w") == ROLES["weight"]


def test_a_sparse_initializer_counts_with_its_full_shape() -> None:
    graph = importer.read(wire._sparse())
    assert shapes_by_name(graph)["w"] == (8, 5)
    assert role_of(graph, "w") == ROLES["weight"]


# ---- Functions and control flow


def test_functions_are_inlined_with_the_callers_attributes_and_the_defaults() -> None:
    body = helper.make_node("Concat", ["a", "a"], ["c"])
    reference = onnx.AttributeProto(name="axis", ref_attr_name="where", type=onnx.AttributeProto.INT)
    body.attribute.append(reference)
    soft = helper.make_node("Softmax", ["c"], ["b"])
    soft.attribute.append(onnx.AttributeProto(name="axis", ref_attr_name="over", type=onnx.AttributeProto.INT))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    function = helper.make_function("local", "Twice", ["a"], ["b"], [body, soft], opsets[:1], ["where"])
    function.attribute_proto.append(helper.make_attribute("over", 0))
    call = helper.make_node("Twice", ["x"], ["y"], domain="local", name="call", where=1)
    model = make([call], [floats("x", [2, 3])], [floats("y", None)], opset_imports=opsets, functions=[function])
    graph = importer.read(model)
    assert [graph.op_name(n) for n in range(graph.node_count)] == ["concat", "softmax"]
    assert graph.shape(int(graph.graph_outputs[0])) == (2, 6)
    assert int(graph.attributes[1][list(_attribute_names()).index("axis")]) == 0
    assert "call/c" in tensor_names(graph)


def _attribute_names() -> tuple[str, ...]:
    from perfpass.graph import ATTRIBUTES

    return ATTRIBUTES


def test_an_if_keeps_both_branches_and_counts_the_heavier_one() -> None:
    weight = numpy_helper.from_array(np.zeros((4, 4), np.float32), "w")
    heavy = helper.make_graph([helper.make_node("MatMul", ["h", "w"], ["t"])], "then", [], [floats("t", [2, 4])])
    light = helper.make_graph([helper.make_node("Neg", ["h"], ["e"])], "else", [], [floats("e", [2, 4])])
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("If", ["c"], ["i"], then_branch=heavy, else_branch=light, name="choice"),
        helper.make_node("Exp", ["i"], ["y"]),
    ]
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    graph = importer.read(make(nodes, [floats("x", [2, 4]), condition], [floats("y", None)], [weight]))
    assert repeats(graph) == {"relu": 1.0, "matmul": 1.0, "neg": 0.0, "conditional": 1.0, "exp": 1.0}
    names = {graph.op_name(n): n for n in range(graph.node_count)}
    edges = set(zip(*graph.edge_index.tolist(), strict=True))
    path = [("relu", "matmul"), ("relu", "neg"), ("matmul", "conditional"), ("neg", "conditional")]
    assert {(names[a], names[b]) for a, b in [*path, ("conditional", "exp")]} == edges
    assert any("'choice'" in note for note in graph.notes)


def test_an_if_on_a_constant_has_only_the_branch_taken() -> None:
    then = helper.make_graph([helper.make_node("Tanh", ["x"], ["t"])], "then", [], [floats("t", [2])])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["e"])], "else", [], [floats("e", [2])])
    flag = numpy_helper.from_array(np.array(False), "c")
    model = make(
        [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
        [floats("x", [2])],
        [floats("y", None)],
        [flag],
    )
    assert repeats(importer.read(model)) == {"neg": 1.0, "conditional": 1.0}


def _loop(trips: int | None, stops: bool = False) -> Any:
    body = helper.make_graph(
        [
            helper.make_node("Identity" if not stops else "Not", ["go"], ["go_on"]),
            helper.make_node("Sigmoid", ["s"], ["s_next"]),
            helper.make_node("Exp", ["s"], ["row"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            floats("s", None),
        ],
        [helper.make_tensor_value_info("go_on", TensorProto.BOOL, []), floats("s_next", None), floats("row", None)],
    )
    loop = helper.make_node("Loop", ["m", "", "x"], ["last", "rows"], body=body, name="steps")
    inputs = [floats("x", [2, 3])]
    constants = []
    if trips is None:
        inputs.append(helper.make_tensor_value_info("m", TensorProto.INT64, []))
    else:
        constants.append(numpy_helper.from_array(np.array(trips), "m"))
    return make([loop], inputs, [floats("last", None), floats("rows", None)], constants)


def test_a_loop_counts_its_body_as_often_as_it_runs() -> None:
    graph = importer.read(_loop(5))
    assert repeats(graph) == {"identity": 5.0, "sigmoid": 5.0, "exp": 5.0, "loop": 1.0}
    assert [graph.shape(int(t)) for t in graph.graph_outputs] == [(2, 3), (5, 2, 3)]
    assert not graph.notes


def test_a_loop_of_unknown_length_is_counted_once_and_named() -> None:
    graph = importer.read(_loop(None))
    assert repeats(graph)["sigmoid"] == 1.0
    assert ["'steps'" in note and "once" in note for note in graph.counted_once] == [True]


def test_a_loop_that_may_end_early_says_so() -> None:
    graph = importer.read(_loop(4, stops=True))
    assert repeats(graph)["sigmoid"] == 4.0
    assert any("may end early" in note for note in graph.notes)


def test_a_scan_runs_once_per_slice() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "v"], ["s_next"]), helper.make_node("Relu", ["s_next"], ["out"])],
        "body",
        [floats("s", [4]), floats("v", [4])],
        [floats("s_next", [4]), floats("out", [4])],
    )
    scan = helper.make_node("Scan", ["h", "x"], ["last", "all"], body=body, num_scan_inputs=1, scan_input_axes=[1])
    model = make([scan], [floats("h", [4]), floats("x", [4, 6])], [floats("last", None), floats("all", None)])
    graph = importer.read(model)
    counted = [(graph.op_name(n), graph.repeat[n]) for n in range(graph.node_count)]
    assert counted == [("scan", 6.0), ("add", 6.0), ("relu", 6.0), ("scan", 1.0)]
    assert [graph.shape(int(t)) for t in graph.graph_outputs] == [(4,), (6, 4)]


# ---- Unknown operators


def test_unknown_operators_are_kept_with_the_files_shapes_and_listed() -> None:
    nodes = [helper.make_node("Mystery", ["x"], ["h"], domain="acme"), helper.make_node("Relu", ["h"], ["y"])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    model = make(nodes, [floats("x", [2, 3])], [floats("y", [2, 9])], opset_imports=opsets)
    model.graph.value_info.append(floats("h", [2, 9]))
    graph = importer.read(model)
    assert graph.unknown_operators == {"acme::Mystery": 1}
    assert shapes_by_name(graph)["h"] == (2, 9)
    assert any("acme::Mystery (1)" in note for note in graph.notes)


# ---- Memory


MEASURE = """
import resource, sys
from perfpass.importers import onnx
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
before = peak()
graph = onnx.read(sys.argv[1])
print(graph.node_count, peak() - before)
"""


def test_peak_memory_does_not_grow_with_the_weights(tmp_path: Path) -> None:
    """A file of 4 GB, most of it a hole where the weights would be, is read in a few megabytes."""
    path = tmp_path / "large.onnx"
    count, size = 8, 512 * 1024 * 1024
    elements = size // 4
    nodes = b"".join(wire.field(1, wire.node("Add", [f"t{i}", f"w{i}"], [f"t{i + 1}"], f"n{i}")) for i in range(count))
    weights = []
    for i in range(count):
        start = wire.field(1, elements) + wire.field(2, wire.FLOAT) + wire.field(8, f"w{i}")
        data = wire.varint(9 << 3 | 2) + wire.varint(size)
        weights.append((wire.varint(5 << 3 | 2) + wire.varint(len(start) + len(data) + size) + start + data, size))
    tail = wire.field(11, wire.value("t0", [elements])) + wire.field(12, wire.value(f"t{count}", [elements]))
    length = len(nodes) + sum(len(header) + hole for header, hole in weights) + len(tail)
    with path.open("wb") as file:
        file.write(wire.field(1, 8) + wire.varint(7 << 3 | 2) + wire.varint(length) + nodes)
        for header, hole in weights:
            file.write(header)
            file.seek(hole, os.SEEK_CUR)
        file.write(tail + wire.field(8, wire.field(1, "") + wire.field(2, 17)))
    assert path.stat().st_size > 4e9
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    run = subprocess.run([sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    nodes_read, megabytes = run.stdout.split()
    assert int(nodes_read) == count
    assert float(megabytes) < 32
