"""How far predictions are from measurements."""

from __future__ import annotations

import numpy as np

from perfpass.errors import ArgumentError


def absolute_percentage_errors(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """|predicted - measured| / measured, [N]. Raises ArgumentError for unequal lengths or a measurement <= 0."""
    predicted, measured = np.asarray(predicted, dtype=np.float64), np.asarray(measured, dtype=np.float64)
    if predicted.shape != measured.shape or not len(measured):
        raise ArgumentError(f"got {predicted.shape} predictions for {measured.shape} measurements; need as many")
    if not (measured > 0).all():
        raise ArgumentError("a measurement is not above 0; percentage errors need positive measurements")
    return np.abs(predicted - measured) / measured


def kendall_tau(a: np.ndarray, b: np.ndarray) -> float:
    """Kendall's tau-b of [N] and [N]. 0 where either is constant."""
    from scipy.stats import kendalltau

    tau = float(kendalltau(a, b).statistic)
    return 0.0 if np.isnan(tau) else tau
