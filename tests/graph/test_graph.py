"""The operator graph: what the builder accepts, refuses and derives."""

from __future__ import annotations

import itertools

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpass import _core
from perfpass.errors import ArgumentError, GraphError, LimitError
from perfpass.features import extract
from perfpass.graph import ATTRIBUTES, OPERATORS, OpGraph, at_batch


def chain_of_relus(batch: int = 2, length: int = 3) -> OpGraph:
    builder = _core.GraphBuilder()
    tensors = [builder.add_tensor("x", "float32", [batch, 4], "input")]
    for i in range(length):
        tensors.append(builder.add_tensor(f"t{i}", "float32", [batch, 4], "activation"))
        builder.add_node("relu", "Relu", f"relu{i}", {}, [tensors[-2]], [tensors[-1]])
    return OpGraph(builder.finish([tensors[0]], [tensors[-1]]))


@st.composite
def random_dags(draw: st.DrawFn) -> list[list[int]]:
    """For each node the list of earlier nodes that it reads (possibly the same one twice)."""
    size = draw(st.integers(1, 12))
    return [draw(st.lists(st.integers(0, i - 1), max_size=3)) if i else [] for i in range(size)]


@settings(max_examples=60)
@given(random_dags(), st.randoms(use_true_random=False))
def test_nodes_come_out_in_execution_order_with_true_edges_whatever_order_they_went_in(reads, random):
    order = list(range(len(reads)))
    random.shuffle(order)
    builder = _core.GraphBuilder()
    x = builder.add_tensor("x", "float32", [1], "input")
    outputs = [builder.add_tensor(f"t{i}", "float32", [1], "activation") for i in range(len(reads))]
    for i in order:
        builder.add_node("add", "Add", str(i), {}, [outputs[r] for r in reads[i]] or [x], [outputs[i]])
    graph = OpGraph(builder.finish([x], outputs))

    original = [int(graph.label(n)) for n in range(graph.node_count)]
    assert sorted(original) == list(range(len(reads)))
    producer, consumer = graph.edge_index
    assert (producer < consumer).all()
    edges = sorted((original[p], original[c]) for p, c in zip(producer, consumer, strict=True))
    assert edges == sorted({(r, i) for i, rs in enumerate(reads) for r in rs})
    assert networkx.is_directed_acyclic_graph(graph.to_networkx())


def test_a_valid_order_is_kept():
    graph = chain_of_relus(length=5)
    assert [graph.label(n) for n in range(5)] == [f"relu{i}" for i in range(5)]


def test_a_cycle_is_refused_and_named():
    builder = _core.GraphBuilder()
    a, b = (builder.add_tensor(n, "float32", [1], "activation") for n in "ab")
    builder.add_node("relu", "Relu", "first", {}, [b], [a])
    builder.add_node("relu", "Relu", "second", {}, [a], [b])
    with pytest.raises(GraphError, match=r"cycle.*'first'"):
        builder.finish([], [b])


def test_a_tensor_with_two_producers_is_refused():
    builder = _core.GraphBuilder()
    x = builder.add_tensor("x", "float32", [1], "input")
    y = builder.add_tensor("y", "float32", [1], "activation")
    builder.add_node("relu", "Relu", "one", {}, [x], [y])
    with pytest.raises(GraphError, match="'y' is written by two nodes, the second is 'two'"):
        builder.add_node("relu", "Relu", "two", {}, [x], [y])


def test_a_constant_or_input_cannot_be_written():
    builder = _core.GraphBuilder()
    x = builder.add_tensor("x", "float32", [1], "input")
    with pytest.raises(GraphError, match="'x' is a graph input or constant"):
        builder.add_node("relu", "Relu", "n", {}, [x], [x])


