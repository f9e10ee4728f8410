"""Measures one configuration after another in this process: builds, warms up, times, and reads memory and energy."""

from __future__ import annotations

import contextlib
import errno
import gc
import math
import os
import re
import resource
import statistics
import tempfile
import time
import traceback
from datetime import datetime, timezone
from typing import Any

import psutil

from perfpass.bounded_file import reason
from perfpass.errors import DeviceError, FileError, PerfPassError, UnsupportedError, shown
from perfpass.importers.model_sources import is_out_of_memory
from perfpass.measure import facts, host, own_process
from perfpass.measure.configuration import Configuration, Protocol
from perfpass.measure.models import Built, build
from perfpass.measure.nvml import Gpu
from perfpass.measure.runners import Session, open_session
from perfpass.measure.sampler import Sampler, conditions, mean_power
from perfpass.measure.timing import Timing, measure, significant

_IDLE_S = 2.0
_MEMORY_SHARE = 0.9  # of the memory that is free when a campaign on the CPU starts; beyond it a machine swaps or kills
_SLOWING = {"power_cap", "hardware_slowdown", "thermal_software", "thermal_hardware", "power_brake"}
# A product and a copy of two to three milliseconds each on two cores of 2024; their first laps warm the caches.
_REFERENCE_SIDE = 512
_REFERENCE_BYTES = 32 * 2**20
_REFERENCE_LAPS = 11
_DISK_REFUSES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_UNITS = {"b": 1, "bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


class Collector:
    """Bound to one device until `close`. ``facts`` describes device, host and software; see docs/reference/records.md.

    On the CPU the whole process may take no more than 90 % of the memory that was free when it began, so that a model
    which is too large is a MemoryError and no machine that swaps; `close`, or the end of a ``with``, lifts that again.

    Raises UnsupportedError where the device is not there.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.facts = facts.gather(device)
        self._host = host.HostProbe()
        self._sampler: Sampler | None = None
        self._gpu: Gpu | None = None
        self._no_energy = "" if self._host.rapl.available else "no readable energy counter (RAPL) on this CPU"
        self._built: tuple[tuple[Any, ...], Built] | None = None
        self._data_limit: tuple[int, int] | None = None
        if device == "cpu":
            self._limit_memory()
        else:
            self._open_gpu()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _limit_memory(self) -> None:
        self._data_limit = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = int(psutil.Process().memory_info().vms + _MEMORY_SHARE * psutil.virtual_memory().available)
        lower = min([wanted, *(limit for limit in self._data_limit if limit != resource.RLIM_INFINITY)])
        resource.setrlimit(resource.RLIMIT_DATA, (lower, self._data_limit[1]))

    def _open_gpu(self) -> None:
        try:
            uuid = facts.cuda_uuid(self.device)
            self._gpu = Gpu(uuid)
            self._sampler = Sampler(uuid)
            self._no_energy = "a MIG instance has no energy counter of its own" if self._gpu.is_mig else ""
        except DeviceError as error:
            self._no_energy = str(error)

    def describe(self) -> dict[str, Any]:
        """`facts` with the measured capability and idle power. Takes some ten seconds; the device must be idle."""
        described = dict(self.facts)
        time.sleep(0.5)
        described["idle_power_w"] = self._idle_power_w()
        described["capability"] = facts.capability(self.device)
        described["measured_at"] = _now()
        return described

    def _idle_power_w(self) -> float | None:
        start_ns, before = time.monotonic_ns(), self._host.state()
        time.sleep(_IDLE_S)
        end_ns = time.monotonic_ns()
        if self._sampler is not None:
            mean = mean_power(self._sampler.ring.window(start_ns, end_ns), start_ns, end_ns).mean_w
            return None if math.isnan(mean) else round(mean, 3)
        energy = self._host.between(before, self._host.state()).get("cpu_energy_j")
        return None if energy is None else round(energy / _IDLE_S, 3)

    def measure(self, configuration: Configuration, protocol: Protocol) -> dict[str, Any]:
        """The record of one configuration: status, metrics, flags. Never raises for what the configuration does.

        Raises FileError where the disk does not do its part (a temporary folder that is full): that tells nothing of
        the configuration.
        """
        started = time.monotonic()
        record: dict[str, Any] = {
            "key": configuration.key,
            "environment": self.facts["id"],
            "configuration": configuration.to_dict(),
            "measured_at": _now(),
        }
        session: Session | None = None
        try:
            baseline = self._start()
            if configuration.own_process:
                return self._ended(record | {"status": "ok"} | self._measured_alone(configuration, protocol), started)
            session = self._open(configuration)
            before = self._reference(configuration)
            record |= {"status": "ok"} | self._measured(session, configuration, protocol, baseline)
            if before is not None:
                record["reference_ms"] = {"before": before, "after": self._reference(configuration)}
        except Exception as error:
            if (refused := _refused_by_disk(error)) is not None:
                named = isinstance(refused.filename, (str, bytes))
                where = f"{shown(os.fsdecode(refused.filename))}: " if named else ""
                way_out = f"make room there, or where temporary files go ({tempfile.gettempdir()})"
                raise FileError(
                    f"{where}{reason(refused)} while {configuration.model} was measured; {way_out}"
                ) from error
            record |= self._failure(error)
            if record["status"] != "unsupported":
                self._built = None
        finally:
            if session is not None:
                with contextlib.suppress(Exception):
                    session.close()
        return self._ended(record, started)

    @staticmethod
    def _ended(record: dict[str, Any], started: float) -> dict[str, Any]:
        record["elapsed_s"] = round(time.monotonic() - started, 3)
        return record

    def _measured_alone(self, configuration: Configuration, protocol: Protocol) -> dict[str, Any]:
        """See `own_process`; here only files are made for it, and the reference work is timed."""
        self._check_device(configuration)
        return own_process.measured(
            configuration,
            protocol,
            lambda: build(configuration, "cpu"),
            lambda: self._reference(configuration),
        )

    def _check_device(self, configuration: Configuration) -> None:
        if configuration.device != self.device:
            raise UnsupportedError(f"this collector measures {self.device}, not {configuration.device}")

    def _start(self) -> int:
        """Resident bytes before anything of the configuration exists."""
        gc.collect()
        if self.device != "cpu":
            import torch

            torch.cuda.empty_cache()
        host.reset_peak_rss()
        return host.rss_bytes()

    def _open(self, configuration: Configuration) -> Session:
        self._check_device(configuration)
        if configuration.runtime.startswith("torch") and self.device == "cpu":
            import torch

            torch.set_num_threads(configuration.threads or len(os.sched_getaffinity(0)))
        if configuration.is_file:
            return open_session(configuration, None)
        on = self.device if configuration.runtime.startswith("torch") else "cpu"
        causal = configuration.mode in ("prefill", "decode", "training")
        wanted = (configuration.model, configuration.image_size, causal, on)
        if self._built is None or self._built[0] != wanted:
            self._built = None
            gc.collect()
            self._built = (wanted, build(configuration, on))
        return open_session(configuration, self._built[1])

    def _reference(self, configuration: Configuration) -> dict[str, float] | None:
        """Times, in ms, of a small matrix product and a copy on the CPU; None on a GPU, whose clocks NVML tells.

        A virtual machine sees neither its clock nor its neighbours: the same work before and after a measurement tells
        a slow moment of the machine from a slow model.
        """
        if self.device != "cpu":
            return None
        import torch

        torch.set_num_threads(configuration.threads or len(os.sched_getaffinity(0)))
        a = torch.full((_REFERENCE_SIDE, _REFERENCE_SIDE), 0.5)
        out = torch.empty_like(a)
        block = torch.full((_REFERENCE_BYTES // 4,), 0.5)
        target = torch.empty_like(block)
        works = {"gemm": lambda: torch.mm(a, a, out=out), "copy": lambda: target.copy_(block)}
        found = {}
        for name, work in works.items():
            times = []
            for _ in range(_REFERENCE_LAPS):
                start = time.perf_counter_ns()
                work()
                times.append((time.perf_counter_ns() - start) / 1e6)
            found[name] = significant(statistics.median(times[2:]))
        return found

    def _measured(
        self, session: Session, configuration: Configuration, protocol: Protocol, baseline: int
    ) -> dict[str, Any]:
        before = [self._host.state()]
        has_energy = not self._no_energy
        opening_peak = host.peak_rss_bytes()
        session.reset_memory()
        host.reset_peak_rss()
        timing = measure(
            session.lap,
            protocol,
            least_s=protocol.energy_min_s if has_energy else 0.0,
            on_start=lambda: before.append(self._host.state()),
        )
        during = self._host.between(before[-1], self._host.state())
        flags = timing.flags(protocol) + self._host.flags(during)
        record = timing.to_dict()
        median = record["latency_ms"]["median"]
        record["throughput_per_s"] = significant(configuration.batch / median * 1e3)
        record["memory"] = session.memory() | {
            "host_peak_rss_bytes": host.peak_rss_bytes(),
            "host_opening_peak_rss_bytes": opening_peak,
            "host_baseline_rss_bytes": baseline,
        }
        record["energy"], seen = self._energy(timing, during)
        if seen:
            peak = seen.pop("device_memory_peak_bytes", None)
            if peak is not None:
                record["memory"]["device_used_peak_bytes"] = int(peak)
            if _SLOWING & set(seen["throttle_reasons"]):
                flags.append("throttled")
            record["conditions"] = seen
        if self._gpu is not None:
            process = self._gpu.process_memory_bytes(os.getpid())
            if process is not None:
                record["memory"]["process_device_bytes"] = process
        during.pop("cpu_energy_j", None)
        return record | {
            "host": during,
            "flags": flags,
            "ran": {k: v for k, v in session.facts.items() if v is not None},
        }

    def _energy(self, timing: Timing, during: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Energy of one iteration in joules with how it is known, and the GPU's conditions meanwhile."""
        iterations = len(timing.laps_ms)
        wall_s = (timing.ended_ns - timing.started_ns) / 1e9
        if self._sampler is not None:
            rows = self._sampler.ring.window(timing.started_ns, timing.ended_ns)
            power = mean_power(rows, timing.started_ns, timing.ended_ns)
            if power.method == "none":
                return {"method": "none", "reason": self._no_energy or "too few samples"}, conditions(rows)
            return {
                "method": power.method,
                "energy_j": significant(power.mean_w * wall_s / iterations),
                "power_w": round(power.mean_w, 3),
                "power_max_w": round(power.highest_w, 3),
                "samples": power.samples,
            }, conditions(rows)
        if "cpu_energy_j" in during:
            joules = during["cpu_energy_j"]
            return {
                "method": "rapl",
                "energy_j": significant(joules / iterations),
                "power_w": round(joules / wall_s, 3),
            }, {}
        return {"method": "none", "reason": self._no_energy}, {}

    def _failure(self, error: Exception) -> dict[str, Any]:
        message = " ".join(str(error).split())[:500] or type(error).__name__
        if is_out_of_memory(error):
            found = {"status": "out_of_memory", "message": message, "memory": self._exhausted()}
            requested = requested_bytes(message)
            return found | ({"requested_bytes": requested} if requested else {})
        if isinstance(error, PerfPassError):
            return {"status": "unsupported", "message": message}
        where = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {message} ({os.path.basename(where.filename)}:{where.lineno})"
        return {"status": "failed", "message": message}

    def _exhausted(self) -> dict[str, int]:
        if self.device == "cpu":
            return {"host_peak_rss_bytes": host.peak_rss_bytes()}
        import torch

        return {
            "allocated_peak_bytes": torch.cuda.max_memory_allocated(self.device),
            "reserved_peak_bytes": torch.cuda.max_memory_reserved(self.device),
        }

    def close(self) -> None:
        """Ends the sampling process, and lifts the limit of memory."""
        if self._data_limit is not None:
            resource.setrlimit(resource.RLIMIT_DATA, self._data_limit)
            self._data_limit = None
        if self._sampler is not None:
            self._sampler.close()
        if self._gpu is not None:
            self._gpu.close()


def _refused_by_disk(error: BaseException | None) -> OSError | None:
    """What the disk refused among ``error`` and its causes."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, OSError) and error.errno in _DISK_REFUSES:
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def requested_bytes(message: str) -> int | None:
    """The size in an allocator's message ("Tried to allocate 2.50 GiB", "you tried to allocate 123 bytes")."""
    match = re.search(r"tried to allocate ([\d.]+) ?([kmgt]?i?b(?:ytes)?)", message.lower())
    return int(float(match[1]) * _UNITS[match[2]]) if match and match[2] in _UNITS else None


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
