"""Whether a CPU is the one that own records were made on."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfpass.devices import Device

# fp32 FLOP per core and cycle of the machine that was measured. Virtual machines call processors of several
# generations by one name ("AMD EPYC"), of which some do half of that.
_FLOP_PER_CYCLE = 64


def is_measured(device: Device, names: Collection[str]) -> bool:
    """Whether ``device`` has the name and the vector units of a CPU that was measured."""
    per_cycle = device.peak_flops["fp32"] / (max(device.sm_count, 1) * max(device.clock_hz, 1.0))
    return device.name in names and round(per_cycle) == _FLOP_PER_CYCLE
