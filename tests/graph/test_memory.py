"""The memory planner: liveness, aliasing, and agreement with brute force on random graphs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_strategies import graphs
from perfpass import _core
from perfpass.errors import ArgumentError
from perfpass.graph import OpGraph
from perfpass.graph import liveness as memory
from perfpass.importers import load
from twins import memory as twin

KILO = 1000  # every tensor below has 250 floats


def chain(*ops: tuple[str, dict[str, int]], repeat: dict[int, float] | None = None) -> OpGraph:
    """From x through the operators in turn: every tensor of 1000 bytes, the last one the output."""
    builder = _core.GraphBuilder()
    first = last = builder.add_tensor("x", "float32", [250], "input")
    for index, (op, attributes) in enumerate(ops):
        made = builder.add_tensor(f"t{index}", "float32", [250], "activation")
        builder.add_node(op, op, f"n{index}", attributes, [last], [made], (repeat or {}).get(index, 1.0))
        last = made
    return OpGraph(builder.finish([first], [last]))


@settings(max_examples=300)
@given(graphs(), st.sampled_from([None, "float16", "float8"]), st.sampled_from([1, 64, 512]))
def test_plans_equal_brute_force(graph, float_as, alignment):
    plan = memory.plan(graph, float_as, alignment)
    expected = twin.plan(graph, float_as, alignment)
    for name, value in expected.items():
        found = getattr(plan, name)
        assert (found.tolist() if isinstance(value, list) else found) == value, name
    if plan.peak_node >= 0:
        assert plan.peak_bytes.sum() == plan.peak_activation_bytes == plan.live_bytes[plan.peak_node]


def test_the_plan_of_a_real_export_equals_brute_force(examples):
    graph = load(examples / "resnet50.onnx")
    plan, expected = memory.plan(graph, alignment_bytes=512), twin.plan(graph, alignment=512)
    assert {name: getattr(plan, name) for name in ("peak_node", "peak_activation_bytes", "weight_bytes")} == {
        name: expected[name] for name in ("peak_node", "peak_activation_bytes", "weight_bytes")
    }
    assert plan.live_bytes.tolist() == expected["live_bytes"]


def test_a_chain_keeps_the_input_and_two_tensors():
    plan = memory.plan(chain(("relu", {}), ("relu", {}), ("relu", {}), ("relu", {})))
    assert plan.live_bytes.tolist() == [2 * KILO, 3 * KILO, 3 * KILO, 3 * KILO]
    assert plan.peak_activation_bytes == 3 * KILO
    assert plan.peak_node == 1
    assert plan.input_bytes == KILO
    assert plan.alive_at_peak(chain(("relu", {}), ("relu", {}), ("relu", {}))) == [
        ("input", "x", KILO),
        ("relu", "n0", KILO),
        ("relu", "n1", KILO),
    ]


def test_views_and_in_place_outputs_take_no_memory_even_in_chains():
    view, in_place = {"view": 1}, {"in_place": 1}
    plan = memory.plan(chain(("relu", {}), ("reshape", view), ("relu", in_place), ("transpose", view), ("relu", {})))
    assert plan.live_bytes.tolist() == [2 * KILO] * 4 + [3 * KILO]


def test_a_view_keeps_its_source_alive():
    builder = _core.GraphBuilder()
    x = builder.add_tensor("x", "float32", [250], "input")
    a, v, b, c = (builder.add_tensor(n, "float32", [250], "activation") for n in "avbc")
    builder.add_node("relu", "relu", "", {}, [x], [a])
    builder.add_node("reshape", "reshape", "", {"view": 1}, [a], [v])
    builder.add_node("relu", "relu", "", {}, [x], [b])
    builder.add_node("add", "add", "", {}, [v, b], [c])
    plan = memory.plan(OpGraph(builder.finish([x], [c])))
    assert plan.live_bytes.tolist() == [2 * KILO, 2 * KILO, 3 * KILO, 4 * KILO]


def test_outputs_live_to_the_end():
    builder = _core.GraphBuilder()
    x = builder.add_tensor("x", "float32", [250], "input")
    a, b, c = (builder.add_tensor(n, "float32", [250], "activation") for n in "abc")
    for source, target in ((x, a), (x, b), (b, c)):
        builder.add_node("relu", "relu", "", {}, [source], [target])
    plan = memory.plan(OpGraph(builder.finish([x], [a, c])))
    assert plan.live_bytes.tolist() == [2 * KILO, 3 * KILO, 4 * KILO]


def test_a_result_nobody_reads_lives_only_while_it_is_made():
    builder = _core.GraphBuilder()
    x = builder.add_tensor("x", "float32", [250], "input")
    a, b = (builder.add_tensor(n, "float32", [250], "activation") for n in "ab")
    builder.add_node("relu", "relu", "", {}, [x], [a])
    builder.add_node("relu", "relu", "", {}, [x], [b])
    assert memory.plan(OpGraph(builder.finish([x], [b]))).live_bytes.tolist() == [2 * KILO, 2 * KILO]


def test_nodes_that_never_run_take_no_memory():
    plan = memory.plan(chain(("relu", {}), ("relu", {}), ("relu", {}), repeat={1: 0.0}))
    assert plan.live_bytes.tolist() == [2 * KILO, KILO, 2 * KILO]


def test_buffers_are_rounded_up():
    plan = memory.plan(chain(("relu", {})), alignment_bytes=512)
    assert plan.peak_activation_bytes == 2 * 1024
    with pytest.raises(ArgumentError, match="alignment_bytes is 0"):
        memory.plan(chain(("relu", {})), alignment_bytes=0)


def test_weights_and_literals_count_once_whoever_reads_them():
    builder = _core.GraphBuilder()
    x = builder.add_tensor("x", "float32", [250], "input")
    w = builder.add_tensor("w", "float32", [250], "weight")
    c = builder.add_tensor("c", "int64", [2], "literal")
    y, z = (builder.add_tensor(n, "float32", [250], "activation") for n in "yz")
    builder.add_node("add", "add", "", {}, [x, w, c], [y])
    builder.add_node("add", "add", "", {}, [y, w], [z])
    plan = memory.plan(OpGraph(builder.finish([x], [z])))
    assert plan.weight_bytes == KILO + 16
    assert plan.total_bytes == KILO + 16 + 3 * KILO
