"""What an answer must be: right figures, or an error of ours in a line. Anything else is a `Problem`."""

from __future__ import annotations

import math
import os
import resource
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from perfpass.errors import FileError, FormatError, InputWarning, PerfPassError

MEBIBYTES = 400  # more memory than before
LONGEST_MESSAGE = 1200
_OURS = ("perfpass", "tvm_perfpass", "ort_extension")


class Violation(Exception):
    """An answer that is none: ``what`` is the same for answers that are wrong in the same way."""

    def __init__(self, what: str, detail: str = "") -> None:
        super().__init__(f"{what}: {detail}" if detail else what)
        self.what = what


class Hang(BaseException):
    """Longer than allowed. No Exception, so that nothing on the way takes it for its own."""


@dataclass(frozen=True)
class Problem:
    """What went wrong with an input: ``identity`` tells problems apart, ``text`` is for people."""

    identity: str
    text: str


def judged(run: Callable[[bytes], None], data: bytes, seconds: float = 5.0) -> tuple[str, Problem | None]:
    """Runs a target on an input, for so many seconds of the processor.

    How that ended ("answered", or the class of our error), and what is wrong with it.
    """
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with _limited(seconds), warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            warnings.simplefilter("ignore", InputWarning)  # entries that are passed over, by name
            run(data)
    except PerfPassError as error:
        return type(error).__name__, _of_message(error)
    except Violation as error:
        return "problem", Problem(error.what, str(error))
    except Hang as error:
        return "problem", Problem(f"hang in {_place(error)}", f"over {seconds:g} s of the processor")
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error}"[:300]
        return "problem", Problem(f"{type(error).__name__} in {_place(error)}", text)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    if grown > MEBIBYTES:
        return "problem", Problem("memory", f"{grown:.0f} MiB more than before")
    return "answered", None


def _of_message(error: PerfPassError) -> Problem | None:
    """What is wrong with an error's message: several lines, codes for the terminal, or no end."""
    text, place = str(error), _place(error)
    if not 10 < len(text) <= LONGEST_MESSAGE:
        return Problem(
            f"message of {'many' if len(text) > 10 else 'few'} characters in {place}", f"{len(text)}: {text[:200]}"
        )
    if "\n" in text:
        return Problem(f"message of several lines in {place}", text[:300])
    return None


def names(error: PerfPassError, path: str | os.PathLike[str]) -> None:
    """Raises Violation where an error about a file does not name it."""
    if isinstance(error, (FileError, FormatError)):
        said = f"{error.subject or ''} {error}"
        if os.path.basename(os.fspath(path)) not in said:
            raise Violation(f"an error that does not name its file, in {_place(error)}", str(error))


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Inside, an error about a file names it."""
    try:
        yield
    except PerfPassError as error:
        names(error, path)
        raise


def figures(found: Any, where: str = "") -> None:
    """Raises Violation for a figure that is not finite or below 0, and an interval out of order."""
    if isinstance(found, Mapping):
        if {"median", "low", "high"} <= found.keys():
            low, median, high = (found[k] for k in ("low", "median", "high"))
            if not 0 < low <= median <= high < math.inf:
                raise Violation("an interval out of order", f"{where}: {low}, {median}, {high}")
        for key, value in found.items():
            figures(value, f"{where}.{key}")
    elif isinstance(found, (list, tuple)):
        for value in found:
            figures(value, where)
    elif isinstance(found, (int, float)) and not isinstance(found, bool) and not (math.isfinite(found) and found >= 0):
        raise Violation("a figure that is not finite and at least 0", f"{where} = {found}")


def _place(error: BaseException) -> str:
    """The innermost function of ours that the error passed through."""
    ours = [f for f in traceback.extract_tb(error.__traceback__) if any(f"/{n}/" in f.filename for n in _OURS)]
    if not ours:
        return "none of ours"
    return f"{'/'.join(ours[-1].filename.split('/')[-2:])}:{ours[-1].name}"


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: Any) -> None:
        raise Hang

    former = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)
