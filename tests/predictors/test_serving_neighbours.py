"""Measured neighbours of serving workloads: what is found a few at a time is what the whole table says, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from perfpass.devices import device
from perfpass.llm import language_model
from perfpass.llm.serving import Serving
from perfpass.predictors.serving.base import Sizes
from perfpass.predictors.serving.features import (
    _BANDWIDTHS,
    _FARTHEST,
    _NUMBERS,
    _TEXTS,
    Neighbours,
    Workloads,
    describe,
    position,
)


@pytest.fixture(scope="module")
def tables():
    """Workloads as measured, others, and three figures of the former; of some, several are at one distance."""
    random = np.random.default_rng(0)
    sizes = Sizes(*(2.0 ** random.integers(low, 12, 120) for low in (6, 4, 0)))
    parts = [
        describe(language_model(name), name, device(board), Serving(1, 1, 1.0, runtime), sizes=sizes)
        for name in ("llama-3.1-8b", "mistral-7b")
        for board in ("h100", "l4")
        for runtime in ("vllm", "sglang")
    ]
    rows = random.permutation(8 * 120)
    known, asked = rows[:900], np.concatenate([rows[-60:], rows[:41]])
    weight = random.choice([1.0, 0.5, 1 / 3], 900)
    every = Workloads.joined(parts)
    return every.take(known), every.take(asked), weight, random.normal(size=(3, 900)), known[None] == asked[:, None]


def plain(known, asked, weight, residual, apart):
    """[N, 9] from the whole table of distances."""
    (place, labels), (others, texts) = position(asked), position(known)
    distance = np.zeros((len(place), len(others)), np.float32)
    for c in range(len(_NUMBERS)):
        distance += np.abs(place[:, c, None] - others[None, :, c])
    for k, cost in enumerate(_TEXTS.values()):
        distance += np.float32(cost) * (labels[:, k, None] != texts[None, :, k])
    distance[apart] = np.inf
    within = distance.min(axis=1, keepdims=True) - distance
    kernels = [np.exp(within / width) * weight for width in _BANDWIDTHS]
    order = np.argsort(distance, axis=1, kind="stable")[:, :3]
    found = residual[order]
    far = np.take_along_axis(distance, order, axis=1).clip(max=_FARTHEST)
    averages = [(k * residual).sum(axis=1) / k.sum(axis=1) for k in kernels]
    columns = [*averages, *found.T, far[:, 0], far[:, 2], found.min(axis=1), found.max(axis=1)]
    return np.stack(columns, axis=1).astype(np.float32)


def test_features_are_those_of_the_whole_table(tables):
    known, asked, weight, residuals, apart = tables
    found = Neighbours.of(known, weight, *residuals).features(asked, apart)
    assert found.shape == (3, len(asked), 9)
    for own, residual in zip(found, residuals, strict=True):
        expected = plain(known, asked, weight, residual, apart)
        assert np.array_equal(own[:, 2:], expected[:, 2:])
        # Sums of a product of matrices are rounded as its blocks are.
        np.testing.assert_allclose(own[:, :2], expected[:, :2], rtol=1e-5, atol=1e-6)


def test_one_workload_has_the_features_that_it_has_among_others(tables):
    known, asked, weight, residuals, _ = tables
    neighbours = Neighbours.of(known, weight, *residuals)
    together = neighbours.features(asked)
    for i in (0, 23, 24, 100):
        alone = neighbours.features(asked.take(np.array([i])))
        np.testing.assert_allclose(alone[:, 0], together[:, i], rtol=1e-5, atol=1e-6)
        assert np.array_equal(alone[:, 0, 2:], together[:, i, 2:])


def test_the_nearest_of_measured_workloads_is_itself(tables):
    known, _, weight, _, _ = tables
    found = Neighbours.of(known, weight).nearest(known)
    place, labels = position(known)
    assert np.array_equal(place[found], place) and np.array_equal(labels[found], labels)
