"""Where the repository's data folder is."""

from __future__ import annotations

import os
from pathlib import Path

from perfpass.errors import FileError


def data_directory() -> Path:
    """The folder `data` of a checkout: `$PERFPASS_DATA`, else beside the package, else below the working directory."""
    given = os.environ.get("PERFPASS_DATA")
    candidates = [Path(given)] if given else [p / "data" for p in [*Path(__file__).resolve().parents, Path.cwd()]]
    for candidate in candidates:
        if (candidate / "records").is_dir():
            return candidate
    raise FileError(
        "no data folder with records found; run from a checkout of the repository or set PERFPASS_DATA to its data "
        "folder"
    )
