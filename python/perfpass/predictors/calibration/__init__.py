"""Predictions corrected by what a user has measured on a device."""

from __future__ import annotations

__all__ = [
    "correction",
    "device_file",
    "posterior",
    "schedules",
    "steps",
]
