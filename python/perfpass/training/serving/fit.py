"""Fitting the serving predictor: constants of the base, then trees on what the base leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfpass.predictors.serving import first_token
from perfpass.predictors.serving.base import RUNTIMES, Terms, bounded, first_parts, prior, times
from perfpass.predictors.serving.features import NEAREST, Neighbours, known, with_trees
from perfpass.predictors.serving.predictor import METHOD, TARGETS
from perfpass.predictors.step_time import overheads
from perfpass.training.serving.dataset import Dataset

# Pull of the constants towards their prior, in rows per unit of the free vector; chosen on the rows set aside.
PRIOR_WEIGHT = 36.0
# Likewise of the step of kernels, from 12 to 400.
STEP_PRIOR_WEIGHT = 100.0
# A log error of 0.2 counts as an outlier from there on (soft L1): speculative decoding halves some times, unseen.
_OUTLIER = 0.2
# Of first tokens errors beyond this say next to nothing (Cauchy): cold sweeps take up to fifty times as long.
_FIRST_OUTLIER = 0.4
# The same of the constants of first tokens, in units of their own priors; chosen on the rows set aside.
FIRST_PRIOR_WEIGHT = 20.0
# Of first tokens beside prefill replicas, what starts from the same engine's servers without. Chosen on the rows set
# aside, of all that is an engine's own.
CARRIED = ("steps", "burst")
TREES: dict[str, Any] = {
    "tree_method": "hist",
    "nthread": 1,
    "objective": "reg:absoluteerror",
    "subsample": 0.8,
    "reg_lambda": 2.0,
    "max_depth": 7,
    "eta": 0.08,
    "colsample_bytree": 0.5,
    "min_child_weight": 3,
}
ROUNDS = 250
# Model and device were measured together, but not with the engine and precision that are asked for: held out beside
# EVIDENCE, of which it is "measured".
SET_UP = "set-up unseen"


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted predictor: constants, boosters by "target-known", and the neighbours of each target."""

    constants: dict[str, float]
    boosters: dict[str, Any]
    neighbours: dict[str, Neighbours]


def constants_of(
    t: Terms, tpot_s: np.ndarray, ttft_s: np.ndarray, weight: np.ndarray, warm: np.ndarray
) -> dict[str, float]:
    """The base's constants by robust least squares on log errors: those of counts as if no kernel had been measured,
    then those of a step of kernels, both from times per token; then those of the first token, by mode, from what was
    ``warm`` [N].
    """
    root, ones = np.sqrt(weight), np.ones(len(t), dtype=bool)
    counted, measured = replace(t, kernels=~ones), replace(t, kernels=ones)
    start, steps = prior(), len(overheads.CONSTANTS)

    def by_counts(values: np.ndarray) -> np.ndarray:
        found = times(counted, bounded(np.append(values, start[-steps:])))
        return np.asarray(root * np.log(found["tpot"] / tpot_s))

    own = _fitted(by_counts, start[:-steps], PRIOR_WEIGHT)

    def of_kernels(values: np.ndarray) -> np.ndarray:
        return np.asarray(root * np.log(times(measured, bounded(np.append(own, values)))["tpot"] / tpot_s))

    constants = bounded(np.append(own, _fitted(of_kernels, start[-steps:], STEP_PRIOR_WEIGHT)))
    base = times(t, constants)
    for split in (False, True):
        rows = np.flatnonzero((t.split == split) & warm)
        if len(rows):
            known_s = {name: base[name][rows] for name in ("tpot", "queue")}
            constants |= _first_constants(t.take(rows), split, known_s, ttft_s[rows], weight[rows], constants)
    return constants


def _fitted(errors: Callable[[np.ndarray], np.ndarray], start: np.ndarray, weight: float) -> np.ndarray:
    """The free vector of least errors, pulled back to its ``start``."""
    from scipy.optimize import least_squares

    def all_errors(values: np.ndarray) -> np.ndarray:
        return np.append(errors(values), np.sqrt(weight) * (values - start))

    return np.asarray(least_squares(all_errors, start, loss="soft_l1", f_scale=_OUTLIER, max_nfev=25).x)


