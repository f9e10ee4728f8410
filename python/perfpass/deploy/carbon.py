"""What a workload emits: energy times the carbon intensity of a grid (grids.toml, the user's table or figure)."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from perfpass.declared import Exactly, Named, Number, Table, Text
from perfpass.errors import ArgumentError
from perfpass.prediction import Interval
from perfpass.toml_table import read_toml

SCHEMA = 1
_SHIPPED = Path(__file__).with_name("grids.toml")
_JOULES_PER_KWH = 3.6e6
# No grid is dirtier than a bad lignite plant; catches a figure in another unit.
_HIGHEST_G_PER_KWH = 2000.0
_HIGHEST_PUE = 5.0
_FILE = Table(
    {
        "schema": Exactly(SCHEMA),
        "unit": Exactly("gCO2e/kWh"),
        "year": Number(1900, 2200, whole=True),
        "source": Text(),
        "grid": Named(Number(0, _HIGHEST_G_PER_KWH, hint=" gCO2e/kWh"), least=1),
    },
    required=("grid", "year"),
    hint="; see the shipped grids.toml",
)


@dataclass(frozen=True)
class Grid:
    """Grams of CO2 equivalents per kWh: where, of which year, and who says so."""

    region: str
    g_per_kwh: float
    year: int | None
    source: str

    def __post_init__(self) -> None:
        if not math.isfinite(self.g_per_kwh) or not 0 <= self.g_per_kwh <= _HIGHEST_G_PER_KWH:
            raise ArgumentError(
                f"carbon intensity {self.g_per_kwh!r}; it is in gCO2e/kWh, from 0 to {_HIGHEST_G_PER_KWH:g}"
            )

    def __str__(self) -> str:
        when = f", {self.year}" if self.year else ""
        return f"{self.g_per_kwh:g} gCO2e/kWh ({self.region}{when})"


def own_grid(g_per_kwh: float) -> Grid:
    """The user's figure. Raises ArgumentError outside 0 to 2000 gCO2e/kWh."""
    return Grid("given", float(g_per_kwh), None, "given by the user")


def read_grids(path: str | os.PathLike[str] | None = None) -> dict[str, Grid]:
    """The grids of a TOML table by region in upper case; of the shipped one if None.

    Raises FileError, LimitError (over 1 MiB) and FormatError, which names the region and what is wrong with it.
    """
    file = _SHIPPED if path is None else Path(path)
    document = _FILE.take(read_toml(file, "a table of grids"), str(file))
    year, source = document["year"], document.get("source", str(file))
    return {name.upper(): Grid(name.upper(), float(g), year, source) for name, g in document["grid"].items()}


def grid(region: str, path: str | os.PathLike[str] | None = None) -> Grid:
    """The grid of a region: an ISO 3166 country code, or WORLD. Raises ArgumentError for an unknown one."""
    known = read_grids(path)
    found = known.get(region.strip().upper())
    if found is None:
        raise ArgumentError(
            f"no carbon intensity of {region!r}; known are {', '.join(sorted(known))}; give your own in gCO2e/kWh"
        )
    return found


def drawn(energy_j: float | Interval, pue: float = 1.0) -> float | Interval:
    """Joules that the building draws: energy times power usage effectiveness. Raises ArgumentError outside 1 to 5."""
    if isinstance(pue, bool) or not math.isfinite(pue) or not 1.0 <= pue <= _HIGHEST_PUE:
        raise ArgumentError(f"PUE {pue!r}; total over IT power is from 1 to {_HIGHEST_PUE:g}")
    if isinstance(energy_j, Interval):
        return energy_j.scaled(pue, "J")
    if not math.isfinite(energy_j) or energy_j < 0:
        raise ArgumentError(f"energy must be a finite number of J of at least 0, got {energy_j!r}")
    return energy_j * pue


def emitted(energy_j: float | Interval, where: Grid, pue: float = 1.0) -> float | Interval:
    """Grams of CO2 equivalents for an energy in J at the device; an interval gives an interval. Raises as `drawn`.

    The device's own making, and hosts and networks beside it, are not in here.
    """
    total = drawn(energy_j, pue)
    factor = where.g_per_kwh / _JOULES_PER_KWH
    if isinstance(total, Interval):
        low, median, high = (v * factor for v in (total.low, total.median, total.high))
        return Interval(median, low, high, "g", total.coverage)
    return total * factor
