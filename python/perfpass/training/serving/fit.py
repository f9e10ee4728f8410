"""Fitting the serving predictor: constants of the base, then trees on what the base leaves."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfpass.predictors.serving.base import Terms, bounded, prior, times
from perfpass.predictors.serving.features import NEAREST, RISING, Neighbours, alike, counted, eased, known, rising
from perfpass.predictors.serving.predictor import METHOD, TARGETS, TREES_OF
from perfpass.predictors.step_time import overheads
from perfpass.training.serving.dataset import Dataset

# Pull of the constants towards their prior, in rows per unit of the free vector; chosen on the rows set aside.
PRIOR_WEIGHT = 36.0
# Likewise of the step of kernels, from 12 to 400.
STEP_PRIOR_WEIGHT = 100.0
# A log error of 0.2 counts as an outlier from there on (soft L1): speculative decoding halves some times, unseen.
_OUTLIER = 0.2
_TTFT_WEIGHT = 0.25
_COMMON = {"tree_method": "hist", "nthread": 1, "objective": "reg:absoluteerror", "subsample": 0.8, "reg_lambda": 2.0}
TREES: dict[str, dict[str, Any]] = {
    "known": {"max_depth": 7, "eta": 0.08, "colsample_bytree": 0.5, "min_child_weight": 3},
    "rising": {"max_depth": 4, "eta": 0.05, "colsample_bytree": 0.6, "min_child_weight": 5},
}
# Leaves at medians of absolute errors do not keep the order that splits do; near the middle this error is squared.
_SMOOTH = {"objective": "reg:pseudohubererror", "huber_slope": 0.3}
ROUNDS = {"known": 250, "rising": 150}
# Rising trees start from the base to this power; chosen on the rows set aside, from 0.3 to 0.9. The base counts as
# fitted between these quantiles of it.
_SLOPE = 0.5
_FITTED = (0.005, 0.995)


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted predictor: constants, boosters by "target-kind", the neighbours of each target, and what its
    rising trees start from.
    """

    constants: dict[str, float]
    boosters: dict[str, Any]
    neighbours: dict[str, Neighbours]
    eased: dict[str, dict[str, float]]


def constants_of(t: Terms, tpot_s: np.ndarray, ttft_s: np.ndarray, weight: np.ndarray) -> dict[str, float]:
    """The base's constants by robust least squares on log errors: those of counts as if no kernel had been measured,
    then those of a step of kernels.
    """
    root, ones = np.sqrt(weight), np.ones(len(t), dtype=bool)
    counted, measured = replace(t, kernels=~ones), replace(t, kernels=ones)
    start, steps = prior(), len(overheads.CONSTANTS)

    def by_counts(values: np.ndarray) -> np.ndarray:
        found = times(counted, bounded(np.append(values, start[-steps:])))
        return np.append(
            root * np.log(found["tpot"] / tpot_s), np.sqrt(_TTFT_WEIGHT) * root * np.log(found["ttft"] / ttft_s)
        )

    own = _fitted(by_counts, start[:-steps], PRIOR_WEIGHT)

    def of_kernels(values: np.ndarray) -> np.ndarray:
        return np.asarray(root * np.log(times(measured, bounded(np.append(own, values)))["tpot"] / tpot_s))

    return bounded(np.append(own, _fitted(of_kernels, start[-steps:], STEP_PRIOR_WEIGHT)))


def _fitted(errors: Callable[[np.ndarray], np.ndarray], start: np.ndarray, weight: float) -> np.ndarray:
    """The free vector of least errors, pulled back to its ``start``."""
    from scipy.optimize import least_squares

    def all_errors(values: np.ndarray) -> np.ndarray:
        return np.append(errors(values), np.sqrt(weight) * (values - start))

    return np.asarray(least_squares(all_errors, start, loss="soft_l1", f_scale=_OUTLIER, max_nfev=25).x)


def fit(data: Dataset, train: np.ndarray, kinds: Collection[str] = ("known", "rising"), seed: int = 0) -> Fit:
    """Everything learned from the rows ``train`` alone; of the trees only the ``kinds`` that are asked for."""
    import xgboost

    w, weight = data.workloads.take(train), data.weight[train]
    constants = constants_of(w.terms, data.tpot_s[train], data.ttft_s[train], weight)
    base = times(w.terms, constants)
    configuration = data.rows.configuration.to_numpy()[train]
    same = configuration[:, None] == configuration[None, :]
    boosters, neighbours, starts = {}, {}, {}
    for target in TARGETS:
        residual = np.log(data.measured_s(target)[train] / base[target])
        neighbours[target] = Neighbours.of(w, weight, residual)
        logarithm = np.log(base[target])
        least, most = np.quantile(logarithm, _FITTED)
        starts[target] = {"slope": _SLOPE, "from": float(least), "to": float(most)}
        for kind in TREES_OF[target]:
            if kind not in kinds:
                continue
            parameters = {**_COMMON, **TREES[kind], "seed": seed}
            if kind == "known":
                x, aim = np.hstack([known(w, constants), neighbours[target].features(w, same)]), residual
            else:
                x, aim = rising(w, constants), residual + logarithm - eased(logarithm, starts[target])
                order = [1] * RISING + [0] * (x.shape[1] - RISING)
                parameters |= {"monotone_constraints": str(tuple(order)), **_SMOOTH}
            parameters["base_score"] = float(np.median(aim))
            table = xgboost.DMatrix(x, aim, weight=weight)
            boosters[f"{target}-{kind}"] = xgboost.train(parameters, table, ROUNDS[kind])
    return Fit(constants, boosters, neighbours, starts)


def kinds_of(level: str) -> set[str]:
    """The trees that answer for one of EVIDENCE."""
    return {kind for modes in METHOD[level].values() for kind in modes.values()} - {"base"}


def predict(fitted: Fit, data: Dataset, rows: np.ndarray, level: str) -> dict[str, np.ndarray]:
    """Seconds of both targets for ``rows`` of one of EVIDENCE, with the base's beside them as "base-tpot" and
    "base-ttft".
    """
    import xgboost

    w = data.workloads.take(rows)
    base = times(w.terms, fitted.constants)
    out: dict[str, np.ndarray] = {}
    for target in TARGETS:
        out[f"base-{target}"], out[target] = base[target], base[target].copy()
        for mode, inside in (("agg", data.aggregated[rows]), ("disagg", ~data.aggregated[rows])):
            method = METHOD[level][target][mode]
            if method == "base" or not inside.any():
                continue
            part, start = w.take(inside), np.log(base[target][inside])
            distance: np.ndarray | float = 0.0
            if method == "known":
                near = fitted.neighbours[target].features(part)
                x, distance = np.hstack([known(part, fitted.constants), near]), near[:, NEAREST].astype(np.float64)
            else:
                x, start = rising(part, fitted.constants), eased(start, fitted.eased[target])
            trees = fitted.boosters[f"{target}-{method}"].predict(xgboost.DMatrix(x))
            learned = start + trees.astype(np.float64)
            if target == "ttft":
                learned = counted(learned, np.log(base["steady"][inside]), alike(part, distance))
            out[target][inside] = np.exp(learned)
    return out
