"""What an interval says of a limit: half at the median, its coverage at the bounds, never less for a higher limit."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpass.errors import ArgumentError
from perfpass.prediction import ABOVE_MEMORY, Interval, MemoryFigures
from perfpass.predictors.learned.spread import half_width_of

FACTORS = st.floats(1.001, 100.0)
VALUES = st.floats(1e-6, 1e12)


@given(VALUES, FACTORS, FACTORS)
def test_the_bounds_hold_what_they_say(median, below, above):
    value = Interval(median, median / below, median * above, "ms")
    assert value.probability_below(value.median) == pytest.approx(0.5)
    assert value.probability_below(value.high) == pytest.approx(0.95)
    assert value.probability_below(value.low) == pytest.approx(0.05)


@given(VALUES, FACTORS, FACTORS, st.lists(st.floats(0.0, 1e14), min_size=2, max_size=8))
def test_a_higher_limit_is_never_less_likely_kept(median, below, above, limits):
    value = Interval(median, median / below, median * above, "ms")
    found = [value.probability_below(limit) for limit in sorted(limits)]
    assert found == sorted(found)
    assert all(0.0 <= p <= 1.0 for p in found)


@pytest.mark.parametrize("coverage", [0.1, 0.5, 0.8, 0.99])
def test_it_is_the_distribution_that_widths_are_read_off(coverage):
    value = Interval(1.0, 0.5, 2.0, "ms")
    half = math.exp(math.log(2.0) * half_width_of(coverage))
    assert value.probability_below(half) - value.probability_below(1 / half) == pytest.approx(coverage)


def test_a_figure_without_width_is_kept_or_not():
    exact = Interval(2.0, 2.0, 2.0, "ms")
    assert [exact.probability_below(limit) for limit in (-1.0, 1.9, 2.0, math.inf)] == [0.0, 0.0, 1.0, 1.0]
    assert Interval(1.0, 0.0, 2.0, "ms").probability_below(1e-9) == pytest.approx(0.05)


def test_memory_is_planned_by_its_one_sided_bound():
    memory = MemoryFigures(Interval(1e9, 0.9e9, 1.3e9, "B"))
    assert memory.probability_fits(1.3e9) == pytest.approx(1 - ABOVE_MEMORY)
    assert memory.probability_fits(0.9e9) == pytest.approx(0.05)
    assert memory.probability_fits(1.0e9) == 0.5


@given(VALUES, FACTORS, FACTORS, st.floats(0.5, 0.9999))
def test_the_room_for_a_probability_has_it(median, below, above, probability):
    value = Interval(median, median / below, median * above, "B")
    assert value.probability_fits(value.room_for(probability)) == pytest.approx(probability, abs=1e-6)
    with pytest.raises(ArgumentError, match=r"0\.5 to below 1"):
        value.room_for(0.4)


def test_a_limit_that_is_no_number_is_refused():
    with pytest.raises(ArgumentError, match="a limit"):
        Interval(1.0, 0.5, 2.0, "ms").probability_below(math.nan)
