"""Peak memory of a process on a device: what the plan says, plus what the allocator and the runtime keep.

peak = runtime + workspace + weights (twice where autocast keeps a second copy) + planned activations + what the
allocator holds beside them (`allocation`). Constants and their sources are in the manifest (training.constants).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.predictors.estimate import Bounds

if TYPE_CHECKING:
    from perfpass.devices import Device


@dataclass(frozen=True)
class MemoryModel:
    """Byte constants by kind of device, and bounds: ``low`` and ``high`` multiply the planned part."""

    runtime_bytes: dict[str, float]
    runtime_high_bytes: dict[str, float]
    workspace_bytes: dict[str, float]
    low: float
    high: float

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> MemoryModel:
        """From the manifest."""
        return cls(
            *(values[name] for name in ("runtime_bytes", "runtime_high_bytes", "workspace_bytes", "low", "high"))
        )

    def parts(
        self, device: Device, precision: str, weight_bytes: np.ndarray, activation_bytes: np.ndarray
    ) -> dict[str, Any]:
        """Bytes of "weights", "activations", "workspace" and "runtime" of N runs.

        ``weight_bytes`` is counted at the workload's width; autocast keeps the fp32 weights and caches 16-bit copies.
        """
        copies = 3.0 if precision in ("amp", "amp_bf16") else 1.0
        return {
            "weights": weight_bytes * copies,
            "activations": activation_bytes,
            "workspace": self.workspace_bytes[device.kind],
            "runtime": self.runtime_bytes[device.kind],
        }

    def bounds(self, device: Device, parts: dict[str, Any]) -> Bounds:
        """Bytes of N runs. The upper bound is the careful one: too little memory is a crash, too much is only money."""
        planned = parts["weights"] + parts["activations"]
        median = sum(parts.values())
        low = parts["weights"] + parts["activations"] * self.low + 0.7 * parts["runtime"]
        runtime = max(self.runtime_high_bytes[device.kind], 1.1 * parts["runtime"])
        high = planned * self.high + parts.get("allocator", 0.0) + 4.0 * parts["workspace"] + runtime
        return Bounds(median, np.minimum(low, median), np.maximum(high, median))
