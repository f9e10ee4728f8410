"""How a graph runs, as numbers: what a network that was made for one device needs to serve many.

Every compared predictor gets the same ones, from the device catalogue; no published network had them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfpass.predictors.workload import PRECISIONS

if TYPE_CHECKING:
    from perfpass.devices import Device

RUN_FEATURES: tuple[str, ...] = (
    *("log_peak_flop_s", "log_fp32_flop_s", "log_bandwidth_bytes_s", "log_memory_bytes", "log_l2_bytes", "log_cores"),
    *("log_clock_hz", "log_power_limit_w", "gpu", "bits_64", "bits_32", "autocast", "bfloat16"),
    *("compiled", "channels_last", "training", "optimizer_states"),
)
_AUTOCAST = ("amp", "amp_bf16")
# Numbers that an optimizer keeps per parameter.
_STATES = {"momentum": 1, "sgd_momentum": 1, "adam": 2, "adamw": 2, "adadelta": 2}


def run_features(
    device: Device,
    *,
    precision: str,
    runtime: str,
    layout: str,
    mode: str,
    optimizer: str | None = None,
    power_limit_w: float | None = None,
) -> np.ndarray:
    """[len(RUN_FEATURES)] float32; rates, sizes and clocks as natural logarithms.

    ``power_limit_w``: what was set, where it is not the device's own.
    Where a device has no rate of its own for a precision (or a lower one than for fp32), libraries compute in fp32.
    """
    counted_as, rate = PRECISIONS[precision]
    fp32 = device.peak_flops.get("fp32", device.peak_flops.get(rate, 1.0))
    peak = device.peak_flops.get(rate, fp32)
    figures = (
        *(peak if rate == "fp64" else max(peak, fp32), fp32, device.memory_bandwidth_bytes_s, device.memory_bytes),
        *(max(device.l2_bytes, device.l3_bytes), device.sm_count, device.clock_hz),
        power_limit_w or device.power_limit_w,
    )
    flags = (
        *(device.is_gpu, counted_as == "float64", counted_as == "float32", precision in _AUTOCAST),
        *(counted_as == "bfloat16", runtime != "torch", layout == "nhwc", mode == "training"),
        _STATES.get(optimizer or "", 0),
    )
    return np.array([*np.log(np.maximum(figures, 1.0)), *map(float, flags)], dtype=np.float32)
