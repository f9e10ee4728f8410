"""ONNX Runtime on a CPU: what the inference predictor says of eager PyTorch there, times a measured ratio of the two.

No public source times onnxruntime, so the ratio is that of our own records; memory is that of onnxruntime's arena.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfpass.prediction import SUPPORT_LEVELS
from perfpass.predictors.estimate import Bounds, Columns, Estimate, Estimates, Notes, Runs, shares
from perfpass.predictors.inference import analytic
from perfpass.predictors.inference.predictor import InferencePredictor
from perfpass.predictors.memory import allocation

if TYPE_CHECKING:
    from perfpass.predictors.estimate import Run
    from perfpass.predictors.way import Way

NAME = "onnxruntime-cpu"
# Median of measured time in onnxruntime over predicted time in eager PyTorch, and the log deviation around it, of 120
# records of 63 networks in fp32 (data/records/measured/epyc-2-cores, `benchmarks/own_device.py` grades it with
# architectures apart). One machine stands behind it.
RATIO = 0.38
RATIO_DEVIATION = 0.39
# Standard normal quantile of the bounds of a 90 % interval.
_BOUND = 1.645
_REASON = f"onnxruntime on a CPU: {RATIO:.2f} times the time of PyTorch, as measured on one machine (2-core EPYC)"


class OnnxRuntimeCpuPredictor:
    """Latency from the inference predictor and a ratio, memory from the arena, power from use of the roofs."""

    name = NAME

    @staticmethod
    def covers(way: Way) -> bool:
        """Whether it speaks of the run: onnxruntime on a CPU in single precision."""
        return way.runtime == "onnxruntime" and way.device.kind == "cpu" and way.precision == "fp32"

    def columns(self, runs: Runs, way: Way, threads: int = 1) -> tuple[Columns, Notes]:
        """What is known of N runs before they are scored, and how far measurements stand behind them."""
        return self._columns(runs, way, threads)[:2]

    def _columns(
        self, runs: Runs, way: Way, threads: int = 1
    ) -> tuple[dict[str, np.ndarray], Notes, np.ndarray]:  # fmt: skip
        """The columns, the notes, and [R] parts of the time in PyTorch per row."""
        found, notes, row_s = InferencePredictor.load().columns_of(runs, way, threads)
        plain, _ = analytic.AnalyticPredictor.load().columns(runs, way)
        notes.add(1, True, _REASON, vouched=True, first=True)
        return {**found, "level": notes.level, "flops": plain["flops"], "traffic": plain["traffic"]}, notes, row_s

    def estimates(self, columns: Columns, way: Way, threads: int = 1) -> Estimates:
        """All metrics of N runs (perfpass.predictors.estimate)."""
        eager = InferencePredictor.load().latency_s(columns)
        apart = _BOUND * RATIO_DEVIATION
        below, above = (np.hypot(np.log(bound / eager.median), apart) for bound in (eager.low, eager.high))
        seconds = Bounds.around(eager.median * RATIO, -below, above)
        return analytic.AnalyticPredictor.load().around(seconds.scaled(1e3), columns, way)

    def estimate(self, run: Run) -> Estimate:
        """All metrics of one run (perfpass.predictors.estimate)."""
        columns, notes, row_s = self._columns(allocation.runs_of(run), run.way)
        found = self.estimates(columns, run.way)
        provenance = {
            "predictor": self.name,
            "corpus": InferencePredictor.load().manifest["corpus"]["name"],
            "ratio": RATIO,
            "ratio_deviation": RATIO_DEVIATION,
            "nearest_network_distance": float(columns["distance"][0]),
            "beyond_measured": SUPPORT_LEVELS[columns["beyond"][0]],
        }
        row_ms = shares(row_s) * float(found.latency_ms.median[0])
        return Estimate.first(found, columns, row_ms, notes.reasons(0), provenance)
