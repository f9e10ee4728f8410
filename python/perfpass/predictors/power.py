"""Power from utilisation, and what it rests on.

Board power over its limit is taken as floor + compute x (FLOP/s over peak) + memory x (byte/s over bandwidth), up to 1.
The three shares are fitted on measured GEMM kernels (aiconfigurator; training.power) and kept in the manifest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfpass.prediction import Interval

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

    def share(self, compute_use: float, memory_use: float) -> float:
        """Share of the power limit at the two utilisations (0 to 1 each)."""
        use = self.floor + self.compute * min(compute_use, 1.0) + self.memory * min(memory_use, 1.0)
        return min(use, 1.0)

    def predict(self, device: Device, compute_use: float, memory_use: float) -> Interval:
        """Mean board (package, for a CPU) power in W; never below idle nor above the limit."""
        limit, idle = device.power_limit_w, min(device.idle_power_w, device.power_limit_w)
        if device.kind == "cpu":
            # No record has the power of a CPU at this work: anything from idle to the limit.
            return Interval(idle + 0.8 * (limit - idle), idle, limit, "W")
        share = self.share(compute_use, memory_use)
        median = min(max(share * limit, idle), limit)
        low = min(max(share * self.low * limit, idle), median)
        return Interval(median, low, max(min(share * self.high * limit, limit), median), "W")
