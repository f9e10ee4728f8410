"""Energy, carbon and money of many runs of one prediction: the `cost` block of its output."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfpass.deploy import carbon, money
from perfpass.devices import Device
from perfpass.errors import ArgumentError, DeviceError
from perfpass.prediction import Interval
from perfpass.text import columns, digits, paragraph

if TYPE_CHECKING:
    from perfpass.predictors.engine.tails import ArrivalPrediction
    from perfpass.predictors.serving.prediction import LlmPrediction

_MS_PER_HOUR = 3.6e6
_MILLION = 1_000_000


@dataclass(frozen=True)
class Options:
    """What a user says of where and for how much: any may be left out, and its figure is then left out too.

    ``region``: a key of the table of grids, or ``g_per_kwh``: the user's own intensity (it wins). ``pue``: total over
    IT power of the building. ``price_table``: a price table in place of the shipped one; ``grid_table`` likewise.
    """

    region: str | None = None
    g_per_kwh: float | None = None
    pue: float = 1.0
    price_table: str | os.PathLike[str] | None = None
    grid_table: str | os.PathLike[str] | None = None

    def check(self) -> None:
        """Reads the tables and checks the figures, before a model is read. Raises what `cost` raises."""
        self.grid()
        carbon.drawn(0.0, self.pue)
        money.read_prices(self.price_table)

    def grid(self) -> carbon.Grid | None:
        """The grid that was asked for, or None. Raises ArgumentError, FileError, FormatError."""
        if self.g_per_kwh is not None:
            return carbon.own_grid(self.g_per_kwh)
        return carbon.grid(self.region, self.grid_table) if self.region is not None else None


@dataclass(frozen=True)
class Cost:
    """Of ``count`` units (runs, tokens): joules drawn by the building, grams of CO2 equivalents, USD; None: not known.

    ``energy_kind``: "learned" from measurements or "physics". ``notes`` say where the figures come from and what is
    missing.
    """

    count: int
    of: str
    energy_j: Interval
    carbon_g: Interval | None
    usd: Interval | None
    energy_kind: str
    pue: float
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        optional = {"carbon_g": self.carbon_g, "usd": self.usd}
        return {
            "count": self.count,
            "of": self.of,
            "energy_j": self.energy_j.to_dict(),
            **{name: value.to_dict() if value else None for name, value in optional.items()},
            "energy_kind": self.energy_kind,
            "pue": self.pue,
            "notes": list(self.notes),
        }


def cost(
    latency_ms: Interval,
    energy_j: Interval,
    device: Device,
    options: Options,
    *,
    devices: int = 1,
    count: int = 1000,
    of: str = "runs",
    energy_kind: str = "physics",
) -> Cost:
    """What ``count`` units cost, one after the other, each taking ``latency_ms`` and ``energy_j`` on ``devices``.

    Devices count as busy: what they draw and cost while they wait is not in here. Raises what `Options.grid`,
    `money.read_prices` and `carbon.drawn` raise; a device without a price gives no money and a note.
    """
    notes = []
    drawn = carbon.drawn(energy_j.scaled(count, "J"), options.pue)
    grid = options.grid()
    emitted = None
    if grid is not None:
        emitted = carbon.emitted(energy_j.scaled(count, "J"), grid, options.pue)
        notes.append(f"carbon: {grid}; {grid.source}")
    usd = None
    try:
        price = money.price(device, money.read_prices(options.price_table))
        usd = latency_ms.scaled(count * devices * price.usd_per_hour / _MS_PER_HOUR, "USD")
        notes.append(f"money: {price}; {price.source}")
    except DeviceError as error:
        notes.append(f"money: {error}")
    assert isinstance(drawn, Interval) and (emitted is None or isinstance(emitted, Interval))
    return Cost(count, of, drawn, emitted, usd, energy_kind, options.pue, tuple(notes))


def per_million_tokens(found: LlmPrediction | ArrivalPrediction, device: Device, options: Options) -> Cost:
    """Energy, carbon and money of a million output tokens at the predicted throughput, prompts included.

    Raises ArgumentError for a prediction without energy (`with_energy` adds it), and what `cost` raises.
    """
    if found.energy_per_token_j is None:
        raise ArgumentError("the prediction has no energy; with_energy adds it")
    token_ms = found.output_tokens_per_s.inverse(1e3, "ms")
    kind = found.provenance.get("energy", {}).get("kind", "learned")
    return cost(
        token_ms, found.energy_per_token_j, device, options, devices=found.serving.gpus, count=_MILLION,
        of="output tokens", energy_kind=kind,
    )  # fmt: skip


def table(found: Cost) -> str:
    """Lines for people."""
    rows = [(f"per {found.count:,} {found.of}", "median", "", "90% interval")]
    for label, interval in (("energy", found.energy_j), ("carbon", found.carbon_g), ("money", found.usd)):
        if interval is not None:
            bounds = f"{digits(interval.low)} to {digits(interval.high)}"
            rows.append((label, digits(interval.median), interval.unit, bounds))
    lines = [columns(rows, right=(1,)), paragraph("energy", f"{found.energy_kind}, times a PUE of {found.pue:g}")]
    return "\n".join([*lines, *(paragraph("", f"- {note}") for note in found.notes)])
