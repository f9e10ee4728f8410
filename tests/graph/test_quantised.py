"""A graph with quantised weights: the same work, fewer bytes, and what ONNX Runtime's own quantisation leaves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from graph_strategies import graphs
from perfpass import _core
from perfpass.graph import DTYPES, OPERATORS, OpGraph, costs
from perfpass.graph.quantised import BLOCK, quantised
from small_networks import network


def _layers(tied: bool = False) -> OpGraph:
    """An embedding, a linear layer whose weight is seen transposed, and an output layer; tied: of the same weight."""
    b = _core.GraphBuilder()
    ids = b.add_tensor("ids", "int64", [2, 10], "input")
    table = b.add_tensor("table", "float16", [1000, 256], "weight")
    h, y, z, view = (
        b.add_tensor(name, "float16", shape, "activation")
        for name, shape in (("h", [2, 10, 256]), ("y", [2, 10, 512]), ("z", [2, 10, 1000]), ("wt", [256, 512]))
    )
    w = b.add_tensor("w", "float16", [512, 256], "weight")
    out = table if tied else b.add_tensor("out", "float16", [1000, 512], "weight")
    b.add_node("embedding", "Gather", "embed", {}, [table, ids], [h])
    b.add_node("transpose", "t", "seen", {"view": 1}, [w], [view])
    b.add_node("matmul", "mm", "up", {}, [h, view], [y])
    data = h if tied else y
    b.add_node("dense", "linear", "out", {"transpose_b": 1}, [data, out], [z])
    return OpGraph(b.finish([ids], [z, y] if tied else [z]))


def _totals(graph: OpGraph) -> dict[str, int]:
    return costs.count(graph).totals


@pytest.mark.parametrize("bits", [4, 8])
def test_products_do_the_same_work_on_weights_of_fewer_bits(bits):
    graph = _layers()
    found = quantised(graph, bits)
    assert found.products == 2
    assert found.left == {"embedding": 1}
    before, after = _totals(graph), _totals(found.graph)
    assert after["macs"] == before["macs"]
    products, scales = 512 * 256 + 1000 * 512, (512 * 256 + 1000 * 512) // BLOCK if bits == 4 else 0
    assert after["parameters"] == before["parameters"] + scales
    assert after["weight_bytes"] == 2 * 1000 * 256 + products * bits // 8 + 2 * scales
    names = {OPERATORS[i] for i in found.graph.op}
    assert ("matmul_nbits" if bits == 4 else "quantized_matmul") in names


def test_weights_alone_in_8_bits_leave_inputs_and_convolutions_as_they_are():
    graph = _layers()
    alone, both = quantised(graph, 8, alone=True), quantised(graph, 8)
    assert alone.products == both.products == 2
    scales = (512 * 256 + 1000 * 512) // BLOCK
    before, after = _totals(graph), _totals(alone.graph)
    assert after["macs"] == before["macs"]
    assert after["weight_bytes"] == _totals(both.graph)["weight_bytes"] + 2 * scales
    assert "matmul_nbits" in {OPERATORS[i] for i in alone.graph.op}
    assert quantised(network(width=32), 8, alone=True).products == 0


def test_a_weight_that_an_embedding_reads_too_stays():
    found = quantised(_layers(tied=True), 8)
    assert found.products == 1
    assert found.left == {"embedding": 1, "dense": 1}


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("also", ["a view's reader", "data of a product", "an output"])
def test_a_weight_that_is_read_as_anything_else_stays(also, bits):
    b = _core.GraphBuilder()
    x = b.add_tensor("x", "float16", [2, 256], "input")
    w, other = (b.add_tensor(name, "float16", [256, 256], "weight") for name in ("w", "other"))
    view, z = (b.add_tensor(name, "float16", [256, 256], "activation") for name in ("view", "z"))
    y = b.add_tensor("y", "float16", [2, 256], "activation")
    b.add_node("transpose", "t", "seen", {"view": 1}, [w], [view])
    b.add_node("matmul", "mm", "up", {}, [x, view], [y])
    if also == "a view's reader":
        b.add_node("relu", "r", "r", {}, [view], [z])
    elif also == "data of a product":
        b.add_node("matmul", "mm", "merged", {}, [view, other], [z])
    graph = OpGraph(b.finish([x], [y, view if also == "an output" else z]))
    found = quantised(graph, bits)
    assert found.products == (1 if also == "data of a product" else 0)
    assert DTYPES[found.graph.tensor_dtype[1]] == "float16"


def test_convolutions_have_8_bits_and_never_4():
    graph = network(width=32)
    eight, four = quantised(graph, 8), quantised(graph, 4)
    assert (eight.products, four.products) == (3, 0)
    assert four.left == {"conv": 3}
    assert _totals(eight.graph)["weight_bytes"] * 4 == _totals(graph)["weight_bytes"]
    assert _totals(eight.graph)["macs"] == _totals(graph)["macs"]


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_any_graph_keeps_its_operators_macs_and_shapes(graph):
    for bits in (4, 8):
        found = quantised(graph, bits).graph
        assert _totals(found)["macs"] == _totals(graph)["macs"]
        assert bits == 4 or _totals(found)["weight_bytes"] <= _totals(graph)["weight_bytes"]
        assert [found.shape(int(t)) for t in found.graph_outputs] == [graph.shape(int(t)) for t in graph.graph_outputs]


@pytest.fixture(scope="module")
def layers_in_onnx(tmp_path_factory):
    """Two linear layers with weights, as a file that ONNX Runtime's tools take."""
    onnx, np = pytest.importorskip("onnx"), pytest.importorskip("numpy")
    make, random = onnx.helper, np.random.default_rng(0)
    weights = [("w0", (256, 512)), ("w1", (512, 384))]
    nodes = [
        make.make_node("MatMul", ["x", "w0"], ["h"]),
        make.make_node("Relu", ["h"], ["r"]),
        make.make_node("MatMul", ["r", "w1"], ["y"]),
    ]
    tensors = [onnx.numpy_helper.from_array(random.normal(size=s).astype(np.float32), n) for n, s in weights]
    ends = [make.make_tensor_value_info(n, 1, [4, 16, d]) for n, d in (("x", 256), ("y", 384))]
    graph = make.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    path = tmp_path_factory.mktemp("layers") / "layers.onnx"
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_8_bits_are_those_of_a_file_that_onnxruntime_quantised(layers_in_onnx, tmp_path):
    quantization = pytest.importorskip("onnxruntime.quantization")
    import perfpass

    target = tmp_path / "int8.onnx"
    quantization.quantize_dynamic(str(layers_in_onnx), str(target), weight_type=quantization.QuantType.QInt8)
    real, ours = perfpass.load(target), quantised(perfpass.load(layers_in_onnx), 8).graph
    assert _totals(real)["macs"] == _totals(ours)["macs"]
    # The file has a scale and a zero point of each weight beside.
    assert 0 <= _totals(real)["weight_bytes"] - _totals(ours)["weight_bytes"] <= 64


def test_4_bits_are_those_of_a_file_that_onnxruntime_quantised(layers_in_onnx, tmp_path):
    quantizer = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")
    import onnx

    import perfpass

    made = quantizer.MatMulNBitsQuantizer(onnx.load(layers_in_onnx), bits=4, block_size=BLOCK, is_symmetric=True)
    made.process()
    target = tmp_path / "int4.onnx"
    onnx.save(made.model.model, target)
    real, ours = perfpass.load(target), quantised(perfpass.load(layers_in_onnx), 4).graph
    assert _totals(real)["macs"] == _totals(ours)["macs"]
    assert _totals(real)["parameters"] == _totals(ours)["parameters"]
    scales = (256 * 512 + 512 * 384) // BLOCK
    assert _totals(real)["weight_bytes"] - _totals(ours)["weight_bytes"] == 2 * scales  # theirs are fp32 here
