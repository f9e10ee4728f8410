"""What would help a workload that does not fit into the memory of its device, each with the figure that says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfpass.devices import Device, catalogue
from perfpass.devices import device as find_device
from perfpass.errors import PerfPassError
from perfpass.text import size

_MOST_DEVICES = 3  # named
_MOST_BATCHES = 4  # tried: an answer is to take milliseconds


def larger_profile(device: Device, needed_bytes: float) -> str | None:
    """The smallest MIG profile of a slice's GPU that holds ``needed_bytes``; None for a whole GPU, or without one."""
    if device.parent is None:
        return None
    whole = find_device(device.parent)
    profiles = sorted(whole.mig.profiles if whole.mig else (), key=lambda p: (p.memory_bytes, p.compute_slices))
    larger = next((p for p in profiles if "+" not in p.name and p.memory_bytes >= needed_bytes), None)
    return f"the MIG profile {larger.name} ({size(larger.memory_bytes)})" if larger is not None else None


def larger_devices(device: Device, holds: Callable[[Device], bool]) -> str | None:
    """GPUs of the catalogue that hold the workload, those of the device's vendor first, the least memory first."""
    gpus = [
        d
        for d in catalogue()
        if d.is_gpu
        and d.memory_bytes > device.memory_bytes
        and (device.unified_memory or not d.unified_memory)  # the GPU of a processor is no larger board
        and (d.compute_capability or (9, 0)) >= (6, 0)  # frameworks of today do not run on older ones
    ]
    nearest: list[Device] = []
    for same in (True, False):
        for other in sorted(gpus, key=lambda d: (d.memory_bytes, d.id)):
            if len(nearest) < _MOST_DEVICES and (other.vendor == device.vendor) is same and holds(other):
                nearest.append(other)
        if nearest:
            return "device " + " or ".join(f"{d.id} ({size(d.memory_bytes)})" for d in nearest)
    return None


def narrower(
    precisions: Sequence[str], peak_in: Callable[[str], float], available_bytes: float
) -> tuple[str, float] | None:
    """The first of ``precisions`` whose peak is within the memory, with that peak; None without one."""
    for precision in precisions:
        try:
            peak = peak_in(precision)
        except PerfPassError:
            continue
        if peak <= available_bytes:
            return precision, peak
    return None


def smaller_batch(
    peak_at: Callable[[int], float], asked: int, asked_bytes: float, available_bytes: float
) -> tuple[int, float] | None:
    """A batch below ``asked`` whose peak fits, with that peak; None where that of batch 1 does not.

    The line through two batches gives the first; arenas grow in steps, so where it is over a quarter less is tried.
    """
    if asked < 2:
        return None
    try:
        one = peak_at(1)
        if one > available_bytes:
            return None
        slope = (asked_bytes - one) / (asked - 1)
        batch = min(asked - 1, 1 + int((available_bytes - one) / slope)) if slope > 0 else 1
        for _ in range(_MOST_BATCHES):
            found = peak_at(batch)
            if found <= available_bytes:
                return batch, found
            batch = max(1, batch * 3 // 4)
    except PerfPassError:
        return None
    return 1, one
