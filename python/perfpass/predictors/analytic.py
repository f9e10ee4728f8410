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
from perfpass.predictors.estimate import Estimate
from perfpass.predictors.workload import PRECISIONS

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.estimate import Inputs

# Shares of the two roofs that vision models reach in the records (docs/accuracy.md), and time per kernel launch.
COMPUTE_EFFICIENCY = 0.5
MEMORY_EFFICIENCY = 0.7
LAUNCH_S = {"gpu": 5e-6, "cpu": 2e-6}
# The factor that holds nine in ten of the same records on either side of the estimate.
SPREAD = 3.0
# What the process holds on the device besides tensors: CUDA context and libraries (torch 2.x on NVIDIA, driver 5xx: 300
# to 550 MiB by nvidia-smi), plus cuBLAS's default workspace of 32 MiB on Hopper, 8 MiB before.
RUNTIME_BYTES = {"gpu": 450 << 20, "cpu": 200 << 20}
WORKSPACE_BYTES = {"gpu": 32 << 20, "cpu": 0}
_TENSOR_CORE_CLASSES = np.isin(
    np.arange(len(OPERATOR_CLASSES)), [OPERATOR_CLASSES.index(c) for c in ("convolution", "matmul", "attention")]
)


class AnalyticPredictor:
    """Time per operator = launch + the slower of FLOPs / (peak x 0.5) and bytes / (bandwidth x 0.7)."""

    def estimate(self, inputs: Inputs) -> Estimate:
        """The metrics of one run; see the module for what they rest on."""
        device, table = inputs.device, inputs.table
        row_ms = _row_ms(inputs)
        latency = float(row_ms.sum())
        flops = float(np.dot(table.flops, table.count))
        traffic = float(np.dot(np.add(table.bytes_read, table.bytes_written), table.count))
        weights = float(inputs.plan.weight_bytes)
        memory = {
            "weights": weights,
            "activations": float(inputs.plan.peak_activation_bytes),
            "workspace": float(WORKSPACE_BYTES[device.kind]),
            "runtime": float(RUNTIME_BYTES[device.kind]),
        }
        peak = sum(memory.values())
        return Estimate(
            latency_ms=Interval(latency, latency / SPREAD, latency * SPREAD, "ms"),
            power_w=_power(device, PRECISIONS[inputs.precision][1], flops, traffic, latency * 1e-3),
            peak_memory_bytes=Interval(peak, peak * 0.85, 1.15 * peak + (256 << 20), "byte"),
            row_ms=row_ms,
            memory_bytes=memory,
            support=Support("outside", ("roofline with fixed efficiencies; no measurement stands behind it",)),
            provenance={
                "predictor": "analytic",
                "corpus": None,
                "compute_efficiency": COMPUTE_EFFICIENCY,
                "memory_efficiency": MEMORY_EFFICIENCY,
            },
        )


def load() -> AnalyticPredictor:
    """The predictor; it has nothing to read."""
    return AnalyticPredictor()


def _row_ms(inputs: Inputs) -> np.ndarray:
    """[R] milliseconds per row of the operator table, its count included."""
    device, table = inputs.device, inputs.table
    rate = PRECISIONS[inputs.precision][1]
    vector = device.peak_flops["fp64" if rate == "fp64" and "fp64" in device.peak_flops else "fp32"]
    peak = np.where(_TENSOR_CORE_CLASSES[np.asarray(table.op_class)], device.peak(rate), vector)
    compute = np.asarray(table.flops, dtype=np.float64) / (peak * COMPUTE_EFFICIENCY)
    traffic = np.add(table.bytes_read, table.bytes_written, dtype=np.float64)
    memory = traffic / (device.memory_bandwidth_bytes_s * MEMORY_EFFICIENCY)
    launched = np.asarray(table.view) == 0
    seconds = np.where(launched, np.maximum(compute, memory) + LAUNCH_S[device.kind], 0.0)
    return seconds * np.asarray(table.count) * 1e3


def _power(device: Device, rate: str, flops: float, traffic: float, seconds: float) -> Interval:
    """Mean power: idle plus the shares of compute and bandwidth in use, up to the limit."""
    busy = 1.0
    if seconds > 0:
        compute = flops / (device.peak(rate) * seconds)
        memory = traffic / (device.memory_bandwidth_bytes_s * seconds)
        busy = min(1.0, math.hypot(compute / COMPUTE_EFFICIENCY, memory / MEMORY_EFFICIENCY))
    span = device.power_limit_w - device.idle_power_w
    median = device.idle_power_w + span * busy
    return Interval(median, device.idle_power_w, device.power_limit_w, "W")
