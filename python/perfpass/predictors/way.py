"""How graphs run on a device: the word for it that every predictor, record and search shares."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from perfpass.late import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection

    from perfpass.devices import Device


# Runtimes for CPUs that no shipped measurement speaks of: the measured one whose kernels and fusions are nearest.
STANDING_IN = {"openvino": "onnxruntime", "litert": "onnxruntime"}
# fp32 FLOP per core and cycle of the CPU of own records. Virtual machines call processors of several generations by one
# name ("AMD EPYC"), of which some do half of that.
MEASURED_FLOP_PER_CYCLE = 64


@dataclass(frozen=True, eq=False)
class Way:
    """How graphs run on a device, whatever their batch. ``torch_version`` None: the newest release with records, and
    where a predictor has none of the device, today's (``present``).

    ``optimizer``: of a training step. ``copied_bytes``: input that is copied from host memory within the timed region.
    ``cuda_graph``: kernels were captured once and are replayed with one call.
    """

    device: Device
    precision: str = "fp32"
    runtime: str = "torch"
    layout: str = "nchw"
    optimizer: str | None = None
    torch_version: str | None = None
    copied_bytes: float = 0.0
    cuda_graph: bool = False

    @property
    def as_measured(self) -> Way:
        """Itself; of a runtime without measurements that in the one that stands in for it."""
        return replace(self, runtime=STANDING_IN[self.runtime]) if self.runtime in STANDING_IN else self

    @property
    def timed_as(self) -> Way:
        """`as_measured`, and of a compiled graph on a CPU that in eager PyTorch, whose products it calls."""
        compiled = self.runtime == "torch.compile" and self.device.kind == "cpu"
        return replace(self, runtime="torch") if compiled else self.as_measured

    def on_measured_cpu(self, names: Collection[str]) -> bool:
        """Whether the device has the name, among ``names``, and the vector units of the CPU of own records."""
        device = self.device
        per_cycle = device.peak_flops["fp32"] / (max(device.sm_count, 1) * max(device.clock_hz, 1.0))
        return device.name in names and round(per_cycle) == MEASURED_FLOP_PER_CYCLE

    @property
    def present(self) -> bool:
        """Whether no release is asked, nor one filled in that was measured on the device: today's."""
        return self.torch_version is None

    @property
    def software(self) -> str:
        """Which kernels run: "compiled", "nhwc" or "eager"."""
        if self.runtime == "torch.compile":
            return "compiled"
        return "nhwc" if self.layout == "nhwc" else "eager"
