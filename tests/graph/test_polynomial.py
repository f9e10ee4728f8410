"""Exact interpolation of counts."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from perfpass.graph.polynomial import Axis, Polynomial, degree, interpolated, upper

COEFFICIENTS = st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 3)), st.integers(-9, 9), max_size=6)
AXES = st.tuples(st.integers(1, 40), st.sampled_from((1, 2, 7, 32)))


@given(COEFFICIENTS, AXES, AXES)
def test_a_polynomial_is_found_again_from_its_values(terms, first, second):
    axes = (Axis("batch", *first), Axis("sequence", *second))
    known = Polynomial(("batch", "sequence"), {key: Fraction(c) for key, c in terms.items() if c})
    found = interpolated(
        axes, (2, 3), lambda ks: int(known.at({a.symbol: a[k] for a, k in zip(axes, ks, strict=True)}))
    )
    assert found == known


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=5))
def test_the_degree_is_that_of_the_last_coefficient(coefficients):
    values = [sum(c * k**p for p, c in enumerate(coefficients)) for k in range(8)]
    expected = max((p for p, c in enumerate(coefficients) if c), default=0)
    assert degree(values) == expected
    assert degree([*values[:-1], values[-1] + 1]) != expected or expected > 5


def test_a_square_of_odd_steps_is_no_polynomial_of_low_degree():
    assert degree([(k // 2) ** 2 for k in range(8)]) is None


@given(st.lists(COEFFICIENTS, min_size=1, max_size=6), AXES)
def test_the_largest_of_those_kept_is_the_largest_of_all(terms, axis):
    axes = (Axis("a", *axis), Axis("b", 1, 1))
    all_of = [Polynomial(("a", "b"), {k: Fraction(c) for k, c in each.items() if c}) for each in terms]
    kept = upper(all_of, axes)
    for i in (0, 1, 2, 9):
        for j in (0, 1, 5):
            point = {"a": axes[0][i], "b": axes[1][j]}
            assert max(p.at(point) for p in kept) == max(p.at(point) for p in all_of)


def test_a_formula_is_written_as_people_write_it():
    terms = {(1, 2): Fraction(24), (0, 1): Fraction(-3), (0, 0): Fraction(1)}
    assert str(Polynomial(("b", "s"), terms)) == "24*b*s^2 - 3*s + 1"
    assert str(Polynomial(("b", "s"), {(1, 0): Fraction(1, 2), (0, 0): Fraction(-3)})) == "(b - 6)/2"
    assert str(Polynomial(("b",), {})) == "0"
