"""Tensors that stay in single precision beside fp16: as many bytes as they have there, and the same work."""

from __future__ import annotations

from dataclasses import replace

import pytest

import perfpass
from perfpass import _core
from perfpass.graph import OpGraph, costs, liveness, quantised, single
from perfpass.graph.joined import Part, joined
from perfpass.search import Scorer


def _two_products(n: int = 256) -> OpGraph:
    b = _core.GraphBuilder()
    x = b.add_tensor("x", "float32", [4, n], "input")
    first, second = (b.add_tensor(f"layer.{of}.weight", "float32", [n, n], "weight") for of in ("wi", "wo"))
    y, z = (b.add_tensor(name, "float32", [4, n], "activation") for name in "yz")
    b.add_node("dense", "linear", "wi", {"transpose_b": 1}, [x, first], [y])
    b.add_node("dense", "linear", "wo", {"transpose_b": 1}, [y, second], [z])
    return OpGraph(b.finish([x], [z]))


def test_weights_of_a_module_are_found_by_its_name_alone():
    graph = _two_products()
    assert [graph.string(int(graph.tensor_name[t])) for t in single.weights_of(graph, {"wo"})] == ["layer.wo.weight"]
    assert not single.weights_of(graph, {"w", "weights"})


def test_what_is_kept_has_its_4_bytes_whatever_floats_are_counted_as():
    graph = _two_products()
    marked = replace(graph, single=single.weights_of(graph, {"wo"}))
    held = single.kept(marked)
    assert liveness.plan(graph, float_as="float16").weight_bytes == 2 * 2 * 256 * 256
    assert liveness.plan(held, float_as="float16").weight_bytes == (2 + 4) * 256 * 256
    assert costs.count(held).totals["macs"] == costs.count(graph).totals["macs"]
    assert single.kept(graph) is graph and not single.sentence(graph) and not single.sentence(marked)
    assert "GiB of weights" in single.sentence(held) and "computed" not in single.sentence(held)


def test_a_whole_network_that_is_kept_has_activations_of_4_bytes_too():
    graph = _two_products()
    held = single.kept(replace(graph, single=single.all_of(graph)))
    plain, wide = (liveness.plan(g, float_as="float16") for g in (graph, held))
    assert wide.peak_activation_bytes == pytest.approx(2 * plain.peak_activation_bytes)
    assert "computed" in single.sentence(held)


def test_marks_survive_joining_and_quantisation():
    graph = _two_products()
    marked = replace(graph, single=single.weights_of(graph, {"wo"}))
    both = joined([Part("a", graph), Part("b", marked, 3)])
    assert [both.string(int(both.tensor_name[t])) for t in both.single] == ["b.layer.wo.weight"]
    # Weights that were quantised are in no floating type any more.
    packed = quantised.quantised(marked, 8, alone=True).graph
    assert liveness.plan(single.kept(packed), float_as="float16").weight_bytes == 2 * 256 * (256 + 2 * 2)


def test_many_models_at_once_are_planned_as_one_is():
    graph = _two_products(8192)
    marked = replace(graph, single=single.all_of(graph))
    memory = {}
    for of, name in ((graph, "plain"), (marked, "marked")):
        one = perfpass.predict(of, "a100", precision="fp16").memory.in_use.median
        many = Scorer("a100", precision="fp16").score([of]).peak_memory_bytes.median[0]
        assert many == pytest.approx(one)
        memory[name] = one
    assert memory["marked"] > memory["plain"]
    assert not single.keeps("fp16", "torch", "training") and not single.keeps("amp", "torch", "inference")
