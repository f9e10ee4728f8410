"""Features in files: NumPy's .npz without pickles, or .safetensors. Written whole or not at all.

Both hold the arrays ``nodes``, ``edge_index`` and ``statics``. An .npz also holds ``node_names``, ``static_names``,
``schema`` and ``version`` as arrays; a .safetensors file has them in its metadata, as JSON.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import IO

import numpy as np

from perfpass import npz, safetensors
from perfpass.bounded_file import read_file
from perfpass.declared import Items, Text
from perfpass.errors import ArgumentError, FormatError, LimitError
from perfpass.features.matrix import SCHEMAS, Features
from perfpass.json_text import parse
from perfpass.whole_file import replacing

MOST_BYTES = 2**31  # on the disk, and unpacked: some five million nodes of the widest schema
_WHAT = "a file of features"
_NPZ = {"nodes": "f", "edge_index": "i", "statics": "f", "version": "i"}
_NPZ |= dict.fromkeys(("node_names", "static_names", "schema"), "U")
_NAMES = Items(Text(), 10_000)
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
    """Read what `save` wrote. Raises FileError where it cannot be read, LimitError over 2 GiB, on the disk or unpacked,
    and FormatError where it is something else.
    """
    source = Path(path)
    content = read_file(source, _WHAT, MOST_BYTES)
    try:
        found = _from_safetensors(content) if source.suffix.lower() == ".safetensors" else _from_npz(content)
        _check(found)
    except LimitError as error:
        raise LimitError(f"'{source}' is too large for {_WHAT}: {error}") from error
    except ValueError as error:
        raise FormatError(f"'{source}' is not {_WHAT}: {error}") from error
    return found


def _check(found: Features) -> None:
    """Raises FormatError for arrays that no graph has."""
    if found.schema not in SCHEMAS:
        raise FormatError(f"schema {found.schema[:50]!r}; known are {', '.join(SCHEMAS)}")
    count, width = found.nodes.shape if found.nodes.ndim == 2 else (-1, -1)
    if count < 0 or width != len(found.node_names):
        raise FormatError(f"nodes of shape {found.nodes.shape} under {len(found.node_names)} names")
    if found.statics.shape != (len(found.static_names),):
        raise FormatError(f"statics of shape {found.statics.shape} under {len(found.static_names)} names")
    edges = found.edge_index
    if edges.ndim != 2 or edges.shape[0] != 2 or (edges.size and not 0 <= edges.min() <= edges.max() < count):
        raise FormatError(f"edges of shape {edges.shape}, of which one leads out of the {count} nodes")
    if not (np.isfinite(found.nodes).all() and np.isfinite(found.statics).all()):
        raise FormatError("a feature that is no finite number")


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


def _from_npz(content: bytes) -> Features:
    found = npz.arrays(io.BytesIO(content), MOST_BYTES, _NPZ)
    if any(found[name].size != 1 for name in ("schema", "version")):
        raise FormatError("schema and version have one value each")
    return Features(
        found["nodes"],
        found["edge_index"],
        found["statics"],
        tuple(found["node_names"].ravel().tolist()),
        tuple(found["static_names"].ravel().tolist()),
        str(found["schema"].ravel()[0]),
        int(found["version"].ravel()[0]),
    )


def _write_safetensors(features: Features, file: IO[bytes]) -> None:
    texts = {
        "schema": features.schema,
        "version": str(features.version),
        "node_names": json.dumps(features.node_names),
        "static_names": json.dumps(features.static_names),
    }
    arrays = {name: np.asarray(getattr(features, name), dtype=kind) for name, kind in _ARRAYS.items()}
    file.write(safetensors.encode(arrays, texts))


def _from_safetensors(content: bytes) -> Features:
    arrays, texts = safetensors.decode(content)
    if arrays.keys() != _ARRAYS.keys() or texts.keys() != {"schema", "version", "node_names", "static_names"}:
        raise FormatError(f"arrays {', '.join(arrays)} and texts {', '.join(texts)}"[:300])
    for name, kind in _ARRAYS.items():
        if arrays[name].dtype != np.dtype(kind):
            raise FormatError(f"'{name}' is of {arrays[name].dtype}; {np.dtype(kind)} is expected")
    names = {name: parse(texts[name], name) for name in ("node_names", "static_names")}
    for name, listed in names.items():
        _NAMES.check(listed, "", name, FormatError)
    return Features(
        arrays["nodes"],
        arrays["edge_index"],
        arrays["statics"],
        tuple(names["node_names"]),
        tuple(names["static_names"]),
        texts["schema"],
        int(texts["version"]),
    )
