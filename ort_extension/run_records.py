"""Runs of sessions as records of `perfpass measure`, which `perfpass calibrate --records` takes.

Their format: docs/reference/records.md.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_extension import placement
from perfpass.errors import ArgumentError, FileError, ShapeError, UnsupportedError
from perfpass.measure import facts
from perfpass.measure.configuration import Configuration, Protocol
from perfpass.measure.journal import Journal
from perfpass.measure.timing import Timing, drift_share

if TYPE_CHECKING:
    from ort_extension.report import Report
    from ort_extension.runs import Meter

CAMPAIGN = "session"
LEAST_RUNS = Protocol().iterations_min
_LOCK_TRIES = 20
_LOCK_WAIT_S = 0.05
_STEADY_SHARE = 0.03


class RecordsWarning(UserWarning):
    """The runs of a session could not be recorded."""


class SessionRecords:
    """The records of one session: what its meter has timed since the last were written."""

    def __init__(self, report: Report, meter: Meter, optimisation: str) -> None:
        self._report = report
        self._meter = meter
        self._optimisation = optimisation

    def write(self) -> int:
        """Appends what is new and returns the number of records. Raises FileError, FormatError, DeviceError.

        Shapes that `perfpass measure` cannot describe are left out.
        """
        path = self._report.records
        if path is None:
            return 0
        made, taken = [], []
        for shape in self._meter.to_record(LEAST_RUNS):
            how = {**self._report.ran(), "graph_optimization_level": self._optimisation}
            with contextlib.suppress(ArgumentError, UnsupportedError, ShapeError):
                ran = self._report.configuration(shape.shapes)
                made.append(record(ran, shape.laps_ms, shape.first_ms, shape.warm_up, how))
            taken.append(shape)
        if made:
            append(path, self._device(), made)
        self._meter.recorded(taken)
        return len(made)

    def _device(self) -> dict[str, Any] | None:
        """The device of the journal's facts; None for the CPU."""
        if self._report.gpu is None:
            return None
        stated, _ = placement.gpu_facts(self._report.gpu)
        return {"kind": "cuda", **stated, "catalogue_id": placement.in_catalogue(stated).id}


def record(
    ran: Configuration, laps_ms: np.ndarray, first_ms: float, warm_up: int, how: dict[str, Any]
) -> dict[str, Any]:
    """The record, without its environment. ``laps_ms`` [N]: runs after the warm-up; ``how``: what `ran` states."""
    steady = abs(drift_share(laps_ms)) <= _STEADY_SHARE
    timing = Timing(laps_ms, first_ms, warm_up, steady, 0, 0)
    found = timing.to_dict()
    del found["overhead_share"]  # the time between a program's runs is its own
    median = found["latency_ms"]["median"]
    return {
        "key": ran.key,
        "campaign": CAMPAIGN,
        "configuration": ran.to_dict(),
        "measured_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "status": "ok",
        **found,
        "throughput_per_s": float(f"{ran.batch / median * 1e3:.6g}"),
        "energy": {"method": "none", "reason": "a session reads no energy counter"},
        "flags": timing.flags(Protocol()),
        "ran": how,
        "elapsed_s": round(float(laps_ms.sum()) / 1e3, 3),
    }


def append(path: Path, device: dict[str, Any] | None, records: Iterable[dict[str, Any]]) -> None:
    """Adds records to a journal, its facts before them where it does not have them. ``device`` None: the CPU.

    Waits a second for another process that writes there. Raises FileError (a full disk: the file then ends where it
    did before), FormatError where the file is no journal.
    """
    environment = facts.of_host(device)
    with _opened(path) as journal:
        if environment["id"] not in journal.contents.facts:
            stamp = {"measured_at": datetime.now(timezone.utc).isoformat(timespec="seconds")}
            journal.append("facts", environment | stamp)
        for one in records:
            journal.append("record", {**one, "environment": environment["id"]})


def _opened(path: Path) -> Journal:
    for _ in range(_LOCK_TRIES - 1):
        try:
            return Journal(path)
        except FileError as error:
            if "another campaign" not in str(error):
                raise
            time.sleep(_LOCK_WAIT_S)
    return Journal(path)
