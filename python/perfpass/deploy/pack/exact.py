"""Packing by constraint programming (OR-Tools CP-SAT): the least cost with its proof, or the best found and a bound."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfpass.deploy.pack.problem import PARTS, Counts, Packing, Problem, Status, cost_of
from perfpass.deploy.pack.staying import Today
from perfpass.errors import needs

# Threads: fewer are slower to prove, more find no more on what is packed here.
_WORKERS = 8
_MOVED = 1000  # memory slices that a moved instance counts as, where the cost is the same


@dataclass(frozen=True)
class Program:
    """The constraint program, and its variables by index. ``told``: literals that each rule of the fleet hangs on."""

    cp: Any
    x: dict[tuple[int, int], Any]
    y: dict[tuple[int, int], Any]
    told: dict[tuple[str, int], Any]
    cost: Any


def program(problem: Problem, fixed: Mapping[tuple[int, str], int] | None = None, *, told: bool = False) -> Program:
    """The constraint program. ``fixed`` (pool, profile): instances that others have taken already.

    ``told``: every demand and every number of GPUs holds only while its literal does. Raises UnsupportedError without
    OR-Tools.
    """
    with needs("pack", "packing models onto GPUs"):
        from ortools.sat.python import cp_model
    cp = cp_model.CpModel()
    literals: dict[tuple[str, int], Any] = {}

    def add(constraint: Any, kind: str, index: int) -> None:
        if told:
            if (kind, index) not in literals:
                literals[kind, index] = cp.new_bool_var(f"{kind} {index}")
            constraint.only_enforce_if(literals[kind, index])

    x: dict[tuple[int, int], Any] = {}
    taken: dict[tuple[int, str], list[Any]] = {}
    for i, demand in enumerate(problem.demands):
        for j, choice in enumerate(demand.choices):
            x[i, j] = cp.new_int_var(0, demand.most(j), "")
            taken.setdefault((choice.pool, choice.profile), []).append(x[i, j])
        mine = [x[i, j] for j in range(len(demand.choices))]
        if demand.rate_per_s > 0:
            add(cp.add(cp_model.LinearExpr.weighted_sum(mine, demand.parts) >= PARTS), "model", i)
        copies = cp_model.LinearExpr.weighted_sum(mine, [c.processes for c in demand.choices])
        add(cp.add(copies >= demand.copies), "model", i)
    y: dict[tuple[int, int], Any] = {}
    for p, supply in enumerate(problem.supplies):
        most = max(supply.gpus, enough(problem, p)) if told else supply.gpus
        for q in range(len(supply.patterns)):
            y[p, q] = cp.new_int_var(0, most, "")
        mine = [y[p, q] for q in range(len(supply.patterns))]
        add(cp.add(sum(mine) <= supply.gpus), "gpu", p)
        for profile in supply.profiles:
            held = cp_model.LinearExpr.weighted_sum(mine, [pattern.get(profile, 0) for pattern in supply.patterns])
            cp.add(sum(taken.get((p, profile), [])) + (fixed or {}).get((p, profile), 0) <= held)
    cost = sum(problem.supplies[p].cost * v for (p, _), v in y.items())
    return Program(cp, x, y, literals, cost)


def enough(problem: Problem, pool: int) -> int:
    """GPUs of a pool that hold every model that it can serve, whatever the others hold."""
    return sum(max((d.most(j) for j, c in enumerate(d.choices) if c.pool == pool), default=0) for d in problem.demands)


def solver(limit_s: float) -> Any:
    """A solver; its answer is another one of the same cost where the time or the order of its threads is.

    Its time begins here: a program is made before, which takes a part of it on large fleets.
    """
    from ortools.sat.python import cp_model

    found = cp_model.CpSolver()
    found.parameters.max_time_in_seconds = max(limit_s, 0.01)
    found.parameters.num_workers = _WORKERS
    found.parameters.random_seed = 0
    return found


def status_of(code: Any) -> Status:
    """The solver's status by our word."""
    from ortools.sat.python import cp_model

    return {
        cp_model.OPTIMAL: "optimal",
        cp_model.FEASIBLE: "feasible",
        cp_model.INFEASIBLE: "unsatisfiable",
    }.get(code, "unknown")  # type: ignore[return-value]


def proven(problem: Problem, found: Packing, deadline: float) -> Packing:
    """The packing of least cost, from one that is known; with its proof, unless it is ``deadline`` (monotonic)."""
    model = program(problem)
    hint(model, found)
    model.cp.add(model.cost >= found.bound)
    model.cp.minimize(model.cost)
    engine = solver(deadline - time.monotonic())
    status = status_of(engine.solve(model.cp))
    if status not in ("optimal", "feasible"):
        return found
    return _read(problem, model, engine, max(found.bound, math.ceil(engine.best_objective_bound - 1e-6)))


def any_packing(problem: Problem, bound: int, deadline: float) -> Packing:
    """Some packing, where none is known: the cost comes later."""
    model = program(problem)
    engine = solver(deadline - time.monotonic())
    status = status_of(engine.solve(model.cp))
    if status not in ("optimal", "feasible"):
        return Packing(status, {}, {}, 0, bound, 0.0)
    return _read(problem, model, engine, bound)


def tidied(found: Packing, today: Today, deadline: float) -> Packing:
    """A packing of the same cost that moves few of today's instances and takes few slices."""
    problem = today.problem
    model = program(problem)
    model.cp.add(model.cost <= found.cost)
    moved = []
    for key, count in today.standing.items():
        away = model.cp.new_int_var(0, count, "")
        model.cp.add(away >= count - model.x[key])
        moved.append(away)
    # Instances that stay are their models' own, and no GPU of today is cut twice.
    kept: dict[tuple[int, int], list[Any]] = {}
    for kind, gpus in enumerate(today.gpus):
        model.cp.add(sum(model.y[s.pool, s.pattern] for s in today.stays if s.kind == kind) <= gpus)
    for stay in today.stays:
        for key, count in stay.kept.items():
            kept.setdefault(key, []).append(count * model.y[stay.pool, stay.pattern])
    for key, counts in kept.items():
        model.cp.add(model.x[key] >= sum(counts))
    stays = [count for counts in kept.values() for count in counts]
    slices = []
    for (i, j), v in model.x.items():
        choice = problem.demands[i].choices[j]
        slices.append(problem.slices.get((choice.pool, choice.profile), 1) * v)
    hint(model, found)
    model.cp.minimize(_MOVED * (sum(moved) - sum(stays)) + sum(slices))
    engine = solver(deadline - time.monotonic())
    if status_of(engine.solve(model.cp)) not in ("optimal", "feasible"):
        return found
    return _read(problem, model, engine, found.bound)


def hint(model: Program, found: Packing) -> None:
    """Where the search starts."""
    for variables, values in ((model.x, found.instances), (model.y, found.gpus)):
        for key, v in variables.items():
            model.cp.add_hint(v, values.get(key, 0))


def _read(problem: Problem, model: Program, engine: Any, bound: int) -> Packing:
    return packing(problem, *read(model, engine), bound)


def read(model: Program, engine: Any) -> tuple[Counts, Counts]:
    """Instances and GPUs of the solution."""
    x, y = ({k: n for k, v in found.items() if (n := int(engine.value(v)))} for found in (model.x, model.y))
    return x, y


def packing(problem: Problem, instances: Counts, gpus: Counts, bound: int) -> Packing:
    """What was found, with its cost; optimal where that is the bound."""
    cost = cost_of(problem.supplies, gpus)
    return Packing("optimal" if cost <= bound else "feasible", instances, gpus, cost, min(bound, cost), 0.0)
