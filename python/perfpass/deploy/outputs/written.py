"""A layout's files by format, and their writing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from perfpass.deploy.outputs.formats import FORMATS
from perfpass.errors import ArgumentError, FileError
from perfpass.text import unknown
from perfpass.whole_file import write_whole

if TYPE_CHECKING:
    from perfpass.deploy.pack import Layout


def check_formats(names: Iterable[str]) -> None:
    """Raises ArgumentError for a format that there is not."""
    for name in names:
        if name not in FORMATS:
            raise ArgumentError(unknown("format", name, FORMATS))


def files(layout: Layout, formats: Sequence[str]) -> dict[str, str]:
    """Text of every file by its path, for each format: "mig-parted/config.yaml".

    Raises ArgumentError for a format that there is not, for a layout that has none of what it says (vllm without a
    language model), and UnsupportedError without PyYAML, where YAML is written (extra ``pack``).
    """
    check_formats(formats)
    if not layout.found:
        raise ArgumentError(f"there is no layout to write: {layout.headline}")
    found: dict[str, str] = {}
    for name in dict.fromkeys(formats):
        mine = import_module(f"perfpass.deploy.outputs.{FORMATS[name]}").files(layout, name)
        found |= {f"{name}/{path}": text for path, text in mine.items()}
    return found


def write_files(content: Mapping[str, str | bytes], folder: str | os.PathLike[str]) -> list[str]:
    """Writes files into a folder, each whole; scripts may be run. Gives their paths. Raises FileError."""
    written = []
    for name, text in content.items():
        path = Path(folder) / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{path.parent}: this folder cannot be made ({error.strerror})") from error
        data = text.encode() if isinstance(text, str) else text
        write_whole(path, data)
        if data.startswith(b"#!"):
            path.chmod(0o755)
        written.append(str(path))
    return written
