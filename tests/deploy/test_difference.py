"""What changed between two models, and the ratio of their figures: no change is exactly 1, and the order inverts."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from graph_strategies import graphs
from perfpass import _core
from perfpass.deploy.difference.ratio import METRICS, Ratio, Verdict, limits
from perfpass.deploy.difference.text import factor
from perfpass.devices import device
from perfpass.errors import ArgumentError, DeviceError, UnsupportedError
from perfpass.graph import OpGraph, costs
from perfpass.graph.changes import changes
from perfpass.graph.table import operator_table
from perfpass.predictors.difference.unlike import CAUSES, MEMORY_CAUSES, Question, lacks, parts_changed
from perfpass.predictors.difference.widths import ANOTHER_ROAD, Widths, widened
from perfpass.predictors.way import Way
from small_networks import network

DEVICES = ("t4", "h100", "a100-80gb:1g.10gb", "cpu", "mi300x", "rtx-4090")


def ratios(found):
    return {(on.device, ratio.metric): ratio for on in found.devices for ratio in on.ratios} | {
        ("", ratio.metric): ratio for ratio in found.exact
    }


@pytest.mark.parametrize("device", DEVICES)
def test_a_model_and_itself_have_no_change_on_any_device(device):
    same = perfpass.diff(network(), network(), device, fail=dict.fromkeys(METRICS, "0"), confidence=0.99)
    assert same.same and same.headline == "no change" and same.exit_status == 0
    for ratio in ratios(same).values():
        assert (ratio.interval.low, ratio.interval.median, ratio.interval.high) == (1.0, 1.0, 1.0) and ratio.exact


@settings(max_examples=12)
@given(graphs())
def test_any_graph_and_itself_have_no_change(graph):
    found = perfpass.diff(graph, graph, fail={"parameters": 0, "flops": 0})
    assert found.same and found.exit_status == 0 and found.changes.same_operators == graph.node_count


@settings(max_examples=10)
@given(
    st.tuples(*[st.builds(network, st.integers(1, 8), st.sampled_from([16, 32, 64]), st.integers(1, 4))] * 2),
    st.sampled_from(DEVICES),
)
def test_old_and_new_changed_places_invert_every_ratio(pair, device):
    there, back = (perfpass.diff(*order, device) for order in (pair, pair[::-1]))
    for key, ratio in ratios(there).items():
        other = ratios(back)[key]
        assert other == replace(ratio.inverted, causes=other.causes)
        assert ratio.log_ratio == -other.log_ratio and ratio.log_half_width == other.log_half_width
        assert math.isclose(ratio.interval.low * other.interval.high, 1.0, rel_tol=1e-12)


def test_what_is_counted_is_exact_and_what_is_predicted_is_not():
    found = perfpass.diff(network(), network(blocks=4), "t4")
    by_name = {metric: ratio for (_, metric), ratio in ratios(found).items()}
    assert by_name["parameters"].exact and by_name["parameters"].interval.median == 4 / 3
    assert by_name["flops"].exact and by_name["flops"].new > by_name["flops"].old
    assert not by_name["latency"].exact and by_name["latency"].log_half_width > 0
    assert by_name["latency"].log_ratio == pytest.approx(-by_name["throughput"].log_ratio)


def test_a_ratio_is_known_better_than_two_figures_divided():
    old, new = network(width=256), network(width=256, blocks=4)
    divided = [perfpass.predictors.predict_graph(g, "rtx-3090", precision="amp").latency_ms for g in (old, new)]
    ratio = ratios(perfpass.diff(old, new, "rtx-3090", precision="amp"))["rtx-3090", "latency"]
    width = math.log(divided[1].high / divided[0].low) - math.log(divided[1].low / divided[0].high)
    assert 2 * ratio.log_half_width < width / 2


def test_a_small_change_has_a_narrower_ratio_than_a_large_one():
    old = network(blocks=8)
    small, large = (
        ratios(perfpass.diff(old, new, "t4"))["t4", "latency"]
        for new in (network(blocks=9), network(blocks=1, op="gelu"))
    )
    assert 0 < small.log_half_width < large.log_half_width


def test_what_stayed_the_same_is_said_so_where_its_time_is_told_otherwise():
    """An operator that nothing was learned of moves the rest of a network to another way of pricing."""
    import onnx

    model = onnx.load(RESNET, load_external_data=False)
    last = model.graph.output[0].name
    for i in range(30):
        model.graph.node.append(onnx.helper.make_node("Erf", [last], [f"e{i}"]))
        last = f"e{i}"
    model.graph.output[0].name = last
    found = perfpass.diff(RESNET, model, "t4", batch=1)
    because = next(line for line in str(found).splitlines() if line.strip().startswith("because"))
    assert "convolution" in because and "(of operators that are the same)" in because
    assert "of operators that are the same" in found.to_markdown()
    halved = perfpass.diff(RESNET, RESNET, "t4", batch=8, change={"precision": "fp16"})
    assert "because" in str(halved) and "that are the same)" not in str(halved)


def test_more_that_differs_makes_a_ratio_wider_up_to_two_figures_that_share_nothing():
    engine = {"precision": "fp16", "runtime": "tensorrt"}
    same, version, precision, both = (
        ratios(perfpass.diff(network(), network(), "t4", change=change))["t4", "latency"].log_half_width
        for change in ({}, {"version": "2.9"}, {"precision": "fp16"}, engine)
    )
    assert same == 0 < version < precision
    # An engine's own time may be known so much better that both apart are known as well as the precision's ratio.
    apart = math.hypot(*(half(perfpass.predict(network(), "t4", **how).latency_ms) for how in ({}, engine)))
    assert min(precision * (1 + 1e-6), apart * (1 - 1e-6)) <= both <= apart * (1 + 1e-6)


def test_another_width_of_numbers_makes_no_other_operators():
    way = Way(device("t4"), "fp32")
    tables = [operator_table(network(), costs.count(network(), float_as=of)) for of in ("float32", "float16")]
    old, new = (
        Question(table, 4, replace(way, precision=p), 0.4) for table, p in zip(tables, ("fp32", "fp16"), strict=True)
    )
    found = lacks(old, new)
    assert found["operators"] < 0.05 and found["precision"] == 1.0
    wider = operator_table(network(width=128), costs.count(network(width=128)))
    assert lacks(old, replace(old, table=wider))["operators"] > 0.5


def test_types_of_16_bits_differ_little_where_both_run_equally_fast():
    table = operator_table(network(), costs.count(network(), float_as="float16"))

    def precisions(board: str, *names: str) -> float:
        return lacks(*(Question(table, 4, Way(device(board), name), 0.4) for name in names))["precision"]

    assert 0 < precisions("a100", "amp", "bf16") == precisions("a100", "fp16", "amp_bf16") < 0.2
    assert precisions("a100", "fp32", "bf16") == 1.0


RESNET = str(Path(__file__).resolve().parents[2] / "examples" / "resnet50.onnx")


def test_a_ratio_is_wider_by_what_operators_that_nothing_was_learned_of_hand_over():
    networks = [RESNET, *(with_operators(RESNET, "Erf", count) for count in (1, 5, 40))]
    old, *strange = (perfpass.predict(one, "a10", batch=32) for one in networks)
    few, some, many = (ratios(perfpass.diff(RESNET, one, "a10", batch=32))["a10", "latency"] for one in networks[1:])
    handed = [found.handed_over for found in (old, *strange)]
    assert handed[:2] == [0.0, 0.0] and 0.05 < handed[2] < 0.95 and handed[3] == 1.0
    # Nearly nothing of the time widens nearly nothing: as much as an operator that is known.
    known = ratios(perfpass.diff(RESNET, with_operators(RESNET, "Sin", 1), "a10", batch=32))["a10", "latency"]
    assert few.log_half_width == pytest.approx(known.log_half_width, rel=0.2)
    # All of it: two figures that share nothing.
    apart = [math.hypot(half(old.latency_ms), half(found.latency_ms)) for found in strange]
    assert many.log_half_width == pytest.approx(apart[2]) and many.causes[0][0] == ANOTHER_ROAD
    assert few.log_half_width < some.log_half_width < 0.5 * apart[1]
    assert "nothing was learned of" in str(perfpass.diff(RESNET, networks[2], "a10", batch=32))


@pytest.mark.parametrize("device", ["a10", "t4", "a100-sxm4-80gb"])
@pytest.mark.parametrize("batch", [1, 32])
def test_operators_that_are_added_are_no_sure_speed_up(device, batch):
    for count in (1, 4, 8, 12):
        found = perfpass.diff(RESNET, with_operators(RESNET, "Erf", count), device, batch=batch)
        latency = ratios(found)[device, "latency"]
        assert latency.interval.high > 1.0 and latency.interval.probability_below(1.0) < 0.9


def test_a_part_that_is_told_otherwise_widens_a_ratio_by_its_share():
    own = (0.1, (("operators", 0.75), ("measurement", 0.25)))
    assert widened(own, 0.0, 1.0) == own and widened(own, 1.0, 1.0)[0] == 1.0
    assert widened((0.0, ()), 0.5, 0.0) == (0.0, ())
    width, causes = widened(own, 0.1, 1.0)
    assert width == pytest.approx(0.1 * math.sqrt(2))
    assert causes == ((ANOTHER_ROAD, pytest.approx(0.5)), ("operators", pytest.approx(0.375)), ("measurement", 0.125))
    assert [widened(own, share, 1.0)[0] for share in (0.001, 0.5)] == pytest.approx([0.1, 0.51], rel=1e-3)


def half(figure):
    """The half-width of a figure's logarithm."""
    return math.log(figure.high / figure.low) / 2


