"""MIG: the profile that holds a workload, and time on a slice."""

from __future__ import annotations

__all__ = [
    "latency",
    "profile",
]
