"""Answers that never fall as work grows: figures on a lattice of sizes, put in order there, and read between its points.

What is learned from records bends where records do. On the lattice a figure takes the middle between the least that is
said of any larger work and the most that is said of any smaller: it changes nothing that was in order (isotonic in all
axes at once), and keeps the order of low, median and high. Between points it is straight in logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfpass.prediction import Interval


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
    """``values`` (logarithms) in order along ``axes`` (default: all)."""
    return (from_below(values, axes) + from_above(values, axes)) / 2


def bounded(
    low: np.ndarray, median: np.ndarray, high: np.ndarray, axes: Sequence[int] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Low, median and high (logarithms) in order along ``axes`` (default: all).

    A bound holds for all that it bounds: no work takes less than the low of a smaller one, nor more than the high of a
    larger one. Where nothing was known nearby, bounds are so no wider than where something was.
    """
    middle = rising(median, axes)
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


def interval(
    found: Sequence[np.ndarray], rungs: Sequence[Sequence[float]], sizes: Sequence[float], unit: str
) -> Interval:
    """The interval at ``sizes`` of logarithms of low, median and high."""
    low, median, high = (float(np.exp(between(values, rungs, sizes))) for values in found)
    return Interval(median, min(low, median), max(high, median), unit)