def with_operators(path, op, count):
    """A file's network with so many more operators behind its first."""
    model = onnx.load(path, load_external_data=False)
    first, *rest = model.graph.node
    names = [first.output[0], *(f"more{i}" for i in range(count))]
    for node in rest:
        node.input[:] = [names[-1] if name == names[0] else name for name in node.input]
    more = [onnx.helper.make_node(op, [a], [b]) for a, b in itertools.pairwise(names)]
    nodes = [first, *more, *rest]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model.SerializeToString()


def test_a_cuda_graph_is_of_both_or_a_change_that_widens_the_ratio():
    how = {"precision": "fp16", "runtime": "tensorrt"}
    launched, replayed = (perfpass.diff(network(), network(blocks=9), "t4", cuda_graph=g, **how) for g in (False, True))
    assert ratios(replayed)["t4", "latency"].old < ratios(launched)["t4", "latency"].old
    assert replayed.workload["cuda_graph"] is True and "cuda_graph" not in launched.workload
    assert "as a CUDA graph" in str(replayed) and "as a CUDA graph" in replayed.to_markdown()
    captured = perfpass.diff(network(), network(), "t4", change={"cuda_graph": True}, **how)
    gained = ratios(captured)["t4", "latency"]
    assert gained.old == ratios(launched)["t4", "latency"].old and gained.new < gained.old
    assert gained.log_half_width > 0 and "as a CUDA graph" in str(captured)
    with pytest.raises(ArgumentError, match="give true or false"):
        perfpass.diff(network(), network(), "t4", change={"cuda_graph": "yes"}, **how)
    with pytest.raises(UnsupportedError, match="torch is not predicted as a CUDA graph"):
        perfpass.diff("no-such-model", "no-such-model", "t4", cuda_graph=True)


