"""Packing: the least cost as trying finds it, a bound that holds, placements that stand, and why there is none."""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packing_cases import least_by_trying, problem, reduced

import perfpass
from perfpass.deploy.pack import Fleet, Model, Option, Pool, Standing, exact, fleet_of, pack, pack_options, solving
from perfpass.deploy.pack.bound import bound
from perfpass.deploy.pack.bundles import start_prices
from perfpass.deploy.pack.fleet import WHOLE
from perfpass.deploy.pack.layout import Problems, table
from perfpass.deploy.pack.options import assured, instances, options
from perfpass.deploy.pack.patterns import patterns, replaces
from perfpass.deploy.pack.problem import fault
from perfpass.deploy.pack.solving import solve
from perfpass.devices import catalogue, device
from perfpass.errors import ArgumentError, DeviceError, FormatError
from perfpass.prediction import Interval

GIB = 2**30
GPUS = ((1, 0, 1), (2, 0, 0), (1, 1, 0), (0, 1, 2, 1))


@pytest.mark.parametrize("seed", range(12))
def test_small_fleets_cost_what_trying_every_packing_finds(seed):
    one = reduced(problem(1 + seed % 3, GPUS[seed % 4], 1000 + seed, load=(-2.0, 2.0), by_price=seed % 2 == 0))
    packed, least = solve(one, 20.0), least_by_trying(one)
    if least is None:
        assert packed.status == "unsatisfiable"
    else:
        assert (packed.status, packed.cost, packed.bound) == ("optimal", least, least)
        assert fault(one, packed) == ""


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.2, 3.0))
def test_no_prices_bound_the_cost_above_the_least(seed, scale):
    one = reduced(problem(1 + seed % 2, GPUS[seed % 4], seed, load=(-2.0, 1.0)))
    least = least_by_trying(one)
    if least is not None:
        assert bound(one, {key: scale * price for key, price in start_prices(one).items()}) <= least


def test_what_others_stand_in_for_is_left_out_at_no_cost():
    one = problem(3, (1, 0, 1), 7, load=(-2.0, 1.0))
    assert sum(len(d.choices) for d in reduced(one).demands) < sum(len(d.choices) for d in one.demands)
    assert solve(one, 20.0).cost == solve(reduced(one), 20.0).cost


def test_the_time_limit_is_for_the_whole_command_and_no_solver_may_pass_it(monkeypatch):
    ends: list[float] = []
    own = exact.solver

    def noted(limit_s: float):
        ends.append(time.monotonic() + limit_s)
        return own(limit_s)

    monkeypatch.setattr(exact, "solver", noted)
    one = reduced(problem(40, (20, 12, 12), 1, load=(-2.0, 0.5)))
    start = time.monotonic()
    assert solve(one, 8.0).status in ("optimal", "feasible")
    assert len(ends) >= 2 and max(ends) < start + 8.0
    # What reading and predicting took is gone from it.
    ends.clear()
    limits: list[float] = []
    monkeypatch.setattr(solving, "solve", lambda one, limit_s, today: limits.append(limit_s) or solve(one, limit_s))
    for gone_s in (50, 600):
        found = pack_options(
            fleet(Model("a", "m")), [[option("4g.40gb")]], time_limit_s=60, start=time.monotonic() - gone_s
        )
        assert found.status == "optimal" and found.seconds > gone_s
    assert 8 < limits[0] < 9 and limits[1] == 6


@pytest.mark.parametrize("name", sorted({d.mig_geometry: d.id for d in catalogue() if d.mig}.values()))
def test_largest_sets_stand_and_hold_no_more(name):
    board = device(name)
    names = [p.name for p in board.mig.profiles if "+" not in p.name]
    found = patterns(board, "mig", names)
    for pattern in found:
        held = [n for n, count in pattern.items() for _ in range(count)]
        assert board.mig.place(held) is not None
        assert all(board.mig.place([*held, more]) is None for more in names)
    for profile in names:
        assert max(pattern.get(profile, 0) for pattern in found) == board.mig.profile(profile).max_instances
    for small in names:
        for large in names:
            if small != large and replaces(board.mig, small, large):
                for pattern in found:
                    held = [n for n, count in pattern.items() for _ in range(count)]
                    if large in held:
                        held[held.index(large)] = small
                        assert board.mig.place(held) is not None, (small, large, pattern)


