"""Reads a GPU every few milliseconds from a process of its own, so that reading costs the measured process nothing.

The samples go into a ring in a shared file; clocks of both processes are the same CLOCK_MONOTONIC.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.errors import DeviceError
from perfpass.measure.nvml import Gpu, Sample, reason_names

PERIOD_S = 0.01
ROWS = 32_768  # five minutes at 10 ms
_COLUMNS = 7  # time_ns, energy_j, power_w, sm_clock_hz, temperature_c, memory_used_bytes, reasons
_START_TIMEOUT_S = 30.0
# Fewer counter steps than this, or a span below this share of the window: the counter is too coarse for the window.
_STEPS_MIN = 3
_SPAN_MIN = 0.4


class Ring:
    """The shared file: row 0 holds the number of samples written, rows 1 to ROWS the samples, oldest overwritten."""

    def __init__(self, path: str | os.PathLike[str], create: bool = False) -> None:
        self._rows = np.memmap(path, np.float64, "w+" if create else "r+", shape=(ROWS + 1, _COLUMNS))

    def write(self, time_ns: int, sample: Sample) -> None:
        """Adds a sample; the count moves last, so a reader never sees half a row."""
        count = int(self._rows[0, 0])
        self._rows[1 + count % ROWS] = (
            time_ns,
            sample.energy_j,
            sample.power_w,
            sample.sm_clock_hz,
            sample.temperature_c,
            sample.memory_used_bytes,
            sample.reasons,
        )
        self._rows[0, 0] = count + 1

    def __len__(self) -> int:
        return int(self._rows[0, 0])

    def window(self, start_ns: int, end_ns: int) -> np.ndarray:
        """The samples taken from ``start_ns`` to ``end_ns``: [N, 7], in order of time."""
        count = len(self)
        rows = np.array(self._rows[1 : 1 + min(count, ROWS)])
        rows = rows[(rows[:, 0] >= start_ns) & (rows[:, 0] <= end_ns)]
        return rows[np.argsort(rows[:, 0], kind="stable")]


@dataclass(frozen=True)
class Power:
    """Mean power over a window, and how it is known: ``energy_counter``, ``power_samples`` or ``none``."""

    mean_w: float
    highest_w: float
    method: str
    samples: int


def mean_power(rows: np.ndarray, start_ns: int, end_ns: int) -> Power:
    """Mean power from the samples [N, 7] of a window.

    From the energy counter between its first and its last step inside the window (a counter that moves every 20 to
    100 ms, read between two steps, is off by up to a whole step otherwise); else the trapezoid over sampled power.
    """
    highest = float(np.nanmax(rows[:, 2])) if len(rows) and not np.isnan(rows[:, 2]).all() else math.nan
    energy, time_s = rows[:, 1], rows[:, 0] / 1e9
    steps = np.flatnonzero(np.diff(energy) > 0) + 1
    if len(steps) >= _STEPS_MIN:
        first, last = steps[0], steps[-1]
        span = time_s[last] - time_s[first]
        if span >= _SPAN_MIN * (end_ns - start_ns) / 1e9:
            return Power(float((energy[last] - energy[first]) / span), highest, "energy_counter", len(rows))
    valid = ~np.isnan(rows[:, 2])
    if np.count_nonzero(valid) >= _STEPS_MIN:
        t, w = time_s[valid], rows[valid, 2]
        return Power(float(np.trapezoid(w, t) / (t[-1] - t[0])), highest, "power_samples", len(rows))
    return Power(math.nan, highest, "none", len(rows))


def conditions(rows: np.ndarray) -> dict[str, Any]:
    """Clocks, temperature, memory and throttling over a window of samples [N, 7]."""
    if not len(rows):
        return {}
    bits = 0
    for value in rows[:, 6]:
        bits |= int(value)
    found = {
        "sm_clock_hz": {"min": _finite(np.min, rows[:, 3]), "median": _finite(np.median, rows[:, 3])},
        "temperature_c": _finite(np.max, rows[:, 4]),
        "device_memory_peak_bytes": _finite(np.max, rows[:, 5]),
        "throttle_reasons": reason_names(bits),
    }
    return {name: value for name, value in found.items() if value is not None}


def _finite(reduce: Callable[[np.ndarray], Any], values: np.ndarray) -> float | None:
    values = values[~np.isnan(values)]
    return float(reduce(values)) if len(values) else None


def sample_into(ring: Ring, read: Callable[[], Sample], go_on: Callable[[], bool], period_s: float = PERIOD_S) -> None:
    """Samples until ``go_on`` says no."""
    while go_on():
        started = time.monotonic()
        ring.write(time.monotonic_ns(), read())
        time.sleep(max(0.0, period_s - (time.monotonic() - started)))


class Sampler:
    """The sampling process of one GPU. Raises DeviceError where it does not start."""

    def __init__(self, uuid: str) -> None:
        folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        handle, path = tempfile.mkstemp(prefix="perfpass-samples-", dir=folder)
        os.close(handle)
        self._path = Path(path)
        self.ring = Ring(self._path, create=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "perfpass.measure.sampler", uuid, path, str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not len(self.ring):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                reason = (self._process.stderr.read() if self._process.stderr else "").strip().splitlines()[-1:]
                self.close()
                raise DeviceError(f"GPU {uuid} cannot be sampled: {reason[0] if reason else 'no sample in time'}")
            time.sleep(0.005)

    def close(self) -> None:
        """Ends the process and removes the ring."""
        self._process.kill()
        self._process.wait()
        if self._process.stderr:
            self._process.stderr.close()
        with contextlib.suppress(OSError):
            self._path.unlink()


def main(arguments: list[str]) -> None:
    """``UUID RING PARENT``: samples until the parent process is gone."""
    uuid, path, parent = arguments
    gpu = Gpu(uuid)
    sample_into(Ring(path), gpu.sample, lambda: os.getppid() == int(parent))


if __name__ == "__main__":
    main(sys.argv[1:])
