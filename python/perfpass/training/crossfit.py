"""Predictions of rows that a model has not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from perfpass.errors import ArgumentError
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
