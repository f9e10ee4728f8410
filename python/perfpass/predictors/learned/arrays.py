"""Arrays of a network in a safetensors file of an artefact or a journal."""

from __future__ import annotations

import numpy as np

from perfpass import safetensors
from perfpass.errors import ArtefactError, FormatError

pack = safetensors.encode


def unpack(content: bytes, where: str) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file; ``where`` names it in errors. Raises ArtefactError for anything else."""
    return _decoded(content, where)[0]


def metadata(content: bytes, where: str) -> dict[str, str]:
    """The texts that a safetensors file carries. Raises ArtefactError for anything else."""
    return _decoded(content, where)[1]


def _decoded(content: bytes, where: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    try:
        return safetensors.decode(content)
    except FormatError as error:
        raise ArtefactError(f"{where}: {error}; reinstall, or run `perfpass train`") from error
