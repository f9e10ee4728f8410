"""Every predictor on the same rows and splits: the published ones and ours, side by side."""

from __future__ import annotations

__all__ = [
    "evaluate",
]
