"""PerformanceInstrument: predictions at chosen points of a build, and how they move from one to the next.

An exception in a pass instrument aborts TVM's build; here every failure is caught, kept in ``errors`` and shown.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relay

from perfpass import costs
from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError
from perfpass.prediction import Prediction
from tvm_perfpass.fusion import fused
from tvm_perfpass.relay import predict_module
from tvm_perfpass.walk import parameter_names, walk

INPUT = "input"


@dataclass(frozen=True)
class Point:
    """The prediction at one point of a build: ``name`` is "input" or the pass after which it was made."""

    name: str
    kernels: int
    macs: int
    bytes_moved: int
    prediction: Prediction
    milliseconds: float  # what the prediction itself took


@dataclass(frozen=True)
class Failure:
    """A point at which no prediction could be made, and why."""

    name: str
    message: str


@tvm.instrument.pass_instrument
class PerformanceInstrument:
    """Predicts for the module as a build enters it ("input") and after the passes named in ``at``.

    Use: ``with tvm.transform.PassContext(opt_level=3, instruments=[instrument]): relay.build(...)``, then
    ``print(instrument.report())``. After FuseOps every fused function counts as one kernel, so the move from "input"
    shows what fusion saves. A pass that runs several times leaves several points. ``params``: as for
    PredictPerformance. ``points`` and ``errors`` hold the outcome.
    """

    def __init__(
        self,
        device: str | Device,
        at: Sequence[str] = (INPUT, "FuseOps"),
        *,
        params: Mapping[str, Any] | Iterable[str] | None = None,
        precision: str | None = None,
        batch: int | None = None,
        layout: str | None = None,
    ) -> None:
        if isinstance(at, str):
            raise ArgumentError(f"at must be a list of names, got the string '{at}'; write ['{at}']")
        self.device = find_device(device)
        self.at = frozenset(at)
        self.params = parameter_names(params)
        self.options: dict[str, Any] = {"precision": precision, "batch": batch, "layout": layout}
        self.points: list[Point] = []
        self.errors: list[Failure] = []
        self._entered = False

    def enter_pass_ctx(self) -> None:
        """A new build begins."""
        self._entered = False

    def run_before_pass(self, mod: tvm.IRModule, info: Any) -> None:
        """The first pass over a module with a Relay ``main`` sees the input."""
        if not self._entered and INPUT in self.at:
            self._entered = self._record(INPUT, mod)

    def run_after_pass(self, mod: tvm.IRModule, info: Any) -> None:
        """Predicts after the passes in ``at``."""
        try:
            name = str(info.name)
        except Exception as error:
            self.errors.append(Failure("a pass", _say(error)))
            return
        if name in self.at:
            self._record(name, mod)

    def _record(self, name: str, mod: tvm.IRModule) -> bool:
        """Whether the module was one to predict for, successful or not."""
        try:
            if not _has_relay_main(mod):
                return False  # TIR functions, or a fragment that constant folding compiles for itself
            begin = time.perf_counter()
            graph = fused(walk(mod, self.params))
            counted = costs.count(graph)
            prediction = predict_module(graph, self.device, **self.options)
            self.points.append(
                Point(
                    name,
                    graph.node_count,
                    int(counted.totals["macs"]),
                    int(counted.totals["bytes_read"] + counted.totals["bytes_written"]),
                    prediction,
                    (time.perf_counter() - begin) * 1e3,
                )
            )
        except Exception as error:
            self.errors.append(Failure(name, _say(error)))
        return True

    def report(self) -> str:
        """A table: one line per point with latency, memory and energy, the change against the first, and failures."""
        lines = [f"prediction on {self.device.name} during the build"]
        header = f"{'point':<24}{'operators':>10}{'moved':>12}{'latency':>14}{'':>8}{'peak memory':>14}{'energy':>14}"
        lines.append(header)
        first = self.points[0].prediction.latency_ms.median if self.points else 0.0
        for point in self.points:
            p = point.prediction
            change = f"{100 * (p.latency_ms.median / first - 1):+.1f}%" if point is not self.points[0] else ""
            lines.append(
                f"{point.name:<24}{point.kernels:>10}{point.bytes_moved / 1e6:>9.1f} MB{p.latency_ms.median:>11.4g} ms"
                f"{change:>8}{p.peak_memory_bytes.median / 2**20:>10.1f} MiB{p.energy_j.median:>12.3g} J"
            )
        if not self.points:
            lines.append("no point was reached; the names of passes are those of tvm.transform.PassInfo.name")
        lines += [f"{failure.name}: no prediction: {failure.message}" for failure in self.errors]
        return "\n".join(lines)


def _has_relay_main(mod: tvm.IRModule) -> bool:
    return any(
        var.name_hint == "main" and isinstance(function, relay.Function) for var, function in mod.functions_items()
    )


def _say(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[-1] if text else 'without a message'}"
