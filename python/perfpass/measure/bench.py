"""Times single operators on one device: how many calls make a lap, how they are launched, who else was there."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from perfpass.errors import ArgumentError, DeviceError, PerfPassError
from perfpass.importers.model_sources import is_out_of_memory
from perfpass.measure import facts as machine
from perfpass.measure.configuration import Protocol, digest
from perfpass.measure.operators import Operator
from perfpass.measure.timing import Lap, measure, significant

PROTOCOLS = {
    "quick": Protocol(
        steady_share=0.05, warmup_max_s=0.15, measure_min_s=0.05, measure_max_s=0.25, confidence_share=0.02
    ),
    "full": Protocol(warmup_max_s=1.0, measure_min_s=0.2, measure_max_s=1.5),
}
# Calls per lap: as many as last this long, so that neither the clock's resolution nor an event of CUDA is timed.
_LAP_S = {"cpu": 2e-4, "cuda": 1e-3}
_MOST_CALLS = {"cpu": 10_000, "cuda": 500}
# Below this, launching a kernel takes as long as running it; the calls are then replayed from a CUDA graph.
_GRAPH_BELOW_S = 1e-4
_CACHE_GUESS_BYTES = {"cpu": 32 * 2**20, "cuda": 64 * 2**20}


class Bench:
    """Measures single operators on one device; ``facts`` describe it. ``threads`` (CPU only): None for all.

    Raises UnsupportedError where the device is not there, ArgumentError for one that cannot be.
    """

    def __init__(self, device: str, threads: int | None = None) -> None:
        import torch

        if device not in ("cpu", "cuda") and not device.removeprefix("cuda:").isdigit():
            raise ArgumentError(f"device {device!r}; allowed are cpu, cuda and cuda:N")
        self.device = device
        self.kind = torch.device(device).type
        if threads is not None and (self.kind != "cpu" or threads < 1):
            raise ArgumentError(f"threads {threads} on {device}; only the CPU has them, at least 1")
        self.facts = machine.gather(device)
        if self.kind == "cpu":
            torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
        else:
            torch.cuda.set_device(torch.device(device).index or 0)
        if threads is not None:  # fewer threads are another machine: its points are kept apart
            self.facts["device"]["threads"] = threads
            self.facts["id"] = digest({name: value for name, value in self.facts.items() if name != "id"})
        self.facts["last_level_cache_bytes"] = self._cache_bytes()
        self._witness = _Witness(device, self.kind)

    def _cache_bytes(self) -> int:
        import torch

        if self.kind == "cuda":
            size = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "L2_cache_size", 0)
            return int(size) or _CACHE_GUESS_BYTES["cuda"]
        with contextlib.suppress(OSError, ValueError):
            text = Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text().strip()
            return int(text.rstrip("KM")) * {"K": 2**10, "M": 2**20}.get(text[-1], 1)
        return _CACHE_GUESS_BYTES["cpu"]

    def measure(self, operator: Operator, protocol: str = "full") -> dict[str, Any]:
        """The record of one operator: status, time of a call, FLOPs, bytes, flags. Does not raise for what it does."""
        configuration = operator.to_dict() | {"protocol": protocol}
        record: dict[str, Any] = {
            "key": digest(configuration),
            "environment": self.facts["id"],
            "configuration": configuration,
            "measured_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }
        started = time.monotonic()
        try:
            record |= {"status": "ok"} | self._measured(operator, PROTOCOLS[protocol])
        except Exception as error:
            message = " ".join(str(error).split())[:500] or type(error).__name__
            if is_out_of_memory(error):
                record |= {"status": "out_of_memory", "message": message}
            # torch has no kernel for this operator in this type here, in either of its ways to say so.
            elif isinstance(error, PerfPassError | NotImplementedError) or "not implemented" in message:
                record |= {"status": "unsupported", "message": message}
            else:
                record |= {"status": "failed", "message": f"{type(error).__name__}: {message}"}
        record["elapsed_s"] = round(time.monotonic() - started, 3)
        if self.kind == "cuda" and record["status"] != "ok":
            import torch

            with contextlib.suppress(Exception):
                torch.cuda.empty_cache()
        return record

    def _measured(self, operator: Operator, protocol: Protocol) -> dict[str, Any]:
        import torch

        from perfpass.measure.runners.torch import set_math

        set_math(operator.precision)
        with torch.no_grad():
            call = operator.call(self.device)
            lap, calls, launch = self._lap(call)
            begun: list[Any] = []
            timing = measure(lap, protocol, on_start=lambda: begun.append(self._witness.state()))
            seen, flags = self._witness.between(begun[0], timing.started_ns, timing.ended_ns)
        found = timing.to_dict()
        seconds = found["latency_ms"]["median"] / 1e3
        return found | {
            "calls_per_iteration": calls,
            "launch": launch,
            "flops": operator.flops,
            "bytes": operator.bytes,
            "flop_s": significant(operator.flops / seconds),
            "bytes_s": significant(operator.bytes / seconds),
            "flags": timing.flags(protocol) + flags,
            "conditions": seen,
        }

    def _lap(self, call: Callable[[], Any]) -> tuple[Lap, int, str]:
        """One lap: the mean time of one of several calls in a row, in ms; their number; how they are launched."""
        import torch

        for _ in range(3):  # lazy initialisation, cuDNN's trials
            call()
        once_s = self._once(call)
        calls = max(1, min(math.ceil(_LAP_S[self.kind] / once_s), _MOST_CALLS[self.kind]))
        if self.kind == "cpu":

            def cpu_lap() -> float:
                start = time.perf_counter_ns()
                for _ in range(calls):
                    call()
                return (time.perf_counter_ns() - start) / 1e6 / calls

            return cpu_lap, calls, "call"
        start_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        replay, launch = self._graph(call, calls) if once_s < _GRAPH_BELOW_S else (None, "stream")

        def cuda_lap() -> float:
            start_event.record()
            if replay is not None:
                replay()
            else:
                for _ in range(calls):
                    call()
            end_event.record()
            end_event.synchronize()
            return float(start_event.elapsed_time(end_event)) / calls

        return cuda_lap, calls, launch

    def _once(self, call: Callable[[], Any], tries: int = 5) -> float:
        """Seconds of one call, waiting for the device; the least of some."""
        import torch

        least = math.inf
        for _ in range(tries):
            start = time.perf_counter()
            call()
            if self.kind == "cuda":
                torch.cuda.synchronize()
            least = min(least, time.perf_counter() - start)
        return max(least, 1e-7)

    def _graph(self, call: Callable[[], Any], calls: int) -> tuple[Callable[[], Any] | None, str]:
        """``calls`` calls as a CUDA graph, or None where the operator cannot be captured."""
        import torch

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                for _ in range(calls):
                    call()
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            torch.cuda.synchronize()
            return None, "stream"
        return graph.replay, "graph"

    def close(self) -> None:
        """Ends the sampling of a GPU."""
        self._witness.close()


class _Witness:
    """Who else used the machine, and on a GPU clocks, temperature and throttling, during a measurement."""

    def __init__(self, device: str, kind: str) -> None:
        from perfpass.measure.host import HostProbe

        self._probe = HostProbe()
        self._sampler: Any = None
        if kind == "cuda":
            from perfpass.measure.sampler import Sampler

            with contextlib.suppress(DeviceError):  # without NVML there are no conditions, and times all the same
                self._sampler = Sampler(machine.cuda_uuid(device))

    def state(self) -> Any:
        return self._probe.state()

    def between(self, before: Any, start_ns: int, end_ns: int) -> tuple[dict[str, Any], list[str]]:
        seen = self._probe.between(before, self._probe.state())
        seen.pop("cpu_energy_j", None)
        flags = self._probe.flags(seen)
        if self._sampler is not None:
            from perfpass.measure.sampler import conditions

            # Half a period of sampling on both sides, since quick points are shorter than one.
            gpu = conditions(self._sampler.ring.window(start_ns - 50_000_000, end_ns + 50_000_000))
            slow = {"power_cap", "hardware_slowdown", "thermal_software", "thermal_hardware", "power_brake"}
            if slow & set(gpu.get("throttle_reasons", ())):
                flags.append("throttled")
            seen |= gpu
        return seen, flags

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()
