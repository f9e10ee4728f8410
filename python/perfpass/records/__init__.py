"""Measured records and the operator graphs of the models they name. docs/reference/records.md is the schema."""

from __future__ import annotations

__all__ = [
    "corpus",
    "graph_cache",
    "location",
    "measured",
    "nas_graphs",
    "own_device",
    "parquet",
    "schema",
    "tables",
    "vision",
]
