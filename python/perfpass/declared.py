"""What a document that others wrote may hold, declared once per kind: keys, types, ranges.

A `Table` names its keys and what each may be; an unknown or missing key, a wrong type and a figure out of its range are
one error of one line, which names the place, the value and what is allowed. Nothing is converted or filled in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date
from typing import Any

from perfpass.errors import FormatError, PerfPassError
from perfpass.late import dataclass
from perfpass.text import instead, shown_value

LONGEST_TEXT = 500  # characters
_SHOWN = 60  # characters of a path of keys
_WIDEST = 2**64  # no count, size or time of ours comes near it
DEEPEST = 64  # tables and lists inside one another


@dataclass(frozen=True)
class Kind:
    """What one value may be."""

    def check(self, value: Any, where: str, key: str, error: type[PerfPassError]) -> None:
        """Raises ``error`` for a value that is not of this kind; ``key`` names it, ``where`` what holds it."""
        if not self.fits(value):
            raise error(f"{_before(where)}{key} {shown_value(value)}{self.instead(value)}")

    def fits(self, value: Any) -> bool:
        """Whether ``value`` is of this kind."""
        raise NotImplementedError

    def instead(self, value: Any) -> str:
        """The end of the error about ``value``: what it must be."""
        return f"; {self.expected()}"

    def expected(self) -> str:
        """What the value must be, for the error."""
        raise NotImplementedError


@dataclass(frozen=True)
class Number(Kind):
    """A finite number from ``least`` to ``most``; ``above``: and not ``least`` itself. ``whole``: 2.0 is none."""

    least: float = -math.inf
    most: float = math.inf
    whole: bool = False
    above: bool = False
    hint: str = ""

    def fits(self, value: Any) -> bool:
        """As `Kind.fits`."""
        if isinstance(value, bool) or not isinstance(value, int if self.whole else (int, float)):
            return False
        # A whole number is compared as it is: float() of a very large one overflows.
        finite = isinstance(value, int) or math.isfinite(value)
        return finite and self.least <= value <= self.most and not (self.above and value == self.least)

    def expected(self) -> str:
        """As `Kind.expected`."""
        kind = "whole number" if self.whole else "finite number"
        least, most = (f"{v:,}" if self.whole else f"{v:g}" for v in (self.least, self.most))
        low = "" if self.least == -math.inf else f" {'above' if self.above else 'from'} {least}"
        high = "" if self.most == math.inf else f" {'up to' if self.above or not low else 'to'} {most}"
        return f"it is a {kind}{low}{high}{self.hint}"


@dataclass(frozen=True)
class Text(Kind):
    """A printable text of at most ``most`` characters; ``empty``: or none of any. ``lines``: it may have several."""

    most: int = LONGEST_TEXT
    empty: bool = False
    lines: bool = False

    def fits(self, value: Any) -> bool:
        """As `Kind.fits`."""
        if not isinstance(value, str) or len(value) > self.most:
            return False
        return (self.empty or bool(value.strip())) and (self.lines or value.isprintable())

    def expected(self) -> str:
        """As `Kind.expected`."""
        least = "at most" if self.empty else "1 to"
        return f"it is a {'' if self.lines else 'printable '}text of {least} {self.most} characters"


@dataclass(frozen=True)
class Choice(Kind):
    """One of a few texts."""

    allowed: tuple[str, ...]

    def fits(self, value: Any) -> bool:
        """As `Kind.fits`."""
        return isinstance(value, str) and value in self.allowed

    def instead(self, value: Any) -> str:
        """As `Kind.instead`, the nearest texts first."""
        return instead(value, self.allowed)


@dataclass(frozen=True)
class Exactly(Kind):
    """One value, such as the version of a schema."""

    value: Any

    def fits(self, value: Any) -> bool:
        """As `Kind.fits`."""
        return type(value) is type(self.value) and value == self.value

    def expected(self) -> str:
        """As `Kind.expected`."""
        return f"this version reads {self.value!r}"


@dataclass(frozen=True)
class Flag(Kind):
    """True or false."""

    def fits(self, value: Any) -> bool:
        """As `Kind.fits`."""
        return isinstance(value, bool)

    def expected(self) -> str:
        """As `Kind.expected`."""
        return "it is true or false"


@dataclass(frozen=True)
class Day(Kind):
    """A date, as TOML has them or as a text."""

    def fits(self, value: Any) -> bool:
        """As `Kind.fits`."""
        try:
            return isinstance(value, date) or bool(date.fromisoformat(value))
        except (TypeError, ValueError):
            return False

    def expected(self) -> str:
        """As `Kind.expected`."""
        return "write it as 2026-11-09"


@dataclass(frozen=True)
class Anything(Kind):
    """What no rule is for; it is kept or shown, and never counted with."""

    def fits(self, value: Any) -> bool:
        """As `Kind.fits`."""
        return True


@dataclass(frozen=True)
class Maybe(Kind):
    """``kind``, or nothing (null)."""

    kind: Kind

    def check(self, value: Any, where: str, key: str, error: type[PerfPassError]) -> None:
        """As `Kind.check`."""
        if value is not None:
            self.kind.check(value, where, key, error)


@dataclass(frozen=True)
class Items(Kind):
    """A list of ``least`` to ``most`` values of one kind."""

    kind: Kind
    most: int
    least: int = 0
    hint: str = ""

    def fits(self, value: Any) -> bool:
        """As `Kind.fits`, of the list alone."""
        return isinstance(value, list | tuple) and self.least <= len(value) <= self.most

    def expected(self) -> str:
        """As `Kind.expected`."""
        count = f"{self.most:,}" if self.least == self.most else f"{self.least} to {self.most:,}"
        return f"it is a list of {count} values{self.hint}"

    def check(self, value: Any, where: str, key: str, error: type[PerfPassError]) -> None:
        """As `Kind.check`, of every value."""
        super().check(value, where, key, error)
        table = isinstance(self.kind, Table)
        for number, one in enumerate(value, 1):
            self.kind.check(one, where, f"{key} {number}" if table else f"{key}, value {number},", error)


@dataclass(frozen=True)
class OneOrMore(Kind):
    """A value of one kind, or a list of them."""

    kind: Kind
    most: int

    def check(self, value: Any, where: str, key: str, error: type[PerfPassError]) -> None:
        """As `Kind.check`."""
        if not isinstance(value, list):
            self.kind.check(value, where, key, error)
            return
        Items(self.kind, self.most, 1).check(value, where, key, error)


@dataclass(frozen=True)
class Named(Kind):
    """A table whose keys are names of the writer's choice, with values of one kind."""

    kind: Kind
    most: int = 10_000
    least: int = 0

    def fits(self, value: Any) -> bool:
        """As `Kind.fits`, of the table alone."""
        return isinstance(value, Mapping) and self.least <= len(value) <= self.most

    def expected(self) -> str:
        """As `Kind.expected`."""
        return f"it is a table of {self.least} to {self.most:,} entries"

    def check(self, value: Any, where: str, key: str, error: type[PerfPassError]) -> None:
        """As `Kind.check`, of every value."""
        super().check(value, where, key, error)
        for name, one in value.items():
            self.kind.check(one, where, f"{key}.{shown_value(name)[1:-1]}", error)


