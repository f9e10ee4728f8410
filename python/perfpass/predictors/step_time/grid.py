"""Seconds on grids of powers of two that never fall, read between their nodes linearly: times of a step are nearly
affine in its sizes, and a line through two of them needs no logarithm.
"""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np


def doublings(last: int, halves: bool = False) -> np.ndarray:
    """Nodes 0, 1, 2, 4 ... 2^``last``; with ``halves`` 1.5 times each between them, from 2 on."""
    nodes = [0.0, 1.0]
    for exponent in range(1, last + 1):
        nodes += [2.0**exponent, 1.5 * 2.0**exponent] if halves and exponent < last else [2.0**exponent]
    return np.array(nodes)


def rising(values: np.ndarray, axes: int) -> np.ndarray:
    """``values`` raised to the largest before them along the last ``axes`` axes, and none below 0."""
    for axis in range(1, axes + 1):
        values = np.maximum.accumulate(values, axis=-axis)
    return np.asarray(np.maximum(values, 0.0))


def _place(nodes: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The node [N] at or below each of ``at`` [N], and the way to the next, above 1 beyond the last."""
    low = np.clip(np.searchsorted(nodes, at, side="right") - 1, 0, len(nodes) - 2)
    return low, (at - nodes[low]) / (nodes[low + 1] - nodes[low])


class Curve:
    """Seconds by one size. ``values`` [..., nodes], rising."""

    def __init__(self, nodes: np.ndarray, values: np.ndarray) -> None:
        self.nodes, self.values = nodes, rising(values, 1)

    def at(self, size: np.ndarray) -> np.ndarray:
        """Seconds [..., N]."""
        low, way = _place(self.nodes, size)
        return np.asarray(self.values[..., low] * (1 - way) + self.values[..., low + 1] * way)


class Surface:
    """Seconds by two sizes. ``values`` [..., first, second], rising in both."""

    def __init__(self, first: np.ndarray, second: np.ndarray, values: np.ndarray) -> None:
        self.first, self.second, self.values = first, second, rising(values, 2)

    def at(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Seconds [..., N]."""
        i, across = _place(self.first, first)
        j, along = _place(self.second, second)
        v = self.values
        below = v[..., i, j] * (1 - along) + v[..., i, j + 1] * along
        above = v[..., i + 1, j] * (1 - along) + v[..., i + 1, j + 1] * along
        return np.asarray(below * (1 - across) + above * across)


class PlainCurve:
    """A `Curve` of one row for loops: plain numbers, no arrays."""

    __slots__ = ("_nodes", "_slopes", "_values")

    def __init__(self, curve: Curve) -> None:
        self._nodes, self._values = curve.nodes.tolist(), curve.values.tolist()
        self._slopes = (np.diff(curve.values) / np.diff(curve.nodes)).tolist()

    def at(self, size: float) -> float:
        """Seconds."""
        i = min(bisect_right(self._nodes, size) - 1, len(self._slopes) - 1)
        return float(self._values[i] + self._slopes[i] * (size - self._nodes[i]))


class PlainSurface:
    """A `Surface` of one row for loops; both its axes are `doublings` without halves."""

    __slots__ = ("_cells", "_first", "_nodes", "_second")

    def __init__(self, surface: Surface) -> None:
        self._first, self._second = len(surface.first) - 2, len(surface.second) - 2
        self._nodes, v = surface.second.tolist(), surface.values
        x, y = np.diff(surface.first)[:, None], np.diff(surface.second)[None, :]
        corner, across, along = v[:-1, :-1], (v[1:, :-1] - v[:-1, :-1]) / x, (v[:-1, 1:] - v[:-1, :-1]) / y
        both = (v[1:, 1:] - v[1:, :-1] - v[:-1, 1:] + v[:-1, :-1]) / (x * y)
        starts = np.broadcast_arrays(corner, across, along, both, surface.first[:-1, None], surface.second[None, :-1])
        self._cells = [list(map(tuple, row)) for row in np.stack(starts, axis=-1).tolist()]

    def second_after(self, size: float) -> list[float]:
        """Nodes of the second axis beyond a size, all but the last."""
        return self._nodes[bisect_right(self._nodes, size) : -1]

    def at(self, first: float, second: float) -> float:
        """Seconds."""
        i, j = math.frexp(first)[1] if first >= 1 else 0, math.frexp(second)[1] if second >= 1 else 0
        corner, across, along, both, x, y = self._cells[min(i, self._first)][min(j, self._second)]
        dx, dy = first - x, second - y
        return float(corner + across * dx + (along + both * dx) * dy)
