"""Sessions and inputs that the tests of `ort_extension.InferenceSession` share."""

from __future__ import annotations

import numpy as np

import ort_extension

CPU = ["CPUExecutionProvider"]


def session(path, **keywords):
    """A session of the file on the CPU."""
    return ort_extension.InferenceSession(str(path), providers=CPU, **keywords)


def images(batch: int = 2) -> dict[str, np.ndarray]:
    """Inputs of the exported image network."""
    return {"x": np.random.default_rng(batch).standard_normal((batch, 3, 96, 96), np.float32)}
