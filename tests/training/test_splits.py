"""Splits keep groups apart; errors are relative to the measurement."""

from __future__ import annotations

import numpy as np
import pytest

from perfpass.errors import ArgumentError
from perfpass.training import metrics
from perfpass.training.section import grade
from perfpass.training.tasks import splits


@pytest.mark.parametrize("split", ["architecture", "family"])
def test_a_group_is_never_on_both_sides(split):
    generator = np.random.default_rng(0)
    architecture = generator.integers(0, 60, 900).astype(str)
    family = (architecture.astype(int) % 13).astype(str)
    device = generator.choice(["a", "b"], 900)
    keys = architecture if split == "architecture" else family
    tested = []
    for fold in splits.folds_of(split, architecture, family, device, 5):
        assert not set(keys[fold.train]) & set(keys[fold.test])
        tested.append(fold.test)
    assert sorted(np.concatenate(tested).tolist()) == list(range(900))


def test_device_folds_hold_out_one_device_each():
    device = np.array(["a", "b", "a", "c"])
    folds = list(splits.folds_of("device", device, device, device))
    assert [f.held_out for f in folds] == ["a", "b", "c"]
    assert folds[0].test.tolist() == [0, 2]


def test_an_unknown_split_is_refused():
    with pytest.raises(ArgumentError, match="unknown split 'kind'"):
        list(splits.folds_of("kind", ["a"], ["a"], ["a"]))
    with pytest.raises(ArgumentError, match="5 folds of 2 groups"):
        splits.groups_into_folds(["a", "b"], 5)


def test_whole_families_are_set_aside():
    family = np.array([f"family {i % 40}" for i in range(400)])
    aside = splits.set_aside(family)
    assert 0.1 < aside.mean() < 0.45
    assert not set(family[aside]) & set(family[~aside])
    assert np.array_equal(aside[:40], splits.set_aside(family[:40]))  # whatever else is there


def test_kendall_tau_counts_pairs_in_order_and_is_0_where_nothing_is_ordered():
    assert metrics.kendall_tau(np.arange(4.0), np.array([0.0, 2.0, 1.0, 3.0])) == pytest.approx((5 - 1) / 6)
    ties = metrics.kendall_tau(np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0]))
    assert ties == pytest.approx(2 / np.sqrt(2 * 3))
    assert metrics.kendall_tau(np.ones(5), np.arange(5.0)) == 0.0


def test_percentage_errors_are_relative_to_the_measurement():
    found = grade(np.array([1.05, 2.0]), np.array([1.0, 4.0]), np.array([0.9, 1.0]), np.array([1.2, 3.0]))
    assert found.mape_pct == pytest.approx(27.5)
    assert found.within_10_pct == pytest.approx(50.0)
    assert found.coverage_pct == pytest.approx(50.0)
    assert found.over_bound_pct == pytest.approx(50.0)
    assert found.rmse == pytest.approx(np.sqrt((0.05**2 + 2**2) / 2))
    with pytest.raises(ArgumentError, match="not above 0"):
        grade(np.ones(1), np.zeros(1))
