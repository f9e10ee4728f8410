"""Programs that distil what the repository carries from the public sources."""

from __future__ import annotations

__all__ = [
    "memory",
    "memory_benches",
    "memory_events",
    "memory_networks",
    "outside",
    "sampling",
    "vision",
    "vision_models",
]
