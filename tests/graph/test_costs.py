"""Exact counting: known networks, stated conventions, and agreement with the plain twin on random graphs."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_strategies import LOOSE, STRUCTURED, Maker, graphs
from perfpass import _core
from perfpass.errors import ArgumentError, GraphError, LimitError
from perfpass.graph import OpGraph, costs
from perfpass.importers import load
from twins import costs as twin


class Sketch:
    """A graph in few words: tensors by name, nodes in order."""

    def __init__(self) -> None:
        self.builder = _core.GraphBuilder()
        self.ids: dict[str, int] = {}

    def tensor(self, name: str, shape: list[int], role: str = "input", dtype: str = "float32") -> int:
        self.ids[name] = self.builder.add_tensor(name, dtype, shape, role)
        return self.ids[name]

    def node(
        self, op: str, inputs: list[int], shape: list[int], dtype: str = "float32", repeat: float = 1.0, **attributes
    ) -> int:
        output = self.tensor(f"out{len(self.ids)}", shape, "activation", dtype)
        self.builder.add_node(op, attributes.pop("source", op), "", attributes, inputs, [output], repeat)
        return output

    def finish(self) -> OpGraph:
        return OpGraph(self.builder.finish([], []))


def one(op: str, tensors: list[tuple], shape: list[int], **attributes) -> dict[str, int]:
    """Totals of a graph of one node whose inputs are (shape, role, dtype) triples."""
    sketch = Sketch()
    inputs = [sketch.tensor(f"i{n}", *spec) for n, spec in enumerate(tensors)]
    sketch.node(op, inputs, shape, **attributes)
    return costs.count(sketch.finish()).totals


@settings(max_examples=300)
@given(graphs(), st.sampled_from([None, None, "float16", "float8", "float4", "float64"]))
def test_counts_equal_the_plain_twin(graph, float_as):
    counted = costs.count(graph, float_as)
    expected = twin.count(graph, float_as)
    for name, values in expected.items():
        assert getattr(counted, name).tolist() == values, name
    assert counted.totals == {name: sum(values) for name, values in expected.items()}


def test_every_operator_kind_equals_the_plain_twin_many_times():
    assert set(LOOSE) | STRUCTURED == set(_core.OPERATORS)
    maker = Maker(Random(20))
    for op in LOOSE * 40:
        maker.loose(op)
    graph = maker.finish()
    counted = costs.count(graph)
    for name, values in twin.count(graph).items():
        wrong = [graph.op_name(n) for n in np.flatnonzero(getattr(counted, name) != values)]
        assert wrong == [], name


def test_a_convolution_counts_output_times_kernel_times_input_channels():
    # The first convolution of ResNet: 112 x 112 x 64 outputs, 7 x 7 x 3 each.
    total = one(
        "conv",
        [([1, 3, 224, 224],), ([64, 3, 7, 7], "weight"), ([64], "weight")],
        [1, 64, 112, 112],
        spatial_rank=2,
        groups=1,
    )
    assert total["macs"] == 112 * 112 * 64 * 7 * 7 * 3
    assert total["flops"] == 2 * total["macs"] + 112 * 112 * 64  # the bias is an addition, not a MAC
    assert total["parameters"] == 64 * 3 * 7 * 7 + 64
    assert total["bytes_read"] == 4 * (3 * 224 * 224 + 64 * 3 * 49 + 64)
    assert total["bytes_written"] == 4 * 64 * 112 * 112


@pytest.mark.parametrize("layout", ["OIHW", "HWIO", "blocked"])
def test_layouts_do_not_change_macs(layout):
    x, w, y, attributes = {
        "OIHW": ([2, 8, 10, 10], [16, 4, 3, 3], [2, 16, 10, 10], {}),
        "HWIO": ([2, 10, 10, 8], [3, 3, 4, 16], [2, 10, 10, 16], {"channels_last": 1, "weight_layout": 1}),
        "blocked": ([2, 2, 10, 10, 4], [4, 1, 3, 3, 4, 4], [2, 4, 10, 10, 4], {}),
    }[layout]
    total = one("conv", [(x,), (w, "weight")], y, spatial_rank=2, groups=2, **attributes)
    assert total["macs"] == 2 * 10 * 10 * 16 * 4 * 9


def test_transposed_convolution_counts_from_its_input():
    total = one("conv_transpose", [([1, 8, 5, 5],), ([8, 3, 2, 2], "weight")], [1, 6, 10, 10], spatial_rank=2, groups=2)
    assert total["macs"] == 8 * 5 * 5 * 3 * 4


def test_grouped_query_attention_counts_the_past():
    sketch = Sketch()
    q = sketch.tensor("q", [1, 1, 32 * 64])
    k = sketch.tensor("k", [1, 1, 8 * 64])
    v = sketch.tensor("v", [1, 1, 8 * 64])
    out = sketch.tensor("o", [1, 1, 32 * 64], "activation")
    present = [sketch.tensor(n, [1, 8, 128, 64], "activation") for n in ("pk", "pv")]
    sketch.builder.add_node(
        "attention", "GroupQueryAttention", "", {"num_heads": 32, "num_kv_heads": 8}, [q, k, v], [out, *present]
    )
    assert costs.count(sketch.finish()).totals["macs"] == 32 * 1 * 128 * (64 + 64)


def test_packed_attention_counts_its_projection():
    total = one("attention", [([2, 10, 64],), ([64, 192], "weight"), ([192], "weight")], [2, 10, 64], num_heads=4)
    assert total["macs"] == 2 * 10 * 64 * 192 + 2 * 4 * 10 * 10 * (16 + 16)


def test_nbits_weights_count_logical_parameters_and_stored_bytes():
    total = one(
        "matmul_nbits",
        [([1, 7, 64],), ([32, 2, 16], "weight", "uint8"), ([64], "weight"), ([32], "weight", "uint8")],
        [1, 7, 32],
        weight_bits=4,
        block_size=32,
    )
    assert total["macs"] == 7 * 64 * 32
    assert total["parameters"] == 64 * 32 + 64 + 64  # weights, scales, one zero point per scale
    assert total["weight_bytes"] == 32 * 2 * 16 + 64 * 4 + 32


def test_operators_without_products_have_no_macs():
    for op in ("softmax", "layer_norm", "add", "max_pool", "gather", "resize", "unknown"):
        assert one(op, [([2, 8, 4, 4],), ([8], "weight")], [2, 8, 4, 4])["macs"] == 0


def test_views_move_nothing_but_their_weights_are_parameters():
    total = one("reshape", [([4, 4], "weight")], [16], view=1)
    assert total == dict.fromkeys(total, 0) | {"parameters": 16, "weight_bytes": 64}


def test_a_gather_reads_what_it_returns_and_not_the_table():
    total = one("embedding", [([50000, 64], "weight"), ([1, 10], "input", "int64")], [1, 10, 64])
    assert total["bytes_read"] == 10 * 64 * 4 + 10 * 8
    assert total["parameters"] == 50000 * 64


def test_a_fused_embedding_reads_rows_of_its_tables():
    total = one(
        "embedding",
        [
            *[([1, 6], "input", "int32")] * 2,
            *[([rows, 32], "weight") for rows in (30000, 512, 2)],
            *[([32], "weight")] * 2,
        ],
        [1, 6, 32],
        source="EmbedLayerNormalization",
    )
    assert total["bytes_read"] == 2 * 6 * 4 + 3 * 6 * 32 * 4 + 2 * 32 * 4
    assert total["parameters"] == (30000 + 512 + 2 + 2) * 32


def test_a_tensor_read_twice_by_one_node_is_read_once():
    sketch = Sketch()
    x = sketch.tensor("x", [10])
    sketch.node("mul", [x, x], [10])
    assert costs.count(sketch.finish()).totals["bytes_read"] == 40


def test_an_in_place_scatter_writes_only_its_updates():
    tensors = [([1000, 8],), ([2, 1], "input", "int64"), ([2, 8],)]
    assert one("scatter", tensors, [1000, 8], in_place=1)["bytes_written"] == 2 * 8 * 4
    assert one("scatter", tensors, [1000, 8])["bytes_written"] == 1000 * 8 * 4


def test_sub_byte_types_are_packed():
    total = one("cast", [([7], "input", "int4")], [7], dtype="int8")
    assert (total["bytes_read"], total["bytes_written"]) == (4, 7)


def test_a_shared_weight_is_a_parameter_once():
    sketch = Sketch()
    x, w = sketch.tensor("x", [4, 4]), sketch.tensor("w", [4, 4], "weight")
    y = sketch.node("matmul", [x, w], [4, 4])
    sketch.node("matmul", [y, w], [4, 4])
    counted = costs.count(sketch.finish())
    assert counted.parameters.tolist() == [16, 0]
    assert counted.macs.tolist() == [64, 64]


def test_a_weight_that_a_transpose_shows_is_of_the_product_that_reads_it():
    sketch = Sketch()
    x, w = sketch.tensor("x", [4, 4]), sketch.tensor("w", [4, 4], "weight")
    sketch.node("transpose", [w], [4, 4], view=1)
    sketch.node("dense", [x, w], [4, 4])
    counted = costs.count(sketch.finish())
    assert counted.weight_bytes.tolist() == [0, 64] and counted.parameters.tolist() == [0, 16]


def test_a_weight_behind_a_view_that_a_transpose_reads_first_is_of_the_product_as_well():
    sketch = Sketch()
    x, w = sketch.tensor("x", [4, 4]), sketch.tensor("w", [16], "weight")
    shown = sketch.node("reshape", [w], [4, 4], view=1)
    sketch.node("transpose", [shown], [4, 4], view=1)
    sketch.node("dense", [x, shown], [4, 4])
    assert costs.count(sketch.finish()).weight_bytes.tolist() == [0, 0, 64]


def test_repetition_multiplies_work_and_not_parameters():
    sketch = Sketch()
    x, w = sketch.tensor("x", [4, 4]), sketch.tensor("w", [4, 4], "weight")
    sketch.node("matmul", [x, w], [4, 4], repeat=12.0)
    counted = costs.count(sketch.finish())
    assert counted.macs.tolist() == [12 * 64]
    assert counted.parameters.tolist() == [16]


def test_another_precision_changes_floating_bytes_only():
    sketch = Sketch()
    table, rows = sketch.tensor("t", [100, 8], "weight"), sketch.tensor("r", [5], "input", "int64")
    sketch.node("embedding", [table, rows], [5, 8])
    graph = sketch.finish()
    half = costs.count(graph, "float16").totals
    assert half["bytes_read"] == 5 * 8 * 2 + 5 * 8
    assert half["weight_bytes"] == 100 * 8 * 2
    with pytest.raises(ArgumentError, match="int8"):
        costs.count(graph, "int8")


def test_counts_past_the_bound_are_refused_with_the_node():
    sketch = Sketch()
    a, b = sketch.tensor("a", [1 << 24, 1 << 24]), sketch.tensor("b", [1 << 24, 1 << 24])
    sketch.node("matmul", [a, b], [1 << 24, 1 << 24])
    with pytest.raises(LimitError, match=r"matmul.*2\^62 MACs"):
        costs.count(sketch.finish())


@pytest.mark.parametrize("op", ["conv", "conv_transpose", "matmul", "lstm", "bilinear", "state_space_scan"])
def test_a_missing_operand_is_a_clear_error(op):
    with pytest.raises(GraphError, match="has no"):
        one(op, [([2, 3, 4, 4],)], [2, 3, 4, 4])


@pytest.mark.parametrize(
    "weights",
    [
        [([2, 16, 8], "weight"), ([2, 16, 16], "weight"), ([2, 32], "weight"), ([2, 3, 16],)],  # as ONNX orders them
        [([16, 8], "weight"), ([16, 16], "weight"), ([16, 8], "weight"), ([16, 16], "weight"), ([2, 3, 16],)],
    ],
)
def test_a_state_that_has_the_sizes_of_weights_is_no_product(weights):
    found = one("rnn", [([5, 3, 8],), *weights], [5, 3, 32], hidden_size=16, directions=2)
    assert found["macs"] == 5 * 3 * 2 * (16 * 8 + 16 * 16)


def test_zero_sizes_cost_nothing_and_crash_nothing():
    total = one("conv", [([0, 3, 8, 8],), ([4, 3, 1, 1], "weight")], [0, 4, 8, 8], spatial_rank=2, groups=1)
    assert total["macs"] == 0
    assert one("attention", [([2, 4, 0, 0],), ([2, 4, 0, 0],), ([2, 4, 0, 0],)], [2, 4, 0, 0])["macs"] == 0


def test_columns_are_read_only_views():
    sketch = Sketch()
    sketch.node("relu", [sketch.tensor("x", [3])], [3])
    counted = costs.count(sketch.finish())
    assert counted.flops.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        counted.flops[0] = 7


@pytest.mark.parametrize("name", ["resnet50", "vit_base_patch16_224", "llama_1b_prefill"])
def test_counts_on_real_exports_equal_the_plain_twin(examples, name):
    graph = load(examples / f"{name}.onnx")
    counted = costs.count(graph)
    for column, values in twin.count(graph).items():
        assert getattr(counted, column).tolist() == values, column


def test_known_networks_have_their_published_macs(examples):
    assert (
        costs.count(load(examples / "resnet50.onnx")).totals["macs"] == 4_089_184_256
    )  # 4.09 G in torchvision's table
    assert costs.count(load(examples / "vit_base_patch16_224.onnx")).totals["macs"] == 17_563_828_224
