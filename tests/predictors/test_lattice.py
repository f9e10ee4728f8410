"""Order on lattices of sizes: what is moved is moved as little as order asks for."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from perfpass.predictors.learned.lattice import rising, settled

_VALUES = st.floats(-8, 8, width=32)


def _nearest_in_order(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """[N] weighted least squares in order: of every place the largest, over where it may begin, of the least average
    from there on (Robertson, Wright and Dykstra, 1988, theorem 1.4.4).
    """
    count = len(values)
    mean = np.full((count, count), np.inf)
    for i in range(count):
        total = np.cumsum(weight[i:])
        mean[i, i:] = np.cumsum(values[i:] * weight[i:]) / total
    return np.array([max(mean[i, k:].min() for i in range(k + 1)) for k in range(count)])


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(1, 12))
def test_a_line_is_moved_by_weighted_least_squares(data, count):
    values = data.draw(arrays(np.float64, count, elements=_VALUES))
    weight = data.draw(arrays(np.float64, count, elements=st.floats(0.0078125, 64, width=32)))
    np.testing.assert_allclose(settled(values, weight), _nearest_in_order(values, weight), atol=1e-9)


@settings(deadline=None, max_examples=60)
@given(st.data(), array_shapes(min_dims=1, max_dims=3, max_side=6))
def test_what_is_settled_rises_and_what_rises_stays(data, shape):
    values = data.draw(arrays(np.float64, shape, elements=_VALUES))
    found = settled(values, np.ones(shape))
    for axis in range(len(shape)):
        assert (np.diff(found, axis=axis) >= 0).all()
    np.testing.assert_array_equal(settled(rising(values), np.ones(shape)), rising(values))