@pytest.mark.parametrize("figure", ["latency", "energy"])
@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_the_shipped_widths_know_every_cause(figure, kind):
    half, causes = Widths.load().of(figure, kind, dict.fromkeys(CAUSES, 1.0))
    assert 0.5 < half < 5 and causes
    assert Widths.load().of("memory", kind, dict.fromkeys(MEMORY_CAUSES, 0.0)) == (0.0, ())


def named(names, widths, op="relu", kernel=3):
    """A chain of convolutions by their names, each to so many channels."""
    b = _core.GraphBuilder()
    x, channels = b.add_tensor("image", "float32", [1, 8, 16, 16], "input"), 8
    first = x
    for name, width in zip(names, widths, strict=True):
        w = b.add_tensor(f"{name}.weight", "float32", [width, channels, kernel, kernel], "weight")
        y = b.add_tensor(f"{name}.out", "float32", [1, width, 16, 16], "activation")
        z = b.add_tensor(f"{name}.act", "float32", [1, width, 16, 16], "activation")
        attributes = {"kernel_0": kernel, "kernel_1": kernel, "spatial_rank": 2, "groups": 1}
        b.add_node("conv", "Conv", name, attributes, [x, w], [y])
        b.add_node(op, op.title(), f"{name}.{op}", {}, [y], [z])
        x, channels = z, width
    return OpGraph(b.finish([first], [x]))


