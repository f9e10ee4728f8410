"""Devices: one readable catalogue (figures with sources), MIG slices as devices, users' own devices from TOML files."""

from __future__ import annotations

from perfpass.devices.lookup import add_file, catalogue, device
from perfpass.devices.mig import MigGeometry, MigProfile
from perfpass.devices.spec import PRECISIONS, Device

__all__ = [
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
    "spec",
]
