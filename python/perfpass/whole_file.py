"""Writing files that stay whole when the process is killed, the disk is full or the machine stops.

A file is replaced by a new one beside it (`replacing`, `write_whole`), or grows by whole lines (`append_line`,
`whole_lines`). Both wait until the disk has it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from perfpass.bounded_file import open_regular, reason
from perfpass.errors import FileError, shown

try:
    import fcntl
except ImportError:  # Windows: no locks of this kind; writers of one file must not run at once
    fcntl = None  # type: ignore[assignment]

# Opening waits for nothing and follows no link that others put there; where the system has it.
_FLAGS = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"))
_LOCK_SECONDS = 30.0  # to wait for another writer of the same file
_ADVICE = "what was there is as it was"
_DEFAULT_MODE = 0o666  # less the user's mask, as of any new file


@contextmanager
def replacing(path: str | os.PathLike[str], advice: str = _ADVICE) -> Iterator[IO[bytes]]:
    """A new file, which takes the name ``path`` when the block ends without an error and the disk has all of it.

    Until then ``path`` is what it was, or nothing. A link stays and its target is replaced; permissions stay. The new
    file is ``.NAME.partial`` beside it: one that a killed process has left is used again. Pipes and devices are written
    as they are. ``advice`` ends the message of the FileError that is raised where the system refuses.
    """
    try:
        target = Path(os.path.realpath(path))
        if os.path.exists(target) and not stat.S_ISREG(os.stat(target).st_mode):
            with open(target, "wb") as file:
                yield file
            return
        partial = target.with_name(f".{target.name}.partial")
        with os.fdopen(_open_alone(partial), "wb") as file:
            try:
                yield file
                file.flush()
                _take_permissions(file.fileno(), target)
                os.fsync(file.fileno())
                if fcntl is None:
                    file.close()  # Windows moves no open file
                os.replace(partial, target)
            except BaseException:
                if fcntl is None:
                    _drop(file)
                with contextlib.suppress(OSError):  # still locked: whoever waits for it looks whether it is there
                    os.unlink(partial)
                _drop(file)
                raise
            sync_folder(target.parent)
    except (OSError, ValueError) as error:
        if isinstance(error, FileError) or not (isinstance(error, OSError) or "null byte" in str(error)):
            raise
        raise FileError(f"{shown(path)}: cannot be written: {reason(error)}; {advice}") from error


def write_whole(path: str | os.PathLike[str], content: str | bytes, advice: str = _ADVICE) -> None:
    """``content`` (text in UTF-8) as the file ``path``, whole or not at all; see `replacing`. Raises FileError."""
    with replacing(path, advice) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def append_line(path: str | os.PathLike[str], line: str) -> None:
    """Adds ``line``, a JSON object, to the file ``path``, whole or not at all, and waits until the disk has it.

    What a kill left of a line at the end is cut off first. Raises FileError (a full disk, or a file that ends in
    something else); the lines before are then as they were.
    """
    new = not os.path.exists(path)
    file = open_regular(path, "a file of lines", os.O_RDWR | os.O_CREAT)
    try:
        _lock(file, path)
        with open(file, "rb", closefd=False) as stream:
            content = stream.read()
        end = end_of_lines(content)
        if content[end : end + 1] not in (b"", b"{", b"\0"):
            raise FileError(f"{shown(path)}: ends in something that is no line of JSON; choose another file")
        os.ftruncate(file, end)
        append_at(file, end, line.encode() + b"\n")
        if new:
            sync_folder(Path(path).parent)
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{shown(path)}: cannot be written: {reason(error)}; the lines before are safe") from error
    finally:
        os.close(file)


def whole_lines(path: str | os.PathLike[str]) -> list[str]:
    """The lines of a file, without one that a kill cut short at the end; none where there is no file.

    Raises FileError where it cannot be read.
    """
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FileError(f"{shown(path)}: cannot be read: {reason(error)}") from error
    return content[: end_of_lines(content)].decode(errors="replace").splitlines()


def end_of_lines(content: bytes) -> int:
    """Bytes up to the end of the last whole line. One with a zero byte is not whole: a power cut may leave pages of a
    file that grew empty.
    """
    end = content.rfind(b"\n") + 1
    while end and b"\0" in content[(start := content.rfind(b"\n", 0, end - 1) + 1) : end]:
        end = start
    return end


def append_at(file: int, end: int, content: bytes) -> None:
    """Writes ``content`` behind the first ``end`` bytes of ``file``, and waits until the disk has it.

    Raises OSError; the file then ends where it did, or what stands behind is no whole line.
    """
    try:
        os.lseek(file, end, os.SEEK_SET)
        written = 0
        while written < len(content):
            written += os.write(file, content[written:])
        os.fsync(file)
    except OSError:
        with contextlib.suppress(OSError):  # a broken disk takes nothing back; a torn end is cut off on opening
            os.ftruncate(file, end)
        raise


def sync_folder(folder: Path) -> None:
    """Waits until the disk has the names in ``folder``: a file is as lost as its name. Silent where there is no such
    thing (Windows, some network file systems).
    """
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _open_alone(partial: Path) -> int:
    """An empty file at ``partial`` that no other process writes."""
    while True:
        file = os.open(partial, os.O_WRONLY | os.O_CREAT | _FLAGS, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise FileError(f"{shown(partial)}: is no regular file; remove it")
            _lock(file, partial)
            with contextlib.suppress(FileNotFoundError):
                if fcntl is None or os.path.samestat(os.fstat(file), os.stat(partial)):
                    os.ftruncate(file, 0)
                    return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # its writer has given it the target's name meanwhile


def _drop(file: IO[bytes]) -> None:
    """Closes it with what was not written, for which there may be no room."""
    with contextlib.suppress(OSError, ValueError):
        os.ftruncate(file.fileno(), 0)
        file.close()


def _lock(file: int, path: str | os.PathLike[str]) -> None:
    deadline = time.monotonic() + _LOCK_SECONDS
    while fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                waited = f"another process has written it for {_LOCK_SECONDS:.0f} s; wait for it, or end it"
                raise FileError(f"{shown(path)}: {waited}") from error
            time.sleep(0.01)
        except OSError:
            return  # a file system without locks


def _take_permissions(file: int, target: Path) -> None:
    """Those of the file that is replaced, or of any new file."""
    if not hasattr(os, "fchmod"):
        return
    try:
        mode = stat.S_IMODE(os.stat(target).st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        mode = _DEFAULT_MODE & ~mask
    os.fchmod(file, mode)
