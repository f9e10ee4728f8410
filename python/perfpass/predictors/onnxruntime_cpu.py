"""ONNX Runtime on a CPU: what the vision predictor says of eager PyTorch there, times a measured ratio of the two.

No public source times onnxruntime, so the ratio is that of our own records; memory is that of onnxruntime's arena.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perfpass.prediction import Interval, Support
from perfpass.predictors import analytic
from perfpass.predictors.roofline import Workload
from perfpass.predictors.trees import VisionPredictor

if TYPE_CHECKING:
    from perfpass.predictors.estimate import Estimate, Inputs, Planned

NAME = "onnxruntime-cpu"
# Median of measured time in onnxruntime over predicted time in eager PyTorch, and the log deviation around it, of 120
# records of 63 networks in fp32 (data/records/measured/epyc-2-cores, `benchmarks/own_device.py` grades it with
# architectures apart). One machine stands behind it.
RATIO = 0.38
RATIO_DEVIATION = 0.39
# Standard normal quantile of the bounds of a 90 % interval.
_BOUND = 1.645


class OnnxRuntimeCpuPredictor:
    """Latency from the vision predictor and a ratio, memory from the arena, power from use of the roofs."""

    @staticmethod
    def covers(inputs: Planned) -> bool:
        """Whether it speaks of the run: onnxruntime on a CPU in single precision."""
        return inputs.runtime == "onnxruntime" and inputs.device.kind == "cpu" and inputs.precision == "fp32"

    def memory(self, planned: Planned) -> tuple[dict[str, float], Interval]:
        """Bytes by part, and the peak with its bounds: the analytic predictor's, which simulates the arena."""
        return analytic.load().memory(planned)

    def estimate(self, inputs: Inputs) -> Estimate:
        """All metrics of one run (perfpass.predictors.estimate)."""
        eager = VisionPredictor.load().predict(
            inputs.table, inputs.device, Workload(inputs.batch, inputs.precision, inputs.runtime, inputs.layout)
        )
        apart = _BOUND * RATIO_DEVIATION
        median = eager.median_s * RATIO
        below, above = (float(np.hypot(np.log(b / eager.median_s), apart)) for b in (eager.low_s, eager.high_s))
        reason = (
            f"onnxruntime on a CPU: {RATIO:.2f} times the time of PyTorch, as measured on one machine (2-core EPYC)"
        )
        level = "near" if eager.support.level == "in range" else eager.support.level
        base = analytic.load().estimate(inputs)
        return replace(
            base,
            latency_ms=Interval(median * 1e3, median * np.exp(-below) * 1e3, median * np.exp(above) * 1e3, "ms"),
            power_w=analytic.power(inputs, median),
            row_ms=eager.row_s * (RATIO * 1e3),
            support=Support(level, (reason, *eager.support.reasons)),
            provenance={
                "predictor": NAME,
                "corpus": VisionPredictor.load().manifest["corpus"]["name"],
                "ratio": RATIO,
                "ratio_deviation": RATIO_DEVIATION,
                "nearest_network_distance": eager.distance,
                "beyond_measured": eager.beyond,
            },
        )
