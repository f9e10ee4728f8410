"""What a process holds beside the tensors that were planned: one model for every runtime, vendor and device.

in use = weights + share x (what the simulated allocator holds beside them) + beside (context, modules, workspaces).
PyTorch loads cuDNN with the first convolution: on NVIDIA's GPUs more lies beside networks that have one.
Share and beside have three values: the least, the middle, and the one that 98 in 100 stay below. They are fitted on
measurements of several laboratories (`perfpass.training.memory.runs`), every laboratory counting alike, and the upper
ones are the largest of the laboratories' own 98th percentiles: a laboratory is off as a whole. What nobody measured is
estimated here, by hand and wider.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perfpass.errors import ArtefactError
from perfpass.late import dataclass

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.way import Way

_GIB = float(2**30)
# What an NVIDIA driver keeps of a whole GPU, which NVML's first interface counts as used: 517 MiB on an A10, 912 MB on
# an A100 (nvml-wrapper's issue 57, detect-gpu's issue 3). A slice's memory is stated without it.
DRIVER_BYTES = 0.5 * _GIB
_DRIVER_BYTES_OF = {"a100-sxm4-80gb": 912e6, "a100-pcie-80gb": 912e6}


@dataclass(frozen=True)
class Allowance:
    """``share`` of what the allocator holds and ``beside`` it in bytes: low, middle, high; ``convolving``: beside a
    network with convolutions, where that is more. ``measured``: by anyone.
    """

    share: tuple[float, float, float]
    beside: tuple[float, float, float]
    measured: bool = True
    convolving: tuple[float, float, float] | None = None

    def beside_of(self, *, convolves: bool) -> tuple[float, float, float]:
        """Bytes beside a network with convolutions, or without any."""
        return self.convolving if convolves and self.convolving else self.beside

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        found = {"share": list(self.share), "beside_bytes": list(self.beside)}
        return found | ({"convolving_bytes": list(self.convolving)} if self.convolving else {})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Allowance:
        """The inverse of `to_dict`. Raises ArtefactError."""
        try:
            names = ("share", "beside_bytes", "convolving_bytes")
            every = [tuple(float(v) for v in values[name]) for name in names[: 2 + (names[2] in values)]]
        except (KeyError, TypeError, ValueError) as error:
            raise ArtefactError(f"the memory artefact's allowances cannot be read ({error})") from None
        if not all(len(one) == 3 and list(one) == sorted(one) for one in every):
            raise ArtefactError("the memory artefact's allowances are not low, middle and high")
        share, beside, *convolving = [(one[0], one[1], one[2]) for one in every]
        return cls(share, beside, convolving=convolving[0] if convolving else None)


# A CPU process gives back what it frees; interpreter and libraries.
_CPU = Allowance((0.85, 1.0, 1.25), (0.14 * _GIB, 0.195 * _GIB, 0.5 * _GIB), measured=False)
# TVM shares storage by a plan of the unfused graph, an upper figure.
_PLANNED_SHARE = 1.0
# Devices of neither NVIDIA nor AMD, whose compilers and allocators nobody measured: by hand.
OTHER_SHARE = (0.85, 1.15, 1.7)
_OTHER = Allowance(OTHER_SHARE, (0.2 * _GIB, 0.45 * _GIB, 1.0 * _GIB), measured=False)
# Of PyTorch's least context, at least: without its modules, or on a GPU of few multiprocessors that shares the host's
# memory; by hand.
_SMALL = 0.5
# MIOpen's workspaces hold an operator's input and output once more in the layout of its kernels, which together are no
# more than what was alive beside the weights; the allocator keeps the largest.
_AMD_SHARE_HIGH = 2.0


def group(runtime: str) -> str:
    """Whose allowance is taken: torch.compile without CUDA graphs holds what eager PyTorch does."""
    return "torch" if runtime == "torch.compile" else runtime


def by_pytorchs_allocator(device: Device) -> bool:
    """Whether PyTorch's caching allocator, which was measured, lays out a GPU's memory: CUDA's and ROCm's."""
    return device.vendor in ("NVIDIA", "AMD")


def driver_bytes(device: Device) -> float:
    """What the driver keeps of a whole NVIDIA board; of a slice, of a GPU that shares the host's memory and of other
    devices nothing that is counted here.
    """
    if device.kind != "gpu" or device.vendor != "NVIDIA" or device.parent is not None or device.unified_memory:
        return 0.0
    return driver_bytes_of(device.id)


def in_a_slice(in_use_bytes: float, device: Device) -> float:
    """What a slice of ``device`` has to hold of a run that has so much in use on the whole of it."""
    return max(0.0, in_use_bytes - driver_bytes(device))


def driver_bytes_of(whole: str) -> float:
    """The same of a whole NVIDIA GPU by its id."""
    return _DRIVER_BYTES_OF.get(whole, DRIVER_BYTES)


def allowance(way: Way, learned: Mapping[str, Allowance], context_bytes: Mapping[str, float]) -> Allowance:
    """That of a run of inference; ``learned`` by `group`, ``context_bytes`` what was measured beside tensors by device.

    A measured context (NVML, the driver's share in it) moves all three values of PyTorch's; its spread stays. The low
    value has no driver's share. A runtime that nobody measured may be off as far as any that was: its bounds are the
    outermost of all.
    """
    device = way.device
    if device.kind == "cpu":
        return _CPU
    if not by_pytorchs_allocator(device):
        return _OTHER
    torch, kind = learned["torch"], group(way.runtime)
    found = learned.get(kind, torch)
    share, measured = found.share, kind in learned
    low, middle, high = found.beside
    # The laboratories had PyTorch in the process of other runtimes. Without its modules a process has a third as much
    # in use (onnxruntime's issue 9138: 345 MB in place of 1,031), so at least half of PyTorch's least.
    low = low if kind == "torch" else min(low, _SMALL * torch.beside[0])
    if not measured:
        every = learned.values()
        share = (min(one.share[0] for one in every), _PLANNED_SHARE, max(one.share[2] for one in every))
        low, high = min(one.beside[0] for one in every), max(one.beside[2] for one in every)
    if device.unified_memory:  # a few multiprocessors, kernels for one architecture: half of PyTorch's on large boards
        (low, middle, high), measured = (_SMALL * torch.beside[0], *torch.beside[1:]), False
    if device.vendor == "AMD":
        measured = False
        share = (share[0], share[1], share[2] * _AMD_SHARE_HIGH)
        known = context_bytes.get(device.id, context_bytes["amd"])
        more = max(0.0, known - middle)
        low -= 0.0 if device.id in context_bytes else more  # one board's context says nothing of the least of another
    elif kind == "torch" and device.id in context_bytes:
        more = context_bytes[device.id] - middle
    else:
        more = driver_bytes(device)
    # A process's line in nvidia-smi lacks the driver's share, and who states memory seldom says how it was read.
    beside = (max(0.0, low + more - driver_bytes(device)), middle + more, high + more)
    if kind != "torch" or device.vendor != "NVIDIA" or found.convolving is None:
        return Allowance(share, beside, measured)
    moved = [there + now - then for there, now, then in zip(found.convolving, beside, found.beside, strict=True)]
    return Allowance(share, beside, measured, (moved[0], max(moved[:2]), max(moved)))
