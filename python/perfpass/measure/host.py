"""The host's side of a measurement: peak resident memory, energy of the CPU, and who else was using it."""

from __future__ import annotations

import ctypes
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

# More than this share of the machine used by others during the measurement is worth a flag.
CONTENDED_SHARE = 0.05
_MADV_POPULATE_READ = 22


def reset_peak_rss() -> bool:
    """Makes the kernel forget the peak resident size of this process; False where it does not let us.

    Source: proc(5), /proc/pid/clear_refs, value 5 (Linux 4.0).
    """
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_rss_bytes() -> int:
    """Peak resident size of this process since it started or since `reset_peak_rss`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM")


def rss_bytes() -> int:
    """Resident size of this process now."""
    return int(psutil.Process().memory_info().rss)


def resident_bytes() -> dict[str, int]:
    """Resident size of this process now: "rss", and of it "anonymous" (its own) and "file" (mapped libraries, data)."""
    found = {}
    names = {"VmRSS": "rss", "RssAnon": "anonymous", "RssFile": "file"}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in names:
            found[names[name]] = int(value.split()[0]) * 1024
    return found


def mapped_file_pages() -> list[tuple[int, int]]:
    """(address, bytes) of every run of file pages that this process has mapped; empty where the kernel does not tell.

    Writable mappings are left out: their pages are copies of our own. Source: proc(5), /proc/pid/pagemap, bit 63.
    """
    page = resource.getpagesize()
    runs: list[tuple[int, int]] = []
    try:
        with (
            open("/proc/self/maps", encoding="ascii") as maps,
            open("/proc/self/pagemap", "rb", buffering=0) as entries,
        ):
            for line in maps:
                span, access, _, _, inode, *_ = line.split(maxsplit=5)
                if inode == "0" or "w" in access or "r" not in access:
                    continue
                first, last = (int(end, 16) // page for end in span.split("-"))
                entries.seek(8 * first)
                present = np.frombuffer(entries.read(8 * (last - first)), dtype="<u8") >> np.uint64(63)
                edges = np.flatnonzero(np.diff(np.concatenate(([0], present.astype(np.int8), [0]))))
                runs += [((first + a) * page, (b - a) * page) for a, b in edges.reshape(-1, 2).tolist()]
    except (OSError, ValueError):
        return []
    return runs


def map_pages(runs: list[tuple[int, int]]) -> None:
    """Maps runs of file pages, as of `mapped_file_pages` of the process that this one was forked from.

    A fork leaves clean file pages to be mapped on their next use; counted then, they look like memory of what is
    measured. Kernels before 5.14 (madvise(2), MADV_POPULATE_READ) refuse, and nothing changes.
    """
    advise = ctypes.CDLL(None).madvise
    for address, size in runs:
        advise(ctypes.c_void_p(address), ctypes.c_size_t(size), _MADV_POPULATE_READ)


class Rapl:
    """Energy counters of the CPU packages and their memory (powercap, intel-rapl); AMD's appear under the same name.

    `available` is False where there are none or they may not be read (they need root since 2020, CVE-2020-8694).
    """

    def __init__(self, root: Path = Path("/sys/class/powercap")) -> None:
        self._zones: list[tuple[Path, float]] = []
        for zone in sorted(root.glob("intel-rapl:*")):
            try:
                name = (zone / "name").read_text().strip()
                # Packages count their cores; memory is a zone inside a package and not counted by it.
                if name.startswith("package") or name == "dram":
                    int((zone / "energy_uj").read_text())
                    self._zones.append((zone, float((zone / "max_energy_range_uj").read_text())))
            except (OSError, ValueError):
                continue

    @property
    def available(self) -> bool:
        """Whether `read_uj` gives anything."""
        return bool(self._zones)

    def read_uj(self) -> list[float]:
        """The counters, in microjoules, one per zone."""
        return [float((zone / "energy_uj").read_text()) for zone, _ in self._zones]

    def joules_between(self, before: list[float], after: list[float]) -> float:
        """Energy between two readings; a counter that wrapped once is unwrapped."""
        total = 0.0
        for (_, span), a, b in zip(self._zones, before, after, strict=True):
            total += b - a if b >= a else b - a + span
        return total / 1e6


@dataclass(frozen=True)
class HostState:
    """A moment: clocks of the machine and of this process, and the energy counters."""

    monotonic_s: float
    machine_busy_s: float
    process_busy_s: float
    stolen_s: float
    preemptions: int
    energy_uj: list[float]


class HostProbe:
    """Brackets a measurement: `state` before and after, `between` for what happened, on all cores or on ``core``."""

    def __init__(self, core: int | None = None) -> None:
        self._core = core
        self.rapl = Rapl()

    def state(self) -> HostState:
        """Now. Takes about 100 microseconds."""
        machine = psutil.cpu_times() if self._core is None else psutil.cpu_times(percpu=True)[self._core]
        own = resource.getrusage(resource.RUSAGE_SELF)  # of the process that asks, a fork of this probe's maker too
        idle = machine.idle + getattr(machine, "iowait", 0.0) + getattr(machine, "steal", 0.0)
        return HostState(
            time.monotonic(),
            sum(machine) - idle - getattr(machine, "guest", 0.0) - getattr(machine, "guest_nice", 0.0),
            own.ru_utime + own.ru_stime,
            getattr(machine, "steal", 0.0),
            own.ru_nivcsw,
            self.rapl.read_uj(),
        )

    def between(self, before: HostState, after: HostState) -> dict[str, Any]:
        """Shares of the time of all cores, or of the one, and, where it can be read, the energy of the CPU."""
        cores = (os.cpu_count() or 1) if self._core is None else 1
        elapsed = max(after.monotonic_s - before.monotonic_s, 1e-9) * cores
        own = after.process_busy_s - before.process_busy_s
        others = max(0.0, after.machine_busy_s - before.machine_busy_s - own)
        found: dict[str, Any] = {
            "cpu_share": round(own / elapsed, 4),
            "cpu_share_of_others": round(others / elapsed, 4),
            "cpu_share_stolen": round(max(0.0, after.stolen_s - before.stolen_s) / elapsed, 4),
            "preemptions": after.preemptions - before.preemptions,
        }
        if self.rapl.available:
            found["cpu_energy_j"] = self.rapl.joules_between(before.energy_uj, after.energy_uj)
        return found

    @staticmethod
    def flags(between: dict[str, Any]) -> list[str]:
        """`contended` where others, or the hypervisor, took a share of the CPU that shows."""
        taken = between["cpu_share_of_others"] + between["cpu_share_stolen"]
        return ["contended"] if taken > CONTENDED_SHARE else []
