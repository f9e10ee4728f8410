"""Reading a TOML file that a person wrote: prices, grids, campaigns.

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
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise LimitError(f"{path}: larger than {LARGEST_FILE_BYTES} bytes, the limit of {what}")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"{path}: not a TOML file ({error})") from error