@dataclass(frozen=True)
class Table(Kind):
    """A table of declared keys; those of ``required`` must be there. ``others``: what keys not declared may hold."""

    keys: Mapping[str, Kind]
    required: tuple[str, ...] = ()
    hint: str = ""  # where an example stands
    others: Kind | None = None

    def fits(self, value: Any) -> bool:
        """As `Kind.fits`, of the table alone."""
        return isinstance(value, Mapping)

    def expected(self) -> str:
        """As `Kind.expected`."""
        return f"it is a table of {', '.join(self.keys)}"

    def check(self, value: Any, where: str, key: str, error: type[PerfPassError]) -> None:
        """As `Kind.check`, of every value."""
        super().check(value, where, key, error)
        self.take(value, f"{where}{', ' if where else ''}{key}", error)

    def take(self, value: Mapping[str, Any], where: str, error: type[PerfPassError] = FormatError) -> Mapping[str, Any]:
        """``value``, as it is. Raises ``error`` that names ``where`` and the first thing that is wrong."""
        unknown = value.keys() - self.keys.keys()
        if unknown and self.others is None:
            first = min(map(str, unknown))
            raise error(f"{_before(where)}unknown {shown_value(first)}{instead(first, sorted(self.keys))}")
        if missing := [name for name in self.required if name not in value]:
            raise error(f"{_before(where)}lacks {', '.join(missing)}{self.hint}")
        for name, one in value.items():
            (self.keys.get(name) or self.others or Anything()).check(one, where, name, error)
        return value


def _before(where: str) -> str:
    return f"{where}: " if where else ""


def too_large(content: Any, *, numbers: bool = True, finite: bool = True) -> str | None:
    """What no document of ours has, as words; None where there is no such thing.

    Nesting over 64 deep; with ``numbers``, a whole number over 64 bits; with ``finite``, a number that is not.
    """
    if not isinstance(content, dict | list):
        content = [content]
    return None if _is_small(content, numbers, finite) else _too_large(content, "", DEEPEST, numbers, finite)


def _is_small(content: Any, numbers: bool, finite: bool) -> bool:
    """Whether there is no such thing, level by level and without the way to each value: half a document's time."""
    level = [content]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for one in level:
            for value in one.values() if type(one) is dict else one:
                kind = type(value)
                if kind is dict or kind is list:
                    inner.append(value)
                elif (kind is int and numbers and not -_WIDEST <= value <= _WIDEST) or (
                    kind is float and finite and not math.isfinite(value)
                ):
                    return False
        if not inner:
            return True
        level = inner
    return False


def _too_large(content: Any, key: str, left: int, numbers: bool, finite: bool) -> str | None:
    if left == 0:
        return f"{key[:_SHOWN]}... is nested over {DEEPEST} deep"
    table = type(content) is dict
    for name, value in content.items() if table else enumerate(content):
        kind = type(value)
        if kind is dict or kind is list:
            found = _too_large(value, _inside(key, name, table), left - 1, numbers, finite)
            if found is not None:
                return found
        elif kind is int and numbers:
            if not -_WIDEST <= value <= _WIDEST:
                return f"{_inside(key, name, table)} is {shown_value(value)}; at most 64 bits are read"
        elif kind is float and finite and not math.isfinite(value):
            return f"{_inside(key, name, table)} is {value!r}, no finite number"
    return None


def _inside(key: str, name: Any, table: bool) -> str:
    return f"{key}.{name}".lstrip(".") if table else f"{key}[{name}]"
