"""What runs in 8 bits is held in 8 bits: the core's graph for a plan of memory, and what it does to one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfpass
from graph_strategies import graphs, written_out
from perfpass import _core
from perfpass.graph import ATTRIBUTES, OPERATORS, OpGraph, liveness
from perfpass.search import Scorer
from twins.fusion.links import Links
from twins.fusion.quantised import units

VIEW, SIDE, WIDTH = ATTRIBUTES.index("view"), 32, 64


def plain_twin(graph):
    """[T] types and [N] views, node by node."""
    links = Links(graph)
    types, view = np.array(graph.tensor_dtype), np.array(graph.attributes[:, VIEW])
    for node, into in units(links)[1].items():
        view[node] = 1
        read = int(graph.node_inputs(node)[0])
        name, output = OPERATORS[int(graph.op[node])], int(graph.node_outputs(node)[0])
        if name == "dequantize" and read >= 0:
            types[output] = graph.tensor_dtype[read]
        if name == "quantize":
            for tensor in (int(graph.node_outputs(into)[0]), read):
                types[tensor] = graph.tensor_dtype[output]
    return types, view


@given(st.one_of(graphs(), written_out()))
def test_the_core_narrows_what_its_plain_twin_does(graph):
    found = OpGraph(_core.narrowed(graph.core))
    types, view = plain_twin(graph)
    assert (np.asarray(found.tensor_dtype) == types).all()
    assert (np.asarray(found.attributes[:, VIEW]) == view).all()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two convolutions in fp32, and as quantisation tools write them, which widen all weights first."""
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    made = {}
    for kind in ("fp32", "qdq"):
        quantised, nodes, read = kind == "qdq", [], "x"
        weights = [onnx.numpy_helper.from_array(np.float32(0.1), "s"), onnx.numpy_helper.from_array(np.uint8(0), "z")]
        stored = np.uint8 if quantised else np.float32
        for i in (1, 2):
            kernel = np.zeros((WIDTH, WIDTH, 3, 3), dtype=stored)
            weights.append(onnx.numpy_helper.from_array(kernel, f"k{i}" if quantised else f"w{i}"))
            if quantised:
                nodes.append(h.make_node("DequantizeLinear", [f"k{i}", "s", "z"], [f"w{i}"]))
        for i in (1, 2):
            if quantised:
                nodes.append(h.make_node("QuantizeLinear", [read, "s", "z"], [f"q{i}"]))
                nodes.append(h.make_node("DequantizeLinear", [f"q{i}", "s", "z"], [f"d{i}"]))
                read = f"d{i}"
            nodes.append(h.make_node("Conv", [read, f"w{i}"], [f"y{i}"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
            read = f"y{i}"
        if quantised:
            nodes.append(h.make_node("QuantizeLinear", [read, "s", "z"], ["q3"]))
            nodes.append(h.make_node("DequantizeLinear", ["q3", "s", "z"], ["d3"]))
            read = "d3"
        ends = [
            [h.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, WIDTH, SIDE, SIDE])] for name in ("x", read)
        ]
        model = h.make_model(h.make_graph(nodes, kind, *ends, weights), opset_imports=[h.make_opsetid("", 17)])
        made[kind] = tmp_path_factory.mktemp(kind) / "m.onnx"
        onnx.save(model, made[kind])
    return made


def test_weights_and_tensors_take_a_byte_an_element(files):
    graph = perfpass.load(files["qdq"])
    held = OpGraph(_core.narrowed(graph.core))
    wide, narrow = liveness.plan(graph), liveness.plan(held)
    kernel, tensor = WIDTH * WIDTH * 9, WIDTH * SIDE * SIDE
    assert wide.peak_activation_bytes > 2 * 4 * kernel  # both kernels in fp32 beside what runs
    # The input stays; of a convolution what it reads and writes, or the result in 8 bits and in fp32.
    assert narrow.peak_activation_bytes == 4 * tensor + max(2 * tensor, tensor + 4 * tensor)
    assert narrow.weight_bytes == wide.weight_bytes


def test_the_same_memory_by_every_door_and_less_than_in_fp32(files):
    how = {"runtime": "onnxruntime", "precision": "fp32"}
    peaks = {kind: perfpass.predict(path, "epyc-9654", **how).memory.in_use for kind, path in files.items()}
    assert peaks["qdq"].high < peaks["fp32"].high and peaks["qdq"].median < peaks["fp32"].median
    scored = Scorer("epyc-9654", **how).score([str(files["qdq"])])
    assert scored.peak_memory_bytes.median[0] == pytest.approx(peaks["qdq"].median, rel=1e-9)


def test_other_runtimes_hold_what_the_file_says(files):
    graph = perfpass.load(files["qdq"])
    found = perfpass.predict(files["qdq"], "t4", runtime="onnxruntime").breakdown["memory_bytes"]
    assert found["activations"] >= liveness.plan(graph, "float32").peak_activation_bytes * 0.99
