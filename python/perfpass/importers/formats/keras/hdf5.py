"""One text attribute of an HDF5 file's root group, without the HDF5 library and without the data sets.

Keras keeps the whole configuration of a model there (``model_config``). Format: HDF5 File Format Specification 3.0,
sections II (superblock), IV.A.1 (object headers), IV.A.2.m (attribute message) and III.E (global heap). Read are what
the HDF5 library writes for a group with few attributes; what lies elsewhere (dense attribute storage) is refused.
"""

from __future__ import annotations

import os
from pathlib import Path

from perfpass.bounded_file import open_regular
from perfpass.errors import FormatError, LimitError, UnsupportedError

MAGIC = b"\x89HDF\r\n\x1a\n"
_MOST_HEADER_BYTES = 16 * 2**20
_MOST_BLOCKS = 1_000
_CONTINUATION, _ATTRIBUTE, _ATTRIBUTE_INFO = 0x10, 0x0C, 0x15
_STRING, _VARIABLE_LENGTH = 3, 9
_UNDEFINED = 0xFFFF_FFFF_FFFF_FFFF
_HEAP_HEADER_BYTES = 16


class _File:
    """Bounded reads of an open file."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    def at(self, offset: int, count: int, what: str) -> bytes:
        """``count`` bytes at ``offset``. Raises FormatError where the file has fewer."""
        if not 0 <= offset <= self.size or count > self.size - offset:
            raise FormatError(f"an HDF5 file of {self.size} bytes whose {what} lies at {offset}; the file is damaged")
        parts = []
        while count and (part := os.pread(self.descriptor, count, offset)):
            parts.append(part)
            offset, count = offset + len(part), count - len(part)
        if count:
            raise FormatError(f"an HDF5 file that ends inside its {what}; the file is damaged")
        return b"".join(parts)


def text_attributes(path: Path, names: tuple[str, ...], most_bytes: int) -> dict[str, bytes]:
    """Those of the root group's text attributes ``names`` that are there, of at most ``most_bytes`` each.

    Raises FileError, FormatError (no HDF5 file, or a damaged one), LimitError and UnsupportedError (attributes kept in
    a way that is not read).
    """
    descriptor = open_regular(path, "an HDF5 file")
    try:
        file = _File(descriptor)
        found = {}
        for name, message in _attributes(file, _root(file), set(names)).items():
            found[name] = _text(file, message, name, most_bytes)
        return found
    finally:
        os.close(descriptor)


def _number(content: bytes, offset: int, count: int) -> int:
    if offset + count > len(content):
        raise FormatError("an HDF5 object header that ends inside a message; the file is damaged")
    return int.from_bytes(content[offset : offset + count], "little")


def _root(file: _File) -> int:
    """The address of the root group's object header."""
    if file.at(0, 8, "signature") != MAGIC:
        raise FormatError("no HDF5 file: it does not begin with the signature of one")
    version = file.at(8, 1, "superblock")[0]
    if version > 3:
        raise UnsupportedError(f"an HDF5 superblock of version {version}; versions 0 to 3 are read")
    block = file.at(0, 96 if version < 2 else 48, "superblock")
    sizes = block[13:15] if version < 2 else block[9:11]
    if sizes != b"\x08\x08":
        raise UnsupportedError("an HDF5 file with offsets or lengths of other than 8 bytes, which is not read")
    if version >= 2:
        return _number(block, 36, 8)
    return _number(block, 24 + (4 if version == 1 else 0) + 32 + 8, 8)