def option(profile: str, *, ms: float = 10.0, rate: float = 100.0, p_meets=0.99, p_fits=1.0, processes=1, pool=0):
    time = Interval(ms, ms / 2, 2 * ms, "ms")
    memory = Interval(GIB, GIB, 2 * GIB, "byte")
    return Option(pool, profile, processes, time, rate, p_meets, p_fits, memory, 9 * GIB, "in range")


def fleet(*models: Model, count: int = 1, **rest) -> Fleet:
    return Fleet((Pool(device("a100-sxm4-80gb"), count, ("n1",)),), models, **rest)


def test_a_layout_shows_slices_probabilities_and_what_is_left():
    found = pack_options(fleet(Model("a", "a", copies=2), Model("b", "b")), [[option("1g.10gb")], [option("3g.40gb")]])
    assert found.status == "optimal" and found.value == found.bound == 1
    placed = [(one.profile, one.start, one.model) for one in found.gpus[0].instances]
    assert device("a100-80gb").mig.fault([(p, s) for p, s, _ in placed]) == ""
    assert sorted(m for _, _, m in placed) == ["a", "a", "b"]
    assert (found.gpus[0].free_compute, found.gpus[0].free_memory) == (2, 2)
    text = str(found)
    assert "n1/0" in text and "|" in found.gpus[0].picture() and "proven least" in text and "left over" in text
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["models"][0]["copies"] == 2


def test_a_slice_that_misses_the_target_is_not_given_though_it_holds_the_memory():
    options = [[option("1g.10gb", p_meets=0.5), option("4g.40gb")]]
    assert pack_options(fleet(Model("a", "a", latency_ms=15)), options).gpus[0].instances[0].profile == "4g.40gb"
    assert pack_options(fleet(Model("a", "a"), confidence=0.5), options).gpus[0].instances[0].profile == "1g.10gb"


def test_processes_share_an_instance_where_they_are_asked_to():
    options = [[option("2g.20gb"), option("2g.20gb", processes=3, rate=220)]]
    shared = pack_options(fleet(Model("a", "a", copies=3, mps=3)), options)
    assert [one.option.processes for one in shared.gpus[0].instances] == [3]


def test_a_model_that_no_slice_is_good_enough_for_is_named_with_what_would_do():
    slow = pack_options(fleet(Model("a", "a", latency_ms=10)), [[option("7g.80gb", p_meets=0.6)]])
    assert slow.status == "unsatisfiable" and "latency_ms = 10 on no instance" in slow.headline
    assert any(one.startswith("a: latency_ms = ") for one in slow.problems.would_do)
    assert any("confidence = 0.6" in one for one in slow.problems.would_do)
    large = pack_options(fleet(Model("a", "a")), [[option("7g.80gb", p_fits=0.1)]])
    assert "fits into no instance" in large.headline and "P(fits) 0.100" in large.headline


def test_too_few_gpus_are_named_with_how_many_would_do():
    models = [Model(name, name) for name in "abc"]
    found = pack_options(fleet(*models), [[option("4g.40gb")]] * 3, time_limit_s=10)
    assert found.status == "unsatisfiable" and "1 a100-sxm4-80gb" in found.headline
    assert "2 more a100-sxm4-80gb: count = 3" in found.problems.would_do
    assert any(one.startswith("leave out ") for one in found.problems.would_do)


TODAY = {"n1/0": (Standing("3g.40gb", 0, "a"), Standing("3g.40gb", 4, "b"))}


def test_what_stands_and_is_wanted_stays_where_it_is():
    wanted = [[option("3g.40gb")], [option("3g.40gb")]]
    found = pack_options(fleet(Model("a", "a"), Model("b", "b"), today=TODAY), wanted)
    assert [(i.start, i.model) for i in found.gpus[0].instances] == [(0, "a"), (4, "b")] and found.steps == ()


def test_a_fleet_that_grows_leaves_what_stands_where_a_gpu_of_the_same_cost_has_room():
    # 3g at slice 0 leaves room for three of 1g, at slice 4 for four: the largest set would move everything.
    stands = (Standing("3g.40gb", 0, "a"), *(Standing("1g.10gb", 4 + i, name) for i, name in enumerate("bbc")))
    options = [[option("3g.40gb")], [option("1g.10gb")], [option("1g.10gb")]]
    models = (Model("a", "a", copies=2), Model("b", "b", copies=5), Model("c", "c"))
    found = pack_options(fleet(*models, count=4, today={"n1/0": stands}), options)
    assert found.status == "optimal" and [g.name for g in found.gpus] == ["n1/0", "n1/1"]
    assert {s.action for s in found.steps} == {"enable MIG", "create", "start"}
    assert {(i.profile, i.start, i.model) for i in found.gpus[0].instances} == {
        (s.profile, s.start, s.model) for s in stands
    }


