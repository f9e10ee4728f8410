"""Serving workloads that a fitted predictor has not seen: predictions by what was held out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from perfpass.predictors.serving.predictor import EVIDENCE, TARGETS
from perfpass.training.serving.dataset import Dataset
from perfpass.training.serving.fit import SET_UP, fit, has_trees, predict
from perfpass.training.tasks.splits import Fold, groups_into_folds

FOLDS = 5
LEVELS = (*EVIDENCE, SET_UP)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Out-of-fold seconds [N] of both targets and the base, the fold [N] of each row, and its residuals [N];
    ``constants``: of the base, by fold.
    """

    seconds: dict[str, np.ndarray]
    fold: np.ndarray
    residual: dict[str, np.ndarray]
    constants: tuple[dict[str, float], ...]


def folds_of(data: Dataset, level: str, seed: int = 0) -> Iterator[Fold]:
    """Train and test rows that put each test row into one of LEVELS; a measurement is never on both sides."""
    rows = data.rows
    measurement = rows.configuration.to_numpy(dtype=str)
    family, device = rows.family.to_numpy(dtype=str), rows.device.to_numpy(dtype=str)
    if level == "measured":
        fold = _shuffled(measurement, seed)
        for i in range(FOLDS):
            yield Fold(np.flatnonzero(fold != i), np.flatnonzero(fold == i), f"fold {i + 1} of {FOLDS}")
    elif level == "apart":
        cell = np.char.add(np.char.add(family, "|"), device)
        fold = groups_into_folds(cell.tolist(), FOLDS, seed)
        for i in range(FOLDS):
            test, train = fold == i, fold != i
            seen = np.isin(family, family[train]) & np.isin(device, device[train])
            yield Fold(np.flatnonzero(train), np.flatnonzero(test & seen), f"fold {i + 1} of {FOLDS}")
    elif level == SET_UP:
        pair = np.char.add(np.char.add(family, "|"), device)
        engine, precision = (data.workloads.texts[name].astype(str) for name in ("runtime", "quantization"))
        cell = np.char.add(np.char.add(pair, np.char.add("|", engine)), np.char.add("|", precision))
        fold = groups_into_folds(cell.tolist(), FOLDS, seed)
        for i in range(FOLDS):
            test, train = fold == i, fold != i
            seen = np.isin(pair, pair[train]) & ~np.isin(measurement, measurement[train])
            yield Fold(np.flatnonzero(train), np.flatnonzero(test & seen), f"fold {i + 1} of {FOLDS}")
    elif level == "both unseen":
        for name in np.unique(device):
            parts = groups_into_folds(family.tolist(), 3, seed)
            for i in range(3):
                test = (device == name) & (parts == i)
                if test.any():
                    train = (device != name) & (parts != i)
                    yield Fold(np.flatnonzero(train), np.flatnonzero(test), f"{name}, models {i + 1} of 3")
    else:
        by = family if level == "model unseen" else device
        for name in np.unique(by):
            yield Fold(np.flatnonzero(by != name), np.flatnonzero(by == name), str(name))


def _shuffled(keys: np.ndarray, seed: int) -> np.ndarray:
    names, inverse = np.unique(keys, return_inverse=True)
    return (np.random.default_rng(seed).permutation(len(names)) % FOLDS)[inverse]


def held_out(data: Dataset, level: str, seed: int = 0) -> HeldOut:
    """Every row predicted by a fit on the other folds' rows; rows that no fold holds out stay NaN."""
    names = [*TARGETS, *(f"base-{t}" for t in TARGETS)]
    seconds = {name: np.full(len(data), np.nan) for name in names}
    fold_of, constants = np.full(len(data), -1, dtype=np.int64), []
    for number, fold in enumerate(folds_of(data, level, seed)):
        fitted = fit(data, fold.train, trees=has_trees(level), seed=seed)
        found = predict(fitted, data, fold.test, level)
        for name in names:
            seconds[name][fold.test] = found[name]
        fold_of[fold.test] = number
        constants.append(fitted.constants)
    residual = {t: np.log(data.measured_s(t) / seconds[t]) for t in TARGETS}
    return HeldOut(seconds, fold_of, residual, tuple(constants))


def experiments(data: Dataset, *, seed: int = 0, say: Callable[[str], None] = lambda text: None) -> dict[str, HeldOut]:
    """`held_out` for every one of LEVELS."""
    out = {}
    for level in LEVELS:
        out[level] = held_out(data, level, seed)
        say(f"serving: {level}, held out")
    return out