def _attributes(file: _File, address: int, names: set[str]) -> dict[str, bytes]:
    """The attribute messages of ``names`` in the object header at ``address``."""
    start = file.at(address, 16, "root group")
    second = start[:4] == b"OHDR"
    if second:
        flags = start[5]
        before = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        width = 1 << (flags & 3)
        head = file.at(address, before + width, "root group")
        blocks = [(address + before + width, _number(head, before, width))]
        tracked = 2 if flags & 0x04 else 0
    else:
        if start[0] != 1:
            raise FormatError("an HDF5 root group that is no object header; the file is damaged")
        blocks = [(address + 16, _number(start, 8, 4))]
        tracked = 0
    found: dict[str, bytes] = {}
    read = 0
    for number, (offset, length) in enumerate(blocks):
        read += length
        if number >= _MOST_BLOCKS or read > _MOST_HEADER_BYTES:
            raise LimitError(f"an HDF5 root group of over {_MOST_BLOCKS} blocks or {_MOST_HEADER_BYTES} bytes")
        content = file.at(offset, length, "object header")
        place = 0
        while place + (4 if second else 8) <= len(content):
            if second:
                kind, size = content[place], _number(content, place + 1, 2)
                shared, place = content[place + 3] & 2, place + 4 + tracked
            else:
                kind, size = _number(content, place, 2), _number(content, place + 2, 2)
                shared, place = content[place + 4] & 2, place + 8
            message = content[place : place + size]
            place += size
            if kind == _CONTINUATION:
                begin, extent = _number(message, 0, 8), _number(message, 8, 8)
                # In the second version a block has a signature before its messages and a checksum behind them.
                blocks.append((begin + 4, max(extent - 8, 0)) if second else (begin, extent))
            elif kind == _ATTRIBUTE and not shared:
                name = _name(message)
                if name in names:
                    found[name] = message
            elif kind == _ATTRIBUTE_INFO and _number(message, 4 if message[1:2] and message[1] & 1 else 2, 8) not in (
                _UNDEFINED,
            ):
                raise UnsupportedError(
                    "an HDF5 file that keeps its attributes in a fractal heap, which is not read; save the model as "
                    "a .keras archive and pass that file"
                )
    return found


def _name(message: bytes) -> str:
    size = _number(message, 2, 2)
    start = 9 if message[:1] == b"\x03" else 8
    return message[start : start + size].split(b"\0", 1)[0].decode("utf-8", "replace")


def _text(file: _File, message: bytes, name: str, most_bytes: int) -> bytes:
    """The text of an attribute: one string, of fixed length or in the global heap."""
    version = message[0]
    if version not in (1, 2, 3):
        raise FormatError(f"an HDF5 attribute message of version {version}; the file is damaged")
    name_bytes, type_bytes, space_bytes = (_number(message, offset, 2) for offset in (2, 4, 6))
    place = 9 if version == 3 else 8
    if version == 1:
        name_bytes, type_bytes, space_bytes = (-(-size // 8) * 8 for size in (name_bytes, type_bytes, space_bytes))
    kind = message[place + name_bytes : place + name_bytes + type_bytes]
    space = message[place + name_bytes + type_bytes :][:space_bytes]
    value = message[place + name_bytes + type_bytes + space_bytes :]
    if len(kind) < 8 or len(space) < 2:
        raise FormatError(f"an HDF5 attribute {name} that ends early; the file is damaged")
    if space[1] != 0:
        raise FormatError(f"an HDF5 attribute {name} of {space[1]} axes; a model's configuration is one text")
    size = _number(kind, 4, 4)
    if kind[0] & 15 == _STRING:
        return value[:size].split(b"\0", 1)[0]
    if kind[0] & 15 != _VARIABLE_LENGTH or kind[1] & 15 != 1:
        raise FormatError(f"an HDF5 attribute {name} that is no text")
    length, address, index = _number(value, 0, 4), _number(value, 4, 8), _number(value, 12, 4)
    if length > most_bytes:
        raise LimitError(f"an HDF5 attribute {name} of {length} bytes; at most {most_bytes} are read")
    return _heap_object(file, address, index, length)


def _heap_object(file: _File, address: int, index: int, length: int) -> bytes:
    """``length`` bytes of object ``index`` in the global heap collection at ``address``."""
    head = file.at(address, _HEAP_HEADER_BYTES, "global heap")
    if head[:4] != b"GCOL":
        raise FormatError("an HDF5 global heap without its signature; the file is damaged")
    end = address + _number(head, 8, 8)
    place = address + _HEAP_HEADER_BYTES
    for _ in range(_MOST_BLOCKS):
        if place + 16 > end:
            break
        entry = file.at(place, 16, "global heap")
        found, size = _number(entry, 0, 2), _number(entry, 8, 8)
        if found == index:
            if length > size:
                break
            return file.at(place + 16, length, "global heap")
        if found == 0:
            break
        place += 16 + -(-size // 8) * 8
    raise FormatError(f"an HDF5 global heap without object {index}; the file is damaged")
