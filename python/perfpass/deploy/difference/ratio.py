"""The ratio NEW over OLD of one figure, with an interval of its own, and what a limit makes of it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from perfpass.errors import ArgumentError
from perfpass.prediction import COVERAGE, Interval
from perfpass.text import shown_value, unknown

# Every figure that has a ratio, with its unit; of throughput more is better, of all others less.
METRICS = {
    "latency": "ms", "throughput": "1/s", "memory": "byte", "energy": "J", "parameters": "", "flops": ""
}  # fmt: skip
EXACT = ("parameters", "flops")
Answer = Literal["held", "broken", "cannot say"]
_LIMIT = re.compile(r"\+?(\d{1,6}(?:\.\d{1,6})?)(%?)")


@dataclass(frozen=True)
class Ratio:
    """Old and new median of a figure, and the natural logarithm of new over old with its half-width (90 %).

    ``log_ratio`` is None where the old figure is 0 and the new one is not. A half-width of 0 is exact. ``causes``: what
    makes the interval wide, the largest share first.
    """

    metric: str
    old: float
    new: float
    log_ratio: float | None
    log_half_width: float
    causes: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of(
        cls, metric: str, old: float, new: float, half_width: float, causes: tuple[tuple[str, float], ...] = ()
    ) -> Ratio:
        """From the figures; ``half_width`` is that of the logarithm."""
        if old == new:
            log: float | None = 0.0
        else:
            log = None if old <= 0 or new <= 0 else math.log(new) - math.log(old)
        return cls(metric, old, new, log, half_width, causes)

    @property
    def inverted(self) -> Ratio:
        """OLD over NEW: what `diff` gives for the two models in the other order."""
        log = None if self.log_ratio is None else -self.log_ratio
        return Ratio(self.metric, self.new, self.old, log, self.log_half_width, self.causes)

    @property
    def exact(self) -> bool:
        """Whether the ratio is a count's, or that of two equal runs."""
        return self.log_half_width == 0.0

    @property
    def interval(self) -> Interval | None:
        """The ratio with its bounds; None where there is none, the old figure being 0."""
        if self.log_ratio is None:
            return None
        median = self.new / self.old if self.old > 0 else 1.0
        factor = math.exp(self.log_half_width)
        return Interval(median, median / factor, median * factor, "ratio")

    def probability_within(self, allowed: float) -> float:
        """Probability (0 to 1) that the figure is worse by at most the share ``allowed``; less throughput is worse."""
        more_is_better = self.metric == "throughput"
        found = (self.inverted if more_is_better else self).interval
        if found is None:
            return float(self.new < self.old) if not more_is_better else float(self.new > self.old)
        if more_is_better and allowed >= 1.0:
            return 1.0
        limit = 1.0 / (1.0 - allowed) if more_is_better else 1.0 + allowed
        return found.probability_below(limit)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        found = self.interval
        return {
            "metric": self.metric,
            "unit": METRICS[self.metric],
            "old": self.old,
            "new": self.new,
            "ratio": None if found is None else found.median,
            "low": None if found is None else found.low,
            "high": None if found is None else found.high,
            "log_ratio": self.log_ratio,
            "log_half_width": self.log_half_width,
            "coverage": COVERAGE,
            "exact": self.exact,
            "causes": [{"cause": cause, "share": share} for cause, share in self.causes],
        }


@dataclass(frozen=True)
class Verdict:
    """One limit on one device (none: of the model itself): whether it holds, and how probably it does."""

    metric: str
    device: str | None
    allowed: float
    probability: float
    confidence: float
    ratio: Ratio

    @property
    def answer(self) -> Answer:
        """Held or broken where that is as probable as is asked; else it cannot be said."""
        if self.probability >= self.confidence:
            return "held"
        return "broken" if 1.0 - self.probability >= self.confidence else "cannot say"

    @property
    def limit(self) -> str:
        """The limit in words."""
        if self.allowed == 0.0:
            return f"{self.metric} no {'lower' if self.metric == 'throughput' else 'higher'}"
        return f"{self.metric} {'-' if self.metric == 'throughput' else '+'}{100 * self.allowed:g} % at most"

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "metric": self.metric,
            "device": self.device,
            "allowed_pct": 100 * self.allowed,
            "probability_within": self.probability,
            "confidence": self.confidence,
            "answer": self.answer,
        }


def limits(asked: Mapping[str, Any]) -> dict[str, float]:
    """The share by which each figure may be worse, from "5%", "0" or a number of per cent. Raises ArgumentError."""
    return {metric: _allowed(metric, value) for metric, value in asked.items()}


def _allowed(metric: str, value: Any) -> float:
    if metric not in METRICS:
        raise ArgumentError(unknown("figure of a limit", metric, METRICS))
    match = _LIMIT.fullmatch(value.strip()) if isinstance(value, str) else None
    if isinstance(value, str) and match is None:
        raise ArgumentError(f"limit {metric}={shown_value(value)}: give per cent, as {metric}=5%, or {metric}=0")
    number = match.group(1) if match else value
    try:
        share = float(number) / 100.0
    except (TypeError, ValueError, OverflowError):
        share = math.nan
    if isinstance(value, bool) or not 0.0 <= share <= 1e4 or (match and not match.group(2) and share > 0):
        raise ArgumentError(
            f"limit {metric}={shown_value(value)}: give per cent from 0 on, as {metric}=5%, or {metric}=0 for no more"
        )
    return share
