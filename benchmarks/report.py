"""What every benchmark prints and stores: machine, versions, runs, median, spread."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_NUMBER = re.compile(r"[+-]?[\d.,]+ ?[%x]?")


@dataclass(frozen=True)
class Timing:
    """Repeated wall times of one call, in milliseconds."""

    median_ms: float
    low_ms: float  # 10th percentile
    high_ms: float  # 90th percentile
    runs: int

    def __str__(self) -> str:
        return f"{figure(self.median_ms)} ({figure(self.low_ms)} to {figure(self.high_ms)})"


def figure(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def summary(times_ms: list[float]) -> Timing:
    """Median, 10th and 90th percentile of wall times in milliseconds."""
    ordered = sorted(times_ms)
    last = len(ordered) - 1
    return Timing(statistics.median(ordered), ordered[round(0.1 * last)], ordered[round(0.9 * last)], len(ordered))


def timed(call: Callable[[], T], runs: int, warm_up: int = 1) -> tuple[T, Timing]:
    """The last result of `call` and its wall times over `runs` calls, after `warm_up` calls that do not count."""
    if runs < 1:
        raise ValueError(f"runs must be at least 1, got {runs}")
    for _ in range(warm_up):
        call()
    times: list[float] = []
    results: list[T] = []
    for _ in range(runs):
        results.clear()  # giving back the memory of the one before is no part of a call
        start = time.perf_counter()
        results.append(call())
        times.append(1e3 * (time.perf_counter() - start))
    return results[0], summary(times)


def machine() -> dict[str, Any]:
    """Processor, cores and memory of this machine, and the system's release."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def versions(*packages: str) -> dict[str, str]:
    """Installed versions; a package that is not installed is left out."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, columns padded, those of single numbers to the right."""
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    numeric = [all(_NUMBER.fullmatch(row[i]) for row in rows if row[i]) for i in range(len(header))]
    rule = ["-" * (width - 1) + (":" if right else "-") for width, right in zip(widths, numeric, strict=True)]
    pads = [str.rjust if right else str.ljust for right in numeric]
    return "\n".join(
        "| " + " | ".join(pad(cell, width) for cell, width, pad in zip(line, widths, pads, strict=True)) + " |"
        for line in [header, rule, *rows]
    )


def publish(name: str, results: dict[str, Any], packages: tuple[str, ...], json_path: Path | None) -> None:
    """Prints machine and versions, and writes everything as JSON where `json_path` says."""
    document = {"benchmark": name, "machine": machine(), "versions": versions("perfpass", *packages), **results}
    print("machine: " + ", ".join(f"{key} {value}" for key, value in document["machine"].items()))
    print("versions: " + ", ".join(f"{key} {value}" for key, value in document["versions"].items()))
    if json_path is not None:
        json_path.write_text(json.dumps(document, indent=2, default=asdict) + "\n")
        print(f"written: {json_path.name}")
