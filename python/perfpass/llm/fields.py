"""Typed access to the fields of a config.json, under any of the names that model types give them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from perfpass.declared import shown_value
from perfpass.errors import FormatError

_LARGEST = 2**40


class Fields:
    """Reads numbers and lists of one configuration; every failure is a FormatError that names model and field."""

    def __init__(self, content: Mapping[str, Any], name: str) -> None:
        """``content``: the part of the configuration that describes the language model."""
        self.content, self.name = content, name

    def find(self, *keys: str) -> Any:
        """The first of ``keys`` that is present and not null; None where none is."""
        for key in keys:
            value = self.content.get(key)
            if value is not None:
                return value
        return None

    def count(self, *keys: str, default: int | None = None, least: int = 0) -> int:
        """A whole number of at least ``least``, or ``default`` where the field is absent.

        ``keys`` are names of one field: where several are stated, they must agree.
        """
        stated = {key: value for key in keys if (value := self.content.get(key)) is not None}
        if any(value != self.content[key] for value in stated.values() for key in stated):
            each = " and ".join(f"{key} {shown_value(value)}" for key, value in stated.items())
            raise FormatError(f"{self.name}: {each} are the same field; one of them is wrong")
        value = self.find(*keys)
        if value is None:
            if default is None:
                raise FormatError(
                    f"{self.name}: its configuration has no {' or '.join(keys)}; it cannot be counted without"
                )
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
            raise FormatError(f"{self.name}: {keys[0]} is {shown_value(value)}; a whole number from {least} is needed")
        return value

    def size(self, *keys: str, default: int | None = None) -> int:
        """A whole number of at least 1."""
        return self.count(*keys, default=default, least=1)

    def number(self, key: str, *, default: float) -> float:
        """A number above 0, or ``default`` where the field is absent."""
        value = self.find(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _LARGEST:
            raise FormatError(f"{self.name}: {key} is {shown_value(value)}; a number above 0 is needed")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false (or 1 or 0), or ``default`` where the field is absent."""
        value = self.find(key)
        if value is None:
            return default
        if value not in (True, False) or not isinstance(value, (bool, int)):
            raise FormatError(f"{self.name}: {key} is {shown_value(value)}; true or false is needed")
        return bool(value)

    def wholes(self, key: str) -> list[int]:
        """A list of whole numbers of at least 0; empty where the field is absent."""
        value = self.find(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(type(v) is int and v >= 0 for v in value):
            raise FormatError(f"{self.name}: {key} is {shown_value(value)}; a list of whole numbers from 0 is needed")
        return value

    def texts(self, key: str, length: int, allowed: Collection[str]) -> list[str] | None:
        """A list of ``length`` words of ``allowed``, or None where the field is absent."""
        value = self.find(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != length or not all(isinstance(v, str) for v in value):
            raise FormatError(f"{self.name}: {key} must be a list of {length} words, one per layer")
        if unknown := sorted(set(value) - set(allowed)):
            raise FormatError(
                f"{self.name}: {key} has {shown_value(unknown[0])}; layers of {', '.join(allowed)} are counted here"
            )
        return value
