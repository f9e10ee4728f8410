"""The prediction that a file carries: in an ONNX file's metadata, or in a library that TVM built."""

from __future__ import annotations

import json
import mmap
import os
from pathlib import Path
from typing import Any

from perfpass.bounded_file import open_regular
from perfpass.declared import too_large
from perfpass.errors import FormatError, shown

# The key under which `tvm_perfpass.build` keeps the prediction in the graph executor's JSON; it is a text inside the
# library, and read as one: nothing of the library is loaded.
_KEY = b'"perfpass.prediction": '
_MOST_BYTES = 2**22  # of one prediction


def carried(path: str) -> dict[str, Any]:
    """The prediction as `Prediction.to_dict` gives it; of several in an ONNX file the last one that was added.

    Raises FileError, and FormatError where there is none.
    """
    if Path(path).suffix in (".so", ".dylib", ".dll", ".tar", ".json"):
        return _of_library(path)
    from perfpass.annotation.file import read

    found = read(path).annotation.predictions
    if not found:
        raise FormatError(f"{shown(path)} carries no prediction; `perfpass annotate {path} --device NAME` adds one")
    return list(found.values())[-1]


def _of_library(path: str) -> dict[str, Any]:
    with os.fdopen(open_regular(path, "a library"), "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise FormatError(f"{shown(path)} is empty; build it with tvm_perfpass.build")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            at = content.find(_KEY)
            text = content[at + len(_KEY) : at + len(_KEY) + _MOST_BYTES].decode("utf-8", "replace") if at >= 0 else ""
    if not text:
        raise FormatError(f"{shown(path)} carries no prediction; build it with tvm_perfpass.build")
    try:
        found, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{shown(path)}: its prediction is damaged ({error}); build it again") from error
    if not isinstance(found, dict) or too_large(found) is not None:
        raise FormatError(f"{shown(path)}: its prediction is damaged; build it again")
    return found
