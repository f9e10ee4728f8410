"""Readers of public measurements: ``read(shared)`` of each module gives a `perfpass.records.schema.Reading`."""

from __future__ import annotations

__all__ = [
    "aiconfigurator_kernels",
    "help_nas",
    "milabench",
    "neusight",
    "node_collectives",
    "parvagpu",
]
