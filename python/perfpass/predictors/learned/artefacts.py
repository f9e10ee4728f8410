"""Artefacts: a folder with a manifest (JSON) and the files it names, each with its SHA-256.

Format in docs/reference/artefacts.md. Reading needs no library but NumPy and never executes anything from a file.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from perfpass import _core, npz
from perfpass.bounded_file import read_file, reason
from perfpass.declared import Anything, Exactly, Named, Table, Text
from perfpass.errors import ArtefactError, FileError, FormatError, LimitError
from perfpass.json_text import read_json
from perfpass.predictors.learned import packed_trees

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
MAX_FILE_BYTES = 64 << 20
# What every predictor's manifest has; the rest is the predictor's own.
_MANIFEST = Table({"schema_version": Exactly(SCHEMA_VERSION), "files": Named(Text())}, others=Anything())


def shipped(predictor: str) -> Path:
    """The folder of a shipped artefact."""
    return Path(__file__).parent.parent / "artefacts" / predictor


def write(folder: Path, manifest: dict[str, Any], files: dict[str, bytes]) -> None:
    """Write ``files`` and a manifest that lists their hashes; ``schema_version`` is added.

    An artefact that is there already stays whole until the new one is: both are written beside each other and change
    places at the end, in one step where the system has one. Raises FileError where the disk refuses.
    """
    import shutil

    from perfpass.whole_file import sync_folder

    hashes = {name: _core.sha256(content) for name, content in sorted(files.items())}
    text = json.dumps({"schema_version": SCHEMA_VERSION, **manifest, "files": hashes}, indent=1, allow_nan=False)
    fresh, former = (folder.with_name(f".{folder.name}.{part}") for part in ("new", "old"))
    try:
        if former.exists() and not folder.exists():
            former.rename(folder)  # a kill between the two steps of a change of places
        for leftover in (fresh, former):
            shutil.rmtree(leftover, ignore_errors=True)
        fresh.mkdir(parents=True)
        for name, content in {**files, MANIFEST: (text + "\n").encode()}.items():
            with open(fresh / name, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        sync_folder(fresh)
        if not folder.exists():
            fresh.rename(folder)
        elif not _exchanged(fresh, folder):
            folder.rename(former)
            fresh.rename(folder)
        sync_folder(folder.parent)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise FileError(f"{folder}: {reason(error)}; the former artefact is untouched") from error
    for leftover in (fresh, former):
        shutil.rmtree(leftover, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Lets two names change places in one step (renameat2(2), Linux); False where the system cannot."""
    import ctypes

    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    done: int = rename(here, os.fsencode(one.absolute()), here, os.fsencode(other.absolute()), exchange)
    return done == 0


def check_writable(folder: Path) -> None:
    """Whether `write` could begin: asked before hours of work. Raises FileError."""
    import tempfile

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Of a name of its own: another run may ask at the same moment, or be writing.
        Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent)).rmdir()
    except OSError as error:
        raise FileError(f"{folder.parent}: nothing can be written there: {error.strerror}") from error


def annotate(folder: Path, notes: dict[str, Any]) -> None:
    """Add entries to the manifest of a written artefact. Raises FileError."""
    from perfpass.whole_file import write_whole

    text = json.dumps({**Artefact(folder).manifest, **notes}, indent=1, allow_nan=False)
    write_whole(folder / MANIFEST, text + "\n")


class Artefact:
    """A read artefact: ``manifest`` and the bytes of its files, checked against their hashes when they are read."""

    def __init__(self, folder: Path | str) -> None:
        """Raises ArtefactError for a folder without a readable manifest of this schema."""
        self.folder = Path(folder)
        path = self.folder / MANIFEST
        try:
            self.manifest: dict[str, Any] = read_json(path, "a manifest", MAX_FILE_BYTES)
        except (FileError, LimitError) as error:
            raise ArtefactError(f"{error}; `perfpass train` writes a predictor") from error
        except FormatError as error:
            raise ArtefactError(f"{error}; reinstall, or run `perfpass train`") from error
        version = self.manifest.get("schema_version") if isinstance(self.manifest, dict) else None
        if version != SCHEMA_VERSION:
            raise ArtefactError(
                f"{path}: artefact schema {version!r}, this version reads {SCHEMA_VERSION}; run `perfpass train` again"
            )
        _MANIFEST.take(self.manifest, str(path), ArtefactError)

    def read(self, name: str) -> bytes:
        """The content of one file. Raises ArtefactError where it is missing, too large or not that of the manifest."""
        expected = self.manifest.get("files", {}).get(name)
        path = self.folder / name
        if expected is None or Path(name).name != name:
            raise ArtefactError(f"{self.folder}: the manifest lists no file {name!r}")
        try:
            content = read_file(path, "a part of a predictor", MAX_FILE_BYTES)
        except (FileError, LimitError) as error:
            raise ArtefactError(f"{error}; reinstall, or run `perfpass train`") from error
        # By the core: hashlib loads a library of ciphers, which takes longer than all that is hashed here.
        if _core.sha256(content) != expected:
            raise ArtefactError(f"{path}: its SHA-256 is not that of the manifest; reinstall, or run `perfpass train`")
        return content

    def array(self, name: str) -> np.ndarray:
        """One .npy file; never a pickle."""
        try:
            return npz.array(self.read(name))
        except FormatError as error:
            raise ArtefactError(f"{self.folder / name}: {error}; reinstall, or run `perfpass train`") from error

    def trees(self, name: str) -> _core.TreeEnsemble:
        """The ensemble in the file ``name``.trees (`packed_trees`)."""
        return packed_trees.unpack(self.read(f"{name}.trees"), f"{self.folder / name}.trees")


def array_bytes(values: np.ndarray) -> bytes:
    """``values`` as a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=False)
    return buffer.getvalue()
