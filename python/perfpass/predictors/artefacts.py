"""Artefacts: a folder with a manifest (JSON) and the files it names, each with its SHA-256.

Format in docs/prediction.md. Reading needs no library but NumPy and never executes anything from a file.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.errors import ArtefactError, FileError

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
MAX_FILE_BYTES = 64 << 20


def shipped(predictor: str) -> Path:
    """The folder of a shipped artefact."""
    return Path(__file__).parent / "artefacts" / predictor


def write(folder: Path, manifest: dict[str, Any], files: dict[str, bytes]) -> None:
    """Write ``files`` and a manifest that lists their hashes; ``schema_version`` is added.

    An artefact that is there already stays whole until the new one is: both are written beside each other and change
    places at the end. Raises FileError where the disk refuses.
    """
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    text = json.dumps({"schema_version": SCHEMA_VERSION, **manifest, "files": hashes}, indent=1, allow_nan=False)
    fresh, former = (folder.with_name(f".{folder.name}.{part}") for part in ("new", "old"))
    try:
        for leftover in (fresh, former):
            shutil.rmtree(leftover, ignore_errors=True)
        fresh.mkdir(parents=True)
        for name, content in {**files, MANIFEST: (text + "\n").encode()}.items():
            (fresh / name).write_bytes(content)
        if folder.exists():
            folder.rename(former)
        fresh.rename(folder)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise FileError(f"{folder}: {error.strerror}; the former artefact is untouched") from error
    shutil.rmtree(former, ignore_errors=True)


def annotate(folder: Path, notes: dict[str, Any]) -> None:
    """Add entries to the manifest of a written artefact."""
    path = folder / MANIFEST
    partial = path.with_name(path.name + ".partial")
    text = json.dumps({**Artefact(folder).manifest, **notes}, indent=1, allow_nan=False)
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(path)


class Artefact:
    """A read artefact: ``manifest`` and the bytes of its files, checked against their hashes when they are read."""

    def __init__(self, folder: Path | str) -> None:
        """Raises ArtefactError for a folder without a readable manifest of this schema."""
        self.folder = Path(folder)
        path = self.folder / MANIFEST
        try:
            self.manifest: dict[str, Any] = json.loads(path.read_bytes())
        except OSError as error:
            raise ArtefactError(f"{path}: {error.strerror}; `perfpass train` writes a predictor") from error
        except ValueError as error:
            raise ArtefactError(f"{path}: not JSON ({error}); reinstall, or run `perfpass train`") from error
        version = self.manifest.get("schema_version") if isinstance(self.manifest, dict) else None
        if version != SCHEMA_VERSION:
            raise ArtefactError(
                f"{path}: artefact schema {version!r}, this version reads {SCHEMA_VERSION}; run `perfpass train` again"
            )

    def read(self, name: str) -> bytes:
        """The content of one file. Raises ArtefactError where it is missing, too large or not that of the manifest."""
        expected = self.manifest.get("files", {}).get(name)
        path = self.folder / name
        if expected is None or Path(name).name != name:
            raise ArtefactError(f"{self.folder}: the manifest lists no file {name!r}")
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                raise ArtefactError(f"{path}: over {MAX_FILE_BYTES} bytes")
            content = path.read_bytes()
        except OSError as error:
            raise ArtefactError(f"{path}: {error.strerror}; reinstall, or run `perfpass train`") from error
        if hashlib.sha256(content).hexdigest() != expected:
            raise ArtefactError(f"{path}: its SHA-256 is not that of the manifest; reinstall, or run `perfpass train`")
        return content

    def array(self, name: str) -> np.ndarray:
        """One .npy file; never a pickle."""
        return np.load(io.BytesIO(self.read(name)), allow_pickle=False)


def array_bytes(values: np.ndarray) -> bytes:
    """``values`` as a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=False)
    return buffer.getvalue()


# What a tree needs to be scored; gains, covers, parents and categories stay behind.
_TREE_ARRAYS = {
    "left_children": ">i4",
    "right_children": ">i4",
    "split_indices": ">i2",
    "split_conditions": ">f4",
    "default_left": "u1",
}
_MARKERS = {">i4": b"l", ">i2": b"I", ">f4": b"d", "u1": b"U"}


def compact_trees(models: list[bytes]) -> bytes:
    """Several XGBoost models (saved as JSON) as one UBJSON model that predicts their mean, with what scoring needs.

    The mean of K sums of leaves is one sum of leaves over K.
    """
    learners = [json.loads(model)["learner"] for model in models]
    first = learners[0]
    base = float(np.mean([float(x["learner_model_param"]["base_score"].strip("[]")) for x in learners]))
    trees: list[dict[str, Any]] = []
    for learner in learners:
        for tree in learner["gradient_booster"]["model"]["trees"]:
            left = np.asarray(tree["left_children"])
            value = np.asarray(tree["split_conditions"], dtype=np.float64)
            value = np.where(left < 0, value / len(models), value)
            columns = {**tree, "split_conditions": value}
            kept: dict[str, Any] = {n: np.asarray(columns[n]).astype(kind) for n, kind in _TREE_ARRAYS.items()}
            trees.append({**kept, "tree_param": {"size_leaf_vector": "1"}})
    parameters = {"base_score": repr(base), "num_class": "0", "num_target": "1"}
    parameters["num_feature"] = first["learner_model_param"]["num_feature"]
    document = {
        "learner": {
            "gradient_booster": {"model": {"trees": trees}, "name": "gbtree"},
            "learner_model_param": parameters,
            "objective": {"name": first["objective"]["name"]},
        }
    }
    return _ubjson(document)


def _ubjson(value: Any) -> bytes:
    if isinstance(value, dict):
        return b"{" + b"".join(_length(key.encode()) + _ubjson(member) for key, member in value.items()) + b"}"
    if isinstance(value, list):
        return b"[" + b"".join(_ubjson(item) for item in value) + b"]"
    if isinstance(value, str):
        return b"S" + _length(value.encode())
    marker = _MARKERS["u1" if value.dtype.itemsize == 1 else value.dtype.str]
    return b"[$" + marker + b"#l" + struct.pack(">i", len(value)) + value.tobytes()


def _length(text: bytes) -> bytes:
    return b"l" + struct.pack(">i", len(text)) + text
