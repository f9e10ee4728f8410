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
    """Kendall's tau-b, by merge sort in O(N log N) (Knight, JASA 61, 1966). 0 where either is constant."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    order = np.lexsort((b, a))
    a, b = a[order], b[order]
    pairs = len(a) * (len(a) - 1) // 2
    ties_a, ties_b = _tied_pairs(a), _tied_pairs(b)
    ties_both = _tied_pairs(a + 1j * b)
    swaps = _inversions(b)
    denominator = np.sqrt(float(pairs - ties_a) * float(pairs - ties_b))
    return float((pairs - ties_a - ties_b + ties_both - 2 * swaps) / denominator) if denominator else 0.0


def _tied_pairs(values: np.ndarray) -> int:
    counts = np.unique(values, return_counts=True)[1].astype(np.int64)
    return int((counts * (counts - 1) // 2).sum())


def _inversions(values: np.ndarray) -> int:
    """Pairs i < j with values[i] > values[j]."""
    total, width = 0, 1
    values = values.copy()
    while width < len(values):
        for start in range(0, len(values) - width, 2 * width):
            left, right = values[start : start + width], values[start + width : start + 2 * width]
            total += int((len(left) - np.searchsorted(left, right, side="right")).sum())
            values[start : start + 2 * width] = np.sort(values[start : start + 2 * width], kind="stable")
        width *= 2
    return total
