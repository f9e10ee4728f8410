"""A model that one process exports or compiles and another opens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Prepared:
    """Its file, its inputs (name, shape, dtype) and its facts; ``kernels``: by hash, what fused functions compute."""

    path: str
    inputs: list[tuple[str, list[int], str]]
    facts: dict[str, Any]
    kernels: dict[str, str] = field(default_factory=dict)


def random_input(shape: list[int], dtype: str) -> np.ndarray:
    """A random input: standard normal, or whole numbers of 0 and 1."""
    generator = np.random.default_rng(0)
    if np.dtype(dtype).kind == "f":
        return generator.standard_normal(shape, np.float32).astype(dtype)
    return generator.integers(0, 2, shape).astype(dtype)