def test_a_tensor_that_nothing_produces_is_refused():
    builder = _core.GraphBuilder()
    a, b = (builder.add_tensor(n, "float32", [1], "activation") for n in "ab")
    builder.add_node("relu", "Relu", "n", {}, [a], [b])
    with pytest.raises(GraphError, match="reads tensor 'a', which is neither"):
        builder.finish([], [b])


def test_an_empty_graph_is_refused():
    with pytest.raises(GraphError, match="no operator"):
        _core.GraphBuilder().finish([], [])


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ([1] * 17, "rank 17; at most 16"),
        ([2, -1], "dimension of -1"),
        ([2**40, 2**40], r"1099511627776 x 1099511627776 elements; at most 2\^48"),
        ([0, 2**62, 2**62], "at most"),
    ],
)
def test_sizes_past_the_bounds_are_refused(shape, message):
    with pytest.raises(LimitError, match=f"tensor 't': .*{message}"):
        _core.GraphBuilder().add_tensor("t", "float32", shape, "input")


@pytest.mark.parametrize("size", [2**63, -(2**70), 10**6000], ids=["64 bits", "70 bits", "20,000 bits"])
def test_sizes_and_attributes_that_no_integer_of_the_core_holds_are_refused(size):
    builder = _core.GraphBuilder()
    with pytest.raises(LimitError, match="tensor 't': a dimension of"):
        builder.add_tensor("t", "float32", [1, size], "input")
    x = builder.add_tensor("x", "float32", [1], "input")
    for value in (size, 2**31):
        with pytest.raises(LimitError, match=r"attribute contraction .* 32 bits"):
            builder.add_node("einsum", "Einsum", "n", {"contraction": value}, [x], [])


def test_unknown_names_are_refused():
    builder = _core.GraphBuilder()
    with pytest.raises(ArgumentError, match="tensor role 'parameter'; allowed are"):
        builder.add_tensor("t", "float32", [1], "parameter")
    x = builder.add_tensor("x", "float32", [1], "input")
    with pytest.raises(ArgumentError, match="no node attribute named 'kernel'"):
        builder.add_node("relu", "Relu", "n", {"kernel": 3}, [x], [])
    with pytest.raises(ArgumentError, match="names tensor 7 of 1"):
        builder.add_node("relu", "Relu", "n", {}, [7], [])


def test_unknown_operators_are_kept_and_listed():
    builder = _core.GraphBuilder()
    x = builder.add_tensor("x", "float32", [1], "input")
    ys = [builder.add_tensor(f"y{i}", "float32", [1], "activation") for i in range(3)]
    for i, op in enumerate(["relu", "no_such_operator", "no_such_operator"]):
        builder.add_node(op, f"Source{min(i, 1)}", "", {}, [x], [ys[i]])
    graph = OpGraph(builder.finish([x], ys))
    assert graph.unknown_operators == {"Source1": 2}
    assert graph.label(2) == "Source1_2"


def test_arrays_are_views_that_outlive_the_graph_object():
    columns = [(lambda g: g.op)(chain_of_relus()) for _ in range(50)]
    assert all((c == OPERATORS.index("relu")).all() for c in columns)
    assert not columns[0].flags.writeable
    assert chain_of_relus().attributes.shape == (3, len(ATTRIBUTES))


def test_two_batch_sizes_give_every_other():
    graph = at_batch(chain_of_relus(2), chain_of_relus(3), (2, 3), 64)
    assert [graph.shape(t) for t in range(graph.tensor_count)] == [(64, 4)] * 4


def test_traces_of_different_structure_do_not_extrapolate():
    for a, b in itertools.permutations([chain_of_relus(2, 3), chain_of_relus(3, 4)]):
        with pytest.raises(ArgumentError, match="differ in structure"):
            at_batch(a, b, (2, 3), 8)


def test_to_pyg_carries_features_and_edges():
    data = extract(chain_of_relus(), "operator").to_pyg()
    assert data.x.shape[0] == 3
    np.testing.assert_array_equal(data.edge_index.numpy(), [[0, 1], [1, 2]])
