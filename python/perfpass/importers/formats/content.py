"""What a file or folder shows of itself without being read: its first bytes, the names within it."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

from perfpass.bounded_file import open_regular, reason
from perfpass.errors import FileError, shown
from perfpass.late import dataclass

HEAD_BYTES = 4096
_ZIP = b"PK\x03\x04"
_GGUF = b"GGUF"
_ONNX = b"\x08"  # ModelProto.ir_version, a message's first field, which every exporter writes first


@dataclass(frozen=True)
class Content:
    """A model as it lies on the disk. ``head``: the first `HEAD_BYTES` of a file, empty of a folder."""

    path: Path
    head: bytes

    @classmethod
    def of(cls, path: Path) -> Content:
        """Raises FileError for what cannot be opened or is neither a regular file nor a folder."""
        if os.path.isdir(path):
            return cls(path, b"")
        file = open_regular(path, "a model")
        try:
            return cls(path, os.read(file, HEAD_BYTES))
        except OSError as error:
            raise FileError(f"{shown(path)}: cannot be read as a model: {reason(error)}") from error
        finally:
            os.close(file)

    @property
    def is_folder(self) -> bool:
        """Whether the model is a folder."""
        return not self.head and self.path.is_dir()

    @property
    def is_empty(self) -> bool:
        """Whether the model is a file without a byte: it is of no format."""
        return not self.head and not self.path.is_dir()

    @property
    def is_archive(self) -> bool:
        """Whether the model is a zip archive."""
        return self.head.startswith(_ZIP)

    @property
    def is_gguf(self) -> bool:
        """Whether the file is GGUF: by its first bytes (a blob of Ollama has no suffix), else by its suffix, unless it
        begins as ONNX does.
        """
        if self.head.startswith(_GGUF):
            return True
        return self.path.suffix.lower() == ".gguf" and not self.head.startswith(_ONNX)

    @cached_property
    def entries(self) -> frozenset[str]:
        """Names of a folder's files and folders, or of a zip archive's entries (with their folders); else none.

        Raises FormatError for a damaged archive and LimitError for one of over 65,536 entries.
        """
        if self.is_folder:
            try:
                return frozenset(entry.name for entry in os.scandir(self.path))
            except OSError as error:
                raise FileError(f"{shown(self.path)}: cannot be listed: {reason(error)}") from error
        if not self.is_archive:
            return frozenset()
        from perfpass.importers.formats import archive

        return frozenset(archive.entries(self.path))

    def any_entry(self, end: str) -> bool:
        """Whether an entry's path ends so: archives of PyTorch put all into a folder of any name."""
        return any(name == end or name.endswith(f"/{end}") for name in self.entries)


def is_gguf(path: str | os.PathLike[str]) -> bool:
    """As `Content.is_gguf`; by its suffix alone where nothing can be read at ``path``."""
    try:
        return Content.of(Path(path)).is_gguf
    except FileError:
        return Content(Path(path), b"").is_gguf
