"""Hours, energy, money and carbon of a training run, from a step's time and a device's power."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from perfpass.deploy import carbon, money
from perfpass.errors import DeviceError
from perfpass.prediction import Interval
from perfpass.predictors.estimate import STEP_WATTS_FALL, Bounds, energy_j
from perfpass.text import columns, digits

if TYPE_CHECKING:
    import os

    from perfpass.devices import Device

_J_PER_KWH = 3.6e6
_SHOWN = 5

Cost = TypeVar("Cost")


@dataclass(frozen=True)
class RunCost:
    """Of all devices; None where no run was asked, or no price or grid is known. ``notes``: what was counted."""

    hours: Interval | None = None
    energy_j: Interval | None = None
    usd: Interval | None = None
    carbon_g: Interval | None = None
    notes: tuple[str, ...] = ()

    def cells(self) -> list[tuple[str, str, str, str]]:
        """Label, median, unit and bounds of each figure that is known."""
        found = []
        for label, value in (("time", self.hours), ("money", self.usd)):
            if value is not None:
                found.append((label, *cells(value)))
        if self.energy_j is not None:
            found.append(("energy", *cells(self.energy_j.scaled(1 / _J_PER_KWH, "kWh"))))
        if self.carbon_g is not None:
            found.append(("carbon", *cells(self.carbon_g.scaled(1e-3, "kgCO2e"))))
        return found


def step_energy_j(step_s: Interval, power_w: Interval, gpus: int) -> Interval:
    """Joules of one step of all ``gpus``, each of which draws ``power_w``: by the rule of `perfpass.predict`."""
    joules = energy_j(Bounds.of(step_s.scaled(1e3, "ms")), Bounds.of(power_w), STEP_WATTS_FALL)
    return joules.scaled(float(gpus)).interval(0, "J")


def run_cost(
    step_s: Interval,
    power_w: Interval,
    steps: float | None,
    board: Device,
    gpus: int,
    *,
    region: str | None = None,
    carbon_intensity: float | None = None,
    pue: float = 1.0,
    price_table: str | os.PathLike[str] | None = None,
) -> RunCost:
    """``steps`` of ``step_s`` on ``gpus`` of ``board``, each of which draws ``power_w``; nothing without ``steps``.

    Raises ArgumentError for an unknown region, and what reading the price table raises.
    """
    if steps is None:
        return RunCost()
    hours = step_s.scaled(steps / 3600, "h")
    energy = step_energy_j(step_s, power_w, gpus).scaled(steps, "J")
    usd, notes = _paid(board, hours, gpus, price_table)
    emitted = None
    if region is not None or carbon_intensity is not None:
        where = carbon.own_grid(carbon_intensity) if carbon_intensity is not None else carbon.grid(region or "")
        value = carbon.emitted(energy, where, pue)
        emitted = value if isinstance(value, Interval) else None
    return RunCost(hours, energy, usd, emitted, notes)


def _paid(
    board: Device, hours: Interval, gpus: int, table: str | os.PathLike[str] | None
) -> tuple[Interval | None, tuple[str, ...]]:
    try:
        paid = money.price(board, money.read_prices(table) if table else None)
    except DeviceError as error:
        return None, (str(error),)
    return hours.scaled(gpus * paid.usd_per_hour, "USD"), (f"devices alone, at {paid} each",)


def cells(value: Interval) -> tuple[str, str, str]:
    """Median, unit and bounds as they are shown."""
    return digits(value.median), value.unit, f"{digits(value.low)} to {digits(value.high)}"


def energy_cells(joules: Interval) -> tuple[str, str, str]:
    """The same of joules, in kJ from ten thousand on."""
    return cells(joules.scaled(1e-3, "kJ") if joules.median >= 1e4 else joules)


@dataclass(frozen=True)
class Searched(ABC, Generic[Cost]):
    """What a search over layouts found: ``best`` first, all that fit; ``others`` do not fit, the nearest first.

    ``left_out``: how many more fit than ``best`` has, of an answer that was sent with the first of them.
    """

    more: ClassVar[tuple[str, ...]] = ()  # heads of what a row has beside the usual

    best: tuple[Cost, ...]
    others: tuple[Cost, ...]
    tried: int
    left_out: int = 0

    @property
    def fit(self) -> int:
        """How many fit."""
        return len(self.best) + self.left_out

    @abstractmethod
    def row(self, one: Cost) -> tuple[str, ...]:
        """Of one that fits: its layout, seconds of a step, their unit, the probability that it fits, its memory."""

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        shown: Any = (self.best[:_SHOWN], self.others[:_SHOWN])
        best, others = ([one.to_dict() for one in some] for some in shown)
        return {"schema": 1, "tried": self.tried, "fit": self.fit, "best": best, "do_not_fit": others}

    def __str__(self) -> str:
        if not self.best:
            return f"none of {self.tried} layouts fits; the nearest:\n\n{self.others[0]}"
        rows = [("", "step", "", "P fits", "memory", *self.more), *map(self.row, self.best[:_SHOWN])]
        table = columns(rows, right=(1,))
        return f"{self.best[0]}\n\n{self.fit} of {self.tried} layouts fit; the quickest:\n{table}"
