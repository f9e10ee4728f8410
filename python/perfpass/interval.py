"""A figure that is not known exactly: its median, and bounds that hold the measured value with a stated probability."""

from __future__ import annotations

import math
from typing import Any

from perfpass.errors import ArgumentError
from perfpass.late import dataclass

COVERAGE = 0.9
# Memory's upper bound is one-sided: what a share of the runs lies above it.
ABOVE_MEMORY = 0.02
# Bounds this factor either way (its square apart) say nothing that a user could act on: no figure then, but the reason.
WIDEST_FACTOR = 30.0


@dataclass(frozen=True)
class Interval:
    """A median and the bounds that hold the measured value with probability ``coverage``."""

    median: float
    low: float
    high: float
    unit: str
    coverage: float = COVERAGE

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.median <= self.high < math.inf:  # one test, of which a prediction makes dozens
            got = f"got {self.low}, {self.median}, {self.high} {self.unit}"
            if not all(math.isfinite(v) for v in (self.median, self.low, self.high)):
                raise ArgumentError(f"an interval must be finite, {got}")
            raise ArgumentError(f"an interval needs 0 <= low <= median <= high, {got}")
        if not 0 < self.coverage < 1:
            raise ArgumentError(f"coverage must be between 0 and 1, got {self.coverage}")

    @property
    def says_something(self) -> bool:
        """Whether the bounds are within a factor of WIDEST_FACTOR either way of their middle."""
        return self.high <= WIDEST_FACTOR**2 * self.low

    def scaled(self, factor: float, unit: str) -> Interval:
        """The interval of ``factor`` (> 0) times the value, in another unit."""
        return Interval(self.median * factor, self.low * factor, self.high * factor, unit, self.coverage)

    def inverse(self, numerator: float, unit: str) -> Interval:
        """The interval of ``numerator`` over the value: the bounds change places. The value must be above 0."""
        return Interval(numerator / self.median, numerator / self.high, numerator / self.low, unit, self.coverage)

    def probability_below(self, limit: float) -> float:
        """Probability (0 to 1) that the value is at most ``limit``, in the interval's unit.

        Errors in logarithms are logistic on each side of the median (`predictors.learned.spread`), scaled so that half
        of what the coverage leaves out lies beyond each bound. Raises ArgumentError.
        """
        return self._logistic(limit, (1.0 - self.coverage) / 2.0)

    def probability_fits(self, available: float) -> float:
        """The same of memory, whose ``high`` is one-sided: 98 in 100 stay below it (`ABOVE_MEMORY`)."""
        return self._logistic(available, ABOVE_MEMORY)

    def room_for(self, probability: float) -> float:
        """The memory of which `probability_fits` says ``probability`` (0.5 to below 1), in the interval's unit."""
        if not 0.5 <= probability < 1.0:
            raise ArgumentError(f"room is asked for a probability from 0.5 to below 1, got {probability}")
        if self.median == 0.0:
            return self.high
        steps = math.log(probability / (1.0 - probability)) / math.log((1.0 - ABOVE_MEMORY) / ABOVE_MEMORY)
        return float(self.median * (self.high / self.median) ** steps)

    def _logistic(self, limit: float, above: float) -> float:
        """``above`` of the values lie over ``high``, below ``low`` half of what the coverage leaves out."""
        if math.isnan(limit):
            raise ArgumentError("a probability needs a limit that is a number, got nan")
        if limit <= 0.0 or self.median == 0.0:
            return 1.0 if limit >= self.high else 0.0
        bound, beyond = (self.high, above) if limit >= self.median else (self.low, (1.0 - self.coverage) / 2.0)
        if bound == self.median or math.isinf(limit):
            return 1.0 if limit >= bound else 0.0
        if bound == 0.0:
            return 0.5 - (0.5 - beyond) * (1.0 - limit / self.median)
        width = math.log(bound) - math.log(self.median)
        if width == 0.0:  # bounds a rounding apart
            return 1.0 if limit >= self.median else 0.0
        steps = abs((math.log(limit) - math.log(self.median)) / width)
        inside = 1.0 / (1.0 + (beyond / (1.0 - beyond)) ** steps)
        return inside if limit >= self.median else 1.0 - inside

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "median": self.median,
            "low": self.low,
            "high": self.high,
            "unit": self.unit,
            "coverage": self.coverage,
        }
