"""Fitting the serving predictor: constants of the base, then trees on what the base leaves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.predictors.serving.base import Terms, bounded, prior, times
from perfpass.predictors.serving.features import Neighbours, known, portable
from perfpass.predictors.serving.predictor import TARGETS, TREES_OF
from perfpass.training.serving.dataset import Dataset

# Pull of the constants towards their prior, in rows per unit of the free vector; chosen on the rows set aside.
PRIOR_WEIGHT = 36.0
# A log error of 0.2 counts as an outlier from there on (soft L1): speculative decoding halves some times, unseen.
_OUTLIER = 0.2
_TTFT_WEIGHT = 0.25
_COMMON = {"tree_method": "hist", "nthread": 1, "objective": "reg:absoluteerror", "subsample": 0.8, "reg_lambda": 2.0}
TREES: dict[str, dict[str, Any]] = {
    "known": {"max_depth": 7, "eta": 0.08, "colsample_bytree": 0.5, "min_child_weight": 3},
    "portable": {"max_depth": 4, "eta": 0.05, "colsample_bytree": 0.6, "min_child_weight": 10},
}
ROUNDS = {"known": 250, "portable": 150}


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted predictor: constants, boosters by "target-kind", and the neighbours of each target."""

    constants: dict[str, float]
    boosters: dict[str, Any]
    neighbours: dict[str, Neighbours]


def constants_of(t: Terms, tpot_s: np.ndarray, ttft_s: np.ndarray, weight: np.ndarray) -> dict[str, float]:
    """The base's constants by robust least squares on log errors."""
    from scipy.optimize import least_squares

    start, root = prior(), np.sqrt(weight)

    def errors(values: np.ndarray) -> np.ndarray:
        found = times(t, bounded(values))
        parts = (root * np.log(found["tpot"] / tpot_s), np.sqrt(_TTFT_WEIGHT) * root * np.log(found["ttft"] / ttft_s))
        return np.concatenate([*parts, np.sqrt(PRIOR_WEIGHT) * (values - start)])

    found = least_squares(errors, start, loss="soft_l1", f_scale=_OUTLIER, max_nfev=25)
    return bounded(found.x)


def fit(data: Dataset, train: np.ndarray, kinds: Collection[str] = ("known", "portable"), seed: int = 0) -> Fit:
    """Everything learned from the rows ``train`` alone; of the trees only the ``kinds`` that are asked for."""
    import xgboost

    w, weight = data.workloads.take(train), data.weight[train]
    constants = constants_of(w.terms, data.tpot_s[train], data.ttft_s[train], weight)
    base = times(w.terms, constants)
    configuration = data.rows.configuration.to_numpy()[train]
    same = configuration[:, None] == configuration[None, :]
    boosters, neighbours = {}, {}
    for target in TARGETS:
        residual = np.log(data.measured_s(target)[train] / base[target])
        neighbours[target] = Neighbours.of(w, weight, residual)
        for kind in TREES_OF[target]:
            if kind not in kinds:
                continue
            x = portable(w, constants)
            if kind == "known":
                x = np.hstack([known(w, constants), neighbours[target].features(w, same)])
            parameters = {**_COMMON, **TREES[kind], "seed": seed, "base_score": float(np.median(residual))}
            table = xgboost.DMatrix(x, residual, weight=weight)
            boosters[f"{target}-{kind}"] = xgboost.train(parameters, table, ROUNDS[kind])
    return Fit(constants, boosters, neighbours)


def predict(fitted: Fit, data: Dataset, rows: np.ndarray, method: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Seconds of both targets for ``rows``, with the base's beside them as "base-tpot" and "base-ttft".

    ``method``: of METHOD, "known", "portable" or "base" by target.
    """
    import xgboost

    w = data.workloads.take(rows)
    base = times(w.terms, fitted.constants)
    out: dict[str, np.ndarray] = {}
    for target in TARGETS:
        out[target] = out[f"base-{target}"] = base[target]
        if method[target] != "base":
            booster = fitted.boosters[f"{target}-{method[target]}"]
            x = portable(w, fitted.constants)
            if method[target] == "known":
                x = np.hstack([known(w, fitted.constants), fitted.neighbours[target].features(w)])
            out[target] = base[target] * np.exp(booster.predict(xgboost.DMatrix(x)).astype(np.float64))
    return out
