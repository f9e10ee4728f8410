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
    filled = [_Filled(pool, gpu, Counter(cut)) for gpu, cut in _matched(pool, gpus, cuts, wanted, today)]
    for one in filled:
        one.keep(left, today.get(one.gpu.name, ()))
    # What stays has its places first; only what found none anywhere makes others move.
    for moving in (False, True):
        for one in filled:
            one.add(left, moving=moving)
    for one in filled:
        one.gpu.instances = _standing_together(pool, one.stays, one.new)
    assert not +left, f"instances without a place: {+left}"
    return gpus


def _matched(
    pool: Pool,
    gpus: Sequence[Placed],
    cuts: Sequence[Pattern],
    wanted: Wanted,
    today: Mapping[str, tuple[Standing, ...]],
) -> list[tuple[Placed, Pattern]]:
    """Which GPU is cut how, so that most of today's instances may stay."""
    known: dict[tuple[tuple[Standing, ...], tuple[tuple[str, int], ...]], int] = {}

    def kept(gpu: Placed, cut: Pattern) -> int:
        key = today.get(gpu.name, ()), tuple(sorted(cut.items()))
        if key not in known:
            known[key] = _kept(pool, key[0], cut, wanted)
        return known[key]

    if not any(today.get(g.name) for g in gpus) or len(gpus) > _MOST_MATCHED:
        ordered = sorted(gpus, key=lambda g: not today.get(g.name))  # GPUs that are used today are used again
        return list(zip(ordered, cuts, strict=False))
    with needs("pack", "packing models onto GPUs"):
        from ortools.graph.python import linear_sum_assignment
    assignment = linear_sum_assignment.SimpleLinearSumAssignment()
    size = len(gpus)
    for g, gpu in enumerate(gpus):
        for c in range(size):
            # Of GPUs that keep as much, the first.
            assignment.add_arc_with_cost(g, c, g - len(gpus) * kept(gpu, cuts[c]) if c < len(cuts) else 0)
    assignment.solve()
    pairs = [(gpus[g], cuts[c]) for g in range(size) if (c := assignment.right_mate(g)) < len(cuts)]
    # Those that keep most take their models first, so that what they keep is not given away.
    return sorted(pairs, key=lambda pair: -kept(*pair))


def _kept(pool: Pool, standing: Sequence[Standing], cut: Pattern, wanted: Wanted) -> int:
    """Instances that may stay: their profile is in the cut, their model still wanted there; then, whether all that the
    cut has stands beside them.
    """
    mine = Counter((s.profile, s.model, s.processes) for s in standing)
    by_profile: Counter[str] = Counter()
    for key, count in mine.items():
        by_profile[key[0]] += min(count, wanted[key])
    number = sum(min(count, cut.get(profile, 0)) for profile, count in by_profile.items())
    room, stays = Counter(cut), []
    for s in standing:
        if room[s.profile] > 0 and wanted[s.profile, s.model, s.processes] > 0:
            room[s.profile] -= 1
            stays.append((s.profile, s.start))
    return 16 * number + 2 * _stand(pool, list(room.elements()), stays) + bool(standing)


def _stand(pool: Pool, names: Sequence[str], standing: Sequence[tuple[str, int]]) -> bool:
    """Whether instances of these profiles find places beside others, which do not move."""
    geometry = pool.device.mig
    if not (names and standing) or geometry is None or WHOLE in (*names, *(name for name, _ in standing)):
        return True
    return geometry.place(names, standing) is not None


@dataclass
class _Filled:
    """A GPU as it is filled: how many instances of each profile its cut has ``room`` for, what stays, what is new."""

    pool: Pool
    gpu: Placed
    room: Counter[str]
    stays: list[tuple[str, int, str, int]] = field(default_factory=list)
    new: list[tuple[str, str, int]] = field(default_factory=list)

    def keep(self, left: Wanted, standing: Sequence[Standing]) -> None:
        """What stands today and is wanted stays."""
        for s in standing:
            key = (s.profile, s.model, s.processes)
            if self.room[s.profile] > 0 and left[key] > 0:
                self.room[s.profile] -= 1
                left[key] -= 1
                self.stays.append((s.profile, s.start, s.model, s.processes))

    def add(self, left: Wanted, *, moving: bool) -> None:
        """New instances, the largest first: those that stand beside what stays, or where it may be ``moving`` all."""
        for profile in sorted(self.room, key=lambda name: _slices(self.pool, name), reverse=True):
            for key in [k for k in left if k[0] == profile and left[k] > 0]:
                taken = min(self.room[profile], left[key])
                while taken and not (moving or self._beside([key] * taken)):
                    taken -= 1
                self.room[profile] -= taken
                left[key] -= taken
                self.new += [key] * taken

    def _beside(self, more: Sequence[tuple[str, str, int]]) -> bool:
        """Whether more instances find places where nothing that stays moves."""
        standing = [(profile, start) for profile, start, _, _ in self.stays]
        return _stand(self.pool, [key[0] for key in (*self.new, *more)], standing)


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
