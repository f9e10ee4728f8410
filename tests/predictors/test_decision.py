"""A decision says with which probability limits are kept, in one shape wherever a prediction goes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfpass
from perfpass import Decision, Limits
from perfpass.decision import Place, answer_of
from perfpass.deploy.pack.fleet import Fleet, Model, Pool
from perfpass.deploy.pack.options import options
from perfpass.errors import ArgumentError, FormatError
from perfpass.interval import Interval

NAMES = ("latency_ms", "memory_bytes", "energy_j")


@st.composite
def intervals(draw, unit):
    middle, low, high = draw(st.tuples(st.floats(1e-3, 1e12), st.floats(0.05, 1.0), st.floats(1.0, 20.0)))
    return Interval(middle, middle * low, middle * high, unit, draw(st.sampled_from([0.9, 0.96])))


@st.composite
def places(draw, profile=None):
    return Place(
        device="a100-sxm4-80gb",
        profile=profile,
        instances_per_gpu=draw(st.integers(1, 7)),
        memory_bytes=draw(intervals("byte")),
        available_bytes=draw(st.integers(0, 10**12)),
        latency_ms=draw(intervals("ms")),
        throughput_per_s=draw(intervals("1/s")),
        energy_j=draw(st.none() | intervals("J")),
        support=draw(st.sampled_from(["", "near"])),
    )


def limits():
    stated = dict.fromkeys(NAMES, st.none() | st.floats(1e-3, 1e12))
    return st.builds(Limits, **stated, confidence=st.floats(0.51, 0.99))


def decisions():
    slices = st.lists(st.sampled_from(["1g.10gb", "3g.40gb"]).flatmap(places), max_size=3).map(tuple)
    return st.builds(Decision, limits(), places(), slices)


@given(decisions())
def test_a_decision_comes_back_from_json_as_it_was(decision):
    assert Decision.from_dict(json.loads(json.dumps(decision.to_dict(), allow_nan=False))) == decision


@given(decisions(), st.sampled_from(NAMES), st.floats(1.0, 1e6))
def test_a_looser_limit_is_never_kept_less_surely(decision, name, factor):
    limit = getattr(decision.limits, name)
    looser = decision.under(replace(decision.limits, **{name: None if limit is None else limit * factor}))
    without = decision.under(replace(decision.limits, **{name: None}))
    if decision.probability is not None:
        assert decision.probability <= looser.probability + 1e-12
        assert looser.probability <= without.probability + 1e-12
    assert set(decision.kept_in) <= set(looser.kept_in) <= set(without.kept_in)


@given(decisions())
def test_all_limits_together_are_kept_no_more_surely_than_any_of_them(decision):
    known = decision.probability
    wanted = {name for name in ("latency_ms", "energy_j") if getattr(decision.limits, name) is not None}
    assert (known is None) == (not wanted <= decision.probabilities.keys())
    if known is None:
        assert decision.answer == "cannot say"
    else:
        assert 0.0 <= known <= min(decision.probabilities.values()) + 1e-12
        assert decision.answer == answer_of(known, decision.limits.confidence)


@pytest.mark.parametrize(
    "wrong",
    [{"latency_ms": 0}, {"energy_j": -1.0}, {"memory_bytes": float("nan")}, {"confidence": 0.5}, {"confidence": 1}],
)
def test_limits_that_cannot_be_are_refused(wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        Limits(**wrong)


def test_a_document_that_is_no_decision_says_what_is_wrong():
    good = Decision(Limits(), Place("t4", None, 1, Interval(1.0, 0.5, 2.0, "byte"), 4)).to_dict()
    for wrong, message in (
        ([], "not a decision"),
        ({**good, "limits": {"confidence": 2}}, "confidence"),
        ({**good, "place": {}}, "lacks device"),
        ({**good, "place": {**good["place"], "memory_bytes": {**good["place"]["memory_bytes"], "low": 3}}}, "low <="),
    ):
        with pytest.raises(FormatError, match=message):
            Decision.from_dict(wrong)


@pytest.fixture(scope="module")
def decided(examples):
    return perfpass.predict(examples / "resnet50.onnx", "a100-80gb", batch=8, limits=Limits(latency_ms=20))


def test_each_slice_has_the_figures_that_predicting_for_it_gives(decided, examples):
    assert [one.profile for one in decided.decision.slices] == [
        "1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"
    ]  # fmt: skip
    for one in decided.decision.slices[::2]:
        alone = perfpass.predict(examples / "resnet50.onnx", one.device, batch=8)
        assert (one.latency_ms, one.memory_bytes, one.energy_j, one.throughput_per_s) == (
            alone.latency_ms,
            alone.peak_memory_bytes,
            alone.energy_j,
            alone.throughput_per_s,
        )


def test_the_smallest_slice_keeps_the_limits_and_no_smaller_one_does(decided):
    decision = decided.decision
    at = decision.slices.index(decision.smallest)
    sure = [one.probability(decision.limits) for one in decision.slices]
    assert sure[at] >= decision.limits.confidence and max(sure[:at], default=0.0) < decision.limits.confidence
    assert at > 0  # memory alone would take the first
    assert decision.under(Limits()).smallest is decision.slices[0]
    assert decision.under(Limits(latency_ms=1e-3)).smallest is None


def test_a_decision_pack_and_fit_say_the_same_probabilities(decided, examples):
    model = Model("m", str(examples / "resnet50.onnx"), latency_ms=20.0, options={"batch": 8})
    (mine,) = options(Fleet((Pool(perfpass.device("a100-80gb"), 1),), (model,)))
    packed = {one.profile: (one.p_fits, one.p_meets) for one in mine}
    for one in (*decided.decision.slices, decided.decision.place):
        said = one.probabilities(decided.decision.limits)
        assert packed[one.profile or "whole"] == pytest.approx((said["fits"], said["latency_ms"]))
    fit = perfpass.fit(str(examples / "resnet50.onnx"), "a100-80gb", batch=8)
    assert decided.decision.probabilities["fits"] == pytest.approx(fit.probability)
    assert decided.memory_verdict.probability == decided.decision.probabilities["fits"]


def test_without_limits_nothing_is_decided_and_no_slice_is_asked(examples):
    found = perfpass.predict(examples / "resnet50.onnx", "a100-80gb")
    assert found.decision is None and "decision" not in found.to_dict()
