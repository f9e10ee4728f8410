"""Why a fleet cannot be packed, in sentences: of a model that no slice is good enough for, and of too few GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from perfpass.deploy.pack.conflict import Conflict
from perfpass.deploy.pack.fleet import WHOLE, Fleet, Model
from perfpass.deploy.pack.layout import Problems
from perfpass.deploy.pack.options import Option, assured
from perfpass.deploy.pack.problem import Problem
from perfpass.prediction import Interval
from perfpass.text import digits, size

_MOST_NAMED = 6


def without_option(fleet: Fleet, found: Sequence[Sequence[Option]], good: Sequence[Sequence[Option]]) -> Problems:
    """Of every model without an instance that is good enough: what stands against it, and what would do."""
    reasons: list[str] = []
    would_do: list[str] = []
    for model, all_, enough in zip(fleet.models, found, good, strict=True):
        if not enough:
            reason, remedies = _alone(fleet, model, all_)
            reasons.append(reason)
            would_do += remedies
    return Problems(tuple(reasons), tuple(would_do))


def _alone(fleet: Fleet, model: Model, found: Sequence[Option]) -> tuple[str, list[str]]:
    if not found:
        what = "a decoder (media = true)" if model.media else "it"
        return f"{model.name}: no instance of the fleet's GPUs has {what}", [f"{model.name}: add another type of GPU"]
    fitting = [o for o in found if o.p_fits >= fleet.memory_confidence]
    if not fitting:
        best = max(found, key=lambda o: (o.p_fits, o.available_bytes))
        need = size(best.memory_bytes.high)
        reason = (
            f"{model.name}: fits into no instance; the best is {_where(fleet, best)} with "
            f"{size(best.available_bytes)}, it needs up to {need}: P(fits) {best.p_fits:.3f}, "
            f"{fleet.memory_confidence:g} is asked for"
        )
        # A server fills a share of its GPU, and processes a part each: the whole has to be so much larger.
        whole = size(best.memory_bytes.high * _memory(fleet, best) / best.available_bytes)
        smaller = "shorter requests" if model.kind == "llm" else "a smaller batch"
        return reason, [f"{model.name}: a GPU with {whole} or more, {smaller} or a narrower precision"]
    best = max(fitting, key=lambda o: (o.p_meets, -o.latency_ms.median))
    targets = _targets(model, best)
    asked = " and ".join(f"{name} = {digits(target)}" for name, target, _ in targets) or "its limits"
    reason = (
        f"{model.name}: meets {asked} on no instance; the best "
        f"is {_where(fleet, best)}, P(meets) {best.p_meets:.3f}, {fleet.confidence:g} is asked for"
    )
    do = [
        f"{model.name}: {name} = {digits(_rounded_up(reached))} on {_where(fleet, best)}"
        for name, target, reached in ((n, t, _reached(i, fleet.confidence)) for n, t, i in targets)
        if reached > target
    ]
    if best.p_meets > 0.5:
        do.append(f"{model.name}: confidence = {int(best.p_meets * 1000) / 1000:g}")
    return reason, [*do, f"{model.name}: a faster GPU, a smaller batch or a narrower precision"]


def _targets(model: Model, best: Option) -> list[tuple[str, float, Interval]]:
    pairs: list[tuple[str, float | None, Interval | None]] = [
        ("latency_ms", model.latency_ms, best.latency_ms),
        ("ttft_ms", model.ttft_ms, best.latency_ms),
        ("tpot_ms", model.tpot_ms, best.tpot_ms),
    ]
    return [(name, target, found) for name, target, found in pairs if target is not None and found is not None]


def _reached(found: Interval, confidence: float) -> float:
    """The time that the run stays within with this probability."""
    return assured(found, 1.0 - confidence)


def _rounded_up(value: float) -> float:
    """To three digits, never below."""
    step = 10.0 ** (len(f"{int(value)}") - 3)
    return -(-value // step) * step


def _where(fleet: Fleet, option: Option) -> str:
    device = fleet.pools[option.pool].device.id
    shared = f", {option.processes} processes" if option.processes > 1 else ""
    return f"{device} {option.profile}{shared}"


def _memory(fleet: Fleet, option: Option) -> int:
    """The memory of the instance, all that a program can have of it."""
    board = fleet.pools[option.pool].device
    return (board if option.profile == WHOLE else board.mig_slice(option.profile)).usable_bytes


def crowded(fleet: Fleet, problem: Problem, found: Conflict) -> Problems:
    """Of a fleet with too few GPUs: the models and GPUs that stand against each other, and what would do."""
    names = [problem.demands[i].name for i in found.models]
    gpus = [f"{problem.supplies[p].gpus} {problem.supplies[p].name}" for p in found.pools]
    asked = ", ".join(names[:_MOST_NAMED]) + (f" and {len(names) - _MOST_NAMED} more" * (len(names) > _MOST_NAMED))
    verb = "needs" if len(names) == 1 else "need"
    reason = f"{asked or 'its models'} {verb} more than {' and '.join(gpus) or 'the GPUs that there are'} hold"
    do = [
        f"{n} more {problem.supplies[p].name}: count = {fleet.pools[p].count + n}"
        if len(fleet.pools[p].nodes) < 2
        else f"{n} more {problem.supplies[p].name}"
        for p, n in found.more
    ]
    if found.left_out and len(found.left_out) < len(problem.demands):
        left = [problem.demands[i].name for i in found.left_out]
        more = f" and {len(left) - _MOST_NAMED} more" * (len(left) > _MOST_NAMED)
        do.append(f"leave out {', '.join(left[:_MOST_NAMED])}{more}, or lower its rate or copies")
    return Problems((reason,), tuple(do))
