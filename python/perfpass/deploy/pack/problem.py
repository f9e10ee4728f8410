"""The packing as numbers: what each model may take, what each GPU may hold, and what was found.

GPUs of one type are alike, so a packing is counted: how many GPUs of each type are cut by each largest set of profiles
(`patterns`), and how many instances of which profile each model gets. Where they stand follows (`placing`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from perfpass.deploy.pack.patterns import Pattern

# A model's rate in whole parts: what one instance serves is rounded down to them.
PARTS = 1_000_000

Counts = dict[tuple[int, int], int]
Status = Literal["optimal", "feasible", "unsatisfiable", "unknown"]


@dataclass(frozen=True)
class Choice:
    """An instance that a model may get: of which pool, its profile, how many processes share it, what they serve."""

    pool: int
    profile: str
    processes: int = 1
    rate_per_s: float = math.inf


@dataclass(frozen=True)
class Demand:
    """A model: at least ``copies`` processes that serve ``rate_per_s`` (0: any) together."""

    name: str
    copies: int
    rate_per_s: float
    choices: tuple[Choice, ...]

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """Of the rate, in PARTS, what each choice serves: rounded down, and no more than all of it."""
        if self.rate_per_s <= 0:
            return (PARTS,) * len(self.choices)
        return tuple(int(PARTS * min(1.0, c.rate_per_s / self.rate_per_s)) for c in self.choices)

    def most(self, choice: int) -> int:
        """Instances of one choice that alone are enough; 0 where no number is."""
        part = self.parts[choice]
        return max(-(-PARTS // part), -(-self.copies // self.choices[choice].processes)) if part else 0


@dataclass(frozen=True)
class Supply:
    """GPUs of one type: how many there may be, what one costs (a whole number), and what one may be cut into."""

    name: str
    gpus: int
    cost: int
    patterns: tuple[Pattern, ...]

    @property
    def profiles(self) -> tuple[str, ...]:
        """Every profile of its patterns."""
        return tuple(sorted({name for pattern in self.patterns for name in pattern}))


@dataclass(frozen=True)
class Problem:
    """What is to be packed. ``slices`` (pool, profile): memory slices, for what is the same cost otherwise."""

    supplies: tuple[Supply, ...]
    demands: tuple[Demand, ...]
    slices: Mapping[tuple[int, str], int] = field(default_factory=dict)


@dataclass(frozen=True)
class Packing:
    """What was found: ``instances`` by (demand, choice), ``gpus`` by (supply, pattern), their cost and its bound.

    ``bound``: no packing costs less. ``seconds`` that it took.
    """

    status: Status
    instances: Mapping[tuple[int, int], int]
    gpus: Mapping[tuple[int, int], int]
    cost: int
    bound: int
    seconds: float

    @property
    def gap(self) -> float:
        """How far the cost may be above the least, as a share of it."""
        return (self.cost - self.bound) / self.cost if self.cost else 0.0


def pruned(problem: Problem, replaces: Callable[[int, str, str], bool]) -> tuple[Problem, tuple[tuple[int, ...], ...]]:
    """The problem without choices that another one stands in for, and the old indices of those that are left.

    ``replaces(pool, small, large)``: whether an instance of ``small`` may stand wherever one of ``large`` does. The
    cost of the best packing stays the same.
    """
    kept: list[tuple[int, ...]] = []
    demands = []
    for demand in problem.demands:
        left: list[int] = []
        # The smaller first, so that of two that stand in for each other the first stays.
        order = sorted(range(len(demand.choices)), key=lambda j: _size(problem, demand, j))
        for j in order:
            b = demand.choices[j]
            if demand.most(j) and not any(_stands_in(demand, i, b, demand.parts[j], replaces) for i in left):
                left.append(j)
        left.sort()
        kept.append(tuple(left))
        demands.append(replace(demand, choices=tuple(demand.choices[j] for j in left)))
    return replace(problem, demands=tuple(demands)), tuple(kept)


def _size(problem: Problem, demand: Demand, j: int) -> tuple[int, int, int]:
    choice = demand.choices[j]
    return problem.slices.get((choice.pool, choice.profile), 0), -demand.parts[j], -choice.processes


def _stands_in(demand: Demand, i: int, b: Choice, parts: int, replaces: Callable[[int, str, str], bool]) -> bool:
    a = demand.choices[i]
    enough = demand.parts[i] >= parts and a.processes >= min(b.processes, demand.copies)
    return enough and a.pool == b.pool and replaces(a.pool, a.profile, b.profile)


def fault(problem: Problem, found: Packing) -> str:
    """What a packing breaks, in words; empty where it keeps every rule. It is counted anew, from nothing else."""
    used: dict[tuple[int, str], int] = {}
    for i, demand in enumerate(problem.demands):
        taken = [(j, n) for (d, j), n in found.instances.items() if d == i]
        if sum(n * demand.choices[j].processes for j, n in taken) < demand.copies:
            return f"{demand.name} has too few copies"
        if demand.rate_per_s > 0 and sum(n * demand.parts[j] for j, n in taken) < PARTS:
            return f"{demand.name} is served at too low a rate"
        for j, n in taken:
            key = demand.choices[j].pool, demand.choices[j].profile
            used[key] = used.get(key, 0) + n
    for p, supply in enumerate(problem.supplies):
        cut = {q: n for (s, q), n in found.gpus.items() if s == p}
        if sum(cut.values()) > supply.gpus:
            return f"more than {supply.gpus} of {supply.name}"
        for profile in supply.profiles:
            if used.pop((p, profile), 0) > sum(n * supply.patterns[q].get(profile, 0) for q, n in cut.items()):
                return f"too few instances of {profile} on {supply.name}"
    if any(used.values()):
        return "instances of profiles that no GPU has"
    if found.cost != cost_of(problem.supplies, found.gpus):
        return "the cost is another"
    return "" if found.bound <= found.cost else "the bound is above the cost"


def cost_of(supplies: Sequence[Supply], gpus: Mapping[tuple[int, int], int]) -> int:
    """What so many GPUs cost."""
    return sum(supplies[p].cost * n for (p, _), n in gpus.items())
