"""Graph networks that learn on classes of nodes, equal to PyTorch Geometric's layers on the whole graph."""

from __future__ import annotations

__all__ = [
    "data",
    "fit",
    "fitted",
    "grading",
    "held_out",
    "modules",
]