@pytest.mark.parametrize("seed", range(8))
def test_what_was_packed_is_packed_so_again_from_where_it_stands(seed):
    draw = random.Random(seed)
    sizes = ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb"]
    models = tuple(Model(f"m{i}", "m", copies=draw.randint(1, 3)) for i in range(draw.randint(2, 5)))
    options = [[option(name) for name in draw.sample(sizes, 2)] for _ in models]
    first = pack_options(fleet(*models, count=6), options)
    today = {g.name: tuple(Standing(i.profile, i.start, i.model) for i in g.instances) for g in first.gpus}
    again = pack_options(fleet(*models, count=6, today=today), options)
    assert again.value == first.value and again.steps == ()
    # Another copy of one model, where the same GPUs or one more hold it beside what stands.
    more = (replace(models[0], copies=models[0].copies + 1), *models[1:])
    grown = pack_options(fleet(*more, count=6, today=today), options)
    assert grown.value == pack_options(fleet(*more, count=6), options).value
    standing = {(name, s) for name, all_ in today.items() for s in all_}
    left = {(g.name, Standing(i.profile, i.start, i.model)) for g in grown.gpus for i in g.instances}
    assert len(standing - left) == sum(step.action == "drain" for step in grown.steps)


def test_a_change_starts_the_new_before_it_drains_the_old_and_says_where_it_cannot():
    models = (Model("a", "a"), Model("b", "b"))
    only_small = [[option("1g.10gb")], [option("2g.20gb")]]
    roomy = pack_options(
        fleet(*models, today={"n1/0": (Standing("1g.10gb", 6, "b"), Standing("1g.10gb", 0, "a"))}), only_small
    )
    actions = [(s.action, s.model) for s in roomy.steps]
    assert actions == [("create", ""), ("start", "b"), ("drain", "b"), ("destroy", "")]
    full = pack_options(fleet(*models, today=TODAY), only_small)
    assert any(s.left == 0 for s in full.steps if s.action == "drain")
    standing = {(i.profile, i.start) for i in TODAY["n1/0"]}
    for step in full.steps:
        if step.action == "create":
            assert device("a100-80gb").mig.fault([*standing, (step.profile, step.start)]) == ""
            standing.add((step.profile, step.start))
        elif step.action == "destroy":
            standing.remove((step.profile, step.start))
    assert standing == {(i.profile, i.start) for i in full.gpus[0].instances}


def test_a_gpu_changes_between_whole_and_mig_by_a_step():
    found = pack_options(fleet(Model("a", "a"), today={"n1/0": (Standing(WHOLE, 0, "a"),)}), [[option("1g.10gb")]])
    assert "enable MIG" in [s.action for s in found.steps]


@given(st.floats(1, 100), st.floats(1.05, 5), st.floats(1.05, 5), st.floats(0.5, 0.99))
def test_the_assured_value_is_passed_with_its_probability(median, below, above, probability):
    found = Interval(median, median / below, median * above, "1/s")
    value = assured(found, probability)
    assert 1 - found.probability_below(value) == pytest.approx(probability, abs=1e-6)


def test_media_engines_are_looked_for_where_they_are_asked_for():
    pool = Pool(device("a100-sxm4-40gb"), 1)
    assert "1g.5gb" in dict(instances(pool, False)) and "1g.5gb" not in dict(instances(pool, True))
    assert "1g.5gb+me" in dict(instances(pool, True))


