"""The whole latency model on one set of training rows: efficiencies, both tree ensembles, and their predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.predictors.inference.features import FEATURES, MOVED_SHARE, RATIOS
from perfpass.predictors.inference.predictor import InferencePredictor
from perfpass.predictors.learned.ratio_trees import fade
from perfpass.predictors.learned.recorded import UNSTATED_TORCH
from perfpass.predictors.roofline import GROUPS, SOFTWARE
from perfpass.training.inference.dataset import Dataset
from perfpass.training.ratio_trees import PRIOR_FACTOR, HeldOut, Trees, factors, fit_trees

# Depth, columns and rounds: chosen by perfpass.training.inference.choose on families that `evaluate` does not report.
TREES = {"max_depth": 8, "colsample_bytree": 0.15, "min_child_weight": 3.0}
ROUNDS = 600
# What multiprocessors take to move the bytes (`Bound.moving_s`) is in the roofline of GPUs, and so no longer in the
# factor of a group without rows (`PRIOR_FACTOR`).
MOVED = 1.0 + MOVED_SHARE
# The prior on group efficiencies has the weight of this share of the rows.
PRIOR_WEIGHT = 1e-5
# Rows of the old torchvision runs are few and noisy but the only ones on their devices and of eager fp32 on GPUs.
TORCHVISION_WEIGHT = 2.0
# Rows whose host takes more than so many times the device's time tell its speed, if a board has as many of them.
_WAITED, _LEAST_WAITED = 2.0, 5
_LOG_ISSUE = FEATURES.index("log_issue")
CPU = SOFTWARE.index("cpu")
TREES_FADE = InferencePredictor.settings.fade


@dataclass(frozen=True, eq=False)
class Arrays:
    """A dataset under one set of efficiencies: features ``x`` [N, F] and roofline time ``base_s`` [N] in seconds."""

    dataset: Dataset
    x: np.ndarray
    base_s: np.ndarray

    @property
    def target(self) -> np.ndarray:
        """[N] log(measured / roofline)."""
        return np.log(self.dataset.measured_s / self.base_s)


def fit_efficiency(group_s: np.ndarray, software: np.ndarray, measured_s: np.ndarray) -> np.ndarray:
    """[len(SOFTWARE), len(GROUPS)] factors on roofline time ``group_s`` [N, len(GROUPS)], each from its own rows.

    ``software`` [N] row of SOFTWARE.
    """
    prior = np.full((len(SOFTWARE), len(GROUPS)), PRIOR_FACTOR)
    prior[np.arange(len(SOFTWARE)) != CPU] /= MOVED
    out = prior.copy()
    for s in np.unique(software):
        rows = software == s
        out[s] = factors(group_s[rows], measured_s[rows], np.ones(int(rows.sum())), prior[s], PRIOR_WEIGHT)
    return out


def efficiency_of(dataset: Dataset, rows: np.ndarray) -> np.ndarray:
    """Group efficiencies from the given rows alone."""
    return fit_efficiency(dataset.sums.seconds[rows], dataset.software[rows], dataset.measured_s[rows])


def arrays(dataset: Dataset, efficiency: np.ndarray, train: np.ndarray) -> Arrays:
    """Features of every row; those in ``train`` on the host that their own times tell (`hosts`)."""
    assumed = Arrays(dataset, *dataset.features(efficiency))
    return Arrays(dataset, *dataset.features(efficiency, hosts(assumed, train)))


def hosts(data: Arrays, train: np.ndarray) -> np.ndarray:
    """[N] what a host takes to issue operators over what is assumed: 1 but for training rows that state no release.

    Each of their boards stood in a machine of its own, and runs that wait for it say how long it takes. With it in the
    base, trees learn of the device alone, and what they say of a small batch holds for slices and for other hosts.
    """
    dataset, found = data.dataset, np.ones(len(data.dataset))
    unstated = np.array([way.torch_version == UNSTATED_TORCH and way.device.kind == "gpu" for way in dataset.ways])
    learned = np.zeros_like(unstated)
    learned[train] = True
    waited = np.exp(data.x[:, _LOG_ISSUE]) > _WAITED
    taken = (dataset.measured_s - dataset.sums.copy_s) / np.maximum(dataset.sums.issue_s, 1e-12)
    name = dataset.rows.device.to_numpy()
    for board in np.unique(name[unstated & learned]):
        rows = unstated & learned & (name == board)
        if (rows & waited).sum() >= _LEAST_WAITED:
            found[rows] = np.median(taken[rows & waited])
    return found


def fit(
    data: Arrays, rows: np.ndarray, *, portable: bool, seed: int = 0, rounds: int = ROUNDS, **changes: Any
) -> Trees:
    """Trees from the given rows alone."""
    target = data.target[rows]
    weight = np.where(data.dataset.rows.source.to_numpy()[rows] == "torchvision", TORCHVISION_WEIGHT, 1.0)
    settings = {**TREES, "base_score": float(np.median(target)), **changes}
    return fit_trees(RATIOS, data.x[rows], target, weight, settings, rounds, portable=portable, seed=seed)


def held_out(
    dataset: Dataset, train: np.ndarray, test: np.ndarray, *, portable: bool, seed: int, rounds: int | None = None
) -> HeldOut:
    """Efficiencies and trees from the rows ``train`` alone, asked about the rows ``test``."""
    data = arrays(dataset, efficiency_of(dataset, train), train)
    trees = fit(data, train, portable=portable, seed=seed, rounds=rounds or ROUNDS)
    return HeldOut(data.x, data.base_s, *predict(data, trees, train, test))


def predict(data: Arrays, trees: Trees, train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[len(test)] seconds, and the distance of each row to the networks of the training rows."""
    distance = data.dataset.distances(train, test)
    cpu = data.dataset.software[test] == CPU
    weight = np.where(cpu, fade(distance, TREES_FADE["cpu"]), fade(distance, TREES_FADE["gpu"]))
    return data.base_s[test] * np.exp(weight * trees.predict(data.x[test])), distance
