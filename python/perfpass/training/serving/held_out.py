"""Serving workloads that a fitted predictor has not seen: predictions by what was held out, and bounds from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from perfpass.prediction import COVERAGE
from perfpass.predictors.serving.predictor import EVIDENCE, TARGETS
from perfpass.training.crossfit import graded_bounds, shipped_bounds
from perfpass.training.serving.dataset import Dataset
from perfpass.training.serving.fit import fit, kinds_of, predict
from perfpass.training.tasks.splits import Fold, groups_into_folds

FOLDS = 5
LEAST_ROWS = 30
# Chosen so that nine in ten of the rows set aside are covered.
MORE = 0.25


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Out-of-fold seconds [N] of both targets and the base, the fold [N] of each row, and its residuals' groups."""

    seconds: dict[str, np.ndarray]
    fold: np.ndarray
    residual: dict[str, np.ndarray]
    aggregated: np.ndarray
    grouped: bool

    def _graded(self, residual: np.ndarray, fold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not self.grouped:
            return graded_bounds(residual, fold)
        low, high = np.full(len(fold), np.nan), np.full(len(fold), np.nan)
        for name in np.unique(fold[fold >= 0]):
            others = (fold >= 0) & (fold != name)
            low[fold == name], high[fold == name] = grouped_bounds(residual[others], fold[others])
        return low, high

    def shipped(self, target: str, mode: str) -> tuple[float, float]:
        """The log bounds that all held-out rows of a mode vouch for."""
        rows = (self.aggregated == (mode == "agg")) & (self.fold >= 0)
        residual = self.residual[target][rows]
        return grouped_bounds(residual, self.fold[rows]) if self.grouped else shipped_bounds(residual)

    def bounds(self, target: str) -> tuple[np.ndarray, np.ndarray]:
        """Log bounds [N] from the residuals of other folds, apart for aggregated and disaggregated serving."""
        low, high = np.full(len(self.fold), np.nan), np.full(len(self.fold), np.nan)
        for mode in (self.aggregated, ~self.aggregated):
            low[mode], high[mode] = self._graded(self.residual[target][mode], self.fold[mode])
        return low, high


def folds_of(data: Dataset, level: str, seed: int = 0) -> Iterator[Fold]:
    """Train and test rows that put each test row into one of EVIDENCE; a measurement is never on both sides."""
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
    fold_of = np.full(len(data), -1, dtype=np.int64)
    for number, fold in enumerate(folds_of(data, level, seed)):
        fitted = fit(data, fold.train, kinds_of(level), seed)
        found = predict(fitted, data, fold.test, level)
        for name in names:
            seconds[name][fold.test] = found[name]
        fold_of[fold.test] = number
    residual = {t: np.log(data.measured_s(t) / seconds[t]) for t in TARGETS}
    return HeldOut(seconds, fold_of, residual, data.aggregated, level != "measured")


def grouped_bounds(residual: np.ndarray, fold: np.ndarray) -> tuple[float, float]:
    """Log bounds of nine in ten residuals, every fold (a model, a device) counting alike.

    Folds of fewer than LEAST_ROWS rows do not count where two others do. Of so few folds the next may be further off:
    bounds grow by `MORE` over their number.
    """
    _, inverse, counts = np.unique(fold, return_inverse=True, return_counts=True)
    counted = counts >= min(LEAST_ROWS, int(np.sort(counts)[-2]) if len(counts) > 1 else 1)
    kept = counted[inverse]
    residual, share = residual[kept], 1 / (counts[inverse][kept] * counted.sum())
    order = np.argsort(residual, kind="stable")
    reached, last, tail = np.cumsum(share[order]), len(order) - 1, (1 - COVERAGE) / 2
    low = residual[order][min(int(np.searchsorted(reached, tail)), last)]
    high = residual[order][min(int(np.searchsorted(reached, 1 - tail)), last)]
    wider = 1 + MORE / counted.sum()
    return min(float(low) * wider, 0.0), max(float(high) * wider, 0.0)


def experiments(data: Dataset, *, seed: int = 0, say: Callable[[str], None] = lambda text: None) -> dict[str, HeldOut]:
    """`held_out` for every one of EVIDENCE."""
    out = {}
    for level in EVIDENCE:
        out[level] = held_out(data, level, seed)
        say(f"serving: {level}, held out")
    return out


def bounds_of(found: dict[str, HeldOut], target: str, level: str, mode: str) -> tuple[float, float]:
    """The log bounds that ship; never narrower than with more evidence."""
    low = high = 0.0
    for name in EVIDENCE[: EVIDENCE.index(level) + 1]:
        if level == "device unseen" and name == "model unseen":
            continue
        a, b = found[name].shipped(target, mode)
        low, high = min(low, a), max(high, b)
    return low, high
