"""Messages of Protocol Buffers, field by field and each within bounds; what lies inside is read when it is asked for.

Wire format: protobuf.dev/programming-guides/encoding. A message is the span of its bytes in the file, which may be
mapped: a weight of two gigabytes costs nothing but its length.
"""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from perfpass._core import FieldBudget, Message
from perfpass.bounded_file import open_regular
from perfpass.errors import FormatError, LimitError

_VARINT, _FIXED64, BYTES, _FIXED32 = 0, 1, 2, 5
LONGEST_TEXT = 1 << 16
_NO_MESSAGE = "a number where a message belongs; the file is damaged"
_LARGEST_BYTES = 32 * 2**30
_WIDEST_VARINT = 70
_FLAT = 1 << 16  # spans up to this length are copied once: reading bytes is quicker than reading a mapped file
_WHOLE_FILE = 1 << 24  # and so are files


class Span(NamedTuple):
    """The bytes of one field."""

    data: memoryview | bytes
    begin: int
    end: int

    @property
    def size(self) -> int:
        """In bytes."""
        return self.end - self.begin

    @property
    def content(self) -> bytes:
        """A copy of the bytes."""
        return bytes(self.data[self.begin : self.end])


EMPTY = Span(b"", 0, 0)


@contextmanager
def mapped(path: Path, what: str) -> Iterator[Span]:
    """The file ``path``, which is ``what`` ("a Core ML model"), mapped while it is read; a short one is read whole.

    Raises FileError, FormatError for an empty one and LimitError over 32 GiB.
    """
    file = open_regular(path, what)
    try:
        size = os.fstat(file).st_size
        if size > _LARGEST_BYTES:
            raise LimitError(f"{size:,} bytes; of {what} at most 32 GiB are read")
        if not size:
            raise FormatError(f"an empty file; {what} was expected")
        if size <= _WHOLE_FILE:
            whole = os.pread(file, size, 0)
            yield Span(whole, 0, len(whole))
            return
        with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
            yield Span(view, 0, size)
    finally:
        os.close(file)


def fields(span: Span) -> Iterator[tuple[int, int, Span | None]]:
    """Each field as (number, value of a varint, span of anything else). Raises FormatError."""
    data, place, end = _flat(span)
    for number, first, last in _walked(data, place, end):
        yield (number, first, None) if last < 0 else (number, 0, Span(data, first, last))


def _flat(span: Span) -> tuple[memoryview | bytes, int, int]:
    data, place, end = span
    if not isinstance(data, bytes) and end - place <= _FLAT:
        return bytes(data[place:end]), 0, end - place
    return data, place, end


def _walked(data: memoryview | bytes, place: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Each field as (number, value, -1) for a varint and (number, begin, end) for anything else."""
    while place < end:
        tag = data[place]
        if tag < 128:
            place += 1
        else:
            tag, place = varint(data, place, end)
        kind = tag & 7
        if kind == _VARINT:
            value, place = varint(data, place, end)
            yield tag >> 3, value, -1
            continue
        if kind == BYTES:
            if place < end and (length := data[place]) < 128:
                place += 1
            else:
                length, place = varint(data, place, end)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise FormatError(f"a field of wire type {kind}, which protobuf no longer has; the file is damaged")
        if length > end - place:
            raise FormatError(f"a field of {length} bytes where {end - place} are left; the file is cut short")
        yield tag >> 3, place, place + length
        place += length


def varint(data: memoryview | bytes, place: int, end: int) -> tuple[int, int]:
    """A number at ``place`` and the place behind it. Raises FormatError."""
    if place < end and (first := data[place]) < 128:
        return first, place + 1
    value = shift = 0
    while place < end and shift < _WIDEST_VARINT:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
    raise FormatError("a number without an end; the file is damaged or no protobuf message")


def signed(value: int) -> int:
    """A varint as a 64-bit signed number."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def packed(value: int, span: Span | None) -> Iterator[int]:
    """The varints of a repeated field, packed or not. Raises FormatError."""
    if span is None:
        yield value
        return
    data, place, end = span
    while place < end:
        number, place = varint(data, place, end)
        yield number


def text(span: Span | None) -> str:
    """A name. Raises FormatError for one that is none."""
    if span is None or span.size > LONGEST_TEXT:
        raise FormatError("a name that is no text or longer than 64 KiB; the file is damaged")
    return span.content.decode("utf-8", "replace")


def entry(span: Span | None) -> tuple[str, Span]:
    """The key and the value of a map's entry. Raises FormatError."""
    key, value = "", None
    if span is None:
        raise FormatError("a map with a number for an entry; the file is damaged")
    for number, _, part in fields(span):
        if number == 1:
            key = text(part)
        elif number == 2:
            value = part
    return key, value if value is not None else EMPTY


def inside(span: Span | None) -> Span:
    """A field that must be a message. Raises FormatError."""
    if span is None:
        raise FormatError(_NO_MESSAGE)
    return span


def message_of(span: Span, budget: FieldBudget) -> Message:
    """The message of these bytes, whose fields are taken from the budget. Raises FormatError and LimitError."""
    return Message(span.data, span.begin, span.end, budget)


def listed(messages: Iterator[Message], most: int, what: str) -> list[Message]:
    """Messages that are all held at once, which are ``what`` ("blocks"). Raises LimitError over ``most`` of them."""
    found = list(itertools.islice(messages, most + 1))
    if len(found) > most:
        raise LimitError(f"more than {most:,} {what}; no more are read")
    return found
