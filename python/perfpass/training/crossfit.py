"""Predictions of rows that a model has not seen, and the bounds that such predictions vouch for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.predictors.learned.intervals import quantiles
from perfpass.training.tasks.splits import Fold

FitPredict = Callable[[np.ndarray, np.ndarray], np.ndarray]


def cross_fit(rows: int, folds: Iterable[Fold], fit_predict: FitPredict) -> tuple[np.ndarray, np.ndarray]:
    """Out-of-fold predictions [rows], and the number of the fold [rows] in which each row was held out.

    ``fit_predict(train, test)`` gets row indices, fits on the first alone and returns [len(test)] predictions; it may
    return NaN to refuse a row. A row that no fold holds out has fold -1 and prediction NaN. Raises ArgumentError where
    two folds hold out the same row, or a fold holds out what it trains on.
    """
    predicted, fold_of = np.full(rows, np.nan), np.full(rows, -1, dtype=np.int64)
    for number, fold in enumerate(folds):
        if (fold_of[fold.test] >= 0).any():
            raise ArgumentError(f"{fold.held_out}: a row is held out by two folds")
        if np.intersect1d(fold.train, fold.test).size:
            raise ArgumentError(f"{fold.held_out}: a row is trained on and held out at once")
        predicted[fold.test] = fit_predict(fold.train, fold.test)
        fold_of[fold.test] = number
    return predicted, fold_of


def graded_bounds(
    residual: np.ndarray, fold_of: np.ndarray, spread: np.ndarray | None = None, coverage: float = 0.9
) -> tuple[np.ndarray, np.ndarray]:
    """Log bounds [N] of every row, made as those that ship but from the residuals of other folds alone.

    ``residual`` [N] is log(measured / predicted) of held-out rows (NaN: refused), ``fold_of`` [N] as of `cross_fit`;
    ``spread`` [N] > 0 is how uncertain each row looks beforehand: residuals are divided by it before their quantiles
    are taken and the bounds multiplied by it (normalised conformal prediction; Papadopoulos et al., 2002). Each bound
    holds 0. Raises ArgumentError for a single fold: nothing else could vouch for it.
    """
    scale = np.ones(len(residual)) if spread is None else np.asarray(spread, dtype=np.float64)
    low, high = np.full(len(residual), np.nan), np.full(len(residual), np.nan)
    usable = np.isfinite(residual) & (fold_of >= 0)
    names = np.unique(fold_of[usable])
    if len(names) < 2:
        raise ArgumentError("bounds of a fold come from the other folds; at least two are needed")
    scaled = residual / scale
    for name in names:
        inside = fold_of == name
        a, b = quantiles(scaled[usable & ~inside], coverage)
        low[inside], high[inside] = min(a, 0.0) * scale[inside], max(b, 0.0) * scale[inside]
    return low, high


def shipped_bounds(
    residual: np.ndarray, spread: np.ndarray | None = None, coverage: float = 0.9
) -> tuple[float, float]:
    """The log bounds that all held-out residuals vouch for, in units of ``spread``; what an artefact stores."""
    scale = np.ones(len(residual)) if spread is None else np.asarray(spread, dtype=np.float64)
    usable = np.isfinite(residual)
    a, b = quantiles(residual[usable] / scale[usable], coverage)
    return min(a, 0.0), max(b, 0.0)
