"""Intervals from held-out errors (conformal prediction), by how far a network is from those that were measured.

The calibration residuals are those of networks that the predictor had not seen (cross-conformal over groups; Vovk,
Cross-conformal predictors, 2015). They are split by the distance to the nearest network of the training side, so that
coverage holds for near and for far networks alike (Mondrian conformal prediction; Vovk et al., 2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass import _core
from perfpass.errors import ArgumentError

# Distances between fingerprints that part the calibration residuals: the same network, close variants, relatives, rest.
DISTANCE_EDGES: tuple[float, ...] = (0.0, 0.01, 0.05, 0.1, 0.2, 0.35)
# What is known of the software (precision, runtime, layout) that an unseen device runs: measured widely on other
# devices, measured on a few boards alone or bound by an unknown host, or not measured on any device of its kind.
EVIDENCE = ("common", "rare", "unmeasured")


@dataclass(frozen=True)
class ConformalTable:
    """Bounds of log(measured / predicted) by distance: number i holds from ``edges[i]`` to ``edges[i + 1]``."""

    edges: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    rows: tuple[int, ...]

    def bounds(self, distance: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Log bounds for each distance."""
        i = np.clip(np.searchsorted(self.edges, distance, side="right") - 1, 0, len(self.edges) - 1)
        return np.asarray(self.low)[i], np.asarray(self.high)[i]

    def around(self, width: np.ndarray | float, distance: np.ndarray | float) -> np.ndarray:
        """Log half-widths on an unseen device: ``width`` for a known network, and what each one's distance adds.

        The two errors are taken as independent, so squares add.
        """
        low, high = self.bounds(distance)
        known_low, known_high = self.bounds(0.0)
        added = np.maximum(low**2 - known_low**2, high**2 - known_high**2)
        return np.asarray(np.sqrt(np.square(width) + np.maximum(added, 0.0)))

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"edges": self.edges, "low": self.low, "high": self.high, "rows": self.rows}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ConformalTable:
        """The inverse of `to_dict`."""
        return cls(*(tuple(values[name]) for name in ("edges", "low", "high", "rows")))


def quantiles(residuals: np.ndarray, coverage: float) -> tuple[float, float]:
    """Bounds that a new exchangeable residual keeps with probability ``coverage``: the finite-sample ranks of N + 1."""
    n = len(residuals)
    if n == 0:
        raise ArgumentError("no calibration residuals; at least one is needed")
    ordered = np.sort(residuals)
    tail = (1.0 - coverage) / 2.0
    low = int(np.floor(tail * (n + 1))) - 1
    high = int(np.ceil((1.0 - tail) * (n + 1))) - 1
    return float(ordered[max(low, 0)]), float(ordered[min(high, n - 1)])


def pooled_width(groups: Sequence[np.ndarray], coverage: float = 0.9) -> float:
    """The least w for which |residual| <= w holds in ``coverage`` of the cases, every group counting alike."""
    if not groups or not all(len(g) for g in groups):
        raise ArgumentError("no groups of residuals, or an empty one; at least one residual each is needed")
    sizes = np.concatenate([np.abs(g) for g in groups])
    weight = np.concatenate([np.full(len(g), 1.0 / (len(g) * len(groups))) for g in groups])
    order = np.argsort(sizes, kind="stable")
    reached = int(np.searchsorted(np.cumsum(weight[order]), coverage - 1e-12))
    return float(sizes[order][min(reached, len(sizes) - 1)])


def conformal(
    residuals: np.ndarray,
    distances: np.ndarray,
    coverage: float = 0.9,
    edges: Sequence[float] = DISTANCE_EDGES,
    least: int = 200,
) -> ConformalTable:
    """Bounds per distance bin; a bin with under ``least`` residuals takes those of its neighbours too.

    Bounds never narrow as the distance grows, and always hold the prediction itself.
    """
    low, high, rows = [], [], []
    for i, edge in enumerate(edges):
        upper = edges[i + 1] if i + 1 < len(edges) else np.inf
        inside = residuals[(distances >= edge) & (distances < upper)]
        reach = 0
        while len(inside) < min(least, len(residuals)):
            reach += 1
            first, last = edges[max(i - reach, 0)], edges[i + 1 + reach] if i + 1 + reach < len(edges) else np.inf
            inside = residuals[(distances >= first) & (distances < last)]
        a, b = quantiles(inside, coverage)
        low.append(min(a, -0.005))
        high.append(max(b, 0.005))
        rows.append(len(inside))
    return ConformalTable(
        tuple(float(e) for e in edges),
        tuple(float(v) for v in np.minimum.accumulate(low)),
        tuple(float(v) for v in np.maximum.accumulate(high)),
        tuple(rows),
    )


def nearest(fingerprints: np.ndarray, known: np.ndarray, threads: int = 1) -> np.ndarray:
    """Euclidean distance of each fingerprint [N, P] to the nearest of ``known`` [M, P], over root 2: about [0, 1]."""
    return nearest_to(_core.Neighbours(np.ascontiguousarray(known, dtype=np.float32)), fingerprints, threads)


def nearest_to(known: _core.Neighbours, fingerprints: np.ndarray, threads: int = 1) -> np.ndarray:
    """The same, to points that are kept."""
    found: np.ndarray = known.distances(np.ascontiguousarray(fingerprints, dtype=np.float32), threads)
    return found / np.sqrt(2.0)
