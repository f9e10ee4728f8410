"""A file as it was at a commit: ``git:REV:PATH``, read from git's object store into a folder of its own.

Only objects are read (`git rev-parse`, `git cat-file`): nothing is checked out, no hook, filter, text conversion or
other program of the repository's configuration runs, and nothing is fetched. A pointer of Git LFS is followed into the
repository's own store.
"""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING

from perfpass.bounded_file import open_regular, read_file, reason
from perfpass.errors import ArgumentError, FileError, FormatError, LimitError, UnsupportedError
from perfpass.text import shown_value
from perfpass.whole_file import replacing

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "git:"
# That of a ModelProto (protobuf holds no more).
LARGEST_BYTES = 2**31
_SECONDS = 120.0
_BLOCK_BYTES = 2**20
_POINTER_BYTES = 1024
_POINTER = re.compile(rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:([0-9a-f]{64})\n")
# What may reach outside the repository, or wait for a person, does not.
_ENVIRONMENT = {
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ALLOW_PROTOCOL": "",
    "LC_ALL": "C",
}
_SETTINGS = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")


def is_git(model: object) -> bool:
    """Whether a model is called ``git:REV:PATH``."""
    return isinstance(model, str) and model.startswith(PREFIX)


@contextmanager
def at_commit(model: str, folder: str | os.PathLike[str] | None = None) -> Iterator[str]:
    """Inside, the path of a copy of the file ``git:REV:PATH``, which bears its name; it is gone afterwards.

    ``PATH`` is seen from the top of the repository, or from here where it begins with ``./``; an empty ``REV`` is the
    index. ``folder``: where the repository is (default: here). Raises ArgumentError for another form, FileError where
    git has no such file, LimitError for one over 2 GiB, FormatError for what is no file, UnsupportedError without git.
    """
    rev, colon, path = model.removeprefix(PREFIX).partition(":")
    if not colon or not path or rev.startswith("-") or "\0" in model:
        raise ArgumentError(
            f"{shown_value(model)} is not git:REV:PATH (as git:HEAD~1:models/net.onnx, git:origin/main:net.onnx)"
        )
    name = f"{rev}:{path}"
    found = _said(["rev-parse", "--verify", "--quiet", "--end-of-options", name], folder)
    if found is None:
        if _said(["rev-parse", "--git-dir"], folder) is None:
            raise FileError(f"{shown_value(model)}: {os.fspath(folder or '.')} is in no git repository")
        if rev and _said(["rev-parse", "--verify", "--quiet", "--end-of-options", f"{rev}^{{commit}}"], folder) is None:
            raise FileError(
                f"{shown_value(model)}: git knows no commit {shown_value(rev)}; fetch it first "
                "(of actions/checkout: fetch-depth: 0)"
            )
        raise NotThere(
            f"{shown_value(model)}: git has no file {shown_value(path)} at {shown_value(rev or 'the index')}"
        )
    oid = found.strip()
    kind, size = (_said(["cat-file", option, oid], folder) or "" for option in ("-t", "-s"))
    if kind.strip() != "blob":
        raise FormatError(f"{shown_value(model)}: is {kind.strip() or 'missing in the object store'}, not a file")
    if int(size or 0) > LARGEST_BYTES:
        raise LimitError(f"{shown_value(model)}: {int(size)} bytes, more than the limit of {LARGEST_BYTES}")
    with TemporaryDirectory(prefix="perfpass-") as scratch:
        copy = Path(scratch) / (PurePosixPath(path).name or "model")
        with replacing(copy) as file:
            _copy(oid, folder, file)
        yield str(_followed(copy, model, folder))


class NotThere(FileError):
    """The commit is there, and has no such file."""


def _said(arguments: list[str], folder: str | os.PathLike[str] | None) -> str | None:
    """What git prints; None where it fails."""
    try:
        done = subprocess.run(
            ["git", *_SETTINGS, *arguments], cwd=folder, env={**os.environ, **_ENVIRONMENT}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise UnsupportedError("git:REV:PATH needs the program git, which is not on the path") from error
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise FileError(f"git cannot be run: {reason(error)}") from error
    return done.stdout if done.returncode == 0 else None


def _copy(oid: str, folder: str | os.PathLike[str] | None, file: IO[bytes]) -> None:
    """The blob into ``file``, at most `LARGEST_BYTES` of it."""
    arguments = ["git", *_SETTINGS, "cat-file", "blob", oid]
    environment = {**os.environ, **_ENVIRONMENT}
    with subprocess.Popen(
        arguments, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        left = LARGEST_BYTES
        while left and (block := process.stdout.read(min(_BLOCK_BYTES, left))):
            file.write(block)
            left -= len(block)
        if not left:
            process.kill()
    if process.returncode:
        raise FileError(f"git cat-file failed on {oid}; `git fsck` says what is wrong with the repository")


def _followed(copy: Path, model: str, folder: str | os.PathLike[str] | None) -> Path:
    """The copy, or what it points to in the store of Git LFS."""
    if copy.stat().st_size > _POINTER_BYTES or not (
        match := _POINTER.match(read_file(copy, "a pointer of Git LFS", _POINTER_BYTES))
    ):
        return copy
    oid = match.group(1).decode()
    common = (_said(["rev-parse", "--git-common-dir"], folder) or "").strip()
    stored = Path(folder or ".") / common / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
    if not stored.is_file():
        raise FileError(
            f"{shown_value(model)}: its content is in Git LFS and not here; run `git lfs fetch` of that commit"
        )
    with os.fdopen(open_regular(stored, "an object of Git LFS"), "rb") as source, replacing(copy) as file:
        while block := source.read(_BLOCK_BYTES):
            file.write(block)
    return copy
