"""A bound on the cost of a packing from prices of profiles (Lagrange): no packing costs less, whatever the prices are.

Let GPUs sell instances at a price each. Every model then buys the cheapest instances that are enough for it, on its
own, and GPUs whose instances sell for more than the GPU costs are all sold: what the models pay less what that earns
is a bound. The cheapest that is enough is a knapsack, of all models at once; its parts are rounded to their favour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from perfpass.deploy.pack.problem import PARTS, Problem

_STEPS = 800  # that a model's rate is counted in; more are closer and slower
_COPIES = 3  # copies that are counted; a model that asks for more is asked for these
_AT_ONCE = 2000  # models

Prices = Mapping[tuple[int, str], float]


def bound(problem: Problem, prices: Prices) -> int:
    """The bound at ``prices`` (pool, profile), a whole number as costs are."""
    total = sum(_cheapest(problem, k, prices) for k in range(0, len(problem.demands), _AT_ONCE))
    for p, supply in enumerate(problem.supplies):
        sold = [sum(n * prices.get((p, name), 0.0) for name, n in pattern.items()) for pattern in supply.patterns]
        total -= supply.gpus * max(0.0, max(sold, default=0.0) - supply.cost)
    return max(0, math.ceil(total * (1 - 1e-9) - 1e-6))


def _cheapest(problem: Problem, first: int, prices: Prices) -> float:
    """What some models pay together."""
    demands = problem.demands[first : first + _AT_ONCE]
    widest = max(len(d.choices) for d in demands)
    units = np.zeros((len(demands), widest), dtype=np.int64)
    processes = np.ones_like(units)
    price = np.full(units.shape, np.inf)
    for i, d in enumerate(demands):
        n = len(d.choices)
        units[i, :n] = [-(-part * _STEPS // PARTS) for part in d.parts]
        processes[i, :n] = [c.processes for c in d.choices]
        price[i, :n] = [prices.get((c.pool, c.profile), 0.0) for c in d.choices]
    copies = np.array([min(d.copies, _COPIES) for d in demands])
    asked = np.array([_STEPS if d.rate_per_s > 0 else 0 for d in demands])
    most = int(copies.max())
    paid = np.zeros((len(demands), _STEPS + 1, most + 1))
    row = np.arange(len(demands))[:, None]
    for served in range(int(asked.max()) + 1):
        for running in range(most + 1):
            if served or running:
                before = paid[row, np.maximum(served - units, 0), np.maximum(running - processes, 0)]
                paid[:, served, running] = (before + price).min(axis=1)
    return float(paid[np.arange(len(demands)), asked, copies].sum())
