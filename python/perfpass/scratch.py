"""Temporary folders that processes hold: what killed ones have left is cleared by the next."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: nothing is held there, and nothing of others cleared
    fcntl = None  # type: ignore[assignment]

_NEW_SECONDS = 60.0  # a folder is held at once after it is made


@contextlib.contextmanager
def held(prefix: str) -> Iterator[Path]:
    """A new folder of the system's temporary ones, named ``prefix`` and more, until the block ends.

    Folders of this prefix that nobody holds any more, since who made them was killed, are removed first.
    """
    _clear(prefix)
    place = Path(tempfile.mkdtemp(prefix=prefix))
    handle = hold(place)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def hold(place: str | os.PathLike[str]) -> int | None:
    """Keeps a folder of `held` for this process too, as long as the descriptor that is returned stays open; None where
    the system has no such locks.
    """
    if fcntl is None:
        return None
    handle = os.open(place, os.O_RDONLY)
    with contextlib.suppress(OSError):  # a file system without locks, where nothing is cleared either
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return handle


def _clear(prefix: str) -> None:
    for place in Path(tempfile.gettempdir()).glob(f"{prefix}*") if fcntl is not None else ():
        with contextlib.suppress(OSError):  # held, another user's, or gone meanwhile
            handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
            try:
                found = os.fstat(handle)
                if found.st_uid != os.getuid() or time.time() - found.st_mtime < _NEW_SECONDS:
                    continue
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(place, ignore_errors=True)
            finally:
                os.close(handle)
