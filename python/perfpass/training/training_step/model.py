"""The whole step-time model on one set of training rows: group efficiencies, trees on what is left, predictions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfpass.predictors.learned.ratio_trees import fade
from perfpass.predictors.learned.ratios import Sums
from perfpass.predictors.roofline import SOFTWARE
from perfpass.predictors.training_step.features import RATIOS, STEP_GROUPS
from perfpass.predictors.training_step.predictor import StepPredictor
from perfpass.training.ratio_trees import PRIOR_FACTOR, HeldOut, Trees, factors, fit_trees
from perfpass.training.training_step.dataset import Dataset, Inference

# Chosen on the families that `evaluate` does not report (docs/research/training_step.md).
TREES = {"max_depth": 6, "colsample_bytree": 0.3, "min_child_weight": 1.0, "base_score": 0.0}
ROUNDS = 500
# A group's factor is drawn towards its factor over all software, and that towards this one, with the weight of a
# fraction of the rows.
PRIOR_WEIGHT = 3e-4
_LEAST_ROWS = 50
# A record of inference counts as this share of a step.
INFERENCE_WEIGHT = 0.1
# Rows whose host needs over this share of their time to issue kernels must not bend the factors.
_ISSUE_BOUND = 0.3
TREES_FADE = StepPredictor.settings.fade["gpu"]


@dataclass(frozen=True)
class Rows:
    """What a model is fitted on: steps, and for the portable model records of inference beside them.

    ``sums`` stacked [N], ``software``, ``measured_s`` and ``weight`` [N].
    """

    sums: Sums
    software: np.ndarray
    measured_s: np.ndarray
    weight: np.ndarray

    @classmethod
    def of(cls, dataset: Dataset, rows: np.ndarray) -> Rows:
        """Rows of the dataset."""
        return cls(dataset.sums.take(rows), dataset.software[rows], dataset.measured_s[rows], np.ones(len(rows)))

    def beside(self, others: Inference, kept: np.ndarray) -> Rows:
        """These rows and the records of inference ``kept``."""
        return Rows(
            self.sums.beside(others.sums.take(kept)),
            np.concatenate([self.software, others.software[kept]]),
            np.concatenate([self.measured_s, others.measured_s[kept]]),
            np.concatenate([self.weight, np.full(int(kept.sum()), INFERENCE_WEIGHT)]),
        )


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
    sums, measured_s = rows.sums.take(kept), rows.measured_s[kept]
    on_device = np.maximum(measured_s - sums.copy_s, 0.3 * measured_s)
    by_device = sums.issue_s < _ISSUE_BOUND * on_device
    return factors(sums.seconds, on_device, rows.weight[kept], prior, PRIOR_WEIGHT, by_device)


@dataclass(frozen=True)
class Model:
    """Efficiencies, and the trees on what is left."""

    efficiency: np.ndarray
    trees: Trees


def fit(rows: Rows, *, portable: bool, seed: int = 0, rounds: int = ROUNDS) -> Model:
    """The whole model from the given rows alone."""
    efficiency = fit_efficiency(rows)
    x, base = RATIOS.of(rows.sums, efficiency[rows.software])
    target = np.log(rows.measured_s / base)
    return Model(efficiency, fit_trees(RATIOS, x, target, rows.weight, TREES, rounds, portable=portable, seed=seed))


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
    known = Rows.of(dataset, train)
    if others is not None:
        known = known.beside(others, ~np.isin(others.device, dataset.rows.device.to_numpy()[test]))
    found = fit(known, portable=others is not None, seed=seed, rounds=rounds)
    x, base = dataset.features(found.efficiency)
    distance = dataset.distances(train, test)
    predicted = base[test] * np.exp(fade(distance, TREES_FADE) * found.trees.predict(x[test]))
    return HeldOut(x, base, predicted, distance)
