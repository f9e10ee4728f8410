"""A model that one process exports or compiles and another opens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.measure.configuration import DEFAULT_SEQUENCE_LENGTH, Configuration


@dataclass(frozen=True)
class Prepared:
    """Its file, its inputs (name, shape, dtype) and its facts; ``kernels``: by hash, what fused functions compute."""

    path: str
    inputs: list[tuple[str, list[int], str]]
    facts: dict[str, Any]
    kernels: dict[str, str] = field(default_factory=dict)

    def values(self) -> dict[str, np.ndarray]:
        """Random values of its inputs, by name."""
        return {name: random_input(shape, dtype) for name, shape, dtype in self.inputs}


def compiled(
    library: Any,
    values: Mapping[str, np.ndarray],
    facts: Mapping[str, Any],
    folder: str,
    kernels: Mapping[str, str] | None = None,
) -> Prepared:
    """What TVM has built for inputs like ``values``, as a shared library in ``folder``, weights inside."""
    path = Path(folder) / "model.so"
    library.export_library(str(path))
    inputs = [(name, list(x.shape), str(x.dtype)) for name, x in values.items()]
    size = {"model_file_bytes": path.stat().st_size}
    return Prepared(str(path), inputs, {**facts, **size}, dict(kernels or {}))


def random_input(shape: list[int], dtype: str) -> np.ndarray:
    """A random input: standard normal, or whole numbers of 0 and 1."""
    generator = np.random.default_rng(0)
    if np.dtype(dtype).kind == "f":
        return generator.standard_normal(shape, np.float32).astype(dtype)
    return generator.integers(0, 2, shape).astype(dtype)


def input_sizes(name: str, declared: list[int | None], configuration: Configuration) -> list[int]:
    """The sizes of a file's input, open ones filled in: the first is the batch. Raises ArgumentError for another."""
    if declared and declared[0] is not None and declared[0] != configuration.batch:
        raise ArgumentError(f"input {name} has a fixed batch of {declared[0]}, not {configuration.batch}")
    given = dict(configuration.input_shapes or ()).get(name)
    if given is not None:
        return list(given)
    other = configuration.image_size or configuration.sequence_length or DEFAULT_SEQUENCE_LENGTH
    return [
        (configuration.batch if axis == 0 else other) if size is None else size for axis, size in enumerate(declared)
    ]
