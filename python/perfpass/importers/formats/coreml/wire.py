"""Messages of Core ML's specification, field by field from the mapped file; bytes of weights are passed over.

Wire format: protobuf.dev/programming-guides/encoding. Fields by number: Model.proto, MIL.proto, NeuralNetwork.proto and
FeatureTypes.proto of Core ML's specification (coremltools 9.0).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from perfpass.errors import FormatError, LimitError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_TEXT = 1 << 16
_MOST_FIELDS = 8_000_000
_FLAT = 1 << 16  # messages up to this length are copied once: reading bytes is quicker than reading a mapped file


class Budget:
    """How many fields may still be read of a file."""

    def __init__(self) -> None:
        self.left = _MOST_FIELDS

    def take(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise LimitError(f"more than {_MOST_FIELDS:,} fields; no Core ML model that is read here has as many")


@dataclass(frozen=True)
class Span:
    """The bytes of one field."""

    data: memoryview | bytes
    begin: int
    end: int

    @property
    def size(self) -> int:
        """In bytes."""
        return self.end - self.begin


class Message:
    """The fields of one message by number: whole numbers (varints, and fixed ones as bits) and spans."""

    def __init__(self, span: Span, budget: Budget) -> None:
        self.budget = budget
        self.fields: dict[int, list[int | Span]] = {}
        data, place, end = span.data, span.begin, span.end
        if 0 < end - place <= _FLAT and not isinstance(data, bytes):
            data, place, end = bytes(data[place:end]), 0, end - place
        while place < end:
            budget.take()
            tag, place = _varint(data, place, end)
            kind = tag & 7
            if kind == _BYTES:
                length, place = _varint(data, place, end)
                if length > end - place:
                    raise FormatError(f"a field of {length} bytes where {end - place} are left; the file is cut short")
                self.fields.setdefault(tag >> 3, []).append(Span(data, place, place + length))
                place += length
            elif kind == _VARINT:
                value, place = _varint(data, place, end)
                self.fields.setdefault(tag >> 3, []).append(value)
            elif kind in (_FIXED64, _FIXED32):
                width = 8 if kind == _FIXED64 else 4
                if width > end - place:
                    raise FormatError("a number that the file ends within; the file is cut short")
                self.fields.setdefault(tag >> 3, []).append(int.from_bytes(data[place : place + width], "little"))
                place += width
            else:
                raise FormatError(f"a field of wire type {kind}, which Core ML has not; the file is damaged")

    def has(self, number: int) -> bool:
        return number in self.fields

    def all(self, number: int) -> list[Message]:
        """The messages of a repeated field. Raises FormatError."""
        return [Message(self._span(one), self.budget) for one in self.fields.get(number, ())]

    def one(self, number: int) -> Message:
        """A message, empty where it is not set. Raises FormatError."""
        given = self.fields.get(number)
        return Message(self._span(given[-1]) if given else Span(b"", 0, 0), self.budget)

    def span(self, number: int) -> Span:
        """The bytes of a field, empty where it is not set. Raises FormatError."""
        given = self.fields.get(number)
        return self._span(given[-1]) if given else Span(b"", 0, 0)

    def integer(self, number: int, default: int = 0) -> int:
        """A whole number, signed. Raises FormatError."""
        given = self.fields.get(number)
        if not given:
            return default
        if isinstance(given[-1], Span):
            raise FormatError("text where a number belongs; the file is damaged")
        return _signed(given[-1])

    def integers(self, number: int) -> list[int]:
        """The numbers of a repeated field, packed or one by one. Raises FormatError."""
        found = []
        for one in self.fields.get(number, ()):
            if not isinstance(one, Span):
                found.append(_signed(one))
                continue
            place = one.begin
            while place < one.end:
                self.budget.take()
                value, place = _varint(one.data, place, one.end)
                found.append(_signed(value))
        return found

    def real(self, number: int, default: float = 0.0) -> float:
        """A float of 32 bits."""
        given = self.fields.get(number)
        if not given or isinstance(given[-1], Span):
            return default
        return float(struct.unpack("<f", (given[-1] & 0xFFFFFFFF).to_bytes(4, "little"))[0])

    def text(self, number: int) -> str:
        """A name, "" where it is not set. Raises FormatError."""
        given = self.fields.get(number)
        return _text(self._span(given[-1])) if given else ""

    def texts(self, number: int) -> list[str]:
        return [_text(self._span(one)) for one in self.fields.get(number, ())]

    def map(self, number: int) -> dict[str, Message]:
        """A map of messages by name. Raises FormatError."""
        return {entry.text(1): entry.one(2) for entry in self.all(number)}

    @staticmethod
    def _span(one: int | Span) -> Span:
        if not isinstance(one, Span):
            raise FormatError("a number where a message belongs; the file is damaged")
        return one


def _text(span: Span) -> str:
    if span.size > _LONGEST_TEXT:
        raise FormatError("a name longer than 64 KiB; the file is damaged")
    return bytes(span.data[span.begin : span.end]).decode("utf-8", "replace")


def _varint(data: memoryview | bytes, place: int, end: int) -> tuple[int, int]:
    if place < end and (first := data[place]) < 128:
        return first, place + 1
    value = shift = 0
    while place < end and shift < 70:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
    raise FormatError("a number without an end; the file is damaged or no Core ML model")


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
