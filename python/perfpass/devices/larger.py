"""Devices with more memory than one, in the order in which they are offered: larger slices, then boards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from perfpass.devices.lookup import catalogue
from perfpass.devices.lookup import device as find_device
from perfpass.devices.spec import Device
from perfpass.errors import DeviceError

Found = TypeVar("Found")
_NAMED = 3
_VENDORS = ("NVIDIA", "AMD", "Intel")
_LEAST_CAPABILITY = (7, 0)  # what frameworks and serving stacks of today run on


def larger(device: Device, beyond_bytes: int | None = None) -> Iterator[Device]:
    """Larger slices of the same GPU and the GPU itself, then boards of its vendor, then others; the least memory first,
    one for each size. ``beyond_bytes``: what they have more than, else the device's own memory.
    """
    least = device.usable_bytes if beyond_bytes is None else beyond_bytes
    seen: set[int] = set()
    for other in (*_of_the_same(device), *boards(device)):
        rounded = round(other.usable_bytes / 2**30)
        if other.usable_bytes > least and rounded not in seen:
            seen.add(rounded)
            yield other


def nearest(
    device: Device, holds: Callable[[Device], Found | None], beyond_bytes: int | None = None
) -> Iterator[tuple[Device, Found]]:
    """The first few of `larger` for which ``holds`` finds something, with that."""
    told = 0
    for other in larger(device, beyond_bytes):
        if (held := holds(other)) is not None:
            yield other, held
            told += 1
            if told == _NAMED:
                return


def _of_the_same(device: Device) -> list[Device]:
    """The slices of a slice's GPU, and the whole of it."""
    if device.parent is None:
        return []
    whole = find_device(device.parent)
    slices = []
    for profile in whole.mig.profiles if whole.mig else ():
        if "+" not in profile.name:
            try:
                slices.append(whole.mig_slice(profile.name))
            except DeviceError:
                continue
    return [*sorted(slices, key=lambda one: (one.memory_bytes, one.sm_count)), whole]


def boards(device: Device) -> list[Device]:
    """Boards of the catalogue that frameworks of today run on, those of the device's vendor first, the least memory
    first. A chip with unified memory is none: its memory is the host's; nor is a board whose memory a seller made
    larger. Boards of a vendor whose programs are others than those of GPUs are offered to whoever has one.
    """
    found = [
        one
        for one in catalogue(boards=True)
        if one.is_gpu
        and not one.unified_memory
        and "memory_gib" not in one.estimated
        and (one.compute_capability or (9, 0)) >= _LEAST_CAPABILITY
        and one.vendor in (*_VENDORS, device.vendor)
    ]
    return sorted(found, key=lambda one: (one.vendor != device.vendor, one.usable_bytes, _is_old(one), one.id))


def _is_old(one: Device) -> bool:
    """Whether it lacks bfloat16, so that another board of its memory is the better offer."""
    return "bf16" not in one.peak_flops
