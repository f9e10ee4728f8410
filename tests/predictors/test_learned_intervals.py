"""Intervals of what was learned: they cover, and never narrow with distance."""

from __future__ import annotations

import numpy as np
import pytest

from perfpass.errors import ArgumentError
from perfpass.predictors.learned import intervals


def test_conformal_bounds_cover_new_residuals_in_every_distance_bin():
    generator = np.random.default_rng(2)
    distance = generator.uniform(0, 0.5, 6000)
    residual = generator.normal(0, 0.02 + 0.4 * distance)
    found = intervals.conformal(residual[:3000], distance[:3000])
    low, high = found.bounds(distance[3000:])
    covered = (low <= residual[3000:]) & (residual[3000:] <= high)
    assert 0.87 < covered.mean() < 0.95
    for near, far in ((0.0, 0.1), (0.1, 0.35), (0.35, 0.5)):
        inside = (distance[3000:] >= near) & (distance[3000:] < far)
        assert covered[inside].mean() > 0.84


def test_bounds_never_narrow_with_distance():
    generator = np.random.default_rng(3)
    found = intervals.conformal(generator.normal(0, 0.1, 2000), generator.uniform(0, 0.5, 2000))
    assert list(found.low) == sorted(found.low, reverse=True)
    assert list(found.high) == sorted(found.high)


def test_pooled_widths_count_every_group_alike():
    many, few = np.full(900, 0.1), np.full(30, -0.8)
    assert intervals.pooled_width([many, few]) == pytest.approx(0.8)  # by rows alone it would be 0.1
    assert intervals.pooled_width([many, many, few], coverage=0.6) == pytest.approx(0.1)
    with pytest.raises(ArgumentError, match="empty"):
        intervals.pooled_width([many, few[:0]])


def test_an_unseen_network_widens_the_interval_of_an_unseen_device():
    found = intervals.ConformalTable((0.0, 0.1), (-0.05, -0.3), (0.05, 0.4), (500, 500))
    assert found.around(0.2, 0.0) == pytest.approx(0.2)
    assert found.around(0.2, 0.3) == pytest.approx(np.sqrt(0.2**2 + 0.4**2 - 0.05**2))


def test_nearest_is_the_plain_distance():
    generator = np.random.default_rng(4)
    a, b = generator.random((20, 7)).astype(np.float32), generator.random((30, 7)).astype(np.float32)
    plain = np.sqrt(((a[:, None] - b[None]) ** 2).sum(-1) / 2).min(1)
    np.testing.assert_allclose(intervals.nearest(a, b), plain, atol=1e-3)
