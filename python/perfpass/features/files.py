"""Features in files: NumPy's .npz without pickles, or .safetensors. Written whole or not at all.

Both hold the arrays ``nodes``, ``edge_index`` and ``statics``. An .npz also holds ``node_names``, ``static_names``,
``schema`` and ``version`` as arrays; a .safetensors file has them in its metadata, as JSON.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO

import numpy as np

from perfpass import safetensors
from perfpass.bounded_file import open_regular
from perfpass.errors import ArgumentError, FileError, FormatError
from perfpass.features.matrix import Features
from perfpass.whole_file import replacing

_ARRAYS = {"nodes": "<f4", "edge_index": "<i4", "statics": "<f4"}


def save(features: Features, path: str | os.PathLike[str]) -> Path:
    """Write ``features`` to ``path``, whose suffix is .npz or .safetensors, and return the path.

    The file appears under its name only when it is complete. Raises ArgumentError for another suffix and FileError
    where it cannot be written.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in (".npz", ".safetensors"):
        raise ArgumentError(f"cannot tell the format of '{target}' from its suffix; use .npz or .safetensors")
    write = _write_npz if suffix == ".npz" else _write_safetensors
    with replacing(target) as file:
        write(features, file)
    return target


def load(path: str | os.PathLike[str]) -> Features:
    """Read what `save` wrote. Raises FileError where it cannot be read and FormatError where it is something else."""
    source = Path(path)
    try:
        with os.fdopen(open_regular(source, "a file of features"), "rb") as file:
            return (
                _read_safetensors(file, source) if source.suffix.lower() == ".safetensors" else _read_npz(file, source)
            )
    except FileError:
        raise
    except FormatError as error:
        raise FormatError(f"'{source}' is not a file of features: {error}") from error
    except OSError as error:
        raise FileError(f"cannot read '{source}': {error.strerror or error}") from error
    except (KeyError, ValueError, TypeError, EOFError) as error:
        raise FormatError(f"'{source}' is not a file of features: {error}") from error


def _write_npz(features: Features, file: IO[bytes]) -> None:
    np.savez(
        file,
        allow_pickle=False,
        nodes=features.nodes,
        edge_index=features.edge_index,
        statics=features.statics,
        node_names=np.array(features.node_names),
        static_names=np.array(features.static_names),
        schema=np.array(features.schema),
        version=np.array(features.version),
    )


def _read_npz(opened: IO[bytes], source: Path) -> Features:
    from zipfile import BadZipFile

    try:
        with np.load(opened, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise FormatError(f"'{source}' holds one array, not features")
            return Features(
                file["nodes"],
                file["edge_index"],
                file["statics"],
                tuple(file["node_names"].tolist()),
                tuple(file["static_names"].tolist()),
                str(file["schema"]),
                int(file["version"]),
            )
    except BadZipFile as error:
        raise FormatError(f"'{source}' is damaged: {error}") from error


def _write_safetensors(features: Features, file: IO[bytes]) -> None:
    texts = {
        "schema": features.schema,
        "version": str(features.version),
        "node_names": json.dumps(features.node_names),
        "static_names": json.dumps(features.static_names),
    }
    arrays = {name: np.asarray(getattr(features, name), dtype=kind) for name, kind in _ARRAYS.items()}
    file.write(safetensors.encode(arrays, texts))


def _read_safetensors(opened: IO[bytes], source: Path) -> Features:
    arrays, meta = safetensors.decode(opened.read())
    for name, kind in _ARRAYS.items():
        if arrays[name].dtype != np.dtype(kind):
            raise FormatError(f"'{source}' holds '{name}' as {arrays[name].dtype}; {np.dtype(kind)} is expected")
    return Features(
        arrays["nodes"],
        arrays["edge_index"],
        arrays["statics"],
        tuple(json.loads(meta["node_names"])),
        tuple(json.loads(meta["static_names"])),
        meta["schema"],
        int(meta["version"]),
    )
