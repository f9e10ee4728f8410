"""Intervals in order: what was measured of some devices bounds what is said of those that are better or worse."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from perfpass.prediction import Interval

_PARTS = ("median", "low", "high")


def in_order(found: Sequence[Interval], no_more: Sequence[Sequence[bool]]) -> list[Interval]:
    """N intervals, of which number i is of no more time than j where ``no_more[i][j]``, put in that order.

    Each part takes the middle between the least of what takes no less and the most of what takes no more; what was in
    order stays.
    """
    out = []
    for i, own in enumerate(found):
        above = [own, *(other for j, other in enumerate(found) if no_more[i][j])]
        below = [own, *(other for j, other in enumerate(found) if no_more[j][i])]
        median, low, high = (
            math.sqrt(min(getattr(a, part) for a in above) * max(getattr(b, part) for b in below)) for part in _PARTS
        )
        out.append(Interval(median, min(low, median), max(high, median), own.unit, own.coverage))
    return out


def between(
    found: Interval, known: Sequence[Interval], no_more: Callable[[int], bool], no_less: Callable[[int], bool]
) -> Interval:
    """``found``, no part of it above what takes no less time (``no_more(i)``: it takes no more than ``known[i]``) nor
    below what takes no more.
    """
    parts = {part: getattr(found, part) for part in _PARTS}
    for i, other in enumerate(known):
        for part in _PARTS:
            if no_more(i):
                parts[part] = min(parts[part], getattr(other, part))
            if no_less(i):
                parts[part] = max(parts[part], getattr(other, part))
    return Interval(**parts, unit=found.unit, coverage=found.coverage)
