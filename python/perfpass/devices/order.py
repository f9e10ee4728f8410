"""Which of two devices is better by the catalogue alone."""

from __future__ import annotations

from collections.abc import Callable

from perfpass.devices.spec import Device

# What a device stands in, as far as its name tells: its host and its links are others.
_HOSTS = ("Jetson", "Laptop", "GB10", "GB200", "GB300", "GH200", "MI300A", "Ryzen AI", "Apple")


# Boards beside a Grace processor, in servers as others are.
_GRACE = ("GB200", "GB300", "GH200")


def host(device: Device) -> str:
    """The kind of host that a device is built into, or "" for one of its own."""
    return next((kind for kind in _HOSTS if kind in device.name), "")


def host_but_grace(device: Device) -> str:
    """The same, "" also beside a Grace processor."""
    found = host(device)
    return "" if found in _GRACE else found


def no_better(
    one: Device, other: Device, *rates: Callable[[Device], float], hosts: Callable[[Device], str] = host
) -> bool:
    """Whether ``other`` is behind ``one`` in nothing: bandwidth, memory and each of ``rates``.

    Only devices of one vendor and kind in alike hosts (by ``hosts``) compare, and ``other`` is of no older
    architecture: what the catalogue does not hold (instructions, schedulers, drivers) is then no worse either.
    """
    if (one.vendor, one.kind, hosts(one)) != (other.vendor, other.kind, hosts(other)):
        return False
    if one.compute_capability and other.compute_capability:
        if other.compute_capability < one.compute_capability:
            return False
    elif one.architecture != other.architecture:
        return False
    figures: tuple[Callable[[Device], float], ...] = (
        lambda d: d.memory_bandwidth_bytes_s,
        lambda d: d.usable_bytes,
        *rates,
    )
    return all(figure(one) <= figure(other) for figure in figures)
