"""What a page is made of: a headline, key figures, and sections of words, tables and charts, whatever shows them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from perfpass.interval import Interval
from perfpass.report.chart import Chart
from perfpass.report.run_charts import said
from perfpass.text import interval as cells

Tone = Literal["plain", "good", "bad", "unsure"]


@dataclass(frozen=True)
class Cell:
    """What a table shows, and the number by which it is sorted (None: by its letters)."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Table:
    """Rows under a head; ``caption`` says what they are. ``more``: rows that were left out."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    more: int = 0


@dataclass(frozen=True)
class Words:
    """A paragraph, in the tone of what it says."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Points:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Folded:
    """Blocks under a summary that opens them."""

    summary: str
    blocks: tuple[Block, ...]


Block: TypeAlias = "Table | Words | Points | Chart | Folded"


@dataclass(frozen=True)
class Section:
    """A part of the page with a name of its own."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Key:
    """One of the figures that come first: its name, its median, the unit, its bounds."""

    name: str
    median: str
    unit: str
    bounds: str


@dataclass(frozen=True)
class Page:
    """A report. ``headline`` is the decision; ``lead`` what it is about; ``keys`` the first figures."""

    title: str
    headline: str
    tone: Tone
    lead: tuple[str, ...]
    keys: tuple[Key, ...]
    sections: tuple[Section, ...]


def key(name: str, found: Interval, unit: str = "") -> Key:
    """A key figure of an interval."""
    median, own, bounds = cells(found.median, found.low, found.high, found.unit)
    return Key(name, median, unit or own, f"{bounds}, {found.coverage:.0%}".replace("%", " %"))


def interval_cell(found: Interval | None) -> Cell:
    """A figure with its bounds, sorted by its median."""
    return Cell("not known", float("inf")) if found is None else Cell(said(found), found.median)


_NUMBER = re.compile(r"^-?\d[\d,]*\.?\d*(?:e[+-]?\d+)?")
_FACTORS = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[Any]], most: int = 300) -> Table:
    """A table of texts and `Cell`s; a text that begins with a number is sorted as that number with its prefix."""
    made = tuple(tuple(c if isinstance(c, Cell) else Cell(c, _value(c)) for c in row) for row in rows[:most])
    return Table(caption, tuple(head), made, max(0, len(rows) - most))


def _value(text: str) -> float | None:
    match = _NUMBER.match(text)
    if match is None:
        return None
    unit = text[match.end() :].split(maxsplit=1)
    factor = _FACTORS.get(unit[0].rstrip(",;") if unit else "", 1.0)
    return float(match[0].replace(",", "")) * factor


def chart_table(chart: Chart) -> Table:
    """A chart's figures."""
    return table(f"{chart.title}: figures", chart.head, chart.rows, most=60)
