"""A picture as data: axes, marks and words. `layout` places them, `files` and `vector` draw what was placed.

Every chart carries its text alternative (``description``) and its figures as rows, so that nothing is said by a picture
alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from perfpass.text import count, digits, size

# A series of the palette, or a part of the page (`palette.ROLES`).
Role: TypeAlias = "int | Literal['ink', 'soft', 'grid', 'paper']"
Form = Literal["number", "count", "size"]
Shape = Literal["circle", "square", "diamond", "up", "down", "cross"]
SHAPES: tuple[Shape, ...] = ("circle", "square", "diamond", "up", "down", "cross")
_MOST_TICKS = 7


@dataclass(frozen=True)
class Axis:
    """From ``low`` to ``high``; ``label`` names the figure and its unit. ``names``: categories, where and what."""

    label: str
    low: float
    high: float
    log: bool = False
    form: Form = "number"
    names: tuple[tuple[float, str], ...] = ()

    def place(self, value: float) -> float:
        """0 at ``low``, 1 at ``high``."""
        if not self.log:
            return (value - self.low) / ((self.high - self.low) or 1.0)
        floor = self.low * 1e-3
        return math.log(max(value, floor) / self.low) / (math.log(self.high / self.low) or 1.0)

    def ticks(self) -> list[tuple[float, str]]:
        """Where the axis has a mark, and what stands there."""
        if self.names:
            return list(self.names)
        values = _log_ticks(self.low, self.high, self.form) if self.log else _ticks(self.low, self.high, self.form)
        return [(value, written(value, self.form)) for value in values]


def around(label: str, values: list[float], *, log: bool, form: Form = "number", margin: float = 0.06) -> Axis:
    """An axis with room for all ``values``; a linear one begins at 0."""
    known = [v for v in values if math.isfinite(v) and (v > 0 or not log)] or [1.0]
    if not log:
        return Axis(label, 0.0, (max(known) or 1.0) * (1 + margin), form=form)
    low, high = min(known), max(known)
    room = max(margin * math.log(high / low), math.log(1.25))
    return Axis(label, low / math.exp(room), high * math.exp(room), log=True, form=form)


def written(value: float, form: Form) -> str:
    """A figure at a tick."""
    if form == "number" and 0 < abs(value) < 1e-4:
        return f"{value:g}"
    return {"number": digits, "count": count, "size": size}[form](value)


def _ticks(low: float, high: float, form: Form) -> list[float]:
    wide = (high - low) / _MOST_TICKS
    if wide <= 0:
        return [low]
    if form == "size" and high >= 1024:
        step = 2.0 ** math.ceil(math.log2(wide))
    else:
        power = 10.0 ** math.floor(math.log10(wide))
        step = next(power * m for m in (1, 2, 5, 10) if power * m >= wide * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float, form: Form) -> list[float]:
    decades = math.log10(high / low)
    if decades < 1.0:
        return [value for value in _ticks(low, high, form) if value >= low]
    if form == "size":
        every = max(1, round(math.log2(high / low) / _MOST_TICKS))
        return [2.0**power for power in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1, every)]
    factors = (1, 2, 5) if decades < 2.5 else (1,)
    every = max(1, math.ceil(decades / _MOST_TICKS))
    found = [
        factor * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1, every)
        for factor in factors
    ]
    return [value for value in found if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]


@dataclass(frozen=True)
class Dot:
    """One point; ``share`` (0 to 1) is its area, ``tip`` what it says when pointed at."""

    x: float
    y: float
    share: float = 0.2
    tip: str = ""


@dataclass(frozen=True)
class Dots:
    """Points of one kind."""

    points: tuple[Dot, ...]
    colour: Role
    shape: Shape = "circle"
    label: str = ""


@dataclass(frozen=True)
class Line:
    """A line through points (x, y)."""

    points: tuple[tuple[float, float], ...]
    colour: Role
    label: str = ""
    dashed: bool = False
    width: float = 2.0


@dataclass(frozen=True)
class Band:
    """Between two lines: (x, low, high)."""

    points: tuple[tuple[float, float, float], ...]
    colour: Role
    label: str = ""


@dataclass(frozen=True)
class Box:
    """A filled rectangle in the axes' own units, with a text, or a shorter one, where there is room."""

    x0: float
    x1: float
    y0: float
    y1: float
    colour: Role
    text: str = ""
    short: str = ""
    tip: str = ""
    label: str = ""


@dataclass(frozen=True)
class Whisker:
    """An interval with its median; ``upright``: along the y axis, at ``at`` of the other."""

    at: float
    low: float
    median: float
    high: float
    colour: Role
    tip: str = ""
    label: str = ""
    upright: bool = False
    shape: Shape = "diamond"


@dataclass(frozen=True)
class Note:
    """Words at a place of the plot; ``short``: what stands instead where a phone has no room for ``text``."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    colour: Role = "soft"
    stands: Literal["above", "beside", "below"] = "above"
    short: str = ""


Mark: TypeAlias = "Dots | Line | Band | Box | Whisker | Note"


@dataclass(frozen=True)
class Chart:
    """One plot. ``description``: what it shows, in sentences; ``rows`` under ``head``: its figures as a table.

    ``height``: of the plot alone, in CSS pixels. ``bare``: no axes are drawn (the marks have their own words).
    """

    title: str
    subtitle: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    description: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...] = field(repr=False)
    height: float = 300.0
    bare: bool = False

    def alternative(self) -> str:
        """Title, subtitle and description as one text."""
        return ". ".join(part.rstrip(". ") for part in (self.title, self.subtitle, self.description) if part) + "."
