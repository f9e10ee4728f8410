"""Messages of TensorFlow's graphs, field by field from the mapped file: bounded, and without the bytes of weights.

Wire format: protobuf.dev/programming-guides/encoding. Fields by number: tensorflow/core/framework (graph.proto,
node_def.proto, attr_value.proto, function.proto, tensor.proto, tensor_shape.proto) and core/protobuf
(saved_model.proto, meta_graph.proto). A message is the span of its bytes; what lies inside is read when it is asked
for, so that a tensor of two gigabytes costs nothing but its length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from perfpass.errors import FormatError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_TEXT = 1 << 16
_WIDEST_VARINT = 70
_FLAT = 1 << 16  # spans up to this length are copied once: reading bytes is quicker than reading a mapped file


class Span(NamedTuple):
    """The bytes of one message."""

    data: bytes
    begin: int
    end: int

    @property
    def size(self) -> int:
        """In bytes."""
        return self.end - self.begin


def fields(span: Span) -> Iterator[tuple[int, int, Span | None]]:
    """Each field as (number, value of a number, span of bytes). Raises FormatError for a damaged message."""
    data, place, end = span
    if place == 0 and end == len(data):
        pass
    elif end - place <= _FLAT:
        data, place, end = bytes(data[place:end]), 0, end - place
    while place < end:
        tag = data[place]
        if tag < 128:
            place += 1
        else:
            tag, place = varint(data, place, end)
        kind = tag & 7
        if kind == _BYTES:
            if place < end and (length := data[place]) < 128:
                place += 1
            else:
                length, place = varint(data, place, end)
            if length > end - place:
                raise FormatError(f"a field of {length} bytes where {end - place} are left; the file is cut short")
            yield tag >> 3, 0, Span(data, place, place + length)
            place += length
        elif kind == _VARINT:
            value, place = varint(data, place, end)
            yield tag >> 3, value, None
        elif kind in (_FIXED64, _FIXED32):
            width = 8 if kind == _FIXED64 else 4
            if width > end - place:
                raise FormatError("a number that the file ends within; the file is cut short")
            yield tag >> 3, int.from_bytes(data[place : place + width], "little"), None
            place += width
        else:
            raise FormatError(f"a field of wire type {kind}, which protobuf no longer has; the file is damaged")


def varint(data: bytes, place: int, end: int) -> tuple[int, int]:
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


def text(span: Span | None) -> str:
    """A name. Raises FormatError for one that is none."""
    if span is None or span.size > _LONGEST_TEXT:
        raise FormatError("a name that is no text or longer than 64 KiB; the file is damaged")
    return bytes(span.data[span.begin : span.end]).decode("utf-8", "replace")


def packed(value: int, span: Span | None) -> Iterator[int]:
    """The numbers of a repeated field, packed or one by one."""
    if span is None:
        yield value
        return
    data, place, end = span
    while place < end:
        number, place = varint(data, place, end)
        yield number


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
    return key, value if value is not None else Span(b"", 0, 0)


def name_first(span: Span) -> str:
    """The text of field 1 where the message begins with it, as writers of protobuf do; else wherever it is."""
    data, place, end = span
    if place < end and data[place] == (1 << 3 | _BYTES):
        length, place = varint(data, place + 1, end)
        if length <= min(end - place, _LONGEST_TEXT):
            return bytes(data[place : place + length]).decode("utf-8", "replace")
    return next((text(part) for number, _, part in fields(span) if number == 1), "")


def inside(span: Span | None) -> Span:
    """A field that must be a message. Raises FormatError."""
    if span is None:
        raise FormatError("a number where a message belongs; the file is damaged")
    return span
