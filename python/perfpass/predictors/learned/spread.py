"""How wide an interval is, by what is not known of a question: one form for every area.

Each thing that is not known (the laboratory's host, the network, the device, its software, the load ...) adds an error
of its own, taken as independent of the others, so that squares add: log half-width = sqrt(sum of width_k^2 x lack_k).
A lack is 0 where measurements stand behind the question and grows smoothly with the distance from them. Widths are
quantiles, fitted on errors of measurements whose whole source was left out (perfpass.training.spread). NumPy alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from perfpass.errors import ArgumentError, ArtefactError
from perfpass.late import dataclass
from perfpass.prediction import COVERAGE

# Of what an interval is wide: causes with a smaller share of its squares are not named.
NAMED_SHARE = 0.1


def half_width_of(coverage: float) -> float:
    """Half-width that holds a share ``coverage`` (0 to 1, both excluded), over the one that holds 90 %.

    Errors in logarithms, over their half-widths, are taken as logistic: P(abs(x) < h) = tanh(h / 2). Normal ones would
    have too few small and too few large errors, since sources differ in how much they scatter. Raises ArgumentError.
    """
    if not 0.0 < coverage < 1.0:
        raise ArgumentError(f"coverage must be between 0 and 1, got {coverage!r}")
    return math.atanh(coverage) / math.atanh(COVERAGE)


@dataclass(frozen=True)
class Spread:
    """Log half-widths that each of ``causes`` adds where its lack is 1, below and above the median.

    ``tails``: the shares of measurements that lie below and above. ``sources`` and ``rows``: how many stood behind it.
    """

    causes: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    tails: tuple[float, float]
    sources: int
    rows: int

    def bounds(self, lacks: Mapping[str, np.ndarray | float]) -> tuple[np.ndarray, np.ndarray]:
        """[N] log bounds of measured over predicted: at most 0, and at least 0. ``lacks``: [N] or a number, by cause.

        Raises ArgumentError for a cause that is missing or unknown.
        """
        return self.of_matrix(self.matrix(lacks))

    def of_matrix(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same of a `matrix` of lacks."""
        # Not a product of matrices, whose sums differ in the last bit with the number of rows.
        low, high = ((x * np.square(widths)).sum(axis=1) for widths in (self.low, self.high))
        return -np.sqrt(low), np.sqrt(high)

    def shares(self, lacks: Mapping[str, np.ndarray | float]) -> np.ndarray:
        """[N, causes] share of each cause in the squares of both half-widths; rows sum to 1."""
        parts = self.matrix(lacks) * (np.square(self.low) + np.square(self.high))
        return np.asarray(parts / np.maximum(parts.sum(axis=1, keepdims=True), 1e-300))

    def named(self, lacks: Mapping[str, np.ndarray | float]) -> tuple[tuple[str, float], ...]:
        """The causes that make the first question's interval wide, the largest share first."""
        found = sorted(zip(self.causes, self.shares(lacks)[0].tolist(), strict=True), key=lambda part: -part[1])
        return tuple(part for part in found if part[1] >= NAMED_SHARE)

    def matrix(self, lacks: Mapping[str, np.ndarray | float]) -> np.ndarray:
        """[N, causes] of ``lacks``. Raises ArgumentError."""
        if set(lacks) != set(self.causes):
            raise ArgumentError(f"lacks {', '.join(sorted(lacks))} are asked; widths are of {', '.join(self.causes)}")
        columns = [np.asarray(lacks[c], dtype=np.float64) for c in self.causes]
        sizes = [column.size for column in columns]
        found = np.empty((max(sizes, default=1) if all(sizes) else 0, len(columns)))
        for i, column in enumerate(columns):
            found[:, i] = column
        return np.maximum(found, 0.0, out=found)

    def for_core(self, lacks: Mapping[str, float]) -> dict[str, Any]:
        """Causes, their half-widths, and what is lacking whatever the network (cpp_kernels/src/prediction)."""
        every = {"causes": self.causes, "low": self.low, "high": self.high}
        return {**{name: list(values) for name, values in every.items()}, "lack": [lacks[c] for c in self.causes]}

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "causes": list(self.causes),
            "low": [round(v, 5) for v in self.low],
            "high": [round(v, 5) for v in self.high],
            "tails": list(self.tails),
            "sources": self.sources,
            "rows": self.rows,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Spread:
        """The inverse of `to_dict`. Raises ArtefactError for what is none."""
        try:
            causes, low, high = (tuple(values[name]) for name in ("causes", "low", "high"))
            below, above = (float(v) for v in values["tails"])
            found = cls(causes, low, high, (below, above), int(values["sources"]), int(values["rows"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ArtefactError(f"an artefact's widths cannot be read ({error}); run `perfpass train` again") from None
        if not len(causes) == len(low) == len(high):
            raise ArtefactError("an artefact's widths do not fit its causes; run `perfpass train` again")
        return found
