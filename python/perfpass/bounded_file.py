"""Opening files that others wrote: the one door of every text, table and record that perfpass reads whole.

A regular file, or a link to one, of a bounded size. Pipes and devices are refused before a byte is read: a pipe waits
for a writer that never comes, and /dev/zero has no end.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from perfpass.errors import FileError, LimitError, shown

# Opening waits for nothing (a pipe's writer), takes no terminal, and stays with this process; where the system has it.
_FLAGS = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))
_BLOCK_BYTES = 1 << 20
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: str | os.PathLike[str], what: str, mode: int = os.O_RDONLY) -> int:
    """A descriptor of the regular file ``path``, which is ``what`` ("a price table"); the caller closes it.

    ``mode``: flags of `os.open`. Raises FileError for what cannot be opened or is no regular file.
    """
    try:
        # Asked before opening: to open a device may already do something.
        with contextlib.suppress(FileNotFoundError):
            _refuse_others(path, os.stat(path).st_mode, what)
        file = os.open(path, mode | _FLAGS, 0o644)
    except (OSError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{shown(path)}: cannot be opened as {what}: {reason(error)}") from error
    try:
        _refuse_others(path, os.fstat(file).st_mode, what)
    except BaseException:
        os.close(file)
        raise
    return file


def check_regular(path: str | os.PathLike[str], what: str) -> None:
    """Raises FileError for a pipe, a device or a folder at ``path``, before a library that would wait for it opens it.

    What is not there, or may not be read, is left to that library to say.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return
    _refuse_others(path, mode, what)


def read_file(path: str | os.PathLike[str], what: str, most_bytes: int) -> bytes:
    """The content of the regular file ``path``, which is ``what``.

    Raises FileError as `open_regular`, and LimitError over ``most_bytes``.
    """
    with os.fdopen(open_regular(path, what), "rb", buffering=0) as file:
        blocks, rest = [], most_bytes + 1
        try:
            if os.fstat(file.fileno()).st_size > most_bytes:
                rest = 0
            while rest and (block := file.read(min(rest, _BLOCK_BYTES))):
                blocks.append(block)
                rest -= len(block)
        except OSError as error:
            raise FileError(f"{shown(path)}: cannot be read as {what}: {reason(error)}") from error
    if not rest:
        raise LimitError(f"{shown(path)}: larger than {most_bytes} bytes, the limit of {what}")
    return b"".join(blocks)


def exists(path: Path) -> bool:
    """Whether something stands at ``path``. Raises FileError where the system cannot say (a name too long, say)."""
    return mode_of(path) is not None


def mode_of(path: Path) -> int | None:
    """What stands at ``path``, as `stat` tells it; None where nothing does. Raises as `exists`."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise FileError(f"{shown(path)}: cannot be opened: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """What the system says, without its number and the path."""
    return getattr(error, "strerror", None) or str(error)


def _refuse_others(path: str | os.PathLike[str], mode: int, what: str) -> None:
    if stat.S_ISREG(mode):
        return
    kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "no file")
    raise FileError(f"{shown(path)}: is {kind}; {what} is read from a regular file")
