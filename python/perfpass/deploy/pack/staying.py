"""What of today's layout may stay on its GPU: sets of profiles that stand beside instances which nobody moves.

A largest set of profiles says what a GPU holds wherever its instances start. A GPU that is used today has them
somewhere, and may then hold less: three instances of 1g beside one of 3g at slice 0, where four stand beside one at
slice 4. Such a GPU gets sets of its own, so that a packing of the same cost is found which leaves it as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from perfpass.deploy.pack.fleet import WHOLE, Fleet, Standing
from perfpass.deploy.pack.patterns import Pattern, beside
from perfpass.deploy.pack.problem import Problem

_MOST_KINDS = 400  # GPUs that stand differently today, up to which each gets sets of its own
Kept = Mapping[tuple[int, int], int]  # (demand, choice) -> instances


@dataclass(frozen=True)
class Stay:
    """A way to cut a GPU of a ``kind`` of today: ``pattern`` of its pool's supply leaves ``kept`` where they are."""

    pool: int
    pattern: int
    kind: int
    kept: Kept


@dataclass(frozen=True)
class Today:
    """What stands today. ``problem``: with the patterns of ``stays`` behind its own; ``gpus`` of each kind.

    ``standing``: instances by (demand, choice), wherever they are.
    """

    problem: Problem
    standing: Kept
    stays: tuple[Stay, ...] = ()
    gpus: tuple[int, ...] = ()


def today(fleet: Fleet, problem: Problem) -> Today:
    """What of the fleet's layout of today the problem has a choice for."""
    if not fleet.today:
        return Today(problem, {})
    pool_of = {name: p for p, pool in enumerate(fleet.pools) for name, _, _ in pool.gpus()}
    choice_of = {
        (d.name, c.pool, c.profile, c.processes): (i, j)
        for i, d in enumerate(problem.demands)
        for j, c in enumerate(d.choices)
    }
    standing: Counter[tuple[int, int]] = Counter()
    kinds: Counter[tuple[int, tuple[tuple[tuple[int, int], Standing], ...]]] = Counter()
    for name, instances in fleet.today.items():
        p = pool_of[name]
        keys = [(choice_of.get((s.model, p, s.profile, s.processes)), s) for s in instances]
        known = tuple(sorted(((key, s) for key, s in keys if key is not None), key=lambda one: one[1].start))
        standing.update(key for key, _ in known)
        if known and all(s.profile != WHOLE for _, s in known):
            kinds[p, known] += 1
    if len(kinds) > _MOST_KINDS:
        return Today(problem, standing)
    patterns = [list(supply.patterns) for supply in problem.supplies]
    stays = []
    for kind, (p, known) in enumerate(kinds):
        geometry = fleet.pools[p].device.mig_geometry
        assert geometry is not None
        names = tuple(name for name in problem.supplies[p].profiles if name != WHOLE)
        # All of them, or all but one: where more have to go, what stays is left to the placing.
        for left_out in (None, *range(len(known))):
            left = [one for i, one in enumerate(known) if i != left_out]
            kept = Counter(key for key, _ in left)
            for more in beside(geometry, names, tuple((s.profile, s.start) for _, s in left)) if left else ():
                stays.append(Stay(p, len(patterns[p]), kind, kept))
                patterns[p].append(_joined(left, more))
    supplies = tuple(replace(s, patterns=tuple(found)) for s, found in zip(problem.supplies, patterns, strict=True))
    return Today(replace(problem, supplies=supplies), standing, tuple(stays), tuple(kinds.values()))


def _joined(left: list[tuple[tuple[int, int], Standing]], more: Pattern) -> Pattern:
    return dict(Counter(s.profile for _, s in left) + Counter(more))
