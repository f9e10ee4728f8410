"""The whole step-time model on one set of training rows: group efficiencies, trees on what is left, predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.predictors.intervals import nearest
from perfpass.predictors.step_features import DEVICE_FEATURES, FEATURES, SOFTWARE, STEP_GROUPS
from perfpass.predictors.steps import TREES_FADE
from perfpass.training.steps.dataset import Dataset

# Chosen on the families that `evaluate` does not report (docs/prediction-training.md).
TREES = {
    "objective": "reg:pseudohubererror",
    "huber_slope": 0.1,
    "max_depth": 6,
    "eta": 0.05,
    "subsample": 0.7,
    "colsample_bytree": 0.3,
    "min_child_weight": 1.0,
    "reg_lambda": 2.0,
    "tree_method": "hist",
    "max_bin": 128,
    "nthread": 1,
    "base_score": 0.0,
}
ROUNDS = 500
# A group's factor is drawn towards its factor over all software, and that towards this one, with the weight of a
# fraction of the rows.
PRIOR_FACTOR = 1.5
PRIOR_WEIGHT = 3e-4
_LEAST_ROWS = 50
# Rows whose host needs over this share of their time to issue kernels must not bend the factors.
_ISSUE_BOUND = 0.3


def fit_efficiency(dataset: Dataset, rows: np.ndarray) -> np.ndarray:
    """[len(SOFTWARE), len(STEP_GROUPS)] factors on roofline time, from the given rows alone.

    Non-negative least squares on the relative error of the sum. Software without rows takes the factors of all rows.
    """
    overall = _factors(dataset, rows, np.full(len(STEP_GROUPS), PRIOR_FACTOR))
    out = np.tile(overall, (len(SOFTWARE), 1))
    for s in range(len(SOFTWARE)):
        own = rows[dataset.software[rows] == s]
        if len(own) >= _LEAST_ROWS:
            out[s] = _factors(dataset, own, overall)
    return out


def _factors(dataset: Dataset, rows: np.ndarray, prior: np.ndarray) -> np.ndarray:
    from scipy.optimize import nnls

    sums, measured = dataset.sums, dataset.step_s[rows]
    on_device = np.maximum(measured - sums.copy_s[rows], 0.3 * measured)
    a = sums.seconds[rows] / on_device[:, None]
    total = a.sum(axis=1)
    a = a[(total > np.median(total) / 4) & (sums.issue_s[rows] < _ISSUE_BOUND * on_device)]
    weight = np.sqrt(PRIOR_WEIGHT * max(len(a), 1))
    stacked = np.concatenate([a, weight * np.eye(len(prior))])
    return np.maximum(nnls(stacked, np.concatenate([np.ones(len(a)), weight * prior]))[0], 0.02)


def columns(portable: bool) -> np.ndarray:
    """Indices of the features that trees see; portable trees do not see which device it is."""
    return np.array([i for i, name in enumerate(FEATURES) if not (portable and name in DEVICE_FEATURES)])


def fit_trees(x: np.ndarray, target: np.ndarray, *, seed: int = 0, rounds: int = ROUNDS) -> Any:
    """A booster for ``target`` [N] = log(measured / base) on the features ``x`` [N, F]."""
    import xgboost

    return xgboost.train({**TREES, "seed": seed}, xgboost.DMatrix(x, target), rounds)


@dataclass(frozen=True)
class HeldOut:
    """What a model made of rows that it had not seen; seconds, and distances to the training networks."""

    predicted_s: np.ndarray
    base_s: np.ndarray
    distance: np.ndarray
    x: np.ndarray
    all_base_s: np.ndarray


def held_out(
    dataset: Dataset, train: np.ndarray, test: np.ndarray, *, portable: bool, seed: int = 0, rounds: int = ROUNDS
) -> HeldOut:
    """Efficiencies and trees from the rows ``train`` alone, asked about the rows ``test``."""
    import xgboost

    x, base = dataset.features(fit_efficiency(dataset, train))
    seen = columns(portable)
    booster = fit_trees(x[np.ix_(train, seen)], np.log(dataset.step_s / base)[train], seed=seed, rounds=rounds)
    distance = distances(dataset, train, test)
    first, last = TREES_FADE
    weight = np.clip((last - distance) / (last - first), 0.0, 1.0)
    predicted = base[test] * np.exp(weight * booster.predict(xgboost.DMatrix(x[np.ix_(test, seen)])))
    return HeldOut(predicted, base[test], distance, x, base)


def distances(dataset: Dataset, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """[len(test)] distance of each row's network to the nearest of the training rows."""
    known = np.unique(dataset.fingerprints[train], axis=0)
    prints, inverse = np.unique(dataset.fingerprints[test], axis=0, return_inverse=True)
    return nearest(prints, known)[inverse.ravel()]
