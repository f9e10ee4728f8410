"""Reading a TOML file that a person wrote: prices, grids, campaigns."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from perfpass.errors import FileError, FormatError, LimitError

LARGEST_FILE_BYTES = 2**20


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The content of ``path``, which is ``what`` ("a price table").

    Raises FileError, LimitError (over 1 MiB) and FormatError for what is no TOML.
    """
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise LimitError(f"{path}: larger than {LARGEST_FILE_BYTES} bytes, the limit of {what}")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"{path}: not a TOML file ({error})") from error
