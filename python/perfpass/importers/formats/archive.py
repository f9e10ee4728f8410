"""Zip archives: the names of their entries and single entries, each of a bounded size."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from perfpass.bounded_file import open_regular
from perfpass.errors import FormatError, LimitError, PerfPassError, shown

if TYPE_CHECKING:
    from zipfile import ZipFile

_MOST_ENTRIES = 65_536
_MOST_DIRECTORY_BYTES = 16 << 20  # 65,536 entries of names of some 200 letters
_END = struct.Struct("<4s4H2LH")  # end of central directory: PKWARE's APPNOTE, 4.3.16
_LONGEST_COMMENT = 0xFFFF


class Archive:
    """An archive that is open, so that the list of its entries is read once, however many of them are."""

    def __init__(self, path: Path) -> None:
        """Raises FormatError for a damaged archive, LimitError for one too large."""
        import zipfile

        self._path = path
        _check_directory(path)
        with _damaged(path), ExitStack() as opening:
            file = opening.enter_context(os.fdopen(open_regular(path, "a zip archive"), "rb"))
            self._zip: ZipFile = opening.enter_context(zipfile.ZipFile(file))
            self._opened = opening.pop_all()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def entries(self) -> list[str]:
        """The names of its entries."""
        return self._zip.namelist()

    def member(self, name: str, what: str, most_bytes: int) -> bytes:
        """As `member` of this module."""
        with _damaged(self._path):
            try:
                declared = self._zip.getinfo(name).file_size
                with self._zip.open(name) as stream:
                    content = stream.read(most_bytes + 1) if declared <= most_bytes else b""
            except KeyError as error:
                raise FormatError(f"{shown(self._path)}: the archive has no {name}, {what}") from error
        if declared > most_bytes or len(content) > most_bytes:
            raise LimitError(f"{shown(self._path)}: {name}, {what}, is larger than {most_bytes} bytes, its limit")
        return content


def entries(path: Path) -> list[str]:
    """The names of its entries. Raises FormatError for a damaged archive, LimitError for one too large."""
    with Archive(path) as found:
        return found.entries()


def member(path: Path, name: str, what: str, most_bytes: int) -> bytes:
    """The content of the entry ``name``, which is ``what`` ("the configuration").

    Raises FormatError for a damaged archive, one without that entry and one whose entry is encrypted or does not unpack
    to what it says; LimitError over ``most_bytes``, whatever the archive says of its size.
    """
    with Archive(path) as found:
        return found.member(name, what, most_bytes)


@contextmanager
def _damaged(path: Path) -> Iterator[None]:
    """What zipfile raises as one error that names the file."""
    import zipfile

    try:
        yield
    # RuntimeError: encrypted; zlib.error: damaged within.
    except (OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error, struct.error) as error:
        if isinstance(error, PerfPassError):
            raise
        raise FormatError(f"{shown(path)}: a damaged zip archive: {error}") from error


def _check_directory(path: Path) -> None:
    """Raises LimitError for a directory of entries that is larger than any model's, before it is read."""
    file = open_regular(path, "a zip archive")
    with os.fdopen(file, "rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _END.size - _LONGEST_COMMENT))
        tail = stream.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + _END.size > len(tail):
        raise FormatError(f"{shown(path)}: a zip archive that is cut short: it has no list of its entries")
    fields = _END.unpack_from(tail, at)
    count, directory_bytes = fields[4], fields[5]
    # 0xffff entries and 0xffffffff bytes say that a ZIP64 record has the figures: no model has as many entries.
    if count >= _MOST_ENTRIES - 1 or (directory_bytes > _MOST_DIRECTORY_BYTES and directory_bytes != 0xFFFFFFFF):
        raise LimitError(
            f"{shown(path)}: a zip archive of {count} entries, listed in {directory_bytes} bytes; at most "
            f"{_MOST_ENTRIES - 2} entries and {_MOST_DIRECTORY_BYTES} bytes are read"
        )
    if directory_bytes == 0xFFFFFFFF:
        _check_zip64(path, tail, at)


def _check_zip64(path: Path, tail: bytes, at: int) -> None:
    """As `_check_directory`, of the record that archives past 4 GiB have before it (APPNOTE, 4.3.14)."""
    record = tail.rfind(b"PK\x06\x06", 0, at)
    if record < 0 or record + 56 > len(tail):
        raise FormatError(f"{shown(path)}: a zip archive past 4 GiB without its ZIP64 record")
    _, count, directory_bytes = struct.unpack_from("<3Q", tail, record + 24)
    if count > _MOST_ENTRIES or directory_bytes > _MOST_DIRECTORY_BYTES:
        raise LimitError(
            f"{shown(path)}: a zip archive of {count} entries, listed in {directory_bytes} bytes; at most "
            f"{_MOST_ENTRIES} entries and {_MOST_DIRECTORY_BYTES} bytes are read"
        )