def _first_constants(
    t: Terms,
    split: bool,
    base: Mapping[str, np.ndarray],
    ttft_s: np.ndarray,
    weight: np.ndarray,
    given: dict[str, float],
) -> dict[str, float]:
    """The constants of first tokens of one mode; ``base``: "tpot" and "queue" [N] of `times`; ``given``: those of
    steps.
    """
    from scipy.optimize import least_squares

    priors = _priors(split, given)
    start, prefix = first_token.start_of(priors), first_token.prefix(split)
    pull = np.sqrt(FIRST_PRIOR_WEIGHT) / np.array([spread for _, spread in priors.values()])

    def constants(values: np.ndarray) -> dict[str, float]:
        return {prefix + name: value for name, value in first_token.bounded(values, priors).items()}

    def errors(values: np.ndarray) -> np.ndarray:
        found = first_parts(t, given | constants(values), split, base["tpot"])
        off = np.log(first_token.with_queue(found, base["queue"], split) / ttft_s) / _FIRST_OUTLIER
        # Cauchy's loss, on what was measured alone: a prior is no outlier.
        soft = np.sign(off) * np.sqrt(np.log1p(off**2))
        return np.concatenate([np.sqrt(weight) * soft, pull * (values - start)])

    return constants(least_squares(errors, start, max_nfev=60).x)


def _priors(split: bool, given: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Priors of first tokens of a mode. Few models were measured with prefill apart: what is an engine's own
    (`CARRIED`) starts there from what its other servers take, of the constants ``given``.
    """
    found, prefix = first_token.constants_of_mode(split, RUNTIMES), first_token.prefix(False)
    if not split:
        return found
    return {
        name: (given[prefix + name] if name.split(".")[0] in CARRIED else start, spread)
        for name, (start, spread) in found.items()
    }


def fit(data: Dataset, train: np.ndarray, *, trees: bool = True, seed: int = 0) -> Fit:
    """Everything learned from the rows ``train`` alone; ``trees`` where they are asked for.

    A cold start says nothing of a server that runs: neither first tokens' constants nor trees nor neighbours know any.
    """
    import xgboost

    weight, cold = data.weight[train], data.cold[train]
    t = data.workloads.take(train).terms
    constants = constants_of(t, data.tpot_s[train], data.ttft_s[train], weight, ~(cold | data.queued[train]))
    rows = train[~cold]
    w, weight = data.workloads.take(rows), data.weight[rows]
    base = times(w.terms, constants)
    configuration = data.rows.configuration.to_numpy()[rows]
    same = configuration[:, None] == configuration[None, :]
    boosters, neighbours = {}, {}
    for target in TARGETS:
        residual = np.log(data.measured_s(target)[rows] / base[target])
        neighbours[target] = Neighbours.of(w, weight, residual)
        if trees:
            x = np.hstack([known(w, constants), neighbours[target].features(w, same)[0]])
            parameters = {**TREES, "seed": seed, "base_score": float(np.median(residual))}
            table = xgboost.DMatrix(x, residual, weight=weight)
            boosters[f"{target}-known"] = xgboost.train(parameters, table, ROUNDS)
    return Fit(constants, boosters, neighbours)


def methods(level: str) -> dict[str, dict[str, str]]:
    """What answers for one of EVIDENCE, or for `SET_UP`, as METHOD."""
    return METHOD["measured" if level == SET_UP else level]


def has_trees(level: str) -> bool:
    """Whether trees answer for any of a level."""
    return any(kind != "base" for modes in methods(level).values() for kind in modes.values())


def first_by_base(level: str) -> bool:
    """Whether the base alone answers first tokens of a level."""
    return set(methods(level)["ttft"].values()) == {"base"}


def predict(fitted: Fit, data: Dataset, rows: np.ndarray, level: str) -> dict[str, np.ndarray]:
    """Seconds of both targets for ``rows`` of a level (EVIDENCE, `SET_UP`), with the base's beside them as "base-tpot"
    and "base-ttft".
    """
    import xgboost

    w = data.workloads.take(rows)
    base = times(w.terms, fitted.constants)
    out: dict[str, np.ndarray] = {}
    for target in TARGETS:
        out[f"base-{target}"], out[target] = base[target], base[target].copy()
        for mode, inside in (("agg", data.aggregated[rows]), ("disagg", ~data.aggregated[rows])):
            method = methods(level)[target][mode]
            if method == "base" or not inside.any():
                continue
            part = w.take(inside)
            near = fitted.neighbours[target].features(part)[0]
            table = xgboost.DMatrix(np.hstack([known(part, fitted.constants), near]))
            trees = fitted.boosters[f"{target}-{method}"].predict(table).astype(np.float64)
            logarithms = {name: np.log(base[name][inside]) for name in (target, "steady")}
            distance = near[:, NEAREST].astype(np.float64)
            apart = np.array(fitted.neighbours[target].set_up_apart(part))
            learned = with_trees(part, logarithms, {target: trees}, distance, apart)
            out[target][inside] = np.exp(learned[target])
    return out