def test_an_inserted_operator_is_the_only_one_although_all_names_behind_it_shift():
    old = named([f"conv_{i}" for i in range(6)], [8] * 6)
    new = named([f"conv_{i}" for i in range(7)], [8] * 7)
    found = changes(old, new)
    assert [c.kind for c in found.operators] == ["added", "added"] and found.same_operators == 12


def test_a_changed_operator_says_what_differs():
    found = changes(named("abc", [8, 16, 8]), named("abc", [8, 32, 8]))
    by_name = {c.name: c for c in found.operators}
    assert set(by_name) == {"b", "b.relu", "c"} and {c.kind for c in found.operators} == {"changed"}
    assert "output 0 float32 1x16x16x16 -> float32 1x32x16x16" in by_name["b"].differences
    assert {(c.name, *c.differences) for c in found.tensors} == {
        ("b.weight", "float32 16x8x3x3 -> float32 32x8x3x3"), ("c.weight", "float32 8x16x3x3 -> float32 8x32x3x3"),
    }  # fmt: skip
    kernels = changes(named("a", [8]), named("a", [8], kernel=5)).operators[0].differences
    assert {"kernel_0 3 -> 5", "kernel_1 3 -> 5"} <= set(kernels)


def test_a_renamed_operator_is_the_same():
    found = changes(named("abc", [8] * 3), named("xyz", [8] * 3))
    assert not found.operators and found.same_operators == 6


def test_removed_is_added_the_other_way():
    old, new = named("abcd", [8, 16, 16, 8]), named("abd", [8, 16, 8], op="gelu")
    there, back = changes(old, new), changes(new, old)
    count = [[c.kind for c in f.operators].count(k) for f, k in ((there, "added"), (back, "removed"))]
    assert count[0] == count[1] and there.same_operators == back.same_operators


@settings(max_examples=20)
@given(graphs(), graphs())
def test_every_node_is_the_same_changed_added_or_removed(old, new):
    found = changes(old, new)
    kinds = [c.kind for c in found.operators]
    assert found.same_operators + kinds.count("changed") + kinds.count("removed") == old.node_count
    assert found.same_operators + kinds.count("changed") + kinds.count("added") == new.node_count


def test_limits_are_held_broken_or_cannot_be_said():
    def answer(allowed, half, confidence, log=0.1, metric="latency"):
        ratio = Ratio(metric, 1.0, math.exp(log), log, half)
        return Verdict(metric, "t4", allowed, ratio.probability_within(allowed), confidence, ratio).answer

    assert answer(0.05, 0.0, 0.99) == "broken" and answer(0.2, 0.0, 0.99) == "held"
    assert answer(0.05, 0.3, 0.5) == "broken" and answer(0.2, 0.3, 0.5) == "held"
    assert answer(0.05, 0.3, 0.9) == answer(0.2, 0.3, 0.9) == "cannot say"
    assert answer(0.05, 0.01, 0.9) == "broken"
    ten = Ratio.of("parameters", 10.0, 11.0, 0.0)
    assert ten.probability_within(0.1) == 1.0 and ten.probability_within(0.0999) == 0.0
    assert answer(0.05, 0.0, 0.5, metric="throughput") == "held"
    assert answer(0.05, 0.0, 0.5, log=-0.1, metric="throughput") == "broken"


