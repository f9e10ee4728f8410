"""Which models an agent may name: those that are known, and files below one folder."""

from __future__ import annotations

import os
from pathlib import Path

from perfpass.errors import FileError, shown
from perfpass.serve.names import known_name

_GIT = "git:"
# What a reader may open beside the file or in the folder that is named: parts of a model, its configuration.
_BESIDE = (".onnx", ".json", ".gguf", ".safetensors")


class Root:
    """A folder; links that lead out of it are no part of it."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """``folder``: where files are looked for. Raises FileError where it is none."""
        try:
            self.folder = Path(folder).resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise FileError(f"{shown(folder)}: no folder to be the root") from error
        if not self.folder.is_dir():
            raise FileError(f"{shown(folder)}: a root is a folder")

    def model(self, text: str) -> str:
        """What ``text`` names: a file or folder as its path from the root, ``git:REV:PATH``, or a name that is known.

        Who reads it stands in the root. Raises FileError for anything that is outside, or could be.
        """
        if not text or "\0" in text:
            raise FileError(f"{shown(text) or 'an empty text'} is no name of a model")
        if text.startswith(_GIT):
            return self._at_commit(text)
        source, colon, rest = text.partition(":")
        path = rest if colon and source in ("onnx", "hf") else text
        found = self._inside(path)
        if found is None:
            try:
                return known_name(text)
            except FileError:
                raise FileError(
                    f"{shown(text)} is neither a file below the root of this server nor a name of a model"
                ) from None
        here = found.relative_to(self.folder).as_posix()
        return f"{source}:{here}" if path is rest else f"./{here}"

    def _inside(self, text: str) -> Path | None:
        """What stands there, all links followed; None where nothing does. Raises FileError for what is outside."""
        try:
            found = (self.folder / text).resolve()
            there = found.exists()
        except (OSError, RuntimeError, ValueError):
            raise FileError(f"{shown(text)}: no such file below the root") from None
        if not found.is_relative_to(self.folder):
            raise FileError(f"{shown(text)} is outside of the root of this server; only files below it are read")
        if not there:
            return None
        self._refuse_links_out(found if found.is_dir() else found.parent)
        return found

    def _refuse_links_out(self, folder: Path) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink() and entry.name.lower().endswith(_BESIDE):
                    target = Path(entry.path).resolve()
                    if not target.is_relative_to(self.folder):
                        raise FileError(f"{entry.name} beside the model leads out of the root; no model is read there")

    def _at_commit(self, text: str) -> str:
        """A file at a commit; its path is seen from the root, which is the working directory."""
        revision, _, path = text.removeprefix(_GIT).partition(":")
        inside = os.path.normpath(path)
        if not path or os.path.isabs(inside) or inside.startswith(".."):
            raise FileError(f"{shown(text)}: a file at a commit is git:REV:PATH, with a path below the root")
        return f"{_GIT}{revision}:./{inside.replace(os.sep, '/')}"
