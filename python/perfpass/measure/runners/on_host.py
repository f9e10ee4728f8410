"""The session of a runtime that computes while the host waits, and tells nothing of its memory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from perfpass.errors import FormatError, PerfPassError
from perfpass.importers.model_sources import is_out_of_memory


class HostSession:
    """``run`` is one iteration, and returns when its outputs are there; ``kernels`` times each of them, where the
    runtime tells them apart.
    """

    def __init__(
        self,
        run: Callable[[], object],
        facts: Mapping[str, Any],
        kernels: Callable[[], list[dict[str, Any]]] = list,
    ) -> None:
        self.facts = facts
        self._run: Any = run
        self._kernels: Any = kernels

    def lap(self) -> float:
        """One run; by the monotonic clock, in ms."""
        start = time.perf_counter_ns()
        self._run()
        return (time.perf_counter_ns() - start) / 1e6

    def reset_memory(self) -> None:
        """No such runtime keeps a peak that Python can read."""

    def memory(self) -> dict[str, int]:
        """Nothing; the peak resident size of the process tells."""
        return {}

    def kernels(self) -> list[dict[str, Any]]:
        """The time of every kernel; nothing where the runtime does not tell."""
        found: list[dict[str, Any]] = self._kernels()
        return found

    def close(self) -> None:
        """Frees what the runtime holds."""
        self._run = self._kernels = None


@contextlib.contextmanager
def loading(path: Path, runtime: str, raised: tuple[type[Exception], ...]) -> Iterator[None]:
    """Raises FormatError where the runtime cannot load the file: ``raised`` are the errors in which it says so."""
    try:
        yield
    except PerfPassError:  # some are a ValueError, as what runtimes raise
        raise
    except raised as error:
        if is_out_of_memory(error):
            raise
        raise FormatError(f"{path.name}: {runtime} cannot load it: {' '.join(str(error).split())}") from error
