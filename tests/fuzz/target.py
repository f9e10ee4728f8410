"""What a target is: a kind of input, its seeds, how it is damaged, and what is asked of the answer."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[2]


class Form(Protocol):
    """A format: `perfpass`'s inputs are JSON, TOML, lines of JSON, or bytes (documents.py)."""

    def mutated(self, data: bytes, rng: random.Random) -> bytes:
        """A damaged copy."""

    def smaller(self, data: bytes) -> list[bytes]:
        """Copies with one part less."""


@dataclass(frozen=True)
class Target:
    """A kind of input. ``run`` gives it to perfpass and checks the answer (`oracle.Violation` where it is wrong).

    ``modules``: what reads such inputs, whose coverage is reported. ``seconds``: of the processor, for one input.
    """

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    form: Form
    modules: Sequence[str]
    seconds: float = 5.0


@cache
def folder() -> Path:
    """A folder of this process, in memory where the system has such."""
    memory = Path("/dev/shm")
    made = tempfile.TemporaryDirectory(prefix="perfpass-fuzz-", dir=memory if memory.is_dir() else None)
    _KEPT.append(made)
    return Path(made.name)


_KEPT: list[Any] = []  # until the process ends, which removes them


def file(name: str, content: bytes) -> Path:
    """The file ``name`` of `folder`, with this content."""
    path = folder() / name
    path.write_bytes(content)
    return path
