"""What the commands that measure and learn share: the packages they need, a bar that shows how far they are, areas."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from perfpass.cli.options import texts, whole
from perfpass.errors import UnsupportedError, needs


def need(command: str, *packages: str) -> None:
    """Raises UnsupportedError, before anything is measured, with what to install where a package is missing."""
    if os.name != "posix":
        raise UnsupportedError(f"`perfpass {command}` measures on Linux and macOS; this is {sys.platform}")
    with needs("measure", f"`perfpass {command}`"):
        for package in packages:
            importlib.import_module(package)


def add_areas(command: Any) -> None:
    """--records, --area, --seed: what is learned from, of which areas."""
    command.add_argument("--records", metavar="DIR", help="folder of records (default: those of this repository)")
    areas = "inference, serving, ... (default: all; perfpass.training.areas lists them)"
    command.add_argument("--area", type=texts, action="extend", metavar="A,..", help=areas)
    command.add_argument("--seed", type=whole, default=0, metavar="N", help="seed of every random choice (default: 0)")


class Progress:
    """A bar on stderr with the remaining time, where that is a terminal and tqdm is installed; silent otherwise."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._bar: Any = None

    def __call__(self, done: int, total: int, what: str = "") -> None:
        """``done`` of ``total``; ``what`` stands behind the bar."""
        if self._bar is None and sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError:
                return
            tqdm.monitor_interval = 0  # no thread beside the measurement
            self._bar = tqdm(total=total, unit=self._unit, smoothing=0.05)
        if self._bar is not None:
            self._bar.set_postfix_str(what, refresh=False)
            self._bar.update(done - self._bar.n)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
