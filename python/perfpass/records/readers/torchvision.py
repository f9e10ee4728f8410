"""torchvision models on older GPUs (ryujaehun/pytorch-gpu-benchmark)."""

from __future__ import annotations

from pathlib import Path

from perfpass.records import vision
from perfpass.records.schema import Reading


def read(shared: Path) -> Reading:
    """Inference and training steps of single GPUs. Raises FileError, FormatError."""
    return vision.read_torchvision(shared)
