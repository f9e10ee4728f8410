"""Devices with more memory than one, in the order in which they are offered: larger slices, then boards."""

from __future__ import annotations

from collections.abc import Iterator

from perfpass.devices import Device, catalogue
from perfpass.devices import device as find_device
from perfpass.errors import DeviceError

_LEAST_CAPABILITY = (7, 0)  # what frameworks and serving stacks of today run on


def larger(device: Device, beyond_bytes: int | None = None) -> Iterator[Device]:
    """Larger slices of the same GPU and the GPU itself, then boards of its vendor, then others; the least memory first,
    one for each size. ``beyond_bytes``: what they have more than, else the device's own memory.
    """
    least = device.memory_bytes if beyond_bytes is None else beyond_bytes
    seen: set[int] = set()
    for other in (*_of_the_same(device), *_boards(device)):
        rounded = round(other.memory_bytes / 2**30)
        if other.memory_bytes > least and rounded not in seen:
            seen.add(rounded)
            yield other


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


def _boards(device: Device) -> list[Device]:
    found = [
        one
        for one in catalogue()
        if one.is_gpu and not one.unified_memory and (one.compute_capability or (9, 0)) >= _LEAST_CAPABILITY
    ]
    return sorted(found, key=lambda one: (one.vendor != device.vendor, one.memory_bytes, one.id))
