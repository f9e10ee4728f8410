"""A prediction in the model's own file: metadata, where it lies in the file, and the file itself."""

from __future__ import annotations

__all__ = [
    "file",
    "metadata",
]
