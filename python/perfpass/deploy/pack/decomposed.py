"""Large fleets: what linear programs decide stays, the rest and then a part at a time is packed exactly.

A linear program chooses bundles of whole instances and prices the profiles (`bundles`), the prices bound the cost
(`bound`); the few models that it splits between two are packed exactly, all GPUs free to be cut anew. Then some models
at a time are taken out and packed again, at no more cost, and cheaply at the prices where the cost is the same: what
they leave free adds up to GPUs.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perfpass.deploy.pack import exact
from perfpass.deploy.pack.bound import bound
from perfpass.deploy.pack.bundles import Bundle, Chosen, cheap, chosen, start_prices
from perfpass.deploy.pack.problem import Counts, Problem, cost_of

_ROUNDS = 5  # of prices and bundles, at most,
_SLOW = 1e-3  # and until one lowers the cost by less than this share
_AT_ONCE = 24  # models that are packed exactly together
_ONE_S = 4.0  # for one such part,
_FIRST_S = 20.0  # and for the first, at most
_WHOLE = 1e-6
_QUIET = 40  # parts in a row that gave nothing, after which no more are tried
_CENTS = 1000  # of the cost's unit, in which prices of profiles are counted

Prices = Mapping[tuple[int, str], float]


@dataclass(frozen=True)
class Point:
    """What linear programs say: bundles, how much of each, prices, and a bound on the cost."""

    bundles: list[list[Bundle]]
    chosen: Chosen
    bound: int


def point(problem: Problem, deadline: float) -> Point:
    """Prices and bundles in turn, until the cost falls no more, and the bound at the last prices.

    Raises UnsupportedError without OR-Tools.
    """
    prices = start_prices(problem)
    bundles: list[list[Bundle]] = [[] for _ in problem.demands]
    cost = math.inf
    for _ in range(_ROUNDS):
        known = [set(mine) for mine in bundles]
        for mine, seen, new in zip(bundles, known, cheap(problem, prices), strict=True):
            mine += [bundle for bundle in new if bundle not in seen]
        found = chosen(problem, bundles)
        prices = found.prices
        if found.cost > (1 - _SLOW) * cost or time.monotonic() > deadline:
            break
        cost = found.cost
    return Point(bundles, found, bound(problem, prices))


def rounded(problem: Problem, at: Point, deadline: float) -> tuple[Counts, Counts] | None:
    """Models with one bundle in full get it, the others are packed exactly; None where the GPUs do not hold them so."""

    def until() -> float:  # a half of what is left: a second try and the search for less come after
        now = time.monotonic()
        return now + min(_FIRST_S, (deadline - now) / 2)

    bundles, shares, prices = at.bundles, at.chosen.shares, at.chosen.prices
    fixed: Counts = {}
    free: list[int] = []
    for i, mine in enumerate(shares):
        best = max(mine, key=lambda k: mine[k])
        if mine[best] >= 1 - _WHOLE:
            fixed |= {(i, j): n for j, n in bundles[i][best]}
        else:
            free.append(i)
    found = _repacked(problem, free, fixed, prices, until())
    if found is None and free:  # too many to be free at once, or fixed so that the rest does not fit
        every = {(i, j): n for i in free for j, n in bundles[i][max(shares[i], key=lambda k: shares[i][k])]}
        found = _repacked(problem, [], fixed | every, prices, until())
    return found


def _repacked(
    problem: Problem,
    free: Sequence[int],
    fixed: Mapping[tuple[int, int], int],
    prices: Prices,
    deadline: float,
    hint: tuple[Counts, Counts] | None = None,
) -> tuple[Counts, Counts] | None:
    """The fixed instances and the best ones for the ``free`` demands, with the GPUs that hold them all."""
    taken: dict[tuple[int, str], int] = {}
    for (i, j), n in fixed.items():
        choice = problem.demands[i].choices[j]
        taken[choice.pool, choice.profile] = taken.get((choice.pool, choice.profile), 0) + n
    part = replace(problem, demands=tuple(problem.demands[i] for i in free))
    model = exact.program(part, taken)
    priced = []
    for (i, j), v in model.x.items():
        choice = part.demands[i].choices[j]
        priced.append(round(_CENTS * prices.get((choice.pool, choice.profile), 0.0)) * v)
    # One unit of cost weighs as much as the dearest instances of every demand: it comes first.
    weight = 1 + sum(max(d.most(j) for j in range(len(d.choices))) for d in part.demands) * max(
        [round(_CENTS * v) for v in prices.values()], default=0
    )
    if hint is not None:
        model.cp.add(model.cost <= cost_of(problem.supplies, hint[1]))
        for (i, j), v in model.x.items():
            model.cp.add_hint(v, hint[0].get((free[i], j), 0))
        for key, v in model.y.items():
            model.cp.add_hint(v, hint[1].get(key, 0))
    model.cp.minimize(weight * model.cost + sum(priced))
    engine = exact.solver(deadline - time.monotonic())
    if exact.status_of(engine.solve(model.cp)) not in ("optimal", "feasible"):
        return None
    mine, gpus = exact.read(model, engine)
    return {**fixed, **{(free[i], j): n for (i, j), n in mine.items()}}, gpus


def improved(problem: Problem, found: tuple[Counts, Counts], at: Point, deadline: float) -> tuple[Counts, Counts]:
    """Models taken out a part at a time and packed again, until nothing is gained or the time is up."""
    draw = random.Random(0)
    cost = cost_of(problem.supplies, found[1])
    quiet = 0
    everyone = range(len(problem.demands))
    while cost > at.bound and quiet < _QUIET and (now := time.monotonic()) < deadline - 1:
        part = sorted(draw.sample(everyone, min(_AT_ONCE, len(everyone))))
        inside = set(part)
        fixed = {key: n for key, n in found[0].items() if key[0] not in inside}
        better = _repacked(problem, part, fixed, at.chosen.prices, min(now + _ONE_S, deadline), found)
        quiet += 1
        if better is not None:
            now = cost_of(problem.supplies, better[1])
            quiet = 0 if now < cost else quiet
            found, cost = better, now
    return found
