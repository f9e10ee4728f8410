"""Answers of unequal length, as reasoning models write them: what they are on average while they are written."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfpass.errors import ArgumentError

_MOST_VARIATION = 10.0
# Standard normal quantiles.
_NORMAL = {50: 0.0, 90: 1.2815515655446004, 99: 2.3263478740408408}


@dataclass(frozen=True)
class AnswerLengths:
    """Log-normal lengths: a ``mean``, and a coefficient of ``variation`` (standard deviation over mean; 0: equal)."""

    mean: float
    variation: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.variation <= _MOST_VARIATION:
            raise ArgumentError(
                f"the variation of answers is from 0 (equal) to {_MOST_VARIATION:g}, got {self.variation!r}"
            )

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return math.sqrt(math.log1p(self.variation**2))

    @property
    def seen(self) -> float:
        """Tokens of the answer that a running request has on average: it is met in proportion to its length, half-way
        through, E[n^2] / (2 E[n]) (inspection paradox; Kleinrock 1975, Queueing Systems I, section 5.2).
        """
        return self.mean * (1.0 + self.variation**2) / 2.0

    def quantile(self, percent: int) -> float:
        """Tokens that so many in 100 answers stay below: 50, 90 or 99."""
        return self.mean * math.exp(_NORMAL[percent] * self.sigma - self.sigma**2 / 2.0)