def test_the_bounds_hold_nine_in_ten():
    ratio = Ratio("latency", 1.0, 1.2, math.log(1.2), 0.2)
    high, low = (math.exp(math.log(1.2) + side * 0.2) - 1.0 for side in (1, -1))
    assert ratio.probability_within(high) == pytest.approx(0.95)
    assert Ratio("latency", 1.0, 1.2, math.log(1.2), 0.2).inverted.probability_within(1.0 / (1.0 + low) - 1.0) == (
        pytest.approx(0.95)
    )


def test_from_nothing_there_is_no_ratio_and_a_limit_is_broken():
    ratio = Ratio.of("parameters", 0.0, 5.0, 0.0)
    assert ratio.interval is None and ratio.to_dict()["ratio"] is None and ratio.probability_within(1.0) == 0.0
    assert Ratio.of("parameters", 0.0, 0.0, 0.0).interval.median == 1.0
    assert Ratio.of("parameters", 5.0, 0.0, 0.0).probability_within(0.0) == 1.0


@pytest.mark.parametrize(("given_", "share"), [("5%", 0.05), ("0", 0.0), (5, 0.05), ("0.5%", 0.005), ("+5%", 0.05)])
def test_limits_are_read_as_per_cent(given_, share):
    assert limits({"latency": given_}) == {"latency": pytest.approx(share)}


@pytest.mark.parametrize(
    "given_", ["5", "-5%", "nan", "1e9%", "", "5%%", True, None, -1, float("nan"), 10**400, [5], "9" * 5000]
)
def test_what_is_no_limit_is_refused(given_):
    with pytest.raises(ArgumentError, match=r"limit latency=.* per cent"):
        limits({"latency": given_})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"fail": {"speed": "5%"}}, "unknown figure of a limit 'speed'"),
        ({"fail": {"latency": "5%"}}, "a limit of latency needs a device"),
        ({"confidence": 0.3}, "confidence must be from 0.5"),
        ({"confidence": float("nan")}, "confidence must be from 0.5"),
        ({"confidence": True}, "confidence must be from 0.5"),
        ({"change": {"weights": 1}}, "unknown change 'weights'"),
        ({"device": "t4", "change": {"batch": 0}}, "batch must be 1"),
    ],
)
def test_wrong_arguments_are_refused_before_a_model_is_read(wrong, said):
    with pytest.raises(ArgumentError, match=said):
        perfpass.diff("no-such-model.onnx", "nor-this.onnx", **wrong)


def test_an_unknown_device_is_refused():
    with pytest.raises(DeviceError):
        perfpass.diff(network(), network(), "abacus")


def test_the_answer_as_json_is_strict_and_whole():
    found = perfpass.diff(network(), network(blocks=4), ["t4", "a10"], fail={"latency": "5%", "parameters": "50%"})
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["schema_version"] == 1 and told["answer"] == found.answer == "broken"
    assert [d["device"] for d in told["devices"]] == ["t4", "a10"] and len(told["limits"]) == 3
    assert set(told["devices"][0]["ratios"]) | set(told["exact"]) == set(METRICS)
    assert told["headline"] == found.headline and found.headline in str(found)


def test_parts_that_nothing_moves_between_have_not_changed():
    part = {"weights": 5.0, "activations": 3.0, "allocator": 1.0, "runtime": 2.0}
    assert parts_changed(part, part) == 0.0
    assert parts_changed(part, {**part, "activations": 4.0, "allocator": 0.0}) == 0.0
    assert parts_changed(part, {**part, "weights": 16.0}) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (1.0004, "1.000"), (1.04, "1.040"), (2.5, "2.5"), (0.25, "0.25")]
)
def test_a_ratio_near_1_has_three_decimals(value, text):
    assert factor(value) == text
