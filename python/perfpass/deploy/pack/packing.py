"""`pack`: from a fleet to a layout, by predictions, constraint programming and placement."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from perfpass.deploy import money
from perfpass.deploy.pack import change, conflict, placing, solving
from perfpass.deploy.pack.fleet import OBJECTIVES, WHOLE, Fleet, Standing, fleet_of, read_fleet
from perfpass.deploy.pack.layout import Gpu, Instance, Layout, Problems
from perfpass.deploy.pack.options import Option, options
from perfpass.deploy.pack.patterns import patterns, replaces
from perfpass.deploy.pack.problem import PARTS, Choice, Demand, Packing, Problem, Supply, pruned
from perfpass.deploy.pack.reasons import crowded, without_option
from perfpass.deploy.pack.staying import today as today_of
from perfpass.devices import Device
from perfpass.errors import ArgumentError, DeviceError
from perfpass.text import unknown

TIME_LIMIT_S = 60.0
# Shares of the time: what is kept for starting, placing and writing; and what a search gets however little is left.
_AFTER, _LEAST = 0.02, 0.1
_PARTS_OF_A_USD = 10_000  # prices are counted in whole hundredths of a cent


def pack(
    fleet: Fleet | Mapping[str, Any] | str | os.PathLike[str],
    *,
    objective: str | None = None,
    confidence: float | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    price_table: str | os.PathLike[str] | None = None,
    today: Mapping[str, tuple[Standing, ...]] | None = None,
) -> Layout:
    """The fleet's models on the fewest GPUs, or on the cheapest ones.

    ``fleet``: a TOML file (docs/reference/fleet-format.md), its content, or a Fleet. ``objective``: "gpus" or "price",
    ``confidence``: the least probability that a target is met; both in place of the fleet's own. ``price_table``: a
    price table in place of the shipped one, for GPUs whose price the fleet does not state. ``today``: what stands now,
    in place of the fleet's own. ``time_limit_s``: for all of it; the search gets what reading and predicting the
    models leave, a tenth at least.

    Raises ArgumentError, FileError, FormatError, DeviceError (no price, where prices are asked for), UnsupportedError
    without OR-Tools (extra ``pack``), and what reading and predicting the models raise. A fleet that cannot be packed
    is no error: the layout says why.
    """
    start = time.monotonic()
    _check_limit(time_limit_s)
    asked = _fleet(fleet, objective, confidence, today)
    prices = _prices(asked, price_table)
    return pack_options(asked, options(asked), time_limit_s=time_limit_s, prices=prices, start=start)


def _left(start: float, limit_s: float) -> float:
    return max(start + (1 - _AFTER) * limit_s - time.monotonic(), _LEAST * limit_s)


def _check_limit(time_limit_s: float) -> None:
    if not 0.1 <= time_limit_s <= 86_400:
        raise ArgumentError(f"a time limit of {time_limit_s!r} s; it is from 0.1 to 86,400 s")


def _fleet(fleet: Any, objective: str | None, confidence: float | None, today: Any) -> Fleet:
    if isinstance(fleet, Fleet):
        found = fleet
    elif isinstance(fleet, Mapping):
        found = fleet_of(fleet)
    else:
        found = read_fleet(fleet)
    if objective is not None and objective not in OBJECTIVES:
        raise ArgumentError(unknown("objective", objective, OBJECTIVES))
    changed = {"objective": objective, "confidence": confidence, "today": today}
    return replace(found, **{name: value for name, value in changed.items() if value is not None})


def _prices(fleet: Fleet, table: str | os.PathLike[str] | None) -> list[float | None]:
    """USD an hour of each pool's GPU; None where it is not known and not asked for. Raises DeviceError."""
    known = None if all(p.usd_per_hour is not None for p in fleet.pools) else money.read_prices(table)
    found: list[float | None] = []
    for pool in fleet.pools:
        try:
            own = pool.usd_per_hour
            found.append(own if own is not None or known is None else money.price(pool.device, known).usd_per_hour)
        except DeviceError as error:
            if fleet.objective == "price":
                raise DeviceError(f"{error}; or give usd_per_hour of the GPU in the fleet") from error
            found.append(None)
    return found


def pack_options(
    fleet: Fleet,
    found: Sequence[Sequence[Option]],
    *,
    time_limit_s: float = TIME_LIMIT_S,
    prices: Sequence[float | None] | None = None,
    notes: tuple[str, ...] = (),
    start: float | None = None,
) -> Layout:
    """As `pack`, where what each model costs in each instance is known: for each model of the fleet its options.

    ``prices``: USD an hour of each pool's GPU; ``notes``: what the layout is to say beside; ``start``: when the time
    began (`time.monotonic`), else now.
    """
    _check_limit(time_limit_s)
    start = time.monotonic() if start is None else start
    kept = tuple(tuple(mine) for mine in found)
    money_of = list(prices) if prices is not None else [p.usd_per_hour for p in fleet.pools]
    good = [
        [o for o in mine if o.good(fleet) and PARTS * o.rate_per_s >= model.rate]
        for model, mine in zip(fleet.models, kept, strict=True)
    ]
    if not all(good):
        problems = without_option(fleet, kept, good)
        return Layout("unsatisfiable", fleet, (), 0, 0, time.monotonic() - start, problems=problems, options=kept)
    problem, back = pruned(_problem(fleet, good, money_of), _replaces(fleet))
    stands = today_of(fleet, problem)
    packed = solving.solve(problem, _left(start, time_limit_s), stands)
    if packed.status in ("unsatisfiable", "unknown"):
        crowd: Problems | None = None
        if packed.status == "unsatisfiable":
            crowd = crowded(fleet, problem, conflict.conflict(problem, _left(start, time_limit_s)))
        return Layout(packed.status, fleet, (), 0, 0, time.monotonic() - start, problems=crowd, options=kept)
    gpus, wanted = _gpus(fleet, good, stands.problem, back, packed)
    unit = _PARTS_OF_A_USD if fleet.objective == "price" else 1
    hourly = [money_of[p] for (p, _), n in packed.gpus.items() for _ in range(n)]
    return Layout(
        status=packed.status,
        fleet=fleet,
        gpus=gpus,
        value=packed.cost / unit,
        bound=packed.bound / unit,
        seconds=time.monotonic() - start,
        steps=change.steps(fleet, wanted),
        notes=(*notes, *_notes(fleet, gpus)),
        usd_per_hour=None if None in hourly else sum(usd for usd in hourly if usd is not None),
        options=kept,
    )


