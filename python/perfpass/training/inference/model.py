"""The whole latency model on one set of training rows: efficiencies, both tree ensembles, and their predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.predictors.inference.predictor import TREES_FADE
from perfpass.predictors.learned.intervals import nearest
from perfpass.predictors.roofline import SOFTWARE
from perfpass.training.inference.dataset import Dataset
from perfpass.training.inference.fit import ROUNDS, Trees, fit_efficiency, fit_trees

# Rows of the old torchvision runs are few and noisy but the only ones on their devices and of eager fp32 on GPUs.
TORCHVISION_WEIGHT = 2.0
CPU = SOFTWARE.index("cpu")


@dataclass(frozen=True)
class Arrays:
    """A dataset under one set of efficiencies: features [N, F], roofline time [N] and measured time [N] in seconds."""

    x: np.ndarray
    base_s: np.ndarray
    latency_s: np.ndarray
    weight: np.ndarray
    fingerprints: np.ndarray
    cpu: np.ndarray

    @property
    def target(self) -> np.ndarray:
        """[N] log(measured / roofline)."""
        return np.log(self.latency_s / self.base_s)


def efficiency_of(dataset: Dataset, rows: np.ndarray) -> np.ndarray:
    """Group efficiencies from the given rows alone."""
    return fit_efficiency(dataset.sums.seconds[rows], dataset.software[rows], dataset.latency_s[rows])


def arrays(dataset: Dataset, efficiency: np.ndarray) -> Arrays:
    """Features of every row."""
    x, base = dataset.features(efficiency)
    weight = np.where(dataset.rows.source.to_numpy() == "torchvision", TORCHVISION_WEIGHT, 1.0)
    return Arrays(x, base, dataset.latency_s, weight, dataset.fingerprints, dataset.software == CPU)


def fade(distance: np.ndarray, between: tuple[float, float]) -> np.ndarray:
    """[N] weight of the trees' correction, as in VisionPredictor, which fades between two distances."""
    return np.clip((between[1] - distance) / (between[1] - between[0]), 0.0, 1.0)


def fit(data: Arrays, rows: np.ndarray, *, portable: bool, seed: int = 0, **changes: Any) -> Trees:
    """Trees from the given rows alone."""
    return fit_trees(data.x[rows], data.target[rows], data.weight[rows], portable=portable, seed=seed, **changes)


@dataclass(frozen=True)
class HeldOut:
    """What a model made of rows it had not seen: ``data`` under its efficiencies, times and distances of those rows."""

    data: Arrays
    predicted_s: np.ndarray
    distance: np.ndarray


def held_out(
    dataset: Dataset, train: np.ndarray, test: np.ndarray, *, portable: bool, seed: int, rounds: int | None = None
) -> HeldOut:
    """Efficiencies and trees from the rows ``train`` alone, asked about the rows ``test``."""
    data = arrays(dataset, efficiency_of(dataset, train))
    trees = fit(data, train, portable=portable, seed=seed, rounds=rounds or ROUNDS)
    return HeldOut(data, *predict(data, trees, train, test))


def distances(data: Arrays, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """[len(test)] distance of each row's network to the nearest of the training rows."""
    known = np.unique(data.fingerprints[train], axis=0)
    prints, inverse = np.unique(data.fingerprints[test], axis=0, return_inverse=True)
    return nearest(prints, known)[inverse.ravel()]


def predict(data: Arrays, trees: Trees, train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[len(test)] seconds, and the distance of each row to the networks of the training rows."""
    distance = distances(data, train, test)
    weight = np.where(data.cpu[test], fade(distance, TREES_FADE["cpu"]), fade(distance, TREES_FADE["gpu"]))
    return data.base_s[test] * np.exp(weight * trees.predict(data.x[test])), distance
