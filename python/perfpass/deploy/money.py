"""What a workload costs on a cloud: a dated table of prices (prices.toml, or the user's own) times time."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from perfpass.declared import Day, Exactly, Flag, Items, Named, Number, Table, Text
from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError, DeviceError
from perfpass.prediction import Interval
from perfpass.toml_table import read_toml

SCHEMA = 1
_SHIPPED = Path(__file__).with_name("prices.toml")
_HIGHEST_USD = 1e5  # an hour of anything; catches a price in another unit
_MOST_PRICES = 10_000
_ROW = Table(
    {
        "device": Text(),
        "provider": Text(),
        "usd_per_hour": Number(0, _HIGHEST_USD, above=True, hint=" USD"),
        "date": Day(),
        "source": Text(),
        "approximate": Flag(),
    },
    required=("device", "provider", "usd_per_hour", "date", "source"),
)
_FILE = Table(
    {
        "schema": Exactly(SCHEMA),
        "currency": Exactly("USD"),
        "sources": Named(Text()),
        "price": Items(_ROW, _MOST_PRICES, 1, " ([[price]] blocks)"),
    },
    required=("price",),
    hint=" ([[price]] blocks); see the shipped prices.toml",
)
_MS_PER_HOUR = 3.6e6


@dataclass(frozen=True)
class Price:
    """What one device costs per hour on demand, where, when and who says so."""

    device: str
    provider: str
    usd_per_hour: float
    date: date
    source: str
    approximate: bool = False

    def __str__(self) -> str:
        about = "about " if self.approximate else ""
        return f"{about}{self.usd_per_hour:g} USD an hour ({self.provider}, {self.date})"


def read_prices(path: str | os.PathLike[str] | None = None) -> tuple[Price, ...]:
    """All prices of a TOML table; of the shipped one if None. A user's table replaces the shipped one, row for row.

    Raises FileError, LimitError (over 1 MiB) and FormatError, which names the row and what is wrong with it.
    """
    path = _SHIPPED if path is None else Path(path)
    document = _FILE.take(read_toml(path, "a price table"), str(path))
    sources = document.get("sources", {})
    return tuple(_price(row, sources) for row in document["price"])


def _price(row: Mapping[str, Any], sources: Mapping[str, str]) -> Price:
    day = row["date"] if isinstance(row["date"], date) else date.fromisoformat(row["date"])
    source = sources.get(row["source"], row["source"])
    usd, approximate = float(row["usd_per_hour"]), row.get("approximate", False)
    return Price(row["device"], row["provider"], usd, day, source, approximate)


def price(device: str | Device, prices: Sequence[Price] | None = None) -> Price:
    """The cheapest price of a device in ``prices`` (the shipped ones if None); a MIG slice costs its part of the GPU.

    The part of a slice is one over the number of such slices that a GPU holds. Raises DeviceError where no row names
    the device.
    """
    target = find_device(device)
    known = read_prices() if prices is None else prices
    wanted = target.parent or target.id
    rows = [row for row in known if row.device == wanted]
    if not rows:
        names = ", ".join(sorted({row.device for row in known}))
        raise DeviceError(f"no price of {wanted} in the table; it has {names}: add a row in a table of your own")
    cheapest = min(rows, key=lambda row: row.usd_per_hour)
    geometry = find_device(target.parent).mig if target.parent else None
    if geometry is None or target.mig_profile is None:
        return cheapest
    instances = geometry.profile(target.mig_profile).max_instances
    return Price(
        target.id,
        f"{cheapest.provider}, one of {instances} slices",
        cheapest.usd_per_hour / instances,
        cheapest.date,
        cheapest.source,
        cheapest.approximate,
    )


def per_million(latency_ms: float | Interval, batch: int, price: Price) -> float | Interval:
    """USD for a million samples, from the latency of one run of ``batch`` samples. An interval gives an interval.

    The device is taken as busy all the time: what it costs while it waits for requests is not in here. Raises
    ArgumentError for a batch below 1 or a latency that is not above 0.
    """
    return _cost(latency_ms, batch, 1e6, price)


def per_epoch(step_ms: float | Interval, batch: int, samples: int, price: Price) -> float | Interval:
    """USD for one pass over ``samples`` training samples, from the time of one step of ``batch``.

    A last partial step counts as a step.

    Raises as `per_million`, and for fewer samples than one.
    """
    _whole("samples", samples)
    _whole("batch", batch)
    return _cost(step_ms, 1, math.ceil(samples / batch), price)


def _cost(time_ms: float | Interval, batch: int, samples: float, price: Price) -> float | Interval:
    _whole("batch", batch)
    factor = samples / batch / _MS_PER_HOUR * price.usd_per_hour
    if isinstance(time_ms, Interval):
        return time_ms.scaled(factor, "USD")
    if not math.isfinite(time_ms) or time_ms <= 0:
        raise ArgumentError(f"a latency must be a finite number of ms above 0, got {time_ms!r}")
    return time_ms * factor


def _whole(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentError(f"{name} must be a whole number of at least 1, got {value!r}")
