"""Why a fleet cannot be packed: the models and GPUs that stand against each other, and what would do."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from perfpass.deploy.pack import exact
from perfpass.deploy.pack.problem import Problem, Supply

_MOST_CORE = 40  # models up to which a conflict is made as small as can be
_SHARE = 0.25  # of the time, for each part of the answer


@dataclass(frozen=True)
class Conflict:
    """Models and pools (by index) that together cannot be; and what would make the fleet fit, each alone.

    ``more``: (pool, GPUs more of it); ``left_out``: the fewest models without which the others fit.
    """

    models: tuple[int, ...]
    pools: tuple[int, ...]
    more: tuple[tuple[int, int], ...]
    left_out: tuple[int, ...]


def conflict(problem: Problem, limit_s: float) -> Conflict:
    """The conflict of a problem that has no packing and whose every demand has a choice."""
    start = time.monotonic()
    models, pools = _core(problem, _SHARE * limit_s)
    each = (limit_s - (time.monotonic() - start)) / (len(problem.supplies) + 1)
    more = []
    for p in range(len(problem.supplies)):
        if (found := _more(problem, p, each)) is not None:
            more.append((p, found))
    return Conflict(models, pools, tuple(more), _left_out(problem, each))


def _core(problem: Problem, limit_s: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Models and pools whose rules contradict each other; none of a small core can be left out."""
    end = time.monotonic() + limit_s
    model = exact.program(problem, told=True)
    names = {v.index: key for key, v in model.told.items()}
    core = _contradiction(model, list(model.told), names, limit_s)
    if core is None:
        return tuple(range(len(problem.demands))), tuple(range(len(problem.supplies)))
    if len(core) <= _MOST_CORE:
        for key in list(core):
            if (left := end - time.monotonic()) <= 0:
                break
            smaller = _contradiction(model, [k for k in core if k != key], names, left)
            core = smaller if smaller is not None else core
    models, pools = (tuple(sorted(i for kind, i in core if kind == wanted)) for wanted in ("model", "gpu"))
    return models, pools


def _contradiction(
    model: exact.Program, assumed: list[tuple[str, int]], names: dict[int, tuple[str, int]], limit_s: float
) -> list[tuple[str, int]] | None:
    """Those of the assumed rules that contradict each other; None where they do not, or it was not found."""
    model.cp.clear_assumptions()
    model.cp.add_assumptions([model.told[key] for key in assumed])
    engine = exact.solver(limit_s)
    engine.parameters.num_workers = 1  # assumptions are followed by one thread alone
    if exact.status_of(engine.solve(model.cp)) != "unsatisfiable":
        return None
    return [names[index] for index in engine.sufficient_assumptions_for_infeasibility()]


def _more(problem: Problem, pool: int, limit_s: float) -> int | None:
    """The fewest GPUs more of one pool that make the fleet fit; None where no number does, or none was found."""

    def with_gpus(supply: Supply) -> Supply:
        return replace(supply, gpus=supply.gpus + exact.enough(problem, pool))

    supplies = tuple(with_gpus(s) if p == pool else s for p, s in enumerate(problem.supplies))
    model = exact.program(replace(problem, supplies=supplies))
    mine = [v for (p, _), v in model.y.items() if p == pool]
    if not mine:
        return None
    model.cp.minimize(sum(mine))
    engine = exact.solver(limit_s)
    if exact.status_of(engine.solve(model.cp)) not in ("optimal", "feasible"):
        return None
    return int(engine.objective_value) - problem.supplies[pool].gpus


def _left_out(problem: Problem, limit_s: float) -> tuple[int, ...]:
    """The fewest models without which the others fit; empty where none were found in time."""
    model = exact.program(problem, told=True)
    kept: dict[int, Any] = {}
    for (kind, index), literal in model.told.items():
        if kind == "gpu":
            model.cp.add(literal == 1)
        else:
            kept[index] = literal
    model.cp.maximize(sum(kept.values()))
    engine = exact.solver(limit_s)
    if exact.status_of(engine.solve(model.cp)) not in ("optimal", "feasible"):
        return ()
    return tuple(i for i, literal in sorted(kept.items()) if not engine.value(literal))
