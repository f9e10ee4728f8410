"""Reading TOML: files that a person wrote (devices, prices, grids, campaigns), and those that ship with perfpass.

The one place that knows which package reads TOML: the standard library's since Python 3.11, tomli before.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from perfpass.errors import FileError, FormatError, LimitError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LARGEST_FILE_BYTES = 2**20


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The content of ``path``, which is ``what`` ("a price table").

    Raises FileError, LimitError (over 1 MiB) and FormatError for what is no TOML.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise FileError(f"{path}: cannot be read as {what}: {error.strerror or error}") from error
    if len(content) > LARGEST_FILE_BYTES:
        raise LimitError(f"{path}: larger than {LARGEST_FILE_BYTES} bytes, the limit of {what}")
    try:
        return parse(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"{path}: not a TOML file, as {what} is ({error})") from error


def parse(text: str) -> dict[str, Any]:
    """The content of TOML that ships with perfpass."""
    return tomllib.loads(text)
