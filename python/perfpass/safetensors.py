"""Arrays in the safetensors format: header length, JSON header, the arrays' bytes, little-endian.

Format: github.com/huggingface/safetensors. Reading needs NumPy alone and never executes anything from a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from perfpass.declared import Anything, Choice, Items, Named, Number, Table, Text
from perfpass.errors import FormatError
from perfpass.json_text import parse
from perfpass.text import shown_value

_KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I8": "|i1", "U16": "<u2", "U8": "|u1"}
_NAMES = {np.dtype(kind): name for name, kind in _KINDS.items()}
_HEADER_BYTES = 1 << 20  # a header of ours has some kilobytes
_OFFSET = Number(0, 2**62, whole=True)
_ENTRY = Table(
    {
        "dtype": Choice(tuple(_KINDS)),
        "shape": Items(Number(0, 2**48, whole=True), 32),
        "data_offsets": Items(_OFFSET, 2, 2),
    },
    ("dtype", "shape", "data_offsets"),
)
_HEADER = Table({"__metadata__": Named(Text(_HEADER_BYTES, empty=True, lines=True))}, others=Anything())


def encode(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a file with ``arrays`` and texts. Raises KeyError for a type that the format lacks here."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    blocks, offset = [], 0
    for name, values in arrays.items():
        stored = np.ascontiguousarray(values)
        stored = stored.astype(stored.dtype.newbyteorder("<"), copy=False)
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


def decode(content: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of a file, read-only views of ``content``, and its texts. Raises FormatError for anything else."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(_HEADER_BYTES, len(content) - 8):
        raise FormatError("truncated, or no safetensors file")
    data = memoryview(content)[8 + length :]
    try:
        header = parse(content[8 : 8 + length], "its header")
        _HEADER.check(header, "", "its header", FormatError)
        texts = header.pop("__metadata__", {})
        arrays = {}
        for name, entry in header.items():
            _ENTRY.check(entry, "", shown_value(name), FormatError)
            begin, end = entry["data_offsets"]
            if not 0 <= begin <= end <= len(data):
                raise ValueError(f"{shown_value(name)} lies outside the file")
            arrays[name] = np.frombuffer(data[begin:end], dtype=_KINDS[entry["dtype"]]).reshape(entry["shape"])
    except ValueError as error:
        raise FormatError(f"a damaged safetensors file ({error})") from error
    return arrays, texts
