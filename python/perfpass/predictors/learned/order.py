"""Intervals in order: what was measured of some devices bounds what is said of those that are better or worse."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfpass.prediction import Interval

_PARTS = ("median", "low", "high")


def in_order(
    found: Sequence[Interval], no_more: Sequence[Sequence[bool]], distance: Sequence[float], near: float = -1.0
) -> list[Interval]:
    """N intervals, of which number i is of no more time than j where ``no_more[i][j]``, put in that order.

    The best known first (least ``distance`` to what was measured): each keeps its place as far as those before it leave
    room. Up to a distance of ``near`` it stays whatever the others say: where both were measured, that stands.
    """
    out: dict[int, Interval] = {}
    for i in sorted(range(len(found)), key=lambda k: distance[k]):
        places = list(out) if distance[i] > near else []
        upper, lower = [no_more[i][j] for j in places], [no_more[j][i] for j in places]
        out[i] = between(found[i], [out[j] for j in places], upper.__getitem__, lower.__getitem__)
    return [out[i] for i in range(len(found))]


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
