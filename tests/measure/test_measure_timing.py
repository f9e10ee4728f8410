"""Timing: confidence, warm-up, flags, and when there are enough iterations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfpass.measure import timing
from perfpass.measure.configuration import Protocol


def replay(values):
    """A lap that takes no time and gives the values one after another, the last for ever."""
    waiting = iter(values)
    state = {"last": 1.0}

    def lap() -> float:
        state["last"] = next(waiting, state["last"])
        return state["last"]

    return lap


def test_the_confidence_interval_of_the_median_covers_it_in_95_of_100_cases():
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(1000):
        laps = generator.lognormal(0.0, 0.3, 41)
        ordered = np.sort(laps)
        reach = timing.median_confidence_share(laps) * np.median(laps) * 2
        # The share is half the width; the interval itself is between the same order statistics.
        low, high = ordered[math.floor(41 / 2 - 0.98 * 41**0.5)], ordered[math.ceil(41 / 2 + 0.98 * 41**0.5)]
        assert reach == pytest.approx(high - low)
        inside += low <= 1.0 <= high
    assert 930 <= inside <= 985


def test_fewer_than_six_iterations_promise_no_confidence():
    assert timing.median_confidence_share([1.0, 1.0, 1.0, 1.0, 1.0]) == math.inf
    assert timing.median_confidence_share([1.0] * 6) == 0.0


def test_warm_up_lasts_until_the_latency_stands_still():
    falling = [5.0 * 0.97**n for n in range(100)]
    result = timing.measure(replay([100.0, *falling, *[0.2] * 5000]), Protocol(warmup_max_s=5.0, measure_min_s=0.001))
    assert result.steady
    assert result.first_ms == 100.0
    assert result.warmup_iterations > 90
    assert np.median(result.laps_ms) == 0.2


def test_what_is_odd_is_flagged_and_kept():
    drifting = timing.Timing(np.linspace(1.0, 1.2, 90), 1.0, 5, True, 0, 10**9)
    assert "drift" in drifting.flags(Protocol())
    spiky = timing.Timing(np.array([1.0, 1.01] * 45 + [9.0] * 10), 1.0, 5, False, 0, 10**9)
    assert {"many_outliers", "not_steady"} <= set(spiky.flags(Protocol()))
    assert spiky.to_dict()["latency_ms"]["max"] == 9.0
    assert spiky.to_dict()["outliers"] == 10


def test_iterations_go_on_until_the_median_is_known_well_enough():
    generator = np.random.default_rng(1)
    noisy = [1.0, *generator.lognormal(0, 0.2, 20_000)]
    protocol = Protocol(warmup_max_s=0.001, measure_min_s=0.0001, measure_max_s=20.0)
    result = timing.measure(replay(noisy), protocol)
    assert timing.median_confidence_share(result.laps_ms) <= 0.01
    assert len(result.laps_ms) > 500
    assert len(timing.measure(replay([1.0]), protocol).laps_ms) < len(result.laps_ms)
