"""Fitted components: what rows have in common is worked out once, and nothing else is answered."""

from __future__ import annotations

import numpy as np
import pytest

from perfpass.predictors.generation.predictor import QUANTITY, GenerationPredictor
from perfpass.predictors.learned import components
from perfpass.predictors.learned.components import Rows, kernel, scaled

KINDS = np.array(
    [("vllm", "NVIDIA", "h100-sxm5-80gb"), ("transformers", "AMD", "mi300x"), ("vllm", "NVIDIA", "no-board")],
    dtype=object,
)


@pytest.fixture(scope="module")
def fitted():
    return GenerationPredictor.load().fitted[QUANTITY]


def _rows(fitted, *, alike: bool, number: int = 3 * components._MANY) -> Rows:
    """A few sizes, models and devices in any order; with ``alike`` one model on one device."""
    rng = np.random.default_rng(5)
    form = fitted.form
    workload = rng.normal(size=(7, len(form.workload)))[rng.integers(7, size=number)]
    models = rng.normal(size=(4, len(form.traits)))
    which = np.zeros(number, dtype=int) if alike else rng.integers(4, size=number)
    kinds = KINDS[which % len(KINDS)]
    return Rows(rng.uniform(0.1, 1.0, (number, len(form.components))), workload, models[which], kinds, np.zeros(number))


@pytest.mark.parametrize("alike", [True, False])
def test_many_rows_are_answered_as_each_by_itself(fitted, alike):
    rows = _rows(fitted, alike=alike)
    each = [rows.take(np.array([i])) for i in range(len(rows))]
    base, finest = fitted.base(rows)
    correction, spread = fitted.correction(rows)
    assert np.allclose(base, np.concatenate([fitted.base(one)[0] for one in each]), rtol=1e-12, equal_nan=True)
    assert list(finest) == [int(fitted.base(one)[1][0]) for one in each]
    for whole, alone in zip((correction, spread), zip(*map(fitted.correction, each), strict=True), strict=True):
        assert np.allclose(whole, np.concatenate(alone), rtol=1e-6, atol=1e-9)
    assert list(fitted.evidence(rows)) == [fitted.evidence(one)[0] for one in each]


@pytest.mark.parametrize("alike", [True, False])
def test_a_covariance_is_the_sum_of_its_terms(fitted, alike):
    rows = _rows(fitted, alike=alike)
    a = scaled(fitted.form, rows, fitted.names)
    b = (fitted.known.workload[::50], fitted.known.traits[::50], fitted.known.codes[::50])
    columns = {name: i for i, name in enumerate(fitted.form.categories)}
    near = [np.exp(-np.sqrt(((x[:, None] - y) ** 2).sum(axis=2))) for x, y in zip(a[:2], b[:2], strict=True)]
    expected = np.zeros((len(rows), len(b[0])))
    for term in fitted.form.terms:
        part = np.full(expected.shape, term.amplitude)
        for name in term.equal:
            mine, theirs = a[2][:, columns[name], None], b[2][:, columns[name]]
            part *= (mine == theirs) & (mine >= 0)
        expected += part * (near[0] if term.workload else 1.0) * (near[1] if term.traits else 1.0)
    assert np.allclose(kernel(fitted.form, a, b), expected, rtol=1e-6, atol=1e-9)
    assert (a[2] < 0).any() == (not alike)  # a device that nobody measured equals none


def test_no_rows_have_no_covariance(fitted):
    none = _rows(fitted, alike=True).take(np.arange(0))
    assert [part.shape for part in fitted.correction(none)] == [(0,), (0,)]
