"""Where everything of a chart stands, in CSS pixels from the top left: shapes that any canvas can draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

from perfpass.report.chart import Band, Box, Chart, Dots, Line, Mark, Note, Role, Shape, Whisker
from perfpass.text import printable

WIDTH = 760.0
NARROW = 360.0  # on a phone; names of categories stand above their rows there
TEXT, SMALL, TITLE = 12.0, 11.0, 15.0
_LINE = SMALL + 5  # what a name above its row takes
_WHISKER = 6.0  # of an interval, above its line
_EM = 0.6  # mean width of a letter over its size
_LARGEST_DOT, _SMALLEST_DOT = 15.0, 2.6
_LONGEST_NAME = 40  # letters of a category


@dataclass(frozen=True)
class Words:
    """A line of text; ``y`` is its baseline. ``turned``: upwards. ``clear``: what is behind is kept off its letters."""

    x: float
    y: float
    text: str
    size: float = TEXT
    anchor: Literal["start", "middle", "end"] = "start"
    colour: Role = "ink"
    bold: bool = False
    turned: bool = False
    clear: bool = False


@dataclass(frozen=True)
class Area:
    """A rectangle filled with a tint of its colour."""

    x: float
    y: float
    width: float
    height: float
    colour: Role
    tip: str = ""


@dataclass(frozen=True)
class Trace:
    """A line through points; ``filled``: what it surrounds, without an outline; what is behind shows."""

    points: tuple[tuple[float, float], ...]
    colour: Role
    width: float = 1.0
    dashed: bool = False
    filled: bool = False


@dataclass(frozen=True)
class Spot:
    """A marker of a radius around a point."""

    x: float
    y: float
    radius: float
    shape: Shape
    colour: Role
    tip: str = ""


Placed: TypeAlias = "Words | Area | Trace | Spot"


@dataclass(frozen=True)
class Page:
    """A placed chart: ``frame`` are the shapes around the plot, ``inside`` those that belong into ``plot``
    (x, y, width, height).
    """

    width: float
    height: float
    plot: tuple[float, float, float, float]
    frame: tuple[Placed, ...]
    inside: tuple[Placed, ...]


def fitted(text: str, width: float, size: float = SMALL) -> str:
    """As much of a text as has room, empty where not even its beginning has."""
    room = int(width / (_EM * size))
    text = printable(text)
    if len(text) <= room:
        return text
    return f"{text[: room - 1]}…" if room >= 4 else ""


def wrapped(text: str, width: float, size: float) -> list[str]:
    """Lines of a text that fit a width."""
    import textwrap

    return textwrap.wrap(printable(text), max(10, int(width / (_EM * size))))


def placed(chart: Chart, width: float = WIDTH) -> Page:
    """The shapes of a chart that is ``width`` pixels wide."""
    frame: list[Placed] = []
    y = 6.0
    for line in wrapped(chart.title, width - 16, TITLE):
        y += TITLE + 4
        frame.append(Words(8, y, line, TITLE, bold=True))
    for line in wrapped(chart.subtitle, width - 16, TEXT):
        y += TEXT + 4
        frame.append(Words(8, y, line, TEXT, colour="soft"))
    y = _legend(chart, width, y + 8, frame)
    upright = [] if chart.bare else chart.y.ticks()
    above = _LINE if chart.y.names and not chart.bare and width <= NARROW else 0.0
    longest = max((_wide(_name(text)) for _, text in upright), default=0.0)
    left = 12.0 if chart.bare or above else 16 + longest + (20 if chart.y.label else 0)
    right, top = 14.0 if chart.bare else 22.0, y + 8
    plot = _Plot(chart, left, top, width - left - right, chart.height + above * len(upright), above)
    below = 10.0
    if not chart.bare:
        below = _axes(plot, upright, width, frame)
    inside = [shape for mark in chart.marks for shape in _shapes(plot, mark)]
    return Page(width, top + plot.height + below, plot.place, tuple(frame), tuple(inside))


@dataclass(frozen=True)
class _Plot:
    """Where the axes lie; ``above``: the room that each category has for its name over its marks."""

    chart: Chart
    x: float
    y: float
    width: float
    height: float
    above: float

    @property
    def place(self) -> tuple[float, float, float, float]:
        return self.x, self.y, self.width, self.height

    @cached_property
    def rows(self) -> list[float]:
        """The categories, from the top."""
        return sorted((value for value, _ in self.chart.y.names), reverse=True)

    def at(self, x: float, y: float, row: float | None = None) -> tuple[float, float]:
        """A point; ``row``: what says its category, where that is not ``y`` itself."""
        across, up = self.chart.x.place(x), self.chart.y.place(y)
        if not self.above:
            return self.x + self.width * across, self.y + self.height * (1 - up)
        wanted = y if row is None else row
        before = 1 + min(range(len(self.rows)), key=lambda i: abs(self.rows[i] - wanted))
        return self.x + self.width * across, self.y + self.chart.height * (1 - up) + self.above * before

    def named(self, row: float) -> float:
        """The baseline of a category's name over its marks."""
        boxes = [mark for mark in self.chart.marks if isinstance(mark, Box) and abs(mark.y0 + mark.y1 - 2 * row) < 1e-6]
        reach = max((mark.y1 - row for mark in boxes), default=0.0) / ((self.chart.y.high - self.chart.y.low) or 1.0)
        return self.at(self.chart.x.low, row)[1] - max(self.chart.height * reach, _WHISKER) - 4

    @cached_property
    def beside_names(self) -> tuple[str, ...]:
        """Of each note beside marks, in their order, what is written beside the names: where not all have room at their
        marks and all have it here, in short if not at length; else nothing.
        """
        found = [mark for mark in self.chart.marks if isinstance(mark, Note) and mark.stands == "beside"]
        if not self.above or all(self.at(m.x, m.y)[0] + 6 + _wide(m.text) <= self.x + self.width for m in found):
            return ()
        names = dict(self.chart.y.names)
        for texts in (tuple(m.text for m in found), tuple(m.short or m.text for m in found)):
            pairs = zip(found, texts, strict=True)
            if all(4 + _wide(names.get(m.y, "")) + 10 + _wide(text) <= self.width for m, text in pairs):
                return texts
        return ()


