"""Devices: one readable catalogue (figures with sources), MIG slices as devices, users' own devices from TOML files."""

from __future__ import annotations

from perfpass.devices.lookup import add_file, catalogue, device
from perfpass.devices.mig import MigGeometry, MigProfile
from perfpass.devices.spec import CORE_BYTES_PER_CYCLE, PRECISIONS, Device

__all__ = [
    "CORE_BYTES_PER_CYCLE",
    "PRECISIONS",
    "Device",
    "MigGeometry",
    "MigProfile",
    "add_file",
    "catalogue",
    "device",
    "host",
    "larger",
    "lookup",
    "mig",
    "order",
    "product",
    "sheet",
]
