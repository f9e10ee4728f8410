"""The header of a safetensors file -> its tensors, to the byte: names, types, shapes; the weights stay unread.

Format: the README of github.com/huggingface/safetensors. The file may be the header alone (its first 8 bytes and as
many as these say), one of several with an index beside it, or a folder of them. Nothing in a header is believed before
it was checked: a type has its bits, a shape its bytes, tensors follow one another without gaps or overlaps, and end
where the file does.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpass.bounded_file import exists, open_regular, reason
from perfpass.errors import FileError, FormatError, LimitError, UnsupportedError, shown
from perfpass.json_text import parse, read_json
from perfpass.text import shown_value

_WHAT = "a safetensors file"
INDEX = "model.safetensors.index.json"
SUFFIX = ".safetensors"
_LARGEST_HEADER_BYTES = 100_000_000  # the format's own limit
_LARGEST_INDEX_BYTES = 64 * 2**20
_MOST_FILES, _MOST_DIMENSIONS, _WIDEST = 1_000, 32, 2**48
_MOST_ELEMENTS = 2**62
BITS: dict[str, int] = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}


@dataclass(frozen=True)
class Tensor:
    """One tensor: its name, type of `BITS`, shape and bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class Listed:
    """The tensors of a model's files; ``missing``: files that an index names and that are not there."""

    tensors: tuple[Tensor, ...]
    missing: int = 0

    @property
    def bytes(self) -> int:
        """All tensors."""
        return sum(tensor.bytes for tensor in self.tensors)

    @property
    def elements(self) -> int:
        """Of all tensors; packed ones count as they are stored."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors)


def read(path: str | os.PathLike[str]) -> Listed:
    """The tensors of a file, of an index's files, or of a folder's.

    Raises FileError for what cannot be opened, FormatError for what is no safetensors file, is cut off or contradicts
    itself, LimitError for a header over 100 MB and a tensor of over 2^62 elements, UnsupportedError for a type of
    tensor that the format does not have.
    """
    place = Path(path)
    if place.is_dir():
        return _folder(place)
    if place.name.endswith(".index.json"):
        return _indexed(place)
    of_several = re.fullmatch(r"(.*)-\d{5}-of-(\d{5})\.safetensors", place.name)
    if of_several:
        count = int(of_several[2])
        if not 0 < count <= _MOST_FILES:
            raise FormatError(f"{shown(path)}: one of {count} files; at most {_MOST_FILES} are read")
        names = [f"{of_several[1]}-{n:05}-of-{count:05}{SUFFIX}" for n in range(1, count + 1)]
        return _several(place.parent, names)
    return Listed(tuple(_one(place)))


def _folder(folder: Path) -> Listed:
    if exists(folder / INDEX):
        return _indexed(folder / INDEX)
    names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(SUFFIX))
    # What a repository has beside its model: consolidated copies and adapters.
    own = [name for name in names if name.startswith("model")] or names
    if not own:
        raise FileError(f"{shown(folder)}: a folder without safetensors files")
    if len(own) > _MOST_FILES:
        raise FormatError(f"{shown(folder)}: {len(own)} safetensors files; at most {_MOST_FILES} are read")
    return _several(folder, own)


def _indexed(path: Path) -> Listed:
    content = read_json(path, "an index of safetensors files", _LARGEST_INDEX_BYTES)
    places = content.get("weight_map") if isinstance(content, Mapping) else None
    if not isinstance(places, Mapping) or not places:
        raise FormatError(f"{shown(path)}: has no weight_map; it is no index of safetensors files")
    names = {str(name) for name in places.values()}
    if wrong := next((name for name in sorted(names) if Path(name).name != name or not name.endswith(SUFFIX)), None):
        raise FormatError(f"{shown(path)}: weight_map leads to {shown_value(wrong)}, which is no file beside it")
    if len(names) > _MOST_FILES:
        raise FormatError(f"{shown(path)}: names {len(names)} files; at most {_MOST_FILES} are read")
    found = _several(path.parent, sorted(names))
    if not found.missing:
        listed = {tensor.name for tensor in found.tensors}
        lacking = next((name for name in places if name not in listed), None)
        if lacking is not None:
            raise FormatError(f"{shown(path)}: names {shown_value(lacking)}, which no file beside it holds")
    return found


def _several(folder: Path, names: Iterable[str]) -> Listed:
    tensors: list[Tensor] = []
    missing = 0
    for name in names:
        if exists(folder / name):
            tensors += _one(folder / name)
        else:
            missing += 1
    seen: set[str] = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise FormatError(f"{shown(folder)}: two files hold {shown_value(tensor.name)}; which is the model's?")
        seen.add(tensor.name)
    if not tensors:
        raise FileError(f"{shown(folder)}: none of the model's safetensors files is there")
    return Listed(tuple(tensors), missing)


def _one(path: Path) -> list[Tensor]:
    file = open_regular(path, _WHAT)
    try:
        size = os.fstat(file).st_size
        length = int.from_bytes(os.read(file, 8), "little")
        if size < 8 or length < 2:
            raise FormatError(f"{shown(path)}: is no safetensors file, which begins with the length of its header")
        if length > _LARGEST_HEADER_BYTES:
            raise LimitError(
                f"{shown(path)}: its first 8 bytes speak of a header of {length:,} bytes, and the format allows "
                f"{_LARGEST_HEADER_BYTES:,}; it is no safetensors file, or a damaged one"
            )
        if length > size - 8:
            raise FormatError(
                f"{shown(path)}: ends within its header: {size - 8:,} of {length:,} bytes are there; is the download "
                "complete?"
            )
        text = bytearray()
        while len(text) < length and (block := os.read(file, length - len(text))):
            text += block
    except OSError as error:
        raise FileError(f"{shown(path)}: cannot be read as {_WHAT}: {reason(error)}") from error
    finally:
        os.close(file)
    header = parse(bytes(text), f"the header of {shown(path)}", any_number=True)
    return of_header(header, shown(path), size - 8 - length)


def of_header(header: Any, where: str, data_bytes: int = 0) -> list[Tensor]:
    """The tensors of a parsed header; ``data_bytes`` follow it, 0 where it stands alone. Raises as `read`."""
    if not isinstance(header, dict):
        raise FormatError(f"{where}: its header is {shown_value(header)}; a table of tensors is needed")
    found, spans = [], []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        tensor, begin, end = _tensor(name, entry, where)
        found.append(tensor)
        spans.append((begin, end, name))
    at = 0
    for begin, end, name in sorted(spans):
        if begin != at:
            what = "overlaps the one before it" if begin < at else f"leaves {begin - at:,} bytes before it unused"
            raise FormatError(f"{where}: tensor {shown_value(name)} begins at byte {begin:,} and {what}; it is damaged")
        at = end
    if data_bytes and at != data_bytes:
        which = "more than its tensors have" if at < data_bytes else f"and its tensors end at byte {at:,}"
        raise FormatError(
            f"{where}: {data_bytes:,} bytes follow its header, {which}: a download that broke off, or a damaged "
            "header; give the whole file, or its header alone"
        )
    return found


def _tensor(name: str, entry: Any, where: str) -> tuple[Tensor, int, int]:
    what = f"{where}: tensor {shown_value(name)}"
    if not isinstance(entry, dict):
        raise FormatError(f"{what} is {shown_value(entry)}; a table with dtype, shape and data_offsets is needed")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise UnsupportedError(f"{what} is of type {shown_value(dtype)}; the format has {', '.join(BITS)}")
    if (
        not isinstance(shape, list)
        or len(shape) > _MOST_DIMENSIONS
        or any(type(size) is not int or not 0 <= size <= _WIDEST for size in shape)
    ):
        raise FormatError(f"{what} has the shape {shown_value(shape)}; a list of whole numbers is needed")
    if not isinstance(offsets, list) or len(offsets) != 2 or any(type(at) is not int or at < 0 for at in offsets):
        raise FormatError(f"{what} has the data_offsets {shown_value(offsets)}; where it begins and ends is needed")
    if math.prod(shape) > _MOST_ELEMENTS:
        raise LimitError(f"{what} has the shape {shown_value(shape)}, which is over 2^62 elements")
    bits = math.prod(shape) * BITS[dtype]
    begin, end = offsets
    if bits % 8 or end - begin != bits // 8:
        raise FormatError(
            f"{what} of {dtype} {shown_value(shape)} takes {bits / 8:,.0f} bytes, and data_offsets give it "
            f"{shown_value(end - begin)}"
        )
    return Tensor(name, dtype, tuple(shape), bits // 8), begin, end
