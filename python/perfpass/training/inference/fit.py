"""Fitting: operator-group efficiencies by non-negative least squares, then trees on what is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.predictors.inference.features import DEVICE_FEATURES, FEATURES
from perfpass.predictors.roofline import GROUPS, SOFTWARE

# Depth, columns and rounds: chosen by perfpass.training.inference.choose on families that `evaluate` does not report.
TREES = {
    "objective": "reg:pseudohubererror",
    "huber_slope": 0.1,
    "max_depth": 8,
    "eta": 0.05,
    "subsample": 0.7,
    "colsample_bytree": 0.15,
    "min_child_weight": 3.0,
    "reg_lambda": 2.0,
    "tree_method": "hist",
    "max_bin": 128,
}
ROUNDS = 600
# An efficiency group without rows stays at this many times its roofline; the weight is that of a fraction of the rows.
PRIOR_FACTOR = 1.5
PRIOR_WEIGHT = 1e-5


def fit_efficiency(group_s: np.ndarray, software: np.ndarray, latency_s: np.ndarray) -> np.ndarray:
    """[len(SOFTWARE), len(GROUPS)] factors on roofline time that minimise the squared relative error of the sum.

    ``group_s`` [N, len(GROUPS)] roofline seconds, ``software`` [N] row of SOFTWARE.
    """
    from scipy.optimize import nnls

    out = np.full((len(SOFTWARE), len(GROUPS)), PRIOR_FACTOR)
    for s in range(len(SOFTWARE)):
        rows = software == s
        if not rows.any():
            continue
        a = group_s[rows] / latency_s[rows, None]
        # Rows far from the roofline are bound by something else (issue, copies) and must not bend the factors.
        total = a.sum(axis=1)
        usable = total > np.median(total) / 4
        a = a[usable]
        prior = np.sqrt(PRIOR_WEIGHT * len(a)) * np.eye(len(GROUPS))
        target = np.concatenate([np.ones(len(a)), prior.sum(axis=1) * PRIOR_FACTOR])
        out[s] = nnls(np.concatenate([a, prior]), target)[0]
    return np.maximum(out, 0.02)


def columns(portable: bool) -> np.ndarray:
    """Indices of the features that trees see; portable trees do not see which device it is."""
    return np.array([i for i, name in enumerate(FEATURES) if not (portable and name in DEVICE_FEATURES)])


@dataclass(frozen=True)
class Trees:
    """One booster for log(latency / base) and the feature columns it reads."""

    booster: Any
    columns: np.ndarray

    def predict(self, x: np.ndarray) -> np.ndarray:
        """[N] log of latency over base."""
        import xgboost

        return self.booster.predict(xgboost.DMatrix(x[:, self.columns]))


def fit_trees(
    x: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None, *, portable: bool = False, seed: int = 0,
    rounds: int = ROUNDS, threads: int = 1, **changes: Any,
) -> Trees:  # fmt: skip
    """Trees for ``target`` = log(latency / base), [N]."""
    import xgboost

    chosen = columns(portable)
    settings = {**TREES, "seed": seed, "nthread": threads, "base_score": float(np.median(target)), **changes}
    return Trees(xgboost.train(settings, xgboost.DMatrix(x[:, chosen], target, weight=weight), rounds), chosen)
