"""The errors that perfpass raises. One root, one subclass per kind of failure.

A message says what was found, what is allowed, and what to do. The command line prints it as one line on stderr and
exits with the class's ``exit_code``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LONGEST_MESSAGE = 1000  # characters


class PerfPassError(Exception):
    """Root of every error raised on purpose by perfpass.

    Its text is one line, and what it quotes has an end: of a longer one the middle is left out.

    ``subject``: the file that the error is about, where its message does not name it (`about`). ``asked``: of a refusal
    to predict, what was asked, for `perfpass.evidence.of`.
    """

    exit_code = 1
    subject: str | None = None
    asked: Any = None

    def __str__(self) -> str:
        text = " ".join(line.strip() for line in super().__str__().splitlines())
        if len(text) <= LONGEST_MESSAGE:
            return text
        half = LONGEST_MESSAGE // 2
        return f"{text[:half]} ... ({len(text) - 2 * half} characters) ... {text[-half:]}"


class ArgumentError(PerfPassError, ValueError):
    """A value outside the documented range, or arguments that contradict each other."""

    exit_code = 2


class FileError(PerfPassError, OSError):
    """A file cannot be found, opened, read or written."""

    exit_code = 3


class FormatError(PerfPassError, ValueError):
    """A file is not what it claims to be: truncated, corrupt, or of another format."""

    exit_code = 4


class LimitError(PerfPassError, ValueError):
    """A documented bound is exceeded (file size, nesting, rank, tensor size, number of nodes)."""

    exit_code = 5


class GraphError(PerfPassError, ValueError):
    """The operator graph is inconsistent: a cycle, a tensor with two producers or with none."""

    exit_code = 6


class ShapeError(PerfPassError, ValueError):
    """A shape is unresolved (a symbolic dimension without a value) or contradictory."""

    exit_code = 7


class UnsupportedError(PerfPassError):
    """Understood, but not handled here; the message names it and the alternative."""

    exit_code = 8


class DeviceError(PerfPassError, LookupError):
    """An unknown device, or a device without the figure that was asked for."""

    exit_code = 9


class ArtefactError(PerfPassError):
    """A shipped or trained predictor is missing, damaged or of a schema that this version cannot read."""

    exit_code = 10


class InputWarning(UserWarning):
    """An input has something that means nothing here and is passed over; the message names it."""


def shown(path: str | os.PathLike[str]) -> str:
    """A path for an error of one line: the end of one that is too long to be read."""
    text = os.fsdecode(path)
    return text if len(text) <= 300 else f"...{text[-100:]} ({len(text)} characters)"


_OF_FILES = (FileError, FormatError, GraphError, LimitError, ShapeError)


class about:
    """Inside, an error about a file that names none is about this one: the core knows a node's name, not its file's."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, _OF_FILES) and error.subject is None:
            names = {os.path.basename(os.fsdecode(self._path)), shown(self._path)}
            if not any(name in str(error) for name in names):
                error.subject = shown(self._path)


def missing_package(error: ImportError, extra: str, what: str) -> UnsupportedError:
    """The error of ``what``, which needs a package that cannot be imported: names it and the extra that brings it."""
    package = (error.name or "").partition(".")[0]
    if package in ("perfpass", "tvm_perfpass", "ort_extension"):
        return UnsupportedError(
            f"{what} needs the module {error.name}, which is in the source tree and not in the installed package"
        )
    found = "is not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be imported ({error})"
    return UnsupportedError(
        f"{what} needs the package {package or 'of that extra'}, which {found}: pip install 'perfpass[{extra}]'"
    )


@contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """Inside, an import that fails is missing_package's error."""
    try:
        yield
    except ImportError as error:
        raise missing_package(error, extra, what) from error
