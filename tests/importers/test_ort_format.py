"""ONNX Runtime's own format against the ONNX files that the same session writes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import perfpass
from perfpass.errors import FormatError, PerfPassError
from perfpass.graph import OpGraph, costs

LEVELS = {
    "stored": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_COLUMNS = (
    *("op", "attributes", "repeat", "input_offset", "inputs", "output_offset", "outputs", "tensor_dtype"),
    *("tensor_role", "producer", "shape_offset", "dims", "edge_producer", "edge_consumer", "edge_tensor"),
)


def saved(model: bytes, folder: Path, level: str) -> tuple[Path, Path]:
    """The session's model as ONNX and in its own format."""
    paths = folder / "model.onnx", folder / "model.ort"
    for path in paths:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = LEVELS[level]
        options.optimized_model_filepath = str(path)
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        if path.suffix == ".ort":
            options.add_session_config_entry("session.save_model_format", "ORT")
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return paths


def network(layers: list[str], channels: int, symbolic: bool) -> bytes:
    """A chain of layers, the last of them within an If."""
    numbers = np.random.default_rng(0)
    nodes, constants, x = [], [], "x"

    def constant(*shape: int) -> str:
        constants.append(numpy_helper.from_array(numbers.random(shape, np.float32), f"w{len(constants)}"))
        return constants[-1].name

    for i, layer in enumerate(layers):
        y = f"t{i}"
        if layer == "Conv":
            inputs = [x, constant(channels, channels, 3, 3), constant(channels)]
            nodes.append(helper.make_node(layer, inputs, [y], pads=[1, 1, 1, 1]))
        elif layer == "BatchNormalization":
            nodes.append(helper.make_node(layer, [x, *(constant(channels) for _ in range(4))], [y]))
        elif layer == "MatMul":
            nodes.append(helper.make_node(layer, [x, constant(8, 8)], [y]))
        elif layer == "Add":
            nodes.append(helper.make_node(layer, [x, "x"], [y]))
        else:
            nodes.append(helper.make_node(layer, [x], [y]))
        x = y
    branches = [
        helper.make_graph([helper.make_node(op, [x], [op])], op, [], [helper.make_tensor_value_info(op, 1, None)])
        for op in ("Sigmoid", "Tanh")
    ]
    nodes.append(helper.make_node("If", ["flag"], ["y"], then_branch=branches[0], else_branch=branches[1]))
    shape = ["batch" if symbolic else 2, channels, 8, 8]
    graph = helper.make_graph(
        nodes,
        "network",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


_LAYERS = st.lists(
    st.sampled_from(["Conv", "BatchNormalization", "Relu", "MatMul", "Add", "Softmax", "Exp"]),
    min_size=1,
    max_size=6,
)


def operators(graph: OpGraph) -> Counter[tuple]:
    found = costs.count(graph)
    return Counter(
        (
            graph.op_name(n),
            graph.source_op_name(n),
            int(found.macs[n]),
            tuple(graph.shape(int(graph.node_outputs(n)[0]))),
        )
        for n in range(graph.node_count)
    )


@given(layers=_LAYERS, channels=st.sampled_from([3, 16]), symbolic=st.booleans())
def test_a_stored_session_is_the_graph_of_its_onnx_file(
    layers: list[str], channels: int, symbolic: bool, tmp_path_factory
):
    model, stored = saved(network(layers, channels, symbolic), tmp_path_factory.mktemp("ort"), "stored")
    ours, wanted = perfpass.load(stored, batch=3), perfpass.load(model, batch=3)
    for column in _COLUMNS:
        assert np.array_equal(getattr(ours.core, column), getattr(wanted.core, column)), column
    assert ours.notes == wanted.notes


@pytest.mark.parametrize("level", ["basic", "extended", "all"])
@pytest.mark.parametrize("channels", [3, 16])
def test_an_optimized_session_has_the_operators_of_its_onnx_file(level: str, channels: int, tmp_path: Path) -> None:
    layers = ["Conv", "BatchNormalization", "Relu", "Conv", "Add", "Relu", "MatMul", "Softmax"]
    model, stored = saved(network(layers, channels, symbolic=True), tmp_path, level)
    ours, wanted = perfpass.load(stored, batch=2), perfpass.load(model, batch=2)
    assert operators(ours) == operators(wanted)
    assert int(costs.count(ours).parameters.sum()) == int(costs.count(wanted).parameters.sum())
    if level == "all" and channels == 16:
        domains = {node.domain for node in onnx.load(model, load_external_data=False).graph.node}
        assert "com.microsoft.nchwc" in domains


def test_symbols_keep_their_names(tmp_path: Path) -> None:
    _, stored = saved(network(["Relu"], 3, symbolic=True), tmp_path, "stored")
    assert perfpass.load(stored, dims={"batch": 7}).shape(0) == (7, 3, 8, 8)


def test_every_cut_of_a_file_is_refused(tmp_path: Path) -> None:
    _, stored = saved(network(["Conv", "Relu"], 3, symbolic=False), tmp_path, "stored")
    data = stored.read_bytes()
    for length in range(8, len(data), 61):
        stored.write_bytes(data[:length])
        with pytest.raises(FormatError):
            perfpass.load(stored)


@settings(max_examples=40)
@given(seed=st.binary(min_size=1, max_size=8), at=st.floats(0, 1, exclude_max=True))
def test_a_damaged_file_gives_a_graph_or_one_error(seed: bytes, at: float, tmp_path_factory) -> None:
    folder = tmp_path_factory.getbasetemp()
    if not (folder / "model.ort").exists():
        saved(network(["Conv", "MatMul", "Relu"], 3, symbolic=True), folder, "stored")
    data = bytearray((folder / "model.ort").read_bytes())
    start = int(at * len(data))
    data[start : start + len(seed)] = seed
    damaged = folder / "damaged.ort"
    damaged.write_bytes(data)
    try:
        perfpass.load(damaged, batch=2)
    except PerfPassError as error:
        assert str(error)
