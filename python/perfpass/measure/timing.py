"""Latency of an iteration: warm-up until steady, enough iterations for a stated confidence, everything odd recorded.

Nothing is thrown away: outliers stay in the percentiles and are counted, drift and throttling are flagged.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.measure.configuration import Protocol

# A lap is one timed iteration: runs it, waits for the device, returns its latency in milliseconds.
Lap = Callable[[], float]

_OUTLIER_QUARTILES = 3.0  # Tukey's "far out": beyond the quartiles by 3 times their distance
_DRIFT_SHARE = 0.03  # of the median, between the first and the last third of the iterations
_WINDOW_S = 0.05  # of a warm-up window; at least 2 and at most 50 iterations
_Z_95 = 1.96


@dataclass(frozen=True)
class Timing:
    """Latencies of all measured iterations [N] in milliseconds, in order, and how they came about."""

    laps_ms: np.ndarray
    first_ms: float  # the very first iteration: compilation, autotuning, lazy initialisation
    warmup_iterations: int
    steady: bool
    started_ns: int  # time.monotonic_ns() at the start and the end of the measured iterations
    ended_ns: int

    def to_dict(self) -> dict[str, Any]:
        """Percentiles, confidence and oddities; latencies in ms."""
        laps = self.laps_ms
        percentiles = np.percentile(laps, (10, 50, 90, 95, 99))
        names = ("p10", "median", "p90", "p95", "p99")
        wall_ms = (self.ended_ns - self.started_ns) / 1e6
        confidence = median_confidence_share(laps)
        return {
            "latency_ms": {name: significant(value) for name, value in zip(names, percentiles, strict=True)}
            | {
                "min": significant(laps.min()),
                "max": significant(laps.max()),
                "mean": significant(laps.mean()),
                "std": significant(laps.std(ddof=1)) if len(laps) > 1 else 0.0,
            },
            "iterations": len(laps),
            "median_confidence_share": significant(confidence) if math.isfinite(confidence) else None,
            "first_ms": significant(self.first_ms),
            "warmup_iterations": self.warmup_iterations,
            "steady": self.steady,
            "outliers": outliers(laps),
            "drift_share": significant(drift_share(laps)),
            "overhead_share": significant(max(0.0, 1.0 - laps.sum() / wall_ms)) if wall_ms > 0 else 0.0,
        }

    def flags(self, protocol: Protocol) -> list[str]:
        """What a reader of the record should know, in words of docs/reference/records.md."""
        flags = []
        if not self.steady:
            flags.append("not_steady")
        if abs(drift_share(self.laps_ms)) > _DRIFT_SHARE:
            flags.append("drift")
        if median_confidence_share(self.laps_ms) > protocol.confidence_share:
            flags.append("wide_confidence")
        if outliers(self.laps_ms) > 0.05 * len(self.laps_ms):
            flags.append("many_outliers")
        return flags


def measure(lap: Lap, protocol: Protocol, least_s: float = 0.0, on_start: Callable[[], None] | None = None) -> Timing:
    """Warms up and measures ``lap``; for at least ``least_s`` seconds where energy is read beside it.

    ``on_start`` is called between the warm-up and the first measured iteration.
    """
    first_ms = lap()
    warmup, steady = _warm_up(lap, protocol, first_ms)
    if on_start is not None:
        on_start()
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()  # as timeit does: a collection in the middle of an iteration is not the model's time
    try:
        started = time.monotonic_ns()
        laps = _iterate(lap, protocol, max(protocol.measure_min_s, least_s), max(protocol.measure_max_s, least_s))
        ended = time.monotonic_ns()
    finally:
        if collecting:
            gc.enable()
    return Timing(np.asarray(laps), first_ms, warmup, steady, started, ended)


def _warm_up(lap: Lap, protocol: Protocol, first_ms: float) -> tuple[int, bool]:
    """Iterations run before two windows in a row agreed, the first included, and whether they did in time."""
    end = time.monotonic() + protocol.warmup_max_s
    laps = [lap()] if first_ms / 1e3 < protocol.warmup_max_s else []
    if not laps:
        return 1, False
    window = int(min(max(_WINDOW_S / max(laps[0] / 1e3, 1e-9), 2), 50))
    while time.monotonic() < end:
        laps.append(lap())
        if len(laps) >= 2 * window and len(laps) % window == 0:
            before, after = np.median(laps[-2 * window : -window]), np.median(laps[-window:])
            if abs(after - before) <= protocol.steady_share * before:
                return 1 + len(laps), True
    return 1 + len(laps), False


def _iterate(lap: Lap, protocol: Protocol, least_s: float, most_s: float) -> list[float]:
    laps: list[float] = []
    start = time.monotonic()
    check_at = protocol.iterations_min
    while True:
        laps.append(lap())
        elapsed = time.monotonic() - start
        if (elapsed >= most_s and len(laps) >= protocol.iterations_least) or len(laps) >= protocol.iterations_max:
            return laps
        if len(laps) >= check_at and elapsed >= least_s:
            if median_confidence_share(laps) <= protocol.confidence_share:
                return laps
            check_at = len(laps) + max(1, len(laps) // 10)  # sorting at every iteration would show in the overhead


def median_confidence_share(laps: Sequence[float] | np.ndarray) -> float:
    """Half the width of the 95 % confidence interval of the median, over the median.

    By order statistics, free of any distribution: ranks n/2 -+ 0.98 sqrt(n) (normal approximation of the binomial;
    Conover, Practical Nonparametric Statistics, 3.2). Below six values no pair of ranks covers 95 %: infinite.
    """
    n = len(laps)
    if n < 6:
        return math.inf
    ordered = np.sort(np.asarray(laps))
    reach = _Z_95 / 2 * math.sqrt(n)
    low = max(0, math.floor(n / 2 - reach))
    high = min(n - 1, math.ceil(n / 2 + reach))
    return float((ordered[high] - ordered[low]) / 2 / np.median(ordered))


def outliers(laps: np.ndarray) -> int:
    """How many iterations lie beyond the quartiles by more than three times the distance between them."""
    low, high = np.percentile(laps, (25, 75))
    reach = _OUTLIER_QUARTILES * (high - low)
    return int(np.count_nonzero((laps < low - reach) | (laps > high + reach)))


def drift_share(laps: np.ndarray) -> float:
    """Median of the last third over that of the first, minus 1; 0 for fewer than nine iterations."""
    third = len(laps) // 3
    if third < 3:
        return 0.0
    return float(np.median(laps[-third:]) / np.median(laps[:third]) - 1.0)


def significant(value: float) -> float:
    """Six significant digits: what a clock resolves, and no more bytes in a record."""
    return float(f"{value:.6g}")
