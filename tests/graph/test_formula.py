"""Formulas of a user's own: exact, bounded, and never code."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpass.errors import ArgumentError, LimitError, PerfPassError
from perfpass.graph.formula import LONGEST, Formula, TensorType

X = [TensorType("float32", (2, 3, 5)), None, TensorType("int4", (7,))]
Y = [TensorType("float16", (2, 8))]
ATTRIBUTES = {"heads": 4, "pads": [1, 2], "scale": 0.5, "mode": "linear"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 * x[0].shape[1] + heads", 10),
        ("x[0].shape[-1] * y[0].elements", 80),
        ("x[0].bytes", 120),
        ("x[2].bytes", 4),
        ("x[2].bits + x[0].rank", 7),
        ("ceil(x[0].elements / 7)", 5),
        ("floor(7 / 2) + 7 // 2 + 7 % 4", 9),
        ("min(heads, 9, pads[1]) + max(1, 2)", 4),
        ("-(-3)", 3),
        ("8 * scale", 4),
        (12, 12),
    ],
)
def test_a_formula_gives_what_it_says(text, value):
    assert Formula(text).value(X, Y, ATTRIBUTES) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "x.__class__", "x[0].__class__", "(lambda: 1)()", "[1][0]", "{1}",
        "1 if 1 else 2",
        "2 ** 9", "1 << 9", "x[0:2]", "'a'", "1.5", "True", "heads := 3", "open('a')", "max", "max(1)", "ceil(1, 2)",
        "eval('1')", "f'{1}'", "x[0].shape.append(1)", "", "1 +", "not 1", "1 < 2", "*x", "x[0].shape[0, 1]", "max(*x)",
        "min(1, 2, key=3)", "x @ y", "~1", "1j", "None", "...",
    ],
)  # fmt: skip
def test_what_is_no_formula_is_refused_with_its_text(text):
    with pytest.raises(PerfPassError) as error:
        Formula(text, "operator a: macs").value(X, Y, ATTRIBUTES)
    assert str(error.value).startswith("operator a: macs")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("head", "heads"),
        ("x[1].elements", "leaves out"),
        ("x[3].elements", "has 3"),
        ("x[0].shape[3]", "has 3"),
        ("7 / 2", "whole"),
        ("3 - 5", "negative|0 or more"),
        ("1 // (heads - 4)", "is 0"),
        ("mode * 2", "no number"),
        ("x[0]", "whole"),
        ("x[0].shape", "whole"),
        ("heads.elements", "only x"),
    ],
)
def test_what_a_node_has_not_is_named(text, said):
    with pytest.raises(ArgumentError, match=said):
        Formula(text).value(X, Y, ATTRIBUTES)


@pytest.mark.parametrize(
    "text", ["9" * 30, "9" * LONGEST + "9", "1" + "+1" * 240, "(" * 220 + "1" + ")" * 220, "-" * 400 + "1"]
)
def test_a_formula_without_an_end_is_refused(text):
    with pytest.raises((LimitError, ArgumentError)):
        Formula(text).value(X, Y, ATTRIBUTES)


def test_a_product_of_large_numbers_stops():
    with pytest.raises(LimitError):
        Formula("*".join(["4611686018427387904"] * 12)).value(X, Y, {})


SMALL = st.integers(0, 50)


@given(st.recursive(SMALL.map(str), lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(
    lambda t: f"({t[0]} {t[1]} {t[2]})"), max_leaves=12))  # fmt: skip
def test_arithmetic_is_that_of_fractions(text):
    try:
        expected = eval(text.replace("(", "(").replace("/", "*one/"), {"one": Fraction(1)})
    except ZeroDivisionError:
        with pytest.raises(ArgumentError):
            Formula(text).value([], [], {})
        return
    if expected < 0 or expected != math.floor(expected) or expected > 1 << 62:
        with pytest.raises(PerfPassError):
            Formula(text).value([], [], {})
    else:
        assert Formula(text).value([], [], {}) == expected


@given(st.text(st.sampled_from("x[].y01 +-*/%()minceshapelt,'\"\\\n_:{}"), max_size=60))
def test_any_text_gives_a_number_or_one_error(text):
    try:
        assert Formula(text).value(X, Y, ATTRIBUTES) >= 0
    except PerfPassError as error:
        assert "\n" not in str(error)
