"""From counts to GPUs: which GPU is cut how, where each instance starts, and what of today's layout stays as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfpass.deploy.pack.fleet import WHOLE, Pool, Standing
from perfpass.deploy.pack.patterns import Pattern
from perfpass.errors import needs

_MOST_MATCHED = 400  # GPUs of a pool up to which the best match with today's is sought; beyond, the first that is good

Wanted = Counter[tuple[str, str, int]]  # profile, model, processes -> instances


@dataclass
class Placed:
    """One GPU: its name, and (profile, first memory slice, model, processes) of its instances."""

    name: str
    node: str
    index: int
    instances: list[tuple[str, int, str, int]] = field(default_factory=list)


def place(
    pool: Pool, cuts: Sequence[Pattern], wanted: Wanted, today: Mapping[str, tuple[Standing, ...]]
) -> list[Placed]:  # fmt: skip
    """Every GPU of a pool with its instances: as many as ``cuts`` say are used, those of today's layout first.

    ``wanted``: the instances that the pool's GPUs are to hold; ``cuts`` hold them all. What stands today and is wanted
    stays where it is, wherever the rest fits beside it.
    """
    gpus = [Placed(*one) for one in pool.gpus()]
    left = Counter(wanted)
    for gpu, cut in _matched(gpus, cuts, wanted, today):
        _fill(pool, gpu, cut, left, today.get(gpu.name, ()))
    assert not +left, f"instances without a place: {+left}"
    return gpus


def _matched(
    gpus: Sequence[Placed], cuts: Sequence[Pattern], wanted: Wanted, today: Mapping[str, tuple[Standing, ...]]
) -> list[tuple[Placed, Pattern]]:
    """Which GPU is cut how, so that most of today's instances may stay."""
    if not any(today.get(g.name) for g in gpus) or len(gpus) > _MOST_MATCHED:
        ordered = sorted(gpus, key=lambda g: not today.get(g.name))  # GPUs that are used today are used again
        return list(zip(ordered, cuts, strict=False))
    with needs("pack", "packing models onto GPUs"):
        from ortools.graph.python import linear_sum_assignment
    assignment = linear_sum_assignment.SimpleLinearSumAssignment()
    size = len(gpus)
    for g, gpu in enumerate(gpus):
        for c in range(size):
            kept = _kept(today.get(gpu.name, ()), cuts[c], wanted) if c < len(cuts) else 0
            assignment.add_arc_with_cost(g, c, -kept)
    assignment.solve()
    pairs = [(gpus[g], cuts[c]) for g in range(size) if (c := assignment.right_mate(g)) < len(cuts)]
    # Those that keep most take their models first, so that what they keep is not given away.
    return sorted(pairs, key=lambda pair: -_kept(today.get(pair[0].name, ()), pair[1], wanted))


def _kept(standing: Sequence[Standing], cut: Pattern, wanted: Wanted) -> int:
    """Memory slices' worth of instances that may stay: their profile is in the cut, their model still wanted there."""
    mine = Counter((s.profile, s.model, s.processes) for s in standing)
    by_profile: Counter[str] = Counter()
    for key, count in mine.items():
        by_profile[key[0]] += min(count, wanted[key])
    return 16 * sum(min(count, cut.get(profile, 0)) for profile, count in by_profile.items()) + bool(standing)


def _fill(pool: Pool, gpu: Placed, cut: Pattern, left: Wanted, standing: Sequence[Standing]) -> None:
    """The instances of one GPU: what stays, then the others that its cut has room for."""
    room = Counter(cut)
    stays: list[tuple[str, int, str, int]] = []
    for s in standing:
        key = (s.profile, s.model, s.processes)
        if room[s.profile] > 0 and left[key] > 0:
            room[s.profile] -= 1
            left[key] -= 1
            stays.append((s.profile, s.start, s.model, s.processes))
    new: list[tuple[str, str, int]] = []
    for profile in sorted(room, key=lambda name: _slices(pool, name), reverse=True):
        for key in [k for k in left if k[0] == profile and left[k] > 0]:
            taken = min(room[profile], left[key])
            room[profile] -= taken
            left[key] -= taken
            new += [key] * taken
    gpu.instances = _standing_together(pool, stays, new)


def _slices(pool: Pool, profile: str) -> int:
    return 99 if profile == WHOLE or pool.device.mig is None else pool.device.mig.profile(profile).memory_slices


def _standing_together(
    pool: Pool, stays: list[tuple[str, int, str, int]], new: list[tuple[str, str, int]]
) -> list[tuple[str, int, str, int]]:
    """The instances with their places; of those that stay the last ones move, where the new ones fit no other way."""
    geometry = pool.device.mig
    if geometry is None or any(key[0] == WHOLE for key in (*stays, *new)):
        return [*stays, *((profile, 0, model, n) for profile, model, n in new)]
    if not new:
        return sorted(stays, key=lambda one: one[1])
    for kept in range(len(stays), -1, -1):
        moved = [*((p, m, n) for p, _, m, n in stays[kept:]), *new]
        found = geometry.place([key[0] for key in moved], [(p, start) for p, start, _, _ in stays[:kept]])
        if found is not None:
            places = [(p, start, m, n) for (p, m, n), (_, start) in zip(moved, found, strict=True)]
            return sorted([*stays[:kept], *places], key=lambda one: one[1])
    raise AssertionError("a set of profiles that does not stand together")
