"""Answers that never fall as work grows: figures on a lattice of sizes, put in order there, and read in between.

What is learned from records bends where records do. What is in order stays as it is; between the points of the lattice
figures are straight in logarithms, so they keep the order of the points.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfpass.prediction import Interval

_TURNS = 12
# Logarithmic width of the narrowest bounds that count; what is known better than this is known as well.
_NARROWEST = 1e-3


def from_below(values: np.ndarray, axes: Sequence[int] | None = None) -> np.ndarray:
    """[...] the most of all values that are no further along any of ``axes`` (default: all)."""
    for axis in range(values.ndim) if axes is None else axes:
        values = np.maximum.accumulate(values, axis=axis)
    return values


def from_above(values: np.ndarray, axes: Sequence[int] | None = None) -> np.ndarray:
    """[...] the least of all values that are no less far along each of ``axes`` (default: all)."""
    for axis in range(values.ndim) if axes is None else axes:
        values = np.flip(np.minimum.accumulate(np.flip(values, axis), axis=axis), axis)
    return values


def rising(values: np.ndarray, axes: Sequence[int] | None = None) -> np.ndarray:
    """``values`` (logarithms) in order along ``axes`` (default: all).

    Each is in the middle between the least of all larger work and the most of all smaller.
    """
    return (from_below(values, axes) + from_above(values, axes)) / 2


def settled(values: np.ndarray, weight: np.ndarray, axes: Sequence[int] | None = None) -> np.ndarray:
    """``values`` (logarithms) moved as little as order along ``axes`` (default: all) asks for: weighted least squares.

    ``weight``: how well each is known; a point that nothing speaks for hardly moves one that was measured. Axes take
    turns (Dykstra's projections; Dykstra and Robertson, 1982); what their last turn leaves is put in order as by
    `rising`.
    """
    used = tuple(range(values.ndim)) if axes is None else tuple(axes)
    out, left = values, [np.zeros_like(values) for _ in used]
    for _ in range(_TURNS):
        before = out
        for i, axis in enumerate(used):
            asked = out + left[i]
            lines, shares = (np.moveaxis(v, axis, -1) for v in (asked, weight))
            pooled, shares = (np.array(v).reshape(-1, lines.shape[-1]) for v in (lines, shares))
            falls = (pooled[:, 1:] < pooled[:, :-1]).any(axis=1)
            pooled[falls] = _pooled(pooled[falls], shares[falls])
            out = np.moveaxis(pooled.reshape(lines.shape), -1, axis)
            left[i] = asked - out
        if np.array_equal(before, out):
            break
    return rising(out, used)


def _pooled(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """[L, N] of each line the nearest that never falls: adjacent violators are pooled (Ayer and others, 1955)."""
    out: list[float] = []
    for line, shares in zip(values.tolist(), weight.tolist(), strict=True):
        means: list[float] = []
        held: list[float] = []
        counts: list[int] = []
        for mean, share in zip(line, shares, strict=True):
            count = 1
            while means and means[-1] > mean:
                before = held.pop()
                total = share + before
                mean, share, count = (means.pop() * before + mean * share) / total, total, count + counts.pop()
            means.append(mean)
            held.append(share)
            counts.append(count)
        for mean, count in zip(means, counts, strict=True):
            out += [mean] * count
    return np.array(out).reshape(values.shape)


def bounded(
    low: np.ndarray, median: np.ndarray, high: np.ndarray, axes: Sequence[int] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Low, median and high (logarithms) in order along ``axes`` (default: all).

    A bound holds for all that it bounds: no work takes less than the low of a smaller one, nor more than the high of a
    larger one. Where nothing was known nearby, bounds are so no wider than where something was.
    """
    middle = settled(median, np.maximum(high - low, _NARROWEST) ** -4.0, axes)
    least, most = from_below(low + middle - median, axes), from_above(high + middle - median, axes)
    least = np.minimum(least, middle)
    return least, middle, np.maximum(most, middle)


def along(values: np.ndarray, rungs: Sequence[float], size: float) -> np.ndarray:
    """[...] ``values`` [len(rungs), ...] at ``size``: linear in logarithms between rungs, level beyond their ends."""
    places = np.log(np.asarray(rungs, dtype=np.float64))
    place = float(np.clip(np.log(size), places[0], places[-1]))
    i = int(np.clip(np.searchsorted(places, place, side="right") - 1, 0, len(places) - 2))
    share = (place - places[i]) / (places[i + 1] - places[i])
    return np.asarray(values[i] + share * (values[i + 1] - values[i]))


def between(values: np.ndarray, rungs: Sequence[Sequence[float]], sizes: Sequence[float]) -> float:
    """The value at ``sizes``, one for each axis, as `along` finds it."""
    for axis, size in zip(rungs, sizes, strict=True):
        values = along(values, axis, size)
    return float(values)


def read(values: np.ndarray, rungs: Sequence[Sequence[float]], sizes: Sequence[np.ndarray]) -> np.ndarray:
    """[N] the values of a lattice of two axes at N places (``sizes``: [N] of each axis), each as `between` finds it."""
    at = [_place(axis, size) for axis, size in zip(rungs, sizes, strict=True)]
    (i, share), (j, other) = at
    low, high = (values[i, k] + share * (values[i + 1, k] - values[i, k]) for k in (j, j + 1))
    return np.asarray(low + other * (high - low))


def _place(rungs: Sequence[float], sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[N] rungs below, and [N] shares of the way to the next."""
    places = np.log(np.asarray(rungs, dtype=np.float64))
    place = np.clip(np.log(sizes), places[0], places[-1])
    i = np.clip(np.searchsorted(places, place, side="right") - 1, 0, len(places) - 2)
    return i, (place - places[i]) / (places[i + 1] - places[i])


def interval(
    found: Sequence[np.ndarray], rungs: Sequence[Sequence[float]], sizes: Sequence[float], unit: str
) -> Interval:
    """The interval at ``sizes`` of logarithms of low, median and high."""
    low, median, high = (float(np.exp(between(values, rungs, sizes))) for values in found)
    return Interval(median, min(low, median), max(high, median), unit)
