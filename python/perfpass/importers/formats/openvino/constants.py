"""Numbers of the file of weights that decide sizes where the model leaves its inputs' open.

Read are whole numbers of 32 and 64 bits, at most 4,096, and at most 16 floats, where a rule of sizes asks for them.
Nothing else is read of the file, and nothing at all where the document fixes every size.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np

from perfpass.bounded_file import open_regular
from perfpass.errors import FormatError, shown
from perfpass.importers.formats.openvino.shapes import MOST_VALUES
from perfpass.importers.formats.shapes import Shape
from perfpass.text import shown_value

_TYPES = {"i64": "<i8", "i32": "<i4", "u64": "<u8", "u32": "<u4", "boolean": "?"}  # shorter ones are weights
_FLOATS = {"f32": "<f4", "f16": "<f2", "f64": "<f8"}
_MOST_FLOATS = 16  # scales of a resize: one an axis at most


class Constants:
    """The file of weights beside ``document``; opened when the first number is asked for."""

    def __init__(self, document: Path) -> None:
        self.path = document.with_suffix(".bin")
        self._file: int | None = None

    def read(self, data: dict[str, str], shape: Shape) -> np.ndarray | None:
        """The numbers of a Const, [shape]; None where they are many or no such, or the file is not there.

        Raises FormatError where the document points past the file's end.
        """
        kind, count = data.get("element_type", ""), math.prod(shape)
        dtype = _TYPES.get(kind) or (_FLOATS.get(kind) if count <= _MOST_FLOATS else None)
        if dtype is None or count > MOST_VALUES or (self._file is None and not self.path.is_file()):
            return None
        if self._file is None:
            self._file = open_regular(self.path, "the weights of an OpenVINO model")
        wanted = np.dtype(dtype).itemsize * count
        try:
            offset, size = int(data["offset"]), int(data["size"])
        except (KeyError, ValueError):
            return None
        if size != wanted or not 0 <= offset <= os.fstat(self._file).st_size - size:
            raise FormatError(
                f"{shown(self.path)}: the model's document places {wanted} bytes at {shown_value(offset)}, and they "
                "are not there; the two files belong to different models, or one is cut"
            )
        return np.frombuffer(os.pread(self._file, wanted, offset), dtype).reshape(shape)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
