"""Quantiles of held-out errors (cross-conformal over groups; Vovk, Cross-conformal predictors, 2015), and how far a
network is from those that were measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfpass import _core
from perfpass.errors import ArgumentError

# What is known of the software (precision, runtime, layout) that an unseen device runs: measured widely on other
# devices, measured on a few boards alone or bound by an unknown host, or not measured on any device of its kind.
EVIDENCE = ("common", "rare", "unmeasured")


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


def nearest(fingerprints: np.ndarray, known: np.ndarray, threads: int = 1) -> np.ndarray:
    """Euclidean distance of each fingerprint [N, P] to the nearest of ``known`` [M, P], over root 2: about [0, 1]."""
    return nearest_to(_core.Neighbours(np.ascontiguousarray(known, dtype=np.float32)), fingerprints, threads)


def nearest_to(known: _core.Neighbours, fingerprints: np.ndarray, threads: int = 1) -> np.ndarray:
    """The same, to points that are kept."""
    found: np.ndarray = known.distances(np.ascontiguousarray(fingerprints, dtype=np.float32), threads)
    return found / np.sqrt(2.0)


# Rows from which on sorting is quicker than a table.
_FEW = 64


def distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices of rows [N, K] that differ in any bit, each once, and [N] where each row's is among them."""
    if len(rows) <= _FEW:
        first: dict[bytes, int] = {}
        number = [first.setdefault(row.tobytes(), len(first)) for row in rows]
        once = np.array([number.index(i) for i in range(len(first))], dtype=np.intp)
        return once, np.array(number, dtype=np.intp)
    whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1] * rows.itemsize))).ravel()
    _, once, back = np.unique(whole, return_index=True, return_inverse=True)
    return once, back
