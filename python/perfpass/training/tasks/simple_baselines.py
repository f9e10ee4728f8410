"""Plain predictors that every table shows beside ours, on the same rows and folds."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from perfpass.training.tasks.splits import Fold

_TREES = {"max_depth": 6, "eta": 0.1, "subsample": 0.8, "tree_method": "hist", "nthread": 1}
_TREE_ROUNDS = 300


def one_factor(bound: np.ndarray, measured: np.ndarray, folds: Iterable[Fold]) -> np.ndarray:
    """[N] the bound (or a count, such as MACs) times the median ratio of training rows; NaN where never held out."""
    out = np.full(len(measured), np.nan)
    for fold in folds:
        out[fold.test] = bound[fold.test] * np.median(measured[fold.train] / bound[fold.train])
    return out


def trees(columns: np.ndarray, measured: np.ndarray, folds: Iterable[Fold], seed: int = 0) -> np.ndarray:
    """[N] XGBoost on plain columns [N, F], for the logarithm."""
    import xgboost

    out = np.full(len(measured), np.nan)
    for fold in folds:
        data = xgboost.DMatrix(columns[fold.train], np.log(measured[fold.train]))
        booster = xgboost.train({**_TREES, "seed": seed}, data, _TREE_ROUNDS)
        out[fold.test] = np.exp(booster.predict(xgboost.DMatrix(columns[fold.test])))
    return out
