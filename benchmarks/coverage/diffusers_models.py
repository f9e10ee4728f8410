"""Public pipelines of diffusers at their own sizes and steps: a picture, a film or a sound each."""

from __future__ import annotations

import tempfile
from pathlib import Path

from diffusers_pipelines import PIPELINES, write
from row import Reading

import perfpass

TITLE = "diffusers, as written down here"
PACKAGES = ("diffusers", "transformers", "torch")


def models() -> list[str]:
    """Every pipeline that is written down here."""
    return list(PIPELINES)


def read(model: str) -> Reading:
    """All networks, as often as they run."""
    with tempfile.TemporaryDirectory() as folder:
        return Reading(perfpass.load(write(model, Path(folder))))
