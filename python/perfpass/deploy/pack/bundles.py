"""Whole instances that are enough for one model: the bundles that a large fleet is put together from.

A bundle is so many instances of one choice, or of two. A linear program (OR-Tools GLOP) chooses among the bundles that
are cheap at some prices of the profiles, and gives better prices; its vertex gives all but a few models one bundle in
full, where one of single instances would leave every model in fractions that needs two and a half of them. Prices drawn
around those add bundles that other shares of the GPUs would ask for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.deploy.pack.problem import PARTS, Demand, Problem
from perfpass.errors import needs

_KEPT = 6  # of a model's bundles at the prices,
_DRAWN = 8  # and the cheapest at each of so many prices around them
_AROUND = 0.2  # standard deviation of their logarithms
_MOST_OF_FIRST = 16  # instances of the first choice of a bundle
_BEYOND = 30.0  # times the dearest GPU: what one costs that there is not

Bundle = tuple[tuple[int, int], ...]  # (choice, instances)


def cheap(problem: Problem, prices: Mapping[tuple[int, str], float]) -> list[list[Bundle]]:
    """For each demand, bundles that are enough for it and cheap at about ``prices`` (pool, profile)."""
    keys = sorted(prices)
    draws = np.random.default_rng(0).lognormal(0.0, _AROUND, (_DRAWN, len(keys)))
    floor = 1e-3 * max([*prices.values(), 1e-9])  # what costs nothing is still not free
    base = np.array([max(prices[key], floor) for key in keys])
    at = {key: k for k, key in enumerate(keys)}
    found = []
    for demand in problem.demands:
        columns = np.array([at[c.pool, c.profile] for c in demand.choices])
        rows = _enough(demand)  # first, its instances, second, its instances
        cost = base[columns[rows[:, 0]]] * rows[:, 1] + base[columns[rows[:, 2]]] * rows[:, 3]
        kept = set(np.argsort(cost, kind="stable")[:_KEPT].tolist())
        for draw in base * draws:
            other = draw[columns[rows[:, 0]]] * rows[:, 1] + draw[columns[rows[:, 2]]] * rows[:, 3]
            kept.add(int(other.argmin()))
        found.append([_bundle(rows[k]) for k in sorted(kept)])
    return found


def _bundle(row: np.ndarray) -> Bundle:
    first, m, second, n = (int(v) for v in row)
    return tuple((choice, count) for choice, count in ((first, m), (second, n)) if count)


def _enough(demand: Demand) -> np.ndarray:
    """[N, 4] first choice, instances of it, second choice, and the fewest of it that are enough with them."""
    parts = np.array(demand.parts, dtype=np.int64)
    processes = np.array([c.processes for c in demand.choices], dtype=np.int64)
    most = np.minimum([demand.most(j) for j in range(len(parts))], _MOST_OF_FIRST)
    first = np.repeat(np.arange(len(parts)), most + 1)
    m = np.concatenate([np.arange(k + 1) for k in most])
    left_parts = np.maximum(PARTS - parts[first] * m, 0)
    left_copies = np.maximum(demand.copies - processes[first] * m, 0)
    n = np.maximum(-(-left_parts[:, None] // parts), -(-left_copies[:, None] // processes))
    second = np.broadcast_to(np.arange(len(parts)), n.shape)
    whole = (m[:, None] > 0) | (second == first[:, None])  # none of the first is a bundle of the second alone
    once = (n > 0) | (second == first[:, None])
    mixed = whole & once & ((second != first[:, None]) | (n == 0) | (m[:, None] == 0))
    rows = np.stack([np.broadcast_to(first[:, None], n.shape), np.broadcast_to(m[:, None], n.shape), second, n], -1)
    return rows[mixed & (m[:, None] + n > 0)]


@dataclass(frozen=True)
class Chosen:
    """Shares of each demand's bundles in the cheapest packing with fractions of bundles, and the prices of profiles.

    ``cost``: of that packing, with GPUs that there are not where those that there are do not hold it.
    """

    shares: list[dict[int, float]]
    prices: dict[tuple[int, str], float]
    cost: float


def start_prices(problem: Problem) -> dict[tuple[int, str], float]:
    """Prices to begin with: a profile costs what its part of the GPU does, by how many of it one holds."""
    return {
        (p, profile): supply.cost / max(pattern.get(profile, 0) for pattern in supply.patterns)
        for p, supply in enumerate(problem.supplies)
        for profile in supply.profiles
    }


def chosen(problem: Problem, bundles: list[list[Bundle]]) -> Chosen:
    """The linear program over bundles. GPUs beyond those that there are can be had, at a price that none would pay."""
    with needs("pack", "packing models onto GPUs"):
        from ortools.linear_solver.python import model_builder
    program = model_builder.Model()
    expression = model_builder.LinearExpr.weighted_sum
    shares: list[list[Any]] = []
    taken: dict[tuple[int, str], tuple[list[Any], list[float]]] = {}
    for demand, mine in zip(problem.demands, bundles, strict=True):
        shares.append([program.new_num_var(0, 1, "") for _ in mine])
        program.add(expression(shares[-1], [1.0] * len(mine)) >= 1)
        for bundle, share in zip(mine, shares[-1], strict=True):
            for j, count in bundle:
                choice = demand.choices[j]
                variables, counts = taken.setdefault((choice.pool, choice.profile), ([], []))
                variables.append(share)
                counts.append(float(count))
    cost: tuple[list[Any], list[float]] = ([], [])
    rows: dict[tuple[int, str], Any] = {}
    for p, supply in enumerate(problem.supplies):
        if not supply.patterns:
            continue
        cut = [program.new_num_var(0, math.inf, "") for _ in supply.patterns]
        beyond = program.new_num_var(0, math.inf, "")
        program.add(expression([*cut, beyond], [1.0] * len(cut) + [-1.0]) <= supply.gpus)
        for profile in supply.profiles:
            variables, counts = taken.get((p, profile), ([], []))
            held = [float(-pattern.get(profile, 0)) for pattern in supply.patterns]
            rows[p, profile] = program.add(expression([*variables, *cut], [*counts, *held]) <= 0)
        cost[0].extend([*cut, beyond])
        cost[1].extend([float(supply.cost)] * len(cut) + [_BEYOND * max(s.cost for s in problem.supplies)])
    program.minimize(expression(*cost))
    engine = model_builder.Solver("GLOP")
    if engine.solve(program) != model_builder.SolveStatus.OPTIMAL:
        raise AssertionError("the linear program over bundles always has an optimum")
    prices = {key: max(0.0, -float(engine.dual_value(row))) for key, row in rows.items()}
    found = [{k: float(engine.value(v)) for k, v in enumerate(mine)} for mine in shares]
    return Chosen(found, prices, float(engine.objective_value))
