"""The configuration of a Keras model: config.json of a ``.keras`` archive, or an attribute of an HDF5 file.

Weights are not read, nothing of the archive is unpacked to disk, and no code of the model runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from perfpass.bounded_file import open_regular
from perfpass.errors import FormatError, UnsupportedError
from perfpass.importers.formats import archive
from perfpass.importers.formats.keras import hdf5
from perfpass.json_text import parse

_MOST_BYTES = 64 * 2**20  # NASNetLarge's configuration has 1.1 MB
_WEIGHTS_ALONE = (
    "it holds weights without the layers that use them (save_weights); save the whole model with "
    "model.save('model.keras') and pass that file"
)


def configuration(path: Path) -> dict[str, Any]:
    """The serialized model. Raises FileError, FormatError, LimitError and UnsupportedError."""
    descriptor = open_regular(path, "a Keras model")
    with os.fdopen(descriptor, "rb") as file:
        head = file.read(len(hdf5.MAGIC))
    text = (
        _from_hdf5(path)
        if head == hdf5.MAGIC
        else archive.member(path, "config.json", "the configuration", _MOST_BYTES)
    )
    found = parse(text, f"the configuration in {path.name}", any_number=True)
    if not isinstance(found, dict) or not isinstance(found.get("class_name"), str):
        raise FormatError("a Keras configuration without the class of its model; the file is damaged")
    return found


def _from_hdf5(path: Path) -> bytes:
    found = hdf5.text_attributes(path, ("model_config",), _MOST_BYTES)
    if "model_config" not in found:
        raise UnsupportedError(f"an HDF5 file without the attribute model_config: {_WEIGHTS_ALONE}")
    return found["model_config"]
