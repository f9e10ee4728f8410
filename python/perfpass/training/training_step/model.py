"""The whole step-time model on one set of training rows: group efficiencies, trees on what is left, predictions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from perfpass.predictors.learned.intervals import nearest
from perfpass.predictors.training_step.features import (
    DEVICE_FEATURES,
    FEATURES,
    SOFTWARE,
    STEP_GROUPS,
    StepSums,
    features,
)
from perfpass.predictors.training_step.latency import TREES_FADE
from perfpass.training.training_step.dataset import Dataset, Inference

# Chosen on the families that `evaluate` does not report (docs/research/training_step.md).
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
# A record of inference counts as this share of a step.
INFERENCE_WEIGHT = 0.1
# Rows whose host needs over this share of their time to issue kernels must not bend the factors.
_ISSUE_BOUND = 0.3


@dataclass(frozen=True)
class Rows:
    """What a model is fitted on: steps, and for the portable model records of inference beside them.

    ``sums`` stacked [N], ``software``, ``measured_s`` and ``weight`` [N].
    """

    sums: StepSums
    software: np.ndarray
    measured_s: np.ndarray
    weight: np.ndarray

    @classmethod
    def of(cls, dataset: Dataset, rows: np.ndarray) -> Rows:
        """Rows of the dataset."""
        sums = _taken(dataset.sums, rows)
        return cls(sums, dataset.software[rows], dataset.step_s[rows], np.ones(len(rows)))

    def beside(self, others: Inference, kept: np.ndarray) -> Rows:
        """These rows and the records of inference ``kept``."""
        joined = [(getattr(self.sums, f.name), getattr(others.sums, f.name)[kept]) for f in fields(StepSums)]
        return Rows(
            StepSums(*(np.concatenate(pair) for pair in joined)),
            np.concatenate([self.software, others.software[kept]]),
            np.concatenate([self.measured_s, others.latency_s[kept]]),
            np.concatenate([self.weight, np.full(int(kept.sum()), INFERENCE_WEIGHT)]),
        )


def _taken(sums: StepSums, rows: np.ndarray) -> StepSums:
    return StepSums(*(getattr(sums, f.name)[rows] for f in fields(StepSums)))


def fit_efficiency(rows: Rows) -> np.ndarray:
    """[len(SOFTWARE), len(STEP_GROUPS)] factors on roofline time.

    Non-negative least squares on the relative error of the sum. Software without rows takes the factors of all rows.
    """
    everything = np.ones(len(rows.software), dtype=bool)
    overall = _factors(rows, everything, np.full(len(STEP_GROUPS), PRIOR_FACTOR))
    out = np.tile(overall, (len(SOFTWARE), 1))
    for s in range(len(SOFTWARE)):
        own = rows.software == s
        if own.sum() >= _LEAST_ROWS:
            out[s] = _factors(rows, own, overall)
    return out


def _factors(rows: Rows, kept: np.ndarray, prior: np.ndarray) -> np.ndarray:
    from scipy.optimize import nnls

    sums, measured = rows.sums, rows.measured_s[kept]
    on_device = np.maximum(measured - sums.copy_s[kept], 0.3 * measured)
    a = sums.seconds[kept] / on_device[:, None]
    total = a.sum(axis=1)
    usable = (total > np.median(total) / 4) & (sums.issue_s[kept] < _ISSUE_BOUND * on_device)
    a, root = a[usable], np.sqrt(rows.weight[kept][usable])
    weight = np.sqrt(PRIOR_WEIGHT * max(len(a), 1))
    stacked = np.concatenate([a * root[:, None], weight * np.eye(len(prior))])
    return np.maximum(nnls(stacked, np.concatenate([root, weight * prior]))[0], 0.02)


@dataclass(frozen=True)
class Model:
    """Efficiencies, and trees on the features ``columns``."""

    efficiency: np.ndarray
    booster: Any
    columns: np.ndarray


def fit(rows: Rows, *, portable: bool, seed: int = 0, rounds: int = ROUNDS) -> Model:
    """The whole model from the given rows alone."""
    efficiency = fit_efficiency(rows)
    x, base = features(rows.sums, efficiency[rows.software])
    seen = columns(portable)
    return Model(efficiency, fit_trees(x[:, seen], np.log(rows.measured_s / base), rows.weight, seed, rounds), seen)


def columns(portable: bool) -> np.ndarray:
    """Indices of the features that trees see; portable trees do not see which device it is."""
    return np.array([i for i, name in enumerate(FEATURES) if not (portable and name in DEVICE_FEATURES)])


def fit_trees(x: np.ndarray, target: np.ndarray, weight: np.ndarray, seed: int = 0, rounds: int = ROUNDS) -> Any:
    """A booster for ``target`` [N] = log(measured / base) on the features ``x`` [N, F]."""
    import xgboost

    return xgboost.train({**TREES, "seed": seed}, xgboost.DMatrix(x, target, weight=weight), rounds)


@dataclass(frozen=True)
class HeldOut:
    """What a model made of rows that it had not seen; seconds, and distances to the training networks."""

    predicted_s: np.ndarray
    base_s: np.ndarray
    distance: np.ndarray
    x: np.ndarray
    all_base_s: np.ndarray


def held_out(
    dataset: Dataset,
    train: np.ndarray,
    test: np.ndarray,
    *,
    others: Inference | None = None,
    seed: int = 0,
    rounds: int = ROUNDS,
) -> HeldOut:
    """A model from the rows ``train`` alone, asked about the rows ``test``.

    With ``others`` it is the portable one, which learns from inference too, but not on the devices of ``test``.
    """
    import xgboost

    known = Rows.of(dataset, train)
    if others is not None:
        known = known.beside(others, ~np.isin(others.device, dataset.rows.device.to_numpy()[test]))
    found = fit(known, portable=others is not None, seed=seed, rounds=rounds)
    x, base = dataset.features(found.efficiency)
    distance = distances(dataset, train, test)
    first, last = TREES_FADE
    weight = np.clip((last - distance) / (last - first), 0.0, 1.0)
    predicted = base[test] * np.exp(weight * found.booster.predict(xgboost.DMatrix(x[np.ix_(test, found.columns)])))
    return HeldOut(predicted, base[test], distance, x, base)


def distances(dataset: Dataset, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """[len(test)] distance of each row's network to the nearest of the training rows."""
    known = np.unique(dataset.fingerprints[train], axis=0)
    prints, inverse = np.unique(dataset.fingerprints[test], axis=0, return_inverse=True)
    return nearest(prints, known)[inverse.ravel()]
