"""Steps of a training loop, measured beside what was predicted of them, and kept as records.

A record is a line of a journal as `perfpass measure` writes it (docs/reference/records.md), with what was predicted:
`perfpass calibrate --records` learns a device from it. It is written after a few steps, after eight times as many, and
so on, and at the end, so that a run that is killed leaves what it had measured; of the lines of one run the last holds.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from perfpass.errors import DeviceError, PerfPassError, UnsupportedError
from perfpass.importers.model_sources import is_out_of_memory
from perfpass.measure import facts, host, nvml
from perfpass.measure.journal import Journal
from perfpass.measure.timing import significant
from perfpass.predictors.calibration import steps
from perfpass.text import columns, digits, size

if TYPE_CHECKING:
    import os

    from perfpass.torch.estimation import Estimate

_FIRST_RECORD, _NEXT_RECORD = 8, 8  # measured steps before a record is written; times as many before the next
_MOST_KEPT = 100_000  # steps whose times are kept; a run's median has long settled


class DoesNotFitWarning(UserWarning):
    """A training step is predicted not to fit into the memory of its device, or not surely."""


class Watch:
    """Times the steps of a loop and compares them with an estimate.

    ``journal``: the file that records go to, None for none. ``warmup``: steps that are not counted. ``total_steps``: of
    the run, for the hours that it will take. ``say``: takes the lines for people. Steps on a GPU are timed by its own
    events, without waiting for it. In an other loop than Lightning's or transformers'::

        with Watch("runs.jsonl") as watch:
            watch.predict(estimate(model, batch, optimizer=optimizer), total_steps=1000)
            for batch in batches:
                with watch.step():
                    ...
    """

    def __init__(
        self,
        journal: str | os.PathLike[str] | None = None,
        *,
        warmup: int = 3,
        say: Callable[[str], None] = print,
    ) -> None:
        self.estimate: Estimate | None = None
        self._journal = None if journal is None else Path(journal)
        self._warmup, self._say = warmup, say
        self._run = uuid.uuid4().hex[:20]
        self._started = time.perf_counter()
        self._cuda = torch.cuda.is_available()
        self._seen = 0
        self._seconds: list[float] = []
        self._events: list[tuple[Any, Any]] = []
        self._begun: Any = None
        self._next = _FIRST_RECORD
        self._closed = False
        self._gpu = _gpu() if self._cuda else None
        # Joules of the board and when they were read: as the first counted step begins, as the last one ends.
        self._from = self._until = (math.nan, math.nan)
        self._refused = ""

    def predict(self, estimate: Estimate, total_steps: int | None = None) -> None:
        """Says what is predicted of a step, and of the run; warns where it may not fit."""
        self.estimate = estimate
        self._say(f"perfpass: {estimate.headline()}")
        if total_steps:
            run = estimate.run(total_steps)
            paid = "" if run.usd is None else f", {run.usd.median:.2f} USD"
            joules = run.energy_j.median / 3.6e6
            self._say(f"perfpass: {total_steps} steps: {digits(run.hours.median)} h, {digits(joules)} kWh{paid}")
        if not estimate.fits:
            warnings.warn(f"perfpass: {estimate.headline()}", DoesNotFitWarning, stacklevel=2)

    def predicting(self, made: Callable[[], Estimate], total_steps: int | None = None) -> None:
        """As `predict`, of what ``made`` returns; where that fails, the run goes on without a prediction.

        Tracing runs the module's own forward pass, which may raise anything: nothing of it may stop a training run.
        """
        try:
            with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False), torch.enable_grad():
                found = made()
        except Exception as error:
            self._say(f"perfpass: no prediction: {' '.join(str(error).split())[:500] or type(error).__name__}")
            return
        self.predict(found, total_steps)

    def begin(self) -> None:
        """A step begins."""
        if self._seen == self._warmup:
            self._reset()
        self._begun = self._now()

    def end(self) -> None:
        """The step ends; one that never began is not counted."""
        if self._begun is None:
            return
        begun, self._begun = self._begun, None
        self._seen += 1
        if self._seen <= self._warmup or self.steps >= _MOST_KEPT:
            return
        if self._cuda:
            self._events.append((begun, self._now()))
        else:
            self._seconds.append(self._now() - begun)
        if self.steps == _MOST_KEPT:
            self._until = self._joules()
        if self.steps >= self._next:
            self._next *= _NEXT_RECORD
            self._write(self.record())

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Around a step."""
        self.begin()
        yield
        self.end()

    @property
    def steps(self) -> int:
        """That were measured."""
        return len(self._seconds) + len(self._events)

    def close(self, error: BaseException | None = None) -> None:
        """The run ends: the last record, and predicted beside measured. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        record = self.record(error)
        if self.steps or error is not None:
            self._write(record)
        if self.estimate is not None and self.steps:
            self._say(compared(self.estimate, record))
        if self._gpu is not None:
            self._gpu.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(error)

    def record(self, error: BaseException | None = None) -> dict[str, Any]:
        """What was measured so far, as a line of a journal without its environment."""
        found: dict[str, Any] = {"key": self._run, "campaign": "training", "configuration": self._configuration()}
        if self.estimate is not None:
            found["predicted"] = predicted(self.estimate)
        if error is not None:
            status = "out_of_memory" if is_out_of_memory(error) else "failed"
            found |= {"status": status, "message": f"{type(error).__name__}: {str(error)[:1000]}"}
        else:
            found["status"] = "ok" if self.steps else "failed"
        found |= {
            "memory": self._memory(),
            "measured_at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "elapsed_s": significant(time.perf_counter() - self._started),
        }
        if not self.steps:
            return found
        seconds = self._measured()
        ms = {f"p{q}": significant(1e3 * float(np.percentile(seconds, q))) for q in (10, 90)}
        median = float(np.median(seconds))
        found |= {
            "latency_ms": {"median": significant(1e3 * median), **ms, "mean": significant(1e3 * float(seconds.mean()))},
            "iterations": len(seconds),
            "warmup_iterations": self._warmup,
        }
        if self.estimate is not None:
            found["throughput_per_s"] = significant(self.estimate.samples / median)
        joules, ended = self._until if self.steps >= _MOST_KEPT else self._joules()
        watts = (joules - self._from[0]) / (ended - self._from[1])
        if math.isfinite(watts):
            found["energy"] = {
                "method": "nvml energy counter over the measured steps and what lies between them, by the clock",
                "energy_j": significant(watts * float(seconds.mean())),
                "power_w": significant(watts),
            }
        return found

    def _configuration(self) -> dict[str, Any]:
        found = self.estimate
        if found is None:
            return {"mode": "training", "device": "cuda" if self._cuda else "cpu"}
        return {
            "model": found.model,
            "mode": "training",
            "device": "cuda" if self._cuda else "cpu",
            "batch": found.samples,
            "accumulation": found.accumulation,
            "devices": found.devices,
            "precision": found.precision,
            "optimizer": found.optimizer,
        }

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _reset(self) -> None:
        """Peaks and joules are those of measured steps."""
        if self._cuda:
            torch.cuda.reset_peak_memory_stats()
        self._from = self._joules()

    def _measured(self) -> np.ndarray:
        """[steps] seconds."""
        if self._events:
            torch.cuda.synchronize()
            self._seconds += [begun.elapsed_time(ended) / 1e3 for begun, ended in self._events]
            self._events = []
        return np.array(self._seconds)

    def _memory(self) -> dict[str, float]:
        if self._cuda:
            peaks: dict[str, float] = {
                "allocated_peak_bytes": torch.cuda.max_memory_allocated(),
                "reserved_peak_bytes": torch.cuda.max_memory_reserved(),
            }
            if self._gpu is not None and math.isfinite(used := self._gpu.sample().memory_used_bytes):
                peaks["device_used_peak_bytes"] = int(used)
            return peaks
        try:
            return {"host_peak_rss_bytes": host.peak_rss_bytes()}
        except OSError:  # a system that does not tell
            return {}

    def _joules(self) -> tuple[float, float]:
        """That the board has drawn, and when (s)."""
        joules = self._gpu.sample().energy_j if self._gpu is not None else math.nan
        return joules, time.perf_counter()

    def _write(self, record: dict[str, Any]) -> None:
        if self._journal is None:
            return
        try:
            known = facts.gather("cuda" if self._cuda else "cpu")
            with Journal(self._journal) as journal:
                if known["id"] not in journal.contents.facts:
                    journal.append("facts", known)
                journal.append("record", {**record, "environment": known["id"]})
        except PerfPassError as error:  # a full disk, another run's lock: the next record tries again
            if str(error) != self._refused:
                self._refused = str(error)
                self._say(f"perfpass: no record was written: {error}")


def predicted(estimate: Estimate) -> dict[str, Any]:
    """What a record keeps of a prediction: figures with bounds, and what a calibration learns from."""
    return {
        "predictor": estimate.predictor,
        "step_s": estimate.step_s.to_dict(),
        "memory_bytes": estimate.memory_bytes.to_dict(),
        "power_w": estimate.power_w.to_dict(),
        "fits_probability": estimate.fits_probability,
        "step_shares": {name: significant(float(v)) for name, v in estimate.step_shares.items() if v},
        "alive_bytes": {name: significant(float(v)) for name, v in estimate.alive_bytes.items() if v},
        "operator_shares": {name: significant(float(v)) for name, v in estimate.operator_shares.items() if v},
        "uncorrected": {name: significant(value) for name, value in estimate.uncorrected.items()},
        "digest": steps.digest_of(estimate.predictor),
        "device": estimate.device,
    }


def compared(estimate: Estimate, record: dict[str, Any]) -> str:
    """Predicted beside measured, for people."""
    rows = [("", "predicted", "90% interval", "measured", "")]
    low, high = (digits(1e3 * value) for value in (estimate.step_s.low, estimate.step_s.high))
    rows.append(_row("step, ms", 1e3 * estimate.step_s.median, f"{low} to {high}", record["latency_ms"]["median"]))
    whole = estimate.memory_bytes
    bounds = f"{size(whole.low)} to {size(whole.high)}"
    peaks = record["memory"]
    for name, label in (
        ("device_used_peak_bytes", "memory, the device's"),
        ("reserved_peak_bytes", "memory reserved"),
        ("host_peak_rss_bytes", "memory, the process's"),
    ):
        if name in peaks:
            off = f"{100 * (peaks[name] / whole.median - 1):+.0f} %"
            rows.append((label, size(whole.median), bounds, size(peaks[name]), off))
            break
    if watts := record.get("energy", {}).get("power_w"):
        power = estimate.power_w
        rows.append(_row("power, W", power.median, f"{digits(power.low)} to {digits(power.high)}", watts))
    return f"perfpass: {record['iterations']} steps measured\n{columns(rows, right=(1, 3, 4))}"


def _row(label: str, median: float, bounds: str, measured: float) -> tuple[str, str, str, str, str]:
    return label, digits(median), bounds, digits(measured), f"{100 * (measured / median - 1):+.0f} %"


def _gpu() -> nvml.Gpu | None:
    try:
        return nvml.Gpu(facts.cuda_uuid("cuda"))
    except (DeviceError, UnsupportedError):
        return None