def _problem(fleet: Fleet, good: Sequence[Sequence[Option]], prices: Sequence[float | None]) -> Problem:
    used = [sorted({o.profile for mine in good for o in mine if o.pool == p}) for p in range(len(fleet.pools))]
    supplies = []
    for pool, profiles, usd in zip(fleet.pools, used, prices, strict=True):
        cost = 1 if fleet.objective == "gpus" else max(1, round((usd or 0.0) * _PARTS_OF_A_USD))
        supplies.append(Supply(pool.device.id, pool.total, cost, patterns(pool.device, pool.mode, profiles)))
    demands = tuple(
        Demand(m.name, m.copies, m.rate, tuple(Choice(o.pool, o.profile, o.processes, o.rate_per_s) for o in mine))
        for m, mine in zip(fleet.models, good, strict=True)
    )
    slices = {(p, name): _slices(fleet.pools[p].device, name) for p, names in enumerate(used) for name in names}
    return Problem(tuple(supplies), demands, slices)


def _slices(device: Device, profile: str) -> int:
    if device.mig is None:
        return 8
    return device.mig.memory_slices if profile == WHOLE else device.mig.profile(profile).memory_slices


def _replaces(fleet: Fleet) -> Callable[[int, str, str], bool]:
    @cache
    def inside(pool: int, small: str, large: str) -> bool:
        cut = fleet.pools[pool].device.mig
        if cut is None or WHOLE in (small, large):
            return small == large
        return replaces(cut, small, large)

    return inside


def _gpus(
    fleet: Fleet,
    good: Sequence[Sequence[Option]],
    problem: Problem,
    back: Sequence[Sequence[int]],
    packed: Packing,
) -> tuple[tuple[Gpu, ...], dict[str, list[change.Actual]]]:
    """Every GPU that is used, and what stands on each GPU of the fleet then."""
    option_of: dict[tuple[int, str, str, int], Option] = {}
    wanted: list[placing.Wanted] = [Counter() for _ in fleet.pools]
    for (i, j), n in packed.instances.items():
        option = good[i][back[i][j]]
        model = fleet.models[i].name
        option_of[option.pool, option.profile, model, option.processes] = option
        wanted[option.pool][option.profile, model, option.processes] += n
    gpus: list[Gpu] = []
    stands: dict[str, list[change.Actual]] = {}
    for p, pool in enumerate(fleet.pools):
        cuts = [
            problem.supplies[p].patterns[q] for (s, q), n in sorted(packed.gpus.items()) if s == p for _ in range(n)
        ]
        for placed in placing.place(pool, cuts, wanted[p], fleet.today):
            stands[placed.name] = placed.instances
            if placed.instances:
                instances = tuple(
                    Instance(profile, start, model, option_of[p, profile, model, n])
                    for profile, start, model, n in placed.instances
                )
                gpus.append(_gpu(placed, pool.device, instances))
    return tuple(gpus), stands


def _gpu(placed: placing.Placed, device: Device, instances: tuple[Instance, ...]) -> Gpu:
    cut = device.mig
    if cut is None or instances[0].profile == WHOLE:
        return Gpu(placed.name, placed.node, placed.index, device, instances, 0, 0, 0, 0, ())
    there = [(one.profile, one.start) for one in instances]
    compute = cut.compute_slices - sum(cut.profile(name).compute_slices for name, _ in there)
    memory = cut.memory_slices - sum(cut.profile(name).memory_slices for name, _ in there)
    room = tuple(p.name for p in cut.profiles if "+" not in p.name and cut.place([p.name], there) is not None)
    # What further instances can use, the smallest first: they waste least.
    more, standing = [p for p in cut.profiles if p.name in room], list(there)
    for profile in sorted(more, key=lambda p: (p.memory_slices, p.compute_slices)):
        while (found := cut.place([profile.name], standing)) is not None:
            standing.append(found[0])
    left_compute = cut.compute_slices - sum(cut.profile(name).compute_slices for name, _ in standing)
    left_memory = cut.memory_slices - sum(cut.profile(name).memory_slices for name, _ in standing)
    return Gpu(
        placed.name, placed.node, placed.index, device, instances, compute, memory, left_compute, left_memory, room
    )  # fmt: skip


def _notes(fleet: Fleet, gpus: Sequence[Gpu]) -> tuple[str, ...]:
    notes = []
    outside = sorted({one.model for gpu in gpus for one in gpu.instances if one.option.support == "outside"})
    if outside:
        notes.append(f"outside what was measured: {', '.join(outside[:10])}; measure before you rely on it")
    if estimated := sorted({g.device.id for g in gpus if g.mig and g.device.mig and g.device.mig.listing == "by-rule"}):
        notes.append(f"memory of slices by rule, no listing was found: {', '.join(estimated)}")
    return tuple(notes)
