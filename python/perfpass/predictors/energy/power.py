"""Power from utilisation, and what it rests on.

Board power over its limit is taken as floor + compute x (FLOP/s over peak) + memory x (byte/s over bandwidth), up to 1.
The three shares are fitted on measured GEMM kernels (aiconfigurator; training.power) and kept in the manifest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.predictors.estimate import Bounds

if TYPE_CHECKING:
    from perfpass.devices import Device


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
        share = self.share(compute_use, memory_use)
        median = np.clip(share * limit, idle, limit)
        low = np.minimum(np.maximum(share * self.low * limit, idle), median)
        return Bounds(median, low, np.maximum(np.minimum(share * self.high * limit, limit), median))