GOOD = {"gpu": [{"device": "a30", "count": 1}], "model": [{"name": "a", "model": "resnet50"}]}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"gpus": []}, FormatError, "unknown 'gpus'; did you mean gpu"),
        ({"model": [{"name": "a", "model": "x", "rate": -1}]}, FormatError, "rate -1; it is a finite number above 0"),
        ({"model": [{"name": "a", "model": "x", "copies": 0}]}, FormatError, "copies 0"),
        ({"model": [{"name": "a", "model": "x", "ttft_ms": 5, "latency_ms": 5}]}, FormatError, "latency_ms is no key"),
        ({"model": [{"name": "a", "model": "x"}] * 2}, ArgumentError, "two models are named 'a'"),
        ({"model": [{"name": "a/b", "model": "x"}]}, ArgumentError, "model name 'a/b'"),
        ({"model": [{"name": "a", "model": "x", "devices": ["t4"]}]}, ArgumentError, "of which the fleet has no GPU"),
        ({"gpu": [{"device": "nonsense", "count": 1}]}, DeviceError, "gpu 1: "),
        ({"gpu": [{"device": "cpu", "count": 1}]}, FormatError, "is no whole GPU"),
        ({"gpu": [{"device": "a30:1g.6gb", "count": 1}]}, FormatError, "is no whole GPU"),
        ({"gpu": [{"device": "t4", "count": 1, "mode": "mig"}]}, FormatError, "has no MIG"),
        ({"confidence": 1.0}, ArgumentError, "confidence 1"),
        ({"objective": "joy"}, FormatError, "allowed are gpus, price"),
        ({"today": [{"gpu": "a30/7", "instances": []}]}, ArgumentError, "unknown GPU 'a30/7'"),
        (
            {"today": [{"gpu": "a30/0", "instances": [{"profile": "2g.12gb"}, {"profile": "1g.6gb", "start": 1}]}]},
            ArgumentError,
            "stands where another instance does",
        ),
    ],
)
def test_a_fleet_that_contradicts_itself_is_one_error(change, error, message):
    with pytest.raises(error, match=message.replace("(", r"\(")):
        fleet_of({**GOOD, **change})


def test_a_fleet_is_packed_from_predictions():
    found = pack(
        {**GOOD, "model": [{"name": "a", "model": "examples/resnet50.onnx", "latency_ms": 500, "mps": 2}]},
        time_limit_s=5,
    )
    one = found.gpus[0].instances[0]
    assert found.status == "optimal" and one.profile == "1g.6gb" and one.option.p_meets >= 0.9
    with pytest.raises(ArgumentError, match="time limit"):
        pack(GOOD, time_limit_s=0)


def test_a_language_model_is_served_unless_a_run_of_its_graph_is_asked_for():
    def kind(**keys):
        gpu = {"device": "h100", "count": 1}
        return fleet_of({"gpu": [gpu], "model": [{"name": "m", "model": "llama-3.1-8b", **keys}]}).models[0].kind

    assert kind(rate=1) == kind(precision="fp8") == kind(runtime="sglang") == "llm"
    assert kind(batch=4) == kind(latency_ms=50) == kind(runtime="torch") == kind(kind="graph") == "graph"
    assert kind(model="resnet50") == kind(model="bert-base") == kind(model="no-such-model") == "graph"


def test_a_gpu_that_would_hold_a_server_is_told_with_what_the_server_leaves_free():
    chat = {"name": "chat", "model": "llama-3.1-70b", "rate": 1}
    found = pack({"gpu": [{"device": "h200", "count": 1}], "model": [chat]})
    (option,) = found.problems.would_do
    told = float(option.split(" GPU with ")[1].split(" GiB")[0])
    needed = float(found.problems.reasons[0].split("needs up to ")[1].split(" GiB")[0])
    assert told == pytest.approx(needed / 0.92, rel=1e-3) and "shorter requests" in option


def test_a_server_is_charged_for_the_requests_that_it_is_told_to_run_at_once():
    """The command has --max-num-seqs 8, so vLLM profiles its memory for 8 requests, not for 1,024."""
    chat = {"name": "chat", "model": "gpt-oss-120b", "rate": 0.1, "concurrency": 8}
    fleet = fleet_of({"gpu": [{"device": "h100", "count": 1, "mode": "whole"}], "model": [chat]})
    ((one,),) = options(fleet)
    usual = perfpass.predict_llm("gpt-oss-120b", "h100", tp=1, concurrency=8).memory.needed
    assert one.p_fits > 0.99 and (usual.median - one.memory_bytes.median) / GIB > 2


def test_what_would_do_is_one_change_or_one_for_each_model_that_has_no_place():
    told = {"headline": "CANNOT BE PACKED", "found": (), "steps": (), "notes": ()}
    one = table(SimpleNamespace(**told, problems=Problems(("a: fits nowhere",), ("a: a larger GPU",))))
    both = table(SimpleNamespace(**told, problems=Problems(("a: fits nowhere", "b: fits nowhere"), ("a: x", "b: y"))))
    assert "would do, each alone:" in one and "would do, one for each model:" in both
