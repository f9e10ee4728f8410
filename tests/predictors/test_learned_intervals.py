"""Quantiles of held-out errors, and distances between networks."""

from __future__ import annotations

import numpy as np
import pytest

from perfpass.errors import ArgumentError
from perfpass.predictors.learned import intervals


def test_pooled_widths_count_every_group_alike():
    many, few = np.full(900, 0.1), np.full(30, -0.8)
    assert intervals.pooled_width([many, few]) == pytest.approx(0.8)  # by rows alone it would be 0.1
    assert intervals.pooled_width([many, many, few], coverage=0.6) == pytest.approx(0.1)
    with pytest.raises(ArgumentError, match="empty"):
        intervals.pooled_width([many, few[:0]])


def test_nearest_is_the_plain_distance():
    generator = np.random.default_rng(4)
    a, b = generator.random((20, 7)).astype(np.float32), generator.random((30, 7)).astype(np.float32)
    plain = np.sqrt(((a[:, None] - b[None]) ** 2).sum(-1) / 2).min(1)
    np.testing.assert_allclose(intervals.nearest(a, b), plain, atol=1e-3)
