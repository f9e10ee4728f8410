"""Fleets drawn at random, and the least cost of small ones by trying every packing: the plain twin of perfpass.deploy.

What models need is drawn, not predicted: the question is whether the packing is the best one, whatever they need.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

from perfpass.deploy.pack.fleet import WHOLE
from perfpass.deploy.pack.patterns import patterns, replaces
from perfpass.deploy.pack.problem import PARTS, Choice, Demand, Problem, Supply, pruned
from perfpass.devices import device

# GPU and its price: those of the fleets that are drawn.
BOARDS = (("a100-sxm4-80gb", 15), ("h100-sxm5-80gb", 30), ("a30", 7), ("l4", 6))


def problem(
    models: int,
    gpus: Sequence[int],
    seed: int,
    *,
    load: tuple[float, float],
    memory: tuple[float, float] = (0.0, 4.5),
    copies: tuple[int, ...] = (1, 1, 1, 2),
    by_price: bool = True,
) -> Problem:
    """Models of drawn memory, rate and copies on so many GPUs of each of BOARDS.

    ``load`` and ``memory``: binary logarithms between which a model's work and its GiB are drawn; a 1g slice of an A100
    serves a work of 1.
    """
    draw = random.Random(seed)
    boards = [(device(name), count, cost) for (name, cost), count in zip(BOARDS, gpus, strict=False) if count]
    supplies, sizes = [], {}
    for p, (board, count, cost) in enumerate(boards):
        names = [WHOLE, *(q.name for q in (board.mig.profiles if board.mig else ()) if "+" not in q.name)]
        supplies.append(Supply(board.id, count, cost if by_price else 1, patterns(board, "any", names)))
        for name in names:
            part = board.mig.profile(name) if board.mig and name != WHOLE else None
            sms, held = (part.sm_count, part.memory_bytes) if part else (board.sm_count, board.memory_bytes)
            slices = part.memory_slices if part else 8
            sizes[p, name] = (sms, held / 2**30, slices)
    demands = []
    for number in range(models):
        memory_gib, work = 2 ** draw.uniform(*memory), 2 ** draw.uniform(*load)
        choices = []
        for (p, name), (sms, held_gib, _) in sizes.items():
            if held_gib >= memory_gib:
                choices.append(Choice(p, name, 1, (sms / 14) ** 0.8 * draw.uniform(0.9, 1.1)))
        demands.append(Demand(f"model-{number}", draw.choice(copies), work, tuple(choices)))
    return Problem(tuple(supplies), tuple(demands), {key: size[2] for key, size in sizes.items()})


def reduced(one: Problem) -> Problem:
    """The problem without choices that others stand in for, as `pack` gives it to the solver."""
    cuts = [device(s.name).mig for s in one.supplies]

    def inside(pool: int, small: str, large: str) -> bool:
        cut = cuts[pool]
        return small == large if cut is None or WHOLE in (small, large) else replaces(cut, small, large)

    return pruned(one, inside)[0]


def least_by_trying(one: Problem) -> int | None:
    """The least cost, by every way to serve every model and every way to put the instances on GPUs."""
    best: int | None = None
    ways = [list(_enough(d)) for d in one.demands]
    known: dict[tuple[int, tuple[tuple[str, int], ...]], int | None] = {}
    for chosen in itertools.product(*ways):
        wanted: list[dict[str, int]] = [{} for _ in one.supplies]
        for demand, counts in zip(one.demands, chosen, strict=True):
            for choice, n in zip(demand.choices, counts, strict=True):
                if n:
                    wanted[choice.pool][choice.profile] = wanted[choice.pool].get(choice.profile, 0) + n
        cost = 0
        for p, instances in enumerate(wanted):
            key = p, tuple(sorted(instances.items()))
            if key not in known:
                names = sorted((n for n, c in instances.items() for _ in range(c)), key=lambda n: n, reverse=True)
                known[key] = _gpus(one, p, names)
            needed = known[key]
            if needed is None:
                break
            cost += needed * one.supplies[p].cost
        else:
            best = cost if best is None else min(best, cost)
    return best


def _enough(demand: Demand) -> Iterator[tuple[int, ...]]:
    """Numbers of each choice that are enough, and of which none can be left out."""

    def serves(counts: Sequence[int]) -> bool:
        parts = sum(n * part for n, part in zip(counts, demand.parts, strict=True))
        copies = sum(n * c.processes for n, c in zip(counts, demand.choices, strict=True))
        return copies >= demand.copies and (demand.rate_per_s <= 0 or parts >= PARTS)

    def grow(counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Those that begin so; once it is enough, more of any other is one too many."""
        rest = len(demand.choices) - len(counts)
        whole = (*counts, *(0,) * rest)
        if serves(whole):
            yield whole
        elif rest:
            for n in range(demand.most(len(counts)) + 1):
                yield from grow((*counts, n))

    for counts in grow(()):
        fewer = ([n - (k == j) for k, n in enumerate(counts)] for j, c in enumerate(counts) if c)
        if not any(serves(one) for one in fewer):
            yield counts


def _gpus(one: Problem, pool: int, names: Sequence[str]) -> int | None:
    """The fewest GPUs of a pool that hold these instances, tried one after the other on every GPU; None: too many."""
    cut = device(one.supplies[pool].name).mig
    best: int | None = None

    def stands(held: list[str]) -> bool:
        if WHOLE in held or cut is None:
            return len(held) == 1
        return cut.place(held) is not None

    def put(left: Sequence[str], gpus: list[list[str]]) -> None:
        nonlocal best
        if best is not None and len(gpus) >= best:
            return
        if not left:
            best = len(gpus)
            return
        tried = set()
        for held in gpus:
            if tuple(held) not in tried and stands([*held, left[0]]):
                tried.add(tuple(held))
                held.append(left[0])
                put(left[1:], gpus)
                held.pop()
        if len(gpus) < one.supplies[pool].gpus:
            gpus.append([left[0]])
            if stands(gpus[-1]):
                put(left[1:], gpus)
            gpus.pop()

    put(list(names), [])
    return best
