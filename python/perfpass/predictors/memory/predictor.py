"""Peak memory of a device: what the allocator holds, by simulation, and what lies beside it, learned from measurements.

peak = runtime of the device (context, libraries) + reserved x (1 + workspace share). The simulation is exact
(`perfpass.graph.allocators`); the runtime is one figure per device, the share one per kind of program (convolution
libraries take workspaces that no graph shows). The interval holds nine in ten measurements of networks held out, and
its upper bound 98 in 100: too little memory is a crash, too much is only money. docs/predictors/memory.md.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from perfpass.errors import ArtefactError
from perfpass.graph.allocators import USES
from perfpass.late import dataclass
from perfpass.prediction import Interval, MemoryFigures, Support
from perfpass.predictors.learned import artefacts
from perfpass.predictors.memory.allowance import Allowance, driver_bytes_of

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph.allocators import Report

PARTS = (*USES, "allocator", "workspace", "runtime")
# Errors of memory are partly constant (contexts, libraries): bounds are shares of the prediction and this much more.
FLOOR_BYTES = 4.0 * 2**30
_STEM = 0.1  # by hand: a vision transformer's is a fiftieth, a ConvNeXt has a half
# Of what the simulated allocator says: workspaces of convolutions are the most that it does not know. By hand.
_SIMULATED = (0.95, 1.1)


def vendor(device: Device) -> str:
    """Whose libraries run: "amd" or "nvidia". They decide about workspaces."""
    return "amd" if device.vendor.lower().startswith("amd") else "nvidia"


def convolves(device: Device, convolutions: int, products: int) -> bool:
    """Whether a program with so many convolutions and other products with weights is one of convolutions.

    MIOpen leaves workspaces of any of them: a Whisper, two convolutions before its products, holds up to twice what is
    simulated on an MI325X, and 1.1 times on NVIDIA's boards, where a stem (a tenth of the products) counts for nothing.
    """
    return convolutions > (0 if vendor(device) == "amd" else _STEM * products)


def kind(device: Device, convolutional: bool) -> str:
    """The key of workspace shares and bounds."""
    return f"{vendor(device)} {'convolutions' if convolutional else 'matrix products'}"


@dataclass(frozen=True)
class PeakMemory:
    """``peak``: bytes of the device, the process's context included; ``parts`` (keys `PARTS`) sum to its median.

    ``reserved`` and ``allocated`` are what torch.cuda reports as its peaks, by the simulation.
    """

    peak: Interval
    parts: dict[str, float]
    reserved: int
    allocated: int
    support: Support

    @property
    def figures(self) -> MemoryFigures:
        """The three figures; those of the allocator have the width of the simulation's own error."""
        return MemoryFigures(self.peak, self._simulated(self.allocated), self._simulated(self.reserved))

    def _simulated(self, size: int) -> Interval:
        return Interval(float(size), _SIMULATED[0] * size, _SIMULATED[1] * size, "byte")


_BESIDE = ("inference", "step", "context_bytes")


class MemoryPredictor:
    """Peak memory of PyTorch programs on GPUs, from a trained artefact."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        manifest = artefacts.Artefact(folder or artefacts.shipped("memory")).manifest
        for name in (
            "runtime_bytes",
            "unseen_runtime_bytes",
            "workspace_share",
            "bounds",
            "unseen_device_bytes",
            *_BESIDE,
        ):
            if name not in manifest:
                raise ArtefactError(f"the memory artefact lacks {name}; run `perfpass train --area memory`")
        self.manifest = manifest

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> MemoryPredictor:
        """The shipped predictor, read once per process."""
        return MemoryPredictor()

    @cached_property
    def allowances(self) -> dict[str, Allowance]:
        """What was measured of processes of inference, by their runtime. Raises ArtefactError."""
        return {name: Allowance.from_dict(values) for name, values in self.manifest["inference"].items()}

    def runtime_bytes(self, device: Device) -> float:
        """Context and libraries of a process: measured on the device, else the median of its vendor's devices."""
        known: dict[str, float] = self.manifest["runtime_bytes"]
        contexts: dict[str, float] = self.manifest["context_bytes"]
        measured = device.parent or device.id  # the context of a slice is its GPU's, without what the driver keeps
        found = known.get(measured, contexts.get(measured, self.manifest["unseen_runtime_bytes"][vendor(device)]))
        slice_of = driver_bytes_of(measured) if device.parent and device.vendor == "NVIDIA" else 0.0
        return max(0.0, float(found) - slice_of)

    def workspace_share(self, device: Device) -> float:
        """What workspaces of convolutions leave in the allocator, of what is reserved; 0 where nobody measured it."""
        return float(self.manifest["workspace_share"].get(kind(device, True), 0.0)) if device.kind == "gpu" else 0.0

    def predict(self, report: Report, device: Device, *, convolutional: bool) -> PeakMemory:
        """The peak of a program whose allocations gave ``report`` (`perfpass.graph.allocators.caching`)."""
        what = kind(device, convolutional)
        share = float(self.manifest["workspace_share"].get(what, 0.0))
        runtime = self.runtime_bytes(device)
        parts = {name: float(size) for name, size in report.by_use.items()}
        parts["allocator"] = float(report.peak_reserved - report.peak_allocated)
        parts["workspace"] = share * report.peak_reserved
        parts["runtime"] = runtime
        median = sum(parts.values())
        low, high = (float(v) for v in self.manifest["bounds"][what])
        planned = median - parts["workspace"]  # a program may take none
        width = median + FLOOR_BYTES
        seen = device.id in self.manifest["runtime_bytes"]
        extra = 0.0 if seen else float(self.manifest["unseen_device_bytes"][vendor(device)])
        reasons = [] if seen else [f"no memory on {device.name} to learn from; its context is that of other devices"]
        return PeakMemory(
            Interval(median, max(0.0, planned + low * width - extra), median + high * width + extra, "byte"),
            parts,
            report.peak_reserved,
            report.peak_allocated,
            Support("in range" if seen else "near", tuple(reasons)),
        )
