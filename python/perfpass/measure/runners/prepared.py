"""A model that one process exports or compiles and another opens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Prepared:
    """Its file, its inputs (name, shape, dtype) and its facts; ``kernels``: by hash, what fused functions compute."""

    path: str
    inputs: list[tuple[str, list[int], str]]
    facts: dict[str, Any]
    kernels: dict[str, str] = field(default_factory=dict)
