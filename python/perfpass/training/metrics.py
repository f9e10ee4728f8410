"""How far predictions are from measurements."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from perfpass.errors import ArgumentError


@dataclass(frozen=True)
class Errors:
    """Absolute percentage errors (``*_pct``), root mean squared error in ms, rank correlation, interval quality.

    ``coverage_pct`` is the share of measurements inside the interval, ``interval_factor`` the median of high over low;
    both are None without intervals.
    """

    rows: int
    mape_pct: float
    median_ape_pct: float
    p90_ape_pct: float
    within_10_pct: float
    rmse_ms: float
    kendall_tau: float
    coverage_pct: float | None = None
    interval_factor: float | None = None

    def to_dict(self) -> dict[str, float | int | None]:
        """Strict JSON."""
        return asdict(self)


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


def errors(
    predicted_s: np.ndarray,
    measured_s: np.ndarray,
    low_s: np.ndarray | None = None,
    high_s: np.ndarray | None = None,
) -> Errors:
    """All metrics of N predictions in seconds."""
    ape = absolute_percentage_errors(predicted_s, measured_s)
    coverage = factor = None
    if low_s is not None and high_s is not None:
        coverage = 100.0 * float(np.mean((low_s <= measured_s) & (measured_s <= high_s)))
        factor = float(np.median(high_s / low_s))
    return Errors(
        rows=len(ape),
        mape_pct=100.0 * float(ape.mean()),
        median_ape_pct=100.0 * float(np.median(ape)),
        p90_ape_pct=100.0 * float(np.quantile(ape, 0.9)),
        within_10_pct=100.0 * float(np.mean(ape <= 0.1)),
        rmse_ms=1e3 * float(np.sqrt(np.mean((np.asarray(predicted_s) - np.asarray(measured_s)) ** 2))),
        kendall_tau=kendall_tau(predicted_s, measured_s),
        coverage_pct=coverage,
        interval_factor=factor,
    )
