"""Time of a graph in an engine that is built for it (TensorRT) or that fuses when it loads it (ONNX Runtime).

What operators have to do is that of `perfpass.predictors.inference.operators`. An engine differs in what it launches
(few of the pointwise operators and of the moves are kernels of their own), in the time that a kernel takes to start,
which falls with the clock, and in its precision: it takes 16 bits where these run no slower than 8. A few levels, with
priors that keep them near 1, scale this to families, precisions and boards (perfpass.training.inference.engines). No
level depends on a size, so the time never falls with the batch, the sequence or a smaller slice. NumPy alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.late import dataclass
from perfpass.predictors.inference import operators
from perfpass.predictors.inference.levels import Levels
from perfpass.predictors.inference.operators import (
    CALL_S,
    FAMILIES,
    GRAPH_CYCLES,
    ISSUE_S,
    TF32_PRODUCTS,
    Seconds,
    generation,
    precision_class,
    work,
)
from perfpass.predictors.learned import artefacts
from perfpass.predictors.roofline import issue_share, smooth_maximum
from perfpass.predictors.workload import PRECISIONS

if TYPE_CHECKING:
    from perfpass.graph.table import Tables
    from perfpass.predictors.way import Way

ENGINES = ("tensorrt", "onnxruntime")
# Start and end of one kernel on the queue, at a clock of 1.6 GHz; it falls with the square of the clock, as starts take
# cycles and boards of higher clocks need fewer of them.
GAP_S, CLOCK_HZ, _CLOCK_EXPONENT = 4e-6, 1.6e9, 2.0
# Share of the operators that stay kernels of their own, by engine, before any level; products all do.
FUSABLE: dict[str, tuple[str, ...]] = {
    "norm": ("norm", "softmax"), "pointwise": ("pointwise",), "move": ("move",),
}  # fmt: skip
LAUNCHED: dict[str, dict[str, float]] = {
    "tensorrt": {"norm": 0.5, "pointwise": 0.1, "move": 0.3},
    "onnxruntime": {"norm": 0.6, "pointwise": 0.6, "move": 0.6},
}
# Bytes of pointwise operators and moves over those that `operators` keeps of fused ones.
KEPT: dict[str, float] = {"tensorrt": 1.5, "onnxruntime": 2.0}
_HOST = "engine"
LEVELS: tuple[str, ...] = (
    "all", "class", "runtime", "precision", "generation", "gap", "launched", "kept", "call", "issue",
)  # fmt: skip
CONVOLUTIONS = np.array([name.startswith("conv") for name in FAMILIES])
PRODUCTS = np.array([name.startswith(("dense", "matmul", "attention", "recurrent")) for name in FAMILIES])
KEPT_FAMILIES = np.isin(FAMILIES, ("pointwise", "move"))


def ran_as(way: Way) -> Way:
    """With the precision that the engine takes: 16 bits on boards whose 8 bits are no faster."""
    name, peaks = PRECISIONS[way.precision][1], way.device.peak_flops
    slower = name in ("int8", "fp8") and peaks.get(name, 0.0) <= peaks.get("fp16", 0.0)
    return replace(way, precision="fp16") if slower else way


def kernels_of(way: Way) -> str:
    """The name of a precision's level; engines run fp32 as TF32 where a board has it."""
    found = precision_class(way)
    return "tf32" if found == "fp32" and way.runtime in TF32_PRODUCTS and "tf32" in way.device.peak_flops else found


def launch_s(way: Way) -> float:
    """Seconds that one kernel takes to start and end on the device, before any level."""
    clock = way.device.clock_hz or CLOCK_HZ
    if way.cuda_graph:
        return GRAPH_CYCLES / clock
    return float(GAP_S * (CLOCK_HZ / clock) ** _CLOCK_EXPONENT)


@dataclass(frozen=True)
class EngineTimes(Levels):
    """Time of graphs in engines; ``levels``: log factors by level and name (LEVELS), absent ones are 0."""

    NAMES = LEVELS

    @staticmethod
    @cache
    def load() -> EngineTimes:
        """The shipped levels, read once per process. Raises ArtefactError."""
        return EngineTimes.read(artefacts.shipped("analytic"))

    def factors(self, way: Way) -> np.ndarray:
        """[len(FAMILIES)] of the device's time."""
        shared = self._of("all", "") + self._of("runtime", way.runtime) + self._of("generation", generation(way.device))
        each = np.array([self._of("class", name) for name in FAMILIES]) + shared
        kernels = kernels_of(way)
        each = each + np.where(PRODUCTS, self._of("precision", kernels), 0.0)
        each = each + np.where(CONVOLUTIONS, self._of("precision", kernels + " convolution"), 0.0)
        kept = np.log(KEPT[way.runtime]) + self._of("kept", way.runtime)
        return np.asarray(np.exp(each + np.where(KEPT_FAMILIES, kept, 0.0)))

    def launched(self, way: Way) -> np.ndarray:
        """[len(FAMILIES)] share of the operators that are launched."""
        found = np.ones(len(FAMILIES))
        for kind, names in FUSABLE.items():
            share = LAUNCHED[way.runtime][kind] * np.exp(self._of("launched", f"{way.runtime} {kind}"))
            found[np.isin(FAMILIES, names)] = min(1.0, share)
        return found

    def _launch_s(self, way: Way) -> float:
        """Seconds of the device to start and end a kernel. A graph's have no level: one source alone replayed any."""
        return float(launch_s(way) * (1.0 if way.cuda_graph else np.exp(self._of("gap", ""))))

    def _issue_s(self, way: Way) -> float:
        """Seconds of the host to issue a kernel; a graph is issued whole, with the call."""
        return 0.0 if way.cuda_graph else float(ISSUE_S[_HOST] * np.exp(self._of("issue", "")))

    def for_core(self, way: Way) -> dict[str, Any]:
        """What `seconds` reads of ``way``, as numbers (cpp_kernels/src/prediction/engine.cpp)."""
        ran = ran_as(way)
        return {
            **operators.for_core(ran),
            "factor": self.factors(ran),
            "launched": self.launched(ran),
            "launch_s": self._launch_s(ran),
            "issue_s": self._issue_s(ran),
            "call_s": CALL_S[_HOST] * np.exp(self._of("call", "")),
        }

    def seconds(self, tables: Tables, way: Way) -> Seconds:
        """The time of N graphs in ``way``, an engine on a GPU."""
        way = ran_as(way)
        done = work(tables.table, way, engine=True, graph=tables.graph)
        launches = done.issued * tables.count * self.launched(way)[done.family]
        row = done.seconds * tables.count * self.factors(way)[done.family]
        row = row + launches * self._launch_s(way)
        issued = launches * self._issue_s(way)
        device_s, issued_s = tables.sums(row), tables.sums(issued)
        host_s = issued_s + CALL_S[_HOST] * np.exp(self._of("call", ""))
        total = smooth_maximum(device_s, host_s)
        bound = issue_share(host_s / np.maximum(device_s, 1e-12))
        parts = [v / np.maximum(of, 1e-300)[tables.graph] for v, of in ((row, device_s), (issued, issued_s))]
        share = (1.0 - bound)[tables.graph] * parts[0] + bound[tables.graph] * parts[1]
        return Seconds(total, device_s, host_s, share * total[tables.graph])
