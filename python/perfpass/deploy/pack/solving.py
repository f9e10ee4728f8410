"""The packing of least cost: bound, first packing, better ones and the proof, within a time limit."""

from __future__ import annotations

import time
from dataclasses import replace

from perfpass.deploy.pack import decomposed, exact
from perfpass.deploy.pack.problem import Packing, Problem
from perfpass.deploy.pack.staying import Today

# Choices of all models up to which the whole is given to CP-SAT; beyond, it is packed a part at a time.
MOST_EXACT = 6000
# Shares of the time limit: what a solver may take beyond its own, and
_SPARE = 0.02
_TIDY = 0.2  # what is kept for packings of the same cost that move and take less


def solve(problem: Problem, limit_s: float, today: Today | None = None) -> Packing:
    """The packing of least cost that was found in ``limit_s`` seconds, with a bound on the least.

    Among those of that cost one that moves few of the instances of ``today`` and takes few slices; its patterns are
    those of ``today.problem``, where the problem's own come first. Raises UnsupportedError without OR-Tools.
    """
    start = time.monotonic()
    end = start + (1 - _SPARE) * limit_s
    point = decomposed.point(problem, start + limit_s / 3)
    if point.bound > sum(s.gpus * s.cost for s in problem.supplies):  # more than all GPUs cost
        return Packing("unsatisfiable", {}, {}, 0, 0, time.monotonic() - start)
    small = sum(len(d.choices) for d in problem.demands) <= MOST_EXACT
    first = decomposed.rounded(problem, point, end)
    if first is not None:
        found = exact.packing(problem, *first, point.bound)
    else:  # what is scarce may leave no room for bundles that were cheap: then the whole is searched
        found = exact.any_packing(problem, point.bound, (end + time.monotonic()) / 2)
    if found.status == "feasible":
        tidy = end - _TIDY * limit_s
        if small:
            found = exact.proven(problem, found, tidy)
        else:
            better = decomposed.improved(problem, (dict(found.instances), dict(found.gpus)), point, tidy)
            found = exact.packing(problem, *better, found.bound)
    if found.status in ("optimal", "feasible") and small and (now := time.monotonic()) < end - 0.1:
        found = exact.tidied(found, today or Today(problem, {}), min(end, now + _TIDY * limit_s))
    return replace(found, seconds=time.monotonic() - start)
