"""The analytic predictor: roofline with fixed efficiencies, for what no measurement stands behind.

It answers where the learned predictor has nothing to go by (a precision, device or runtime without records) and says
so: its support is always "outside" and its intervals are wide.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from perfpass.graph import OPERATOR_CLASSES
from perfpass.prediction import Interval, Support
from perfpass.predictors import allocation
from perfpass.predictors.estimate import Estimate
from perfpass.predictors.workload import PRECISIONS

if TYPE_CHECKING:
    from perfpass.predictors.estimate import Inputs, Planned

# Shares of the two roofs, and seconds that the host needs to issue one operator. Fitted by least mean |log error| on
# up to 80 records of each device, precision and runtime of data/records/vision.parquet (1,159 on GPUs, 159 on CPUs).
COMPUTE_EFFICIENCY = {"gpu": 0.6, "cpu": 0.25}
MEMORY_EFFICIENCY = {"gpu": 0.85, "cpu": 1.0}
ISSUE_S = 20e-6
# Compiled runtimes issue from a graph, not from Python: the records of torch.compile lie a third below the fit.
ISSUE_COMPILED_S = 5e-6
# Factors below and above the median. Nine in ten of those records lie within a factor of 2.05 (GPU) and 1.66 (CPU);
# widened for devices without records; compiled runtimes on CPUs may be several times as fast: hence their lower bound.
SPREAD = {"gpu": (2.5, 2.5), "cpu": (6.0, 2.5)}
# What the process holds on the device besides tensors: CUDA context and libraries (torch 2.x on NVIDIA, driver 5xx: 300
# to 550 MiB by nvidia-smi), plus cuBLAS's default workspace of 32 MiB on Hopper, 8 MiB before.
RUNTIME_BYTES = {"gpu": 450 << 20, "cpu": 200 << 20}
WORKSPACE_BYTES = {"gpu": 32 << 20, "cpu": 0}
_TENSOR_CORE_CLASSES = np.isin(
    np.arange(len(OPERATOR_CLASSES)), [OPERATOR_CLASSES.index(c) for c in ("convolution", "matmul", "attention")]
)


class AnalyticPredictor:
    """Time per operator = issue + the slower of FLOPs / (peak x share) and bytes / (bandwidth x share)."""

    def estimate(self, inputs: Inputs) -> Estimate:
        """The metrics of one run; see the module for what they rest on."""
        device = inputs.device
        row_ms = _row_ms(inputs)
        # A graph of nothing but views still costs its call.
        latency = max(float(row_ms.sum()), ISSUE_COMPILED_S * 1e3)
        memory, peak = self.memory(inputs)
        below, above = SPREAD[device.kind]
        return Estimate(
            latency_ms=Interval(latency, latency / below, latency * above, "ms"),
            power_w=power(inputs, latency * 1e-3),
            peak_memory_bytes=peak,
            row_ms=row_ms,
            memory_bytes=memory,
            support=Support("outside", ("roofline with fixed efficiencies; no measurement stands behind it",)),
            provenance={
                "predictor": "analytic",
                "corpus": None,
                "compute_efficiency": COMPUTE_EFFICIENCY[device.kind],
                "memory_efficiency": MEMORY_EFFICIENCY[device.kind],
            },
        )

    def memory(self, planned: Planned) -> tuple[dict[str, float], Interval]:
        """Weights, planned activations and what the runtime holds beside them; and their sum with its bounds."""
        kind = planned.device.kind
        parts = {
            "weights": float(planned.plan.weight_bytes),
            "activations": float(planned.plan.peak_activation_bytes),
            "workspace": float(WORKSPACE_BYTES[kind]),
            "runtime": float(RUNTIME_BYTES[kind]),
        }
        parts["allocator"] = max(0.0, allocation.reserved(planned) - parts["weights"] - parts["activations"])
        peak = sum(parts.values())
        return parts, Interval(peak, peak * 0.85, 1.15 * peak + (256 << 20), "byte")


def load() -> AnalyticPredictor:
    """The predictor; it has nothing to read."""
    return AnalyticPredictor()


def _row_ms(inputs: Inputs) -> np.ndarray:
    """[R] milliseconds per row of the operator table, its count included."""
    device, table = inputs.device, inputs.table
    rate = PRECISIONS[inputs.precision][1]
    vector = device.peak_flops["fp64" if rate == "fp64" else "fp32"]
    # Where the 16-bit rate is a fraction of fp32 (Pascal but the P100), libraries compute in fp32 and store halves.
    tensor = device.peak(rate) if rate == "fp64" else max(device.peak(rate), device.peak("fp32"))
    peak = np.where(_TENSOR_CORE_CLASSES[np.asarray(table.op_class)], tensor, vector)
    compute = np.asarray(table.flops, dtype=np.float64) / (peak * COMPUTE_EFFICIENCY[device.kind])
    traffic = np.add(table.bytes_read, table.bytes_written, dtype=np.float64)
    memory = traffic / (device.memory_bandwidth_bytes_s * MEMORY_EFFICIENCY[device.kind])
    issue = ISSUE_S if inputs.runtime == "torch" else ISSUE_COMPILED_S
    issued = np.asarray(table.view) == 0
    seconds = np.where(issued, np.maximum(compute, memory) + issue, 0.0)
    return seconds * np.asarray(table.count) * 1e3


def power(inputs: Inputs, seconds: float) -> Interval:
    """Mean power of a run of so many seconds: idle plus the shares of compute and bandwidth in use, up to the limit."""
    device, table, rate = inputs.device, inputs.table, PRECISIONS[inputs.precision][1]
    flops = float(np.dot(table.flops, table.count))
    traffic = float(np.dot(np.add(table.bytes_read, table.bytes_written), table.count))
    busy = 1.0
    if seconds > 0:
        compute = flops / (device.peak(rate) * seconds)
        memory = traffic / (device.memory_bandwidth_bytes_s * seconds)
        busy = min(1.0, math.hypot(compute / COMPUTE_EFFICIENCY[device.kind], memory / MEMORY_EFFICIENCY[device.kind]))
    span = device.power_limit_w - device.idle_power_w
    median = device.idle_power_w + span * busy
    return Interval(median, device.idle_power_w, device.power_limit_w, "W")
