"""Arrays of a network in the safetensors format, as they are or rounded to 8 bits with a scale per row.

Format: github.com/huggingface/safetensors. Reading needs NumPy alone and never executes anything from a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from perfpass.errors import ArtefactError

_TAGS = {"F32": "<f4", "F16": "<f2", "I8": "|i1", "I64": "<i8"}
_NAMES = {np.dtype(kind): tag for tag, kind in _TAGS.items()}
_HEADER_BYTES = 1 << 20
_SCALE = ".row_scale"


def pack(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file of float32, float16, int8 and int64 arrays."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    blocks, offset = [], 0
    for name, values in arrays.items():
        stored = np.ascontiguousarray(values)
        blocks.append(stored.tobytes())
        header[name] = {
            "dtype": _NAMES[stored.dtype],
            "shape": list(np.shape(values)),
            "data_offsets": [offset, offset + stored.nbytes],
        }
        offset += stored.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the specification aligns the data by spaces after the header
    return len(text).to_bytes(8, "little") + text + b"".join(blocks)


def unpack(content: bytes, where: str) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file; ``where`` names it in errors. Raises ArtefactError for anything else."""
    header, data = _header(content, where)
    found = {}
    try:
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            if not 0 <= begin <= end <= len(data):
                raise ValueError(f"{name!r} lies outside the file")
            found[name] = np.frombuffer(data[begin:end], dtype=_TAGS[entry["dtype"]]).reshape(entry["shape"])
    except (ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f"{where}: damaged ({error}); reinstall, or run `perfpass train`") from error
    return found


def metadata(content: bytes, where: str) -> dict[str, str]:
    """The texts that a safetensors file carries. Raises ArtefactError for anything else."""
    found: dict[str, str] = _header(content, where)[0].get("__metadata__", {})
    return found


def _header(content: bytes, where: str) -> tuple[dict[str, Any], memoryview]:
    """The header and the bytes behind it."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(_HEADER_BYTES, len(content) - 8):
        raise ArtefactError(f"{where}: truncated or no safetensors file; reinstall, or run `perfpass train`")
    try:
        header = json.loads(content[8 : 8 + length])
    except ValueError as error:
        raise ArtefactError(f"{where}: damaged ({error}); reinstall, or run `perfpass train`") from error
    if not isinstance(header, dict):
        raise ArtefactError(f"{where}: no safetensors file; reinstall, or run `perfpass train`")
    return header, memoryview(content)[8 + length :]


def rounded(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Matrices as int8 with a float32 scale per row, everything else as it is: a quarter of the bytes."""
    out: dict[str, np.ndarray] = {}
    for name, values in arrays.items():
        if values.ndim != 2 or min(values.shape) < 8:
            out[name] = np.asarray(values, dtype=np.float32)
            continue
        scale = np.maximum(np.abs(values).max(axis=1), 1e-30).astype(np.float32) / np.float32(127)
        out[name] = np.rint(values / scale[:, None]).astype(np.int8)
        out[name + _SCALE] = scale
    return out


def restored(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The float32 arrays of what `rounded` made."""
    out = {}
    for name, values in arrays.items():
        if name.endswith(_SCALE):
            continue
        full = values.astype(np.float32)
        out[name] = full * arrays[name + _SCALE][:, None] if name + _SCALE in arrays else full
    return out
