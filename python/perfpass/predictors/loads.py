"""Intervals of a prediction whose graph rests on an assumed load (`perfpass.graph.assumed`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from perfpass.graph.assumed import Assumed
from perfpass.prediction import Interval, MemoryFigures, Prediction


def held(
    found: Prediction, assumed: Iterable[Assumed], predicted_at: Callable[[dict[str, int]], Prediction]
) -> Prediction:
    """``found`` with intervals that hold the usual loads, where the load was not stated.

    ``predicted_at``: the prediction at a stated load. How far its median lies from the assumed load's is one more lack
    of knowledge: it is added to the bound on that side as the others are, in squares of logarithms.
    """
    for one in assumed:
        if one.stated:
            continue
        for load in sorted({one.least, one.most} - {one.value}):
            found = stretched(found, predicted_at({one.name: load}))
    return found


def stretched(found: Prediction, other: Prediction) -> Prediction:
    """``found`` with bounds that hold what ``other``, another reading of the same question, says."""
    memory, beside = found.memory, other.memory
    return replace(
        found,
        latency_ms=_wider(found.latency_ms, other.latency_ms),
        throughput_per_s=_wider(found.throughput_per_s, other.throughput_per_s),
        energy_j=_wider(found.energy_j, other.energy_j),
        power_w=_wider(found.power_w, other.power_w),
        memory=MemoryFigures(
            _wider(memory.in_use, beside.in_use),
            _wider_if(memory.alive, beside.alive),
            _wider_if(memory.reserved, beside.reserved),
            memory.gradients_bytes,
        ),
    )


def _wider_if(found: Interval | None, other: Interval | None) -> Interval | None:
    return found if found is None or other is None else _wider(found, other)


def _wider(found: Interval, other: Interval) -> Interval:
    """``found`` as far as the other median on its side, and on the other side no narrower than ``other``."""
    if not (found.median > 0 and other.median > 0):
        return found
    moved = math.log(other.median / found.median)
    if moved > 0:
        high = found.median * math.exp(math.hypot(math.log(found.high / found.median), moved))
        return replace(found, low=min(found.low, other.low), high=max(found.high, high))
    low, high = found.low, max(found.high, other.high)
    if low > 0:
        low = min(low, found.median * math.exp(-math.hypot(math.log(found.median / low), moved)))
    return replace(found, low=low, high=high)
