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


def test_distinct_rows_give_every_row_back_bit_for_bit():
    rows = np.random.default_rng(5).integers(0, 2, (200, 4)).astype(np.float32)
    rows[rows == 0] = np.where(np.random.default_rng(6).random(int((rows == 0).sum())) < 0.5, -0.0, np.nan)
    once, back = intervals.distinct(rows)
    assert len(once) == len({row.tobytes() for row in rows}) < len(rows)
    assert rows[once][back].tobytes() == rows.tobytes()


def test_a_distance_is_the_same_whatever_was_asked_before():
    from perfpass.predictors.inference.predictor import InferencePredictor

    predictor = InferencePredictor()
    asked = np.random.default_rng(7).random((9, InferencePredictor.load()._artefact.array("fingerprints.npy").shape[1]))
    asked = asked.astype(np.float32)[[0, 1, 2, 0, 3, 4, 5, 6, 7, 8]]
    plain = intervals.nearest_to(predictor._fingerprints, asked, 1)
    for part in (slice(3), slice(None), slice(5, None), slice(0)):
        assert predictor._nearest(asked[part], 1).tolist() == plain[part].tolist()
