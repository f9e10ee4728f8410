"""timm's own benchmarks of its models (huggingface/pytorch-image-models)."""

from __future__ import annotations

from pathlib import Path

from perfpass.records import vision
from perfpass.records.build.vision import parameter_counts
from perfpass.records.schema import Reading


def read(shared: Path) -> Reading:
    """Inference and training steps. Builds every model once to count its parameters (minutes; kept in the cache).

    Raises FileError, FormatError.
    """
    return vision.read_timm(shared, parameter_counts(vision.timm_models(shared), jobs=2))
