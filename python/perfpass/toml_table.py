"""Reading TOML: files that a person wrote (devices, prices, grids, campaigns), and those that ship with perfpass.

The one place that knows which package reads TOML: the standard library's since Python 3.11, tomli before.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from perfpass.bounded_file import read_file
from perfpass.errors import FormatError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LARGEST_FILE_BYTES = 2**20


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The content of ``path``, which is ``what`` ("a price table").

    Raises FileError (not there, no regular file), LimitError (over 1 MiB) and FormatError for what is no TOML.
    """
    content = read_file(path, what, LARGEST_FILE_BYTES)
    try:
        return parse(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"{path}: not a TOML file, as {what} is ({error})") from error


def parse(text: str) -> dict[str, Any]:
    """The content of TOML that ships with perfpass."""
    return tomllib.loads(text)
