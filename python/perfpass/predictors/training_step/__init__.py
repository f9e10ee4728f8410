"""A training step: forward, backward and optimizer."""

from __future__ import annotations

__all__ = [
    "assemble",
    "features",
    "operators",
    "power",
    "predictor",
    "replicas",
    "sharded",
    "sharing",
]
