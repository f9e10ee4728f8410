"""Several graphs as one: every part with its runs, its weights and what its user states of it."""

from __future__ import annotations

from perfpass import _core
from perfpass.graph import OpGraph, costs
from perfpass.graph.joined import Part, joined


def _layer(stated_macs: int | None = None) -> OpGraph:
    b = _core.GraphBuilder()
    x = b.add_tensor("x", "float32", [2, 16], "input")
    w = b.add_tensor("w", "float32", [8, 16], "weight")
    y = b.add_tensor("y", "float32", [2, 8], "activation")
    node = b.add_node("dense", "Gemm", "layer", {"transpose_b": 1}, [x, w], [y])
    if stated_macs is not None:
        b.state(node, (stated_macs, 2 * stated_macs, -1, -1))
    b.add_note("a note")
    return OpGraph(b.finish([x], [y]))


def test_parts_run_as_often_as_they_do_and_hold_their_weights_once():
    found = joined([Part("encoder", _layer()), Part("step", _layer(), 20.0)], ["of both"])
    totals = costs.count(found).totals
    assert totals["parameters"] == 2 * 8 * 16
    assert totals["macs"] == 21 * 2 * 8 * 16
    assert [found.label(n) for n in range(2)] == ["encoder.layer", "step.layer"]
    assert list(found.notes) == ["of both", "a note"]
    assert [found.string(int(found.tensor_name[t])) for t in found.graph_outputs] == ["step.y"]


def test_what_a_user_states_of_an_operator_stays_with_it():
    found = joined([Part("one", _layer(stated_macs=1000)), Part("two", _layer())])
    assert costs.count(found).macs.tolist() == [1000, 2 * 8 * 16]
    assert found.stated_operators == {"Gemm": 1}
