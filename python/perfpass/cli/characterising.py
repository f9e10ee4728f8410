"""`perfpass roofline`: measures the points that are missing, then writes the summary, the figure and the table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from perfpass.errors import UnsupportedError


def run(options: Any) -> int:
    """Measures, writes, and prints the roofs. What did not run is in the table."""
    _need_packages()
    from perfpass.measure import roofline
    from perfpass.report import count, digits

    folder = Path(options.output or Path("records") / f"roofline-{options.device.replace(':', '')}")
    bar = _Progress()
    try:
        outcome = roofline.characterise(
            options.device, folder, quick=options.quick, threads=options.threads, progress=bar
        )
    finally:
        bar.close()
    summary = roofline.summarise(folder)
    paths = roofline.write(summary, folder)
    by_status = ", ".join(f"{number} {status}" for status, number in outcome.measured.items()) or "nothing new"
    print(f"{summary['device']}: {by_status}, {outcome.skipped} known, {outcome.elapsed_s:.0f} s")
    for precision, peak in summary["peak_flop_s"].items():
        ridge = summary["ridge_flop_per_byte"][precision]["memory"]
        print(f"  {precision:<5} {count(peak)}FLOP/s, ridge at {digits(ridge)} FLOP per byte")
    print(f"  memory {count(summary['memory_bytes_s'])}B/s, cache {count(summary['cache_bytes_s'])}B/s")
    print("\n".join(f"  {path}" for path in paths))
    return 0


def _need_packages() -> None:
    """Raises UnsupportedError, before anything is measured, where a package that is needed is missing."""
    missing = []
    for package in ("torch", "psutil", "matplotlib"):
        try:
            __import__(package)
        except ImportError:
            missing.append(package)
    if missing:
        raise UnsupportedError(f"`perfpass roofline` needs {', '.join(missing)}: pip install {' '.join(missing)}")


class _Progress:
    """A bar on stderr where that is a terminal and tqdm is installed; silent otherwise."""

    def __init__(self) -> None:
        self._bar: Any = None

    def __call__(self, done: int, total: int) -> None:
        if self._bar is None and sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError:
                return
            tqdm.monitor_interval = 0  # no thread beside the measurement
            self._bar = tqdm(total=total, unit="operator")
        if self._bar is not None:
            self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
