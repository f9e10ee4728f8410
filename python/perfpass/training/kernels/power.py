"""Power of kernels: fitting and grading, over all operators at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from perfpass.predictors.kernels.power import power_features
from perfpass.training.crossfit import cross_fit, graded_bounds
from perfpass.training.kernels.data import Data
from perfpass.training.kernels.fit import Fitted, boosted, fit, inputs
from perfpass.training.section import Section
from perfpass.training.tasks.splits import Fold, random_folds

TREES = {"max_leaves": 32, "eta": 0.1}
ROUNDS = 120
WIDTH = 12
# Rows per operator in the evaluation; enough for its figures.
_GRADED_ROWS = 8_000


def rows(data: Data, fitted: Fitted) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features [P, 12], share of the limit [P] and device [P] of the P rows with power; times are the measured ones."""
    if "power_w" not in data.rows:
        return np.zeros((0, WIDTH), np.float32), np.zeros(0), np.zeros(0, dtype=object)
    part = data.take(np.flatnonzero(data.rows["power_w"].notna().to_numpy()))
    regime = inputs(fitted.efficiencies, part, portable=True)[2]
    x = power_features(data.operator, part.terms, part.seconds, regime, part.software[:, 3].astype(int))
    return x, (part.rows["power_w"] / part.rows["power_limit_w"]).to_numpy(), part.device


def model(x: np.ndarray, share: np.ndarray, seed: int) -> Any:
    """Trees for the logarithm of power over the limit."""
    return boosted(x, np.log(share), ROUNDS, seed, **TREES)


def grade(section: Section, every: Sequence[Data], seed: int) -> None:
    """Add power, held out by row and by device, beside the shares of utilisation alone."""
    import xgboost

    parts = []
    for data in every:
        fitted = fit(data, portable=False, known=False)
        x, share, device = rows(data, fitted)
        take = np.sort(np.random.default_rng(seed).permutation(len(x))[:_GRADED_ROWS])
        parts.append((x[take], share[take], device[take]))
    x, share, device = (np.concatenate(p) for p in zip(*parts, strict=True))
    use = np.column_stack([np.ones(len(x)), np.exp(x[:, 1]), np.exp(x[:, 2])])
    random = random_folds(len(x), 5, seed)
    by_row = [Fold(np.flatnonzero(random != i), np.flatnonzero(random == i), str(i)) for i in range(5)]
    by_device = [Fold(np.flatnonzero(device != d), np.flatnonzero(device == d), str(d)) for d in np.unique(device)]

    def trees(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        return model(x[train], share[train], seed).predict(xgboost.DMatrix(x[test]))

    def linear(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        weights = np.linalg.lstsq(use[train], share[train], rcond=None)[0]
        return np.log(np.clip(use[test] @ weights, 0.1, 1.0))

    for split, folds in (("random rows", by_row), ("device, zero-shot", by_device)):
        predicted, fold = cross_fit(len(x), folds, trees)
        low, high = graded_bounds(np.log(share) - predicted, fold)
        p, y = 100 * np.exp(predicted), 100 * share
        section.add("power, % of limit", split, "perfpass", "all", p, y, p * np.exp(low), p * np.exp(high))
        plain, _ = cross_fit(len(x), folds, linear)
        section.add("power, % of limit", split, "floor and two utilisations", "all", 100 * np.exp(plain), y)
        for name in np.unique(device):
            inside = device == name
            section.add("power, % of limit", split, "perfpass", str(name), p[inside], y[inside])
