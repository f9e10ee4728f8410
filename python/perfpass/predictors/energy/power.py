"""Power from utilisation, and what it rests on.

Board power over its limit is taken as floor + compute x (FLOP/s over peak) + memory x (byte/s over bandwidth), up to 1.
The three shares are fitted on measured GEMM kernels (aiconfigurator; training.power) and kept in the manifest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.late import dataclass
from perfpass.predictors.estimate import Bounds
from perfpass.predictors.roofline import BYTE_JOULES_GDDR, FLOP_JOULES

if TYPE_CHECKING:
    from perfpass.devices import Device


# What the matrix units of the boards of the fit would draw at their peak, over what their limit leaves beside idle:
# H200, 989 TFLOP/s at 0.85 pJ (`roofline.FLOP_JOULES`) of 700 - 84 W.
_OVERCOMMITTED = 1.36
# Joules per 16-bit FLOP of boards with GDDR before 8 nm: a T4, held by its 70 W, sustains about half of its 65 TFLOP/s.
_TURING_JOULES = 1.85e-12


def demand(device: Device) -> tuple[float, float]:
    """What full use of the matrix units, and of the memory, would draw over what the limit leaves beside idle.

    Of a board with GDDR; one with HBM was fitted, and has that of the fit (here at most) and no memory of its own.
    """
    budget = device.power_limit_w - device.idle_power_w
    if budget <= 0 or not device.memory_type.upper().startswith("GDDR"):
        return _OVERCOMMITTED, 0.0
    joules = FLOP_JOULES["gddr"] if (device.compute_capability or (0, 0)) >= (8, 0) else _TURING_JOULES
    flops = device.peak_flops.get("fp16", device.peak_flops["fp32"])
    return flops * joules / budget, device.memory_bandwidth_bytes_s * BYTE_JOULES_GDDR / budget


@dataclass(frozen=True)
class PowerModel:
    """Shares of the power limit; ``low`` and ``high`` are bounds of measured over predicted share, 90 %."""

    floor: float
    compute: float
    memory: float
    low: float
    high: float

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PowerModel:
        """From the manifest."""
        return cls(**{name: float(values[name]) for name in ("floor", "compute", "memory", "low", "high")})

    def share(self, compute_use: np.ndarray, memory_use: np.ndarray) -> np.ndarray:
        """Share of the power limit at the two utilisations (0 to 1 each)."""
        use = self.floor + self.compute * np.minimum(compute_use, 1.0) + self.memory * np.minimum(memory_use, 1.0)
        return np.minimum(use, 1.0)

    def predict(self, device: Device, compute_use: np.ndarray, memory_use: np.ndarray) -> Bounds:
        """[N] mean board (package, for a CPU) power in W; never below idle nor above the limit."""
        limit, idle = device.power_limit_w, min(device.idle_power_w, device.power_limit_w)
        if device.kind == "cpu":
            # No record has the power of a CPU at this work: anything from idle to the limit.
            one = np.ones_like(compute_use)
            return Bounds((idle + 0.8 * (limit - idle)) * one, idle * one, limit * one)
        # Boards whose limit is low for what is on them (T4, L4) reach it at a lower use than those of the fit.
        matrix, memory = demand(device)
        compute, memory = self.compute * max(matrix / _OVERCOMMITTED, 1.0), max(self.memory, memory)
        share = PowerModel(self.floor, compute, memory, self.low, self.high).share(compute_use, memory_use)
        median = np.clip(share * limit, idle, limit)
        low = np.minimum(np.maximum(share * self.low * limit, idle), median)
        return Bounds(median, low, np.maximum(np.minimum(share * self.high * limit, limit), median))