def stacked(charts: Sequence[Chart]) -> list[Page]:
    """Charts below one another; a subtitle that says what the one above said is left out."""
    before = [None, *(chart.subtitle for chart in charts)]
    return [placed(replace(c, subtitle="") if c.subtitle == b else c) for c, b in zip(charts, before, strict=False)]


def _name(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"


def _legend(chart: Chart, width: float, y: float, frame: list[Placed]) -> float:
    """Adds a key of every label, in rows; returns where the next thing may stand."""
    keys: dict[str, Mark] = {}
    for mark in chart.marks:
        if not isinstance(mark, Note) and mark.label:
            keys.setdefault(mark.label, mark)
    if not keys:
        return y
    x, row = 12.0, y + 10
    for label, mark in keys.items():
        wide = 24 + len(label) * _EM * SMALL + 16
        if x + wide > width and x > 12:
            x, row = 12.0, row + 18
        frame += [*_key(mark, x, row), Words(x + 22, row + 4, label, SMALL, colour="ink")]
        x += wide
    return row + 8


def _key(mark: Mark, x: float, y: float) -> list[Placed]:
    assert not isinstance(mark, Note)
    if isinstance(mark, Dots):
        return [Spot(x + 8, y, 5, mark.shape, mark.colour)]
    if isinstance(mark, Whisker):
        ends = ((x, y), (x + 16, y))
        return [Trace(ends, mark.colour, 2), Spot(x + 8, y, 4.5, mark.shape, mark.colour)]
    if isinstance(mark, Line):
        return [Trace(((x, y), (x + 16, y)), mark.colour, mark.width, mark.dashed)]
    return [Area(x, y - 6, 16, 12, mark.colour)]


def _axes(plot: _Plot, upright: list[tuple[float, str]], width: float, frame: list[Placed]) -> float:
    """Adds ticks, names and labels; returns the room that those below the plot take."""
    x0, y0, wide, height = plot.place
    chart = plot.chart
    for value, text in upright:
        if plot.above:
            name = fitted(text, width - x0 - 4)
            frame.append(Words(x0 + 4, plot.named(value), name, SMALL, colour="ink"))
            continue
        y = plot.at(chart.x.low, value)[1]
        if not chart.y.names:
            frame.append(Trace(((x0, y), (x0 + wide, y)), "grid"))
        frame.append(Words(x0 - 6, y + 4, _name(text), SMALL, "end", "ink" if chart.y.names else "soft"))
    end = -math.inf
    for value, text in chart.x.ticks():
        x = x0 + wide * chart.x.place(value)
        frame.append(Trace(((x, y0), (x, y0 + height)), "grid"))
        if x - _wide(text) / 2 >= end + 4:  # else the one before it stands there
            frame.append(Words(x, y0 + height + 15, text, SMALL, "middle", "soft"))
            end = x + _wide(text) / 2
    frame.append(Trace(((x0, y0), (x0, y0 + height), (x0 + wide, y0 + height)), "soft"))
    lines = wrapped(chart.x.label, width - 16, TEXT)
    for i, line in enumerate(lines):
        half = _wide(line, TEXT) / 2 + 4
        middle = min(max(x0 + wide / 2, half), width - half)
        frame.append(Words(middle, y0 + height + 35 + i * (TEXT + 3), line, TEXT, "middle"))
    if chart.y.label:
        frame.append(Words(14, y0 + height / 2, chart.y.label, TEXT, "middle", turned=True))
    return 46.0 + max(len(lines) - 1, 0) * (TEXT + 3)


def _shapes(plot: _Plot, mark: Mark) -> list[Placed]:
    at = plot.at
    if isinstance(mark, Dots):
        return [
            Spot(*at(p.x, p.y), max(_SMALLEST_DOT, _LARGEST_DOT * math.sqrt(p.share)), mark.shape, mark.colour, p.tip)
            for p in sorted(mark.points, key=lambda p: -p.share)
        ]
    if isinstance(mark, Line):
        return [Trace(tuple(at(*p) for p in mark.points), mark.colour, mark.width, mark.dashed)]
    if isinstance(mark, Band):
        above = [at(x, high) for x, _, high in mark.points]
        below = [at(x, low) for x, low, _ in reversed(mark.points)]
        return [Trace((*above, *below), mark.colour, filled=True)]
    if isinstance(mark, Whisker):
        return _whisker(mark, at)
    if isinstance(mark, Note):
        return [_note(plot, mark)]
    row = (mark.y0 + mark.y1) / 2
    (left, top), (right, bottom) = at(mark.x0, mark.y1, row), at(mark.x1, mark.y0, row)
    shapes: list[Placed] = [Area(left, top, max(right - left, 0.4), bottom - top, mark.colour, mark.tip)]
    text = fitted(mark.text, right - left - 8)
    if mark.short and text != mark.text:
        text = fitted(mark.short, right - left - 8)
    if text:
        shapes.append(Words(left + 4, (top + bottom) / 2 + 4, text, SMALL))
    return shapes


def _note(plot: _Plot, mark: Note) -> Words:
    """Words at their place, or as far beside it as keeps all of them in the plot."""
    if mark.stands == "beside" and plot.beside_names:
        text = mark.text if mark.text in plot.beside_names else mark.short
        return Words(plot.x + plot.width, plot.named(mark.y), text, SMALL, "end", mark.colour, clear=True)
    x, y = plot.at(mark.x, mark.y)
    down = {"above": -5.0, "beside": 4.0, "below": 15.0}[mark.stands]
    short = mark.short if plot.width < NARROW and x + 6 + _wide(mark.text) > plot.x + plot.width else ""
    text = fitted(short or mark.text, plot.width)
    # Most are narrower. On a desk, where there is room, one that is moved onto its mark is worse to read.
    wide = _wide(text) if plot.width < NARROW else 0.9 * _wide(text)
    start = x + {"start": 6.0, "middle": -wide / 2, "end": -6.0 - wide}[mark.anchor]
    moved = min(max(start, plot.x), plot.x + plot.width - wide) - start
    right = {"start": 6.0, "middle": 0.0, "end": -6.0}[mark.anchor]
    return Words(x + right + moved, y + down, text, SMALL, mark.anchor, mark.colour, clear=True)


def _wide(text: str, size: float = SMALL) -> float:
    """About how wide a text is."""
    return len(text) * _EM * size


def _whisker(mark: Whisker, at: object) -> list[Placed]:
    assert callable(at)
    points = [at(mark.at, v) if mark.upright else at(v, mark.at) for v in (mark.low, mark.high, mark.median)]
    low, high, (x, y) = points
    across = (5.0, 0.0) if mark.upright else (0.0, 5.0)

    def cap(point: tuple[float, float]) -> Trace:
        ends = tuple((point[0] + s * across[0], point[1] + s * across[1]) for s in (-1, 1))
        return Trace(ends, mark.colour, 2)

    return [Trace((low, high), mark.colour, 2), cap(low), cap(high), Spot(x, y, 5.5, mark.shape, mark.colour, mark.tip)]
