"""Features and the operator table: equal to their plain twins, as documented, and safe in files."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_costs import Sketch

from graph_strategies import graphs
from perfpass import features
from perfpass.errors import ArgumentError, FileError, FormatError
from perfpass.graph import OPERATORS, OpGraph, costs
from perfpass.importers import load
from twins import costs as costs_twin
from twins import features as twin
from twins import table as table_twin

WIDTHS = {"operator": (71, 48), "dippm": (32, 5), "trappm": (113, 6), "nnlqp": (44, 4)}


def residual_block() -> OpGraph:
    """conv, relu, conv, add of the two branches, global pooling, dense; batch 2."""
    s = Sketch()
    x = s.tensor("x", [2, 8, 6, 6])
    w = [s.tensor(f"w{i}", [8, 8, 3, 3], "weight") for i in range(2)]
    square = {"kernel_0": 3, "kernel_1": 3, "stride_0": 1, "stride_1": 1, "dilation_0": 1, "dilation_1": 1}
    square |= {"pad_begin_0": 1, "pad_begin_1": 1, "pad_end_0": 1, "pad_end_1": 1, "spatial_rank": 2, "groups": 1}
    a = s.node("conv", [x, w[0]], [2, 8, 6, 6], source="Conv", **square)
    b = s.node("relu", [a], [2, 8, 6, 6], source="Relu")
    c = s.node("conv", [b, w[1]], [2, 8, 6, 6], source="Conv", **square)
    d = s.node("add", [c, a], [2, 8, 6, 6], source="Add")
    e = s.node("global_avg_pool", [d], [2, 8, 1, 1], source="GlobalAveragePool")
    f = s.node("reshape", [e], [2, 8], source="Flatten", view=1)
    g = s.node("dense", [f, s.tensor("wd", [5, 8], "weight")], [2, 5], source="Gemm", transpose_b=1)
    return OpGraph(s.builder.finish([x], [g]))


@pytest.mark.parametrize("schema", features.SCHEMAS)
@settings(max_examples=200)
@given(graph=graphs())
def test_features_equal_the_plain_twin(schema, graph):
    found = features.extract(graph, schema)
    nodes, statics = twin.extract(graph, schema, costs_twin.count(graph))
    np.testing.assert_allclose(found.nodes, nodes, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found.statics, statics, rtol=1e-6, atol=1e-7)


@settings(max_examples=300)
@given(graphs(), st.sampled_from([None, "float16"]))
def test_the_operator_table_equals_the_plain_twin(graph, float_as):
    table = features.operator_table(graph, costs.count(graph, float_as))
    rows = table_twin.rows(graph, costs_twin.count(graph, float_as))
    assert len(table) == len(rows)
    for name in ("count", "first_node", *table_twin.COLUMNS):
        assert getattr(table, name).tolist() == [row[name] for row in rows], name


@pytest.mark.parametrize("name", ["resnet50", "llama_1b_prefill"])
def test_features_of_real_exports_equal_the_plain_twins(examples, name):
    graph = load(examples / f"{name}.onnx")
    counted = costs_twin.count(graph)
    for schema in features.SCHEMAS:
        found = features.extract(graph, schema)
        nodes, statics = twin.extract(graph, schema, counted)
        np.testing.assert_allclose(found.nodes, nodes, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(found.statics, statics, rtol=1e-6, atol=1e-7)
    table, rows = features.operator_table(graph), table_twin.rows(graph, counted)
    for column in ("count", "first_node", *table_twin.COLUMNS):
        assert getattr(table, column).tolist() == [row[column] for row in rows], column


def test_the_operator_table_sums_to_the_totals():
    graph = residual_block()
    counted, table = costs.count(graph), features.operator_table(graph)
    assert (table.macs * table.count).sum() == counted.totals["macs"]
    assert (table.bytes_read * table.count).sum() == counted.totals["bytes_read"]
    assert table.count.sum() == graph.node_count


def test_convolutions_show_their_matrix_product():
    table = features.operator_table(residual_block())
    assert [OPERATORS[op] for op in table.op] == ["conv", "relu", "add", "global_avg_pool", "reshape", "dense"]
    assert table.count.tolist() == [2, 1, 1, 1, 1, 1]
    first = [int(getattr(table, name)[0]) for name in ("b", "m", "n", "k", "kernel_area", "stride", "groups")]
    assert first == [1, 2 * 36, 8, 8 * 9, 9, 1, 1]


@pytest.mark.parametrize("schema", features.SCHEMAS)
def test_schemas_have_their_published_widths_and_distinct_names(schema):
    found = features.extract(residual_block(), schema)
    nodes, statics = WIDTHS[schema]
    assert found.nodes.shape == (7, nodes)
    assert found.nodes.dtype == np.float32
    assert found.statics.shape == (statics,)
    assert len(set(found.node_names)) == nodes
    assert all(found.node_names)
    assert len(set(found.static_names)) == statics
    assert found.version == 1


def test_dippm_rows_hold_operator_attributes_and_output_shape():
    found = features.extract(residual_block(), "dippm")
    assert found.nodes[0].tolist() == [1.0] + [0.0] * 15 + [1, 1, 1, 1, 1, 1, 1, 1, 1, 8, 3, 3, 2, 8, 6, 6]
    assert found.statics[1:].tolist() == [2, 2, 1, 1]  # batch, convolutions, denses, relus
    assert found.node_names[int(found.nodes[5, :16].argmax())] == "squeeze"  # [2, 8, 1, 1] to [2, 8]


def test_trappm_marks_one_of_98_operators_by_its_source_name():
    found = features.extract(residual_block(), "trappm")
    names = [found.node_names[i] for i in found.nodes[:, :98].argmax(axis=1)]
    assert names == ["Conv", "Relu", "Conv", "Add", "GlobalAveragePool", "Flatten", "Gemm"]
    assert (found.nodes[:, :98].sum(axis=1) == 1).all()
    assert found.nodes[0, 98:].tolist() == [2, 8, 6, 6, 0, 0] * 2 + [41472, 576, 576 * 4 + 576 * 4]


def test_nnlqp_normalises_with_its_published_constants():
    found = features.extract(residual_block(), "nnlqp")
    conv = found.nodes[0]
    assert conv[0] == 1.0
    assert conv[32:38] == pytest.approx([0.47 / 56, -0.16 / 56, 0.25 / 6, 0.0, -14.08 / 6144, -0.77], abs=1e-7)
    assert conv[40] == pytest.approx((2 - 12.25) / 1024)
    assert found.node_names[int(found.nodes[5, :32].argmax())] == "Flatten"


def test_the_adjacency_is_the_data_flow():
    adjacency = features.extract(residual_block()).adjacency()
    assert adjacency.shape == (7, 7)
    assert sorted(zip(*(axis.tolist() for axis in adjacency.nonzero()), strict=True)) == [
        (0, 1), (0, 3), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6),
    ]  # fmt: skip


def test_costs_of_another_precision_show_in_the_features():
    graph = residual_block()
    column = features.names("operator")[0].index("log_bytes_read")
    half = features.extract(graph, "operator", costs.count(graph, "float16")).nodes[:, column]
    full = features.extract(graph, "operator").nodes[:, column]
    assert (np.expm1(full)[:4] / np.expm1(half)[:4]).round(3).tolist() == [2.0] * 4


def test_wrong_schemas_and_foreign_costs_are_refused():
    graph = residual_block()
    with pytest.raises(ArgumentError, match="no feature schema 'dipm'; there are operator, dippm, trappm and nnlqp"):
        features.extract(graph, "dipm")
    other = Sketch()
    other.node("relu", [other.tensor("x", [3])], [3])
    foreign = costs.count(other.finish())
    with pytest.raises(ArgumentError, match="costs of 1 nodes for a graph of 7"):
        features.extract(graph, "dippm", foreign)
    with pytest.raises(ArgumentError, match="costs of 1 nodes"):
        features.operator_table(graph, foreign)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_features_come_back_from_files(tmp_path, suffix):
    found = features.extract(residual_block(), "trappm")
    path = features.save(found, tmp_path / f"x{suffix}")
    again = features.load(path)
    for name in ("nodes", "edge_index", "statics"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    for name in ("node_names", "static_names", "schema", "version"):
        assert getattr(again, name) == getattr(found, name)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]  # no temporary file stays


def test_safetensors_files_open_with_the_format_s_own_library(tmp_path):
    import safetensors.numpy as safetensors

    found = features.extract(residual_block())
    arrays = safetensors.load_file(features.save(found, tmp_path / "x.safetensors"))
    np.testing.assert_array_equal(arrays["nodes"], found.nodes)
    np.testing.assert_array_equal(arrays["edge_index"], found.edge_index)


def test_files_that_cannot_be_written_leave_nothing_behind(tmp_path):
    found = features.extract(residual_block())
    with pytest.raises(ArgumentError, match=r"use \.npz or \.safetensors"):
        features.save(found, tmp_path / "x.csv")
    with pytest.raises(FileError, match="cannot be written"):
        features.save(found, tmp_path / "missing" / "x.npz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("damage", [b"", b"JFIF", b"\xff" * 64, b"\x08\x00\x00\x00\x00\x00\x00\x00[1, 2]  "])
def test_damaged_files_are_a_format_error(tmp_path, suffix, damage):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(damage)
    with pytest.raises(FormatError):
        features.load(path)
    with pytest.raises(FileError):
        features.load(tmp_path / f"missing{suffix}")


def test_pickled_arrays_are_never_loaded(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, nodes=np.array([{"a": 1}], dtype=object))
    with pytest.raises(FormatError):
        features.load(path)
