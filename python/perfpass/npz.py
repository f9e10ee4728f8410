"""Arrays in NumPy's .npy and .npz files, without pickles and without taking a file's word for its size.

A header may promise terabytes and a compressed member may unfold to them; here an array has the bytes that it says, or
it is refused before memory is asked for.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from typing import IO

import numpy as np

from perfpass.errors import FormatError, LimitError
from perfpass.text import shown_value

_MOST_MEMBERS = 1000
_LONGEST_HEADER = 10_000  # characters, NumPy's own limit
_KINDS = "biufU"  # bool, whole, floating, text


def array(content: bytes) -> np.ndarray:
    """The array of a .npy file, a read-only view of ``content``. Raises FormatError for anything else."""
    file = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise FormatError(f"an array of the NumPy format {version[0]}.{version[1]}; 1.0 and 2.0 are read")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, kind = read(file, max_header_size=_LONGEST_HEADER)
    except FormatError:
        raise
    except Exception as error:  # NumPy parses the header as Python, whose parser raises whatever it does
        raise FormatError(f"no array of NumPy ({' '.join(str(error).split())[:200] or 'damaged'})") from error
    if kind.kind not in _KINDS or kind.itemsize == 0:
        raise FormatError(f"an array of {kind}, which is not read; numbers and texts are")
    if not all(type(size) is int and size >= 0 for size in shape) or len(shape) > 32:
        raise FormatError(f"an array of shape {shown_value(shape)}")
    here = len(content) - file.tell()
    if math.prod(shape) * kind.itemsize != here:
        raise FormatError(f"an array of shape {shown_value(shape)} and {kind} that has {here} bytes")
    flat = np.frombuffer(content, kind, offset=file.tell()) if here else np.zeros(0, kind)
    return flat.reshape(shape, order="F" if fortran else "C")


def arrays(file: IO[bytes], most_bytes: int, kinds: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The arrays of an .npz file; ``kinds``: NumPy's kind of each ("f", "i", "U"), all of which must be there.

    Raises FormatError for another file, an unknown or missing array or one of another kind, and LimitError over
    ``most_bytes`` unpacked.
    """
    try:
        # Not at the top: artefacts' arrays are no archives, and it brings three compressors.
        import zipfile

        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if len(members) > _MOST_MEMBERS:
                raise LimitError(f"{len(members)} arrays; at most {_MOST_MEMBERS} are read")
            total = sum(member.file_size for member in members)  # no more than that is unpacked
            if total > most_bytes:
                raise LimitError(f"{total} bytes unpacked; at most {most_bytes} are read")
            names = [member.filename.removesuffix(".npy") for member in members]
            if sorted(names) != sorted(kinds):
                raise FormatError(f"arrays {shown_value(names)}; it has {', '.join(kinds)}, once each")
            found = {name: array(archive.read(member)) for name, member in zip(names, members, strict=True)}
    except (FormatError, LimitError):
        raise
    except Exception as error:  # zipfile raises of its own, of zlib's, lzma's and the system's
        raise FormatError(f"no archive of arrays ({str(error)[:200] or type(error).__name__})") from error
    for name, kind in kinds.items():
        if found[name].dtype.kind not in kind:
            raise FormatError(f"{name} holds {found[name].dtype}, not of kind {' or '.join(kind)}")
    return found
