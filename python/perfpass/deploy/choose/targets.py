"""What a deployment has to keep, and with what probability a candidate keeps all of it.

Targets on one predicted time are one target, the tightest; those on different figures (the first token, the time per
token, memory, power) are combined by the lower bound of Frechet (`perfpass.decision.together`); errors that go
together make the truth larger, so that a choice is careful rather than bold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfpass.decision import CONFIDENCE
from perfpass.errors import ArgumentError
from perfpass.prediction import Interval

_MOST = 1e12


@dataclass(frozen=True)
class Targets:
    """Limits, each optional: mean ms to the first token, per token after it, of a whole request or run
    (``latency_ms``), of 99 requests in 100 (``p99_ms``, networks at a rate), USD an hour and watts of all devices.

    ``confidence``: the probability with which all are to be kept together.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    latency_ms: float | None = None
    p99_ms: float | None = None
    max_usd_per_hour: float | None = None
    max_power_w: float | None = None
    confidence: float = CONFIDENCE

    def __post_init__(self) -> None:
        for name, value in self.limits().items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _MOST:
                raise ArgumentError(f"{OPTION[name]} must be a number above 0 and at most {_MOST:g}, got {value!r}")
        if isinstance(self.confidence, bool) or not 0.0 < self.confidence < 1.0:
            raise ArgumentError(f"--confidence is a probability between 0 and 1, got {self.confidence!r}")
        first, whole = self.ttft_ms, self.latency_ms
        if first is not None and whole is not None and whole < first:
            raise ArgumentError(
                f"--latency {whole:g} ms of a whole request is below --ttft {first:g} ms of its first token, which it "
                "has in it; the first says all that the second does: leave out --ttft, or ask for more --latency"
            )
        if self.p99_ms is not None and whole is not None and self.p99_ms < whole:
            raise ArgumentError(
                f"--p99 {self.p99_ms:g} ms is below --latency {whole:g} ms: a run that keeps the first keeps the "
                "second; leave out --latency"
            )

    def limits(self) -> dict[str, float]:
        """Those that are set, by name."""
        return {name: getattr(self, name) for name in OPTION if getattr(self, name) is not None}

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {**{name: getattr(self, name) for name in OPTION}, "confidence": self.confidence}


OPTION: Mapping[str, str] = {
    "ttft_ms": "--ttft",
    "tpot_ms": "--tpot",
    "latency_ms": "--latency",
    "p99_ms": "--p99",
    "max_usd_per_hour": "--max-price",
    "max_power_w": "--max-power",
}


def limit_of(found: Interval, probability: float) -> float:
    """The least limit that ``found`` is within with ``probability``: the inverse of `Interval.probability_below`."""
    low, high = 0.0, max(found.high, found.median) * 2 + 1e-300
    while found.probability_below(high) < probability and high < _MOST:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if found.probability_below(middle) < probability else (low, middle)
    return high


def rounded_up(value: float) -> float:
    """To three significant digits, not below ``value``."""
    if value <= 0 or not math.isfinite(value):
        return value
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.6g}")
