"""A batch of equal requests asked by its own sizes, as records state them; `perfpass.predict_offline` assumes some."""

from __future__ import annotations

from typing import Any

from perfpass.predictors.generation.predictor import batch_of, offline


def predict_batch(model: Any, device: Any, **options: Any) -> Any:
    """What is predicted of `batch_of` of the same arguments."""
    return offline(batch_of(model, device, **options))
