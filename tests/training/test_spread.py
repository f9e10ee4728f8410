"""Widths of intervals: they hold on sources that were left out, grow with every lack, and stay as wide as they must."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpass.errors import ArgumentError, ArtefactError
from perfpass.predictors.learned.spread import Spread, half_width_of
from perfpass.predictors.learned.time_lacks import CAUSES
from perfpass.training import spread
from perfpass.training.spread import Errors
from perfpass.training.training_step import widths

PRIOR = {"measurement": 0.1, "network": 0.3, "device": 0.3, "never seen": 0.7}


def laboratories(count: int, seed: int, rows: int = 60) -> Errors:
    """Errors of so many laboratories: each is off as a whole, and more so on networks and devices far away."""
    generator = np.random.default_rng(seed)
    parts = []
    for i in range(count):
        network, device = generator.uniform(0, 1, rows), float(i % 2)
        own = generator.normal(0, 0.08) + device * generator.normal(0, 0.25)
        residual = own + generator.normal(0, 0.05, rows) + generator.normal(0, 0.2, rows) * np.sqrt(network)
        lacks = {"measurement": 1.0, "network": network, "device": device, "never seen": 0.0}
        parts.append(Errors.of(residual, lacks, f"source:{i}"))
    return Errors.joined(parts)


@pytest.fixture(scope="module")
def fitted() -> Spread:
    return spread.fit(laboratories(40, 1), PRIOR)


def test_nine_in_ten_errors_of_new_laboratories_lie_inside(fitted):
    new = laboratories(200, 2)
    low, high = fitted.bounds(dict(zip(new.causes, new.lacks.T, strict=True)))
    inside = (low <= new.residual) & (new.residual <= high)
    assert 0.86 < inside.mean() < 0.96
    for device in (0.0, 1.0):
        assert 0.82 < inside[new.lacks[:, 2] == device].mean() < 0.98
    assert float(np.median((high - low)[new.lacks[:, 2] == 0])) < 0.6 * float(
        np.median((high - low)[new.lacks[:, 2] == 1])
    )


def test_bounds_of_a_source_come_from_the_others():
    errors = laboratories(12, 3)
    low, high = spread.left_out(errors, PRIOR)
    moved = errors.residual + 10.0 * (errors.source == "source:4")
    again = spread.left_out(Errors(errors.causes, moved, errors.lacks, errors.source), PRIOR)
    same = errors.source == "source:4"
    np.testing.assert_allclose(low[same], again[0][same], rtol=1e-6)
    np.testing.assert_allclose(high[same], again[1][same], rtol=1e-6)
    assert (high[~same] < again[1][~same]).all()


@given(
    st.lists(st.floats(0, 5), min_size=4, max_size=4),
    st.integers(0, 3),
    st.floats(0, 5),
)
@settings(deadline=None)
def test_what_is_less_known_is_never_narrower(fitted, lacks, which, more):
    at = dict(zip(fitted.causes, lacks, strict=True))
    low, high = fitted.bounds(at)
    assert low[0] <= 0 <= high[0]
    wider = fitted.bounds(at | {fitted.causes[which]: lacks[which] + more})
    assert wider[0][0] <= low[0] + 1e-12
    assert wider[1][0] >= high[0] - 1e-12
    if sum(lacks) > 1e-6:
        assert fitted.shares(at).sum() == pytest.approx(1.0)


def test_a_cause_that_no_error_has_stays_at_its_prior(fitted):
    assert fitted.low[3] == pytest.approx(0.7)
    assert fitted.high[3] == pytest.approx(0.7)
    assert fitted.named({"measurement": 1.0, "network": 0.0, "device": 0.0, "never seen": 1.0})[0][0] == "never seen"


def test_too_wide_scores_as_badly_as_too_narrow():
    errors = laboratories(30, 5)
    low, high = spread.left_out(errors, PRIOR)
    ours = spread.interval_score(errors.residual, low, high)
    for factor in (0.3, 3.0):
        assert spread.interval_score(errors.residual, factor * low, factor * high) > 1.1 * ours


def test_one_side_alone_can_be_asked():
    errors = laboratories(40, 6)
    both, upper = spread.fit(errors, PRIOR), spread.fit(errors, PRIOR, tails=(0.05, 0.02))
    asked = {"measurement": 1.0, "network": 0.5, "device": 1.0, "never seen": 0.0}
    assert upper.bounds(asked)[1] > both.bounds(asked)[1]


def test_few_sources_tell_no_side_and_less_of_the_next():
    errors = laboratories(4, 9)
    off = Errors(errors.causes, np.abs(errors.residual), errors.lacks, errors.source)
    found, plain = spread.fit(off, PRIOR, few=True), spread.fit(off, PRIOR)
    np.testing.assert_allclose(found.low, found.high, rtol=1e-6)
    assert plain.low[1] < plain.high[1]
    assert off.draws.tolist() == [4, 4, 2, 0]
    again = spread.fit(Errors(off.causes, -off.residual, off.lacks, off.source), PRIOR, few=True)
    np.testing.assert_allclose(again.low, found.high, rtol=1e-6)


def test_what_is_known_of_a_cause_is_not_counted_twice():
    errors = laboratories(30, 10)
    plain, beside = spread.fit(errors, PRIOR), spread.fit(errors, PRIOR, least={"device": 0.6})
    low, high = (dict(zip(beside.causes, side, strict=True)) for side in (beside.low, beside.high))
    assert low["device"] >= 0.6 and high["device"] >= 0.6
    apart = {"measurement": 1.0, "network": 0.5, "device": 1.0, "never seen": 0.0}
    after = [np.hypot(0.6, side[0]) for side in (plain.low, plain.high)]  # held afterwards, beside all the rest
    found = beside.bounds(apart)
    assert -found[0][0] < 1.05 * np.sqrt(after[0] ** 2 + 0.5 * plain.low[1] ** 2)
    assert low["measurement"] <= 1.02 * plain.low[0] and low["network"] <= 1.02 * plain.low[1]
    np.testing.assert_allclose(spread.fit(errors, PRIOR, least={}).low, plain.low)


def test_steps_lie_as_far_on_either_side_and_hosts_as_far_as_they_are_known_to():
    host = np.linspace(0, 1, 60)
    parts = []
    for i in range(12):
        lacks = {cause: np.zeros(60) for cause in CAUSES} | {"measurement": np.ones(60), "host": host}
        lacks["device"] = np.ones(60)
        parts.append(Errors.of(0.2 + 0.05 * np.sin(i + host), lacks, f"source:{i}"))
    found = widths.fit(parts, {"host": 0.5})
    np.testing.assert_allclose(found.low, found.high, rtol=1e-4)
    assert found.high[CAUSES.index("host")] >= 0.5
    asked = Errors.of(np.zeros(1), {cause: float(cause == "laboratory") for cause in CAUSES}, "source:asked")
    low, high = widths.bounds(parts, asked, {"host": 0.5})
    assert high[0] == pytest.approx(found.high[CAUSES.index("laboratory")], rel=1e-6) and low[0] == pytest.approx(
        -high[0], rel=1e-4
    )


def test_a_source_with_many_rows_counts_little_more_than_one_with_few():
    few, many = laboratories(1, 7, rows=25), laboratories(1, 8, rows=100)
    joined = Errors.joined([few, Errors(many.causes, many.residual, many.lacks, np.full(100, "source:other"))])
    weight = joined.weight
    assert weight.sum() == pytest.approx(1.0)
    assert weight[25:].sum() == pytest.approx(2 * weight[:25].sum())
    assert len(joined.thinned(30)) == 55


def test_a_kind_of_source_counts_as_often_as_it_is_said_to():
    few, many = laboratories(6, 12), laboratories(30, 13)
    boards = Errors(
        many.causes, 3.0 * many.residual, many.lacks, np.char.replace(many.source.astype(str), "source", "device")
    )
    joined = Errors.joined([few, boards])
    own = np.arange(len(joined)) < len(few)
    assert joined.weight[own].sum() == pytest.approx(1 / 2)
    assert joined.weighted({"source": 3.0})[own].sum() == pytest.approx(3 / 4)
    assert joined.weighted({"source": 3.0}).sum() == pytest.approx(1.0)
    asked = {"measurement": 1.0, "network": 0.5, "device": 1.0, "never seen": 0.0}
    alike, drawn = spread.fit(joined, PRIOR), spread.fit(joined, PRIOR, times={"source": 9.0})
    assert drawn.bounds(asked)[1] < 0.95 * alike.bounds(asked)[1]


def test_widths_are_kept_as_json_and_what_is_none_is_refused(fitted):
    kept = Spread.from_dict(fitted.to_dict())
    asked = {"measurement": 1.0, "network": 0.2, "device": 1.0, "never seen": 0.0}
    np.testing.assert_allclose(kept.bounds(asked), fitted.bounds(asked), atol=1e-4)
    with pytest.raises(ArtefactError, match="perfpass train"):
        Spread.from_dict({**fitted.to_dict(), "low": [0.1]})
    with pytest.raises(ArtefactError, match="perfpass train"):
        Spread.from_dict({"causes": []})
    with pytest.raises(ArgumentError, match="widths are of"):
        fitted.bounds({"measurement": 1.0})
    with pytest.raises(ArgumentError, match="not finite"):
        Errors.of(np.array([np.nan]), {"measurement": 1.0}, "source:a")
    with pytest.raises(ArgumentError, match="no errors"):
        spread.fit(laboratories(1, 1).take(np.zeros(60, dtype=bool)), PRIOR)


def test_reliability_tells_what_intervals_of_every_level_hold():
    from perfpass.training.section import ASKED_PCT, grade

    generator = np.random.default_rng(11)
    predicted = generator.uniform(1.0, 9.0, 20_000)
    residual = np.where(generator.random(20_000) < 0.5, -0.1, 0.3) * np.abs(generator.logistic(size=20_000))
    holds_90 = 2 * np.arctanh(0.9)
    low, high = (predicted * np.exp(side * holds_90) for side in (-0.1, 0.3))
    found = grade(predicted, predicted * np.exp(residual), low, high)
    np.testing.assert_allclose(found.reliability_pct, ASKED_PCT, atol=1.0)
    narrow = grade(predicted, predicted * np.exp(residual), np.sqrt(low * predicted), np.sqrt(high * predicted))
    assert (np.array(narrow.reliability_pct) < np.array(ASKED_PCT)).all()
    assert narrow.interval_score > found.interval_score
    with pytest.raises(ArgumentError, match="between 0 and 1"):
        half_width_of(1.0)
