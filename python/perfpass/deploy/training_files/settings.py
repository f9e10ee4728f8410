"""What a training file says, in the words of `perfpass.train_cost`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from perfpass.errors import FormatError
from perfpass.text import printable, shown_value

# No count that a training file states is larger; it bounds what is made of it.
LARGEST_COUNT = 2**31
# Words for "take what fits" or "as elsewhere": the key then says nothing.
_UNSTATED = ("auto", "null", "???", "")


@dataclass(frozen=True)
class Settings:
    """``asked``: arguments of `perfpass.train_cost` by name, what the file states alone.

    ``format``: which framework's file it is. ``model``: a LanguageModel, the name of a shipped one, or None where the
    file leaves it open. ``notes``: what the file has that changes a step and is not counted, a sentence each.
    """

    format: str
    model: Any
    asked: dict[str, Any]
    notes: tuple[str, ...]


@dataclass
class Keys:
    """A table of a file, that remembers which of its keys were read."""

    where: str
    content: Mapping[str, Any]
    read: set[str] = field(default_factory=set)

    def get(self, *names: str) -> Any:
        """The value of the first of ``names`` that is stated; None for none, and for words that state nothing."""
        found = None
        for name in names:
            self.read.add(name)
            value = self.content.get(name)
            if found is None and not (isinstance(value, str) and value.strip().lower() in _UNSTATED):
                found = value
        return found

    def whole(self, *names: str, least: int = 0) -> int | None:
        """The same as a whole number; None where it is not stated. Raises FormatError."""
        value = self.get(*names)
        if value is None:
            return None
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if isinstance(value, bool) or not (least <= number <= LARGEST_COUNT) or number != int(number):
            raise FormatError(
                f"{self.where}: {names[0]} is {shown_value(value)}; a whole number from {least} to {LARGEST_COUNT} was "
                "expected"
            )
        return int(number)

    def flag(self, *names: str) -> bool:
        """Whether it is on: a truth value, or a word for it."""
        value = self.get(*names)
        return value is True or str(value).strip().lower() in ("true", "yes", "1", "on")

    def text(self, *names: str) -> str:
        """The value as a lower-case word; "" where it is not stated."""
        value = self.get(*names)
        return "" if value is None else str(value).strip().lower()

    def table(self, *names: str) -> Keys:
        """A table inside; empty where it is not stated. Raises FormatError for something else."""
        value = self.get(*names)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise FormatError(f"{self.where}: {names[0]} is {shown_value(value)}; a table was expected")
        return Keys(f"{self.where}: {names[0]}", {str(key): inside for key, inside in value.items()})

    def unread(self, harmless: Iterable[str] = ()) -> Iterator[str]:
        """Keys that were not read, but for those that change no step, by their beginning."""
        beginnings = tuple(harmless)
        for name in self.content:
            if name not in self.read and not name.startswith(beginnings or ("\0",)):
                yield name


def stated(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What is not None."""
    return {name: value for name, value in asked.items() if value is not None}


def unread_note(keys: Iterable[Keys], harmless: Iterable[str] = ()) -> list[str]:
    """One note about keys that may change a step and were not read; none without any."""
    names = sorted({f"{one.where.rpartition(': ')[2]}.{name}" for one in keys for name in one.unread(harmless)})
    if not names:
        return []
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return [f"not read, though it may change a step: {', '.join(printable(n) for n in names[:12])}{more}"]
