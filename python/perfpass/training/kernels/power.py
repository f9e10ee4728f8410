"""Power of kernels: fitting and grading, over all operators at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from perfpass.predictors.kernels.power import POWER_FEATURES, power_features
from perfpass.training import spread
from perfpass.training.crossfit import cross_fit
from perfpass.training.kernels.data import Data
from perfpass.training.kernels.fit import Fitted, boosted, fit, inputs
from perfpass.training.section import Section
from perfpass.training.spread import Errors
from perfpass.training.tasks.splits import Fold, random_folds

TREES = {"max_leaves": 32, "eta": 0.1}
ROUNDS = 120
# Log half-widths that fits are drawn to.
PRIOR = {"measurement": 0.4, "device": 0.2}
_MOST_ROWS = 150
# Rows per operator in the evaluation; enough for its figures.
_GRADED_ROWS = 8_000


def rows(data: Data, fitted: Fitted) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features [P, POWER_FEATURES], share of the limit [P] and device [P] of P rows with power and measured times."""
    if "power_w" not in data.rows:
        return np.zeros((0, POWER_FEATURES), np.float32), np.zeros(0), np.zeros(0, dtype=object)
    part = data.take(np.flatnonzero(data.rows["power_w"].notna().to_numpy()))
    regime = inputs(fitted.efficiencies, part, portable=True)[2]
    x = power_features(data.operator, part.terms, part.seconds, regime, part.software)
    return x, (part.rows["power_w"] / part.rows["power_limit_w"]).to_numpy(), part.device


def model(x: np.ndarray, share: np.ndarray, seed: int) -> Any:
    """Trees for the logarithm of power over the limit."""
    return boosted(x, np.log(share), ROUNDS, seed, **TREES)


def grade(section: Section, every: Sequence[Data], seed: int) -> None:
    """Add power, held out by row and by device, beside the shares of utilisation alone."""
    import xgboost

    parts = []
    for data in every:
        fitted = fit(data, portable=False, known=False)
        x, share, device = rows(data, fitted)
        take = np.sort(np.random.default_rng(seed).permutation(len(x))[:_GRADED_ROWS])
        parts.append((x[take], share[take], device[take]))
    x, share, device = (np.concatenate(p) for p in zip(*parts, strict=True))
    use = np.column_stack([np.ones(len(x)), np.exp(x[:, 1]), np.exp(x[:, 2])])
    random = random_folds(len(x), 5, seed)
    by_row = [Fold(np.flatnonzero(random != i), np.flatnonzero(random == i), str(i)) for i in range(5)]
    by_device = [Fold(np.flatnonzero(device != d), np.flatnonzero(device == d), str(d)) for d in np.unique(device)]

    def trees(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        return model(x[train], share[train], seed).predict(xgboost.DMatrix(x[test]))

    def linear(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        weights = np.linalg.lstsq(use[train], share[train], rcond=None)[0]
        return np.log(np.clip(use[test] @ weights, 0.1, 1.0))

    operator = x[:, 0].astype(int).astype(str)
    cuts = {"random rows": by_row, "device, zero-shot": by_device}
    found = {split: cross_fit(len(x), folds, trees) for split, folds in cuts.items()}
    errors = {
        split: Errors.of(
            np.log(share) - predicted,
            {"measurement": 1.0, "device": float(folds is by_device)},
            np.char.add(f"{split}:", np.char.add(device.astype(str), np.char.add("/", operator))).astype(object),
        )
        for (split, folds), (predicted, _) in zip(cuts.items(), found.values(), strict=True)
    }
    for split, folds in cuts.items():
        predicted, fold = found[split]
        low, high = _graded(errors, split, fold, device)
        p, y = 100 * np.exp(predicted), 100 * share
        section.add("power, % of limit", split, "perfpass", "all", p, y, p * np.exp(low), p * np.exp(high))
        plain, _ = cross_fit(len(x), folds, linear)
        section.add("power, % of limit", split, "floor and two utilisations", "all", 100 * np.exp(plain), y)
        for name in np.unique(device):
            inside = device == name
            section.add("power, % of limit", split, "perfpass", str(name), p[inside], y[inside])


def _graded(
    errors: dict[str, Errors], split: str, fold: np.ndarray, device: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """[N] log bounds of a split's rows from errors on other folds, and where devices are left out on no row of them."""
    low, high = np.zeros(len(fold)), np.zeros(len(fold))
    for number in np.unique(fold):
        inside = fold == number
        hidden = np.isin(device, np.unique(device[inside])) if split.startswith("device") else inside
        unseen = split.startswith("device")
        others = [e.take(~hidden) if unseen or name == split else e for name, e in errors.items()]
        widths = spread.fit(Errors.joined([e.thinned(_MOST_ROWS) for e in others]), PRIOR, few=True)
        own = errors[split]
        low[inside], high[inside] = widths.bounds(dict(zip(own.causes, own.lacks[inside].T, strict=True)))
    return low, high
