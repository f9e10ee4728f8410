"""What a pass instrument leaves behind: predictions at points of a build, and how they move from one to the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError
from perfpass.graph import OpGraph, costs
from perfpass.prediction import Prediction
from tvm_perfpass.attributes import predict_loaded

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


class Points:
    """The predictions of one instrument, and its failures; an exception in an instrument would abort TVM's build.

    ``load``: the graph of a module; None for what is no point (lowered functions, or a fragment that a pass compiles
    for itself). TVM calls `enter`, `before` and `after`, and keeps them: they hold the points and not the instrument,
    whose C++ object would otherwise hold itself, where Python's garbage collector does not see it.
    """

    def __init__(
        self, device: str | Device, at: Sequence[str], options: dict[str, Any], load: Callable[[Any], OpGraph | None]
    ) -> None:
        if isinstance(at, str):
            raise ArgumentError(f"at must be a list of names, got the string '{at}'; write ['{at}']")
        self.device = find_device(device)
        self.at = frozenset(at)
        self.options = options
        self.points: list[Point] = []
        self.errors: list[Failure] = []
        self.entered = False
        self._load = load

    def enter(self) -> None:
        """A new build begins."""
        self.entered = False

    def before(self, mod: Any, _: Any) -> None:
        """Before a pass: the first module that has a graph is the input of the build."""
        if not self.entered and INPUT in self.at:
            self.entered = self._record(INPUT, mod)

    def after(self, mod: Any, info: Any) -> None:
        """After a pass: a point, if it is among those wanted."""
        try:
            name = str(info.name)
        except Exception as error:
            self.errors.append(Failure("a pass", _say(error)))
            return
        if name in self.at:
            self._record(name, mod)

    def _record(self, name: str, mod: Any) -> bool:
        """Whether there was a graph to predict for, successful or not."""
        try:
            begin = time.perf_counter()
            graph = self._load(mod)
            if graph is None:
                return False
            counted = costs.count(graph)
            prediction = predict_loaded(graph, self.device, **self.options)
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


class Instrument:
    """What the instruments of Relay and Relax show of their `Points`, and what TVM looks for in them by name."""

    def __init__(self, found: Points) -> None:
        self._found = found

    @property
    def points(self) -> list[Point]:
        """The predictions so far."""
        return self._found.points

    @property
    def errors(self) -> list[Failure]:
        """Points at which no prediction could be made."""
        return self._found.errors

    @property
    def enter_pass_ctx(self) -> Callable[[], None]:
        """Called by TVM as a build begins."""
        return self._found.enter

    @property
    def run_before_pass(self) -> Callable[[Any, Any], None]:
        """Called by TVM: the first pass over a module with a graph sees the input."""
        return self._found.before

    @property
    def run_after_pass(self) -> Callable[[Any, Any], None]:
        """Called by TVM: predicts after the passes in ``at``."""
        return self._found.after

    def report(self) -> str:
        """A table: one line per point with latency, memory and energy, the change against the first, and failures."""
        return self._found.report()


def _say(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[-1] if text else 'without a message'}"
