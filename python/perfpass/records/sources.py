"""Tables of public sources: opening one, and adding caveats to some of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.errors import FileError, FormatError

if TYPE_CHECKING:
    import pandas


def table_of(shared: Path, *parts: str) -> pandas.DataFrame:
    """A CSV or Parquet table below the folder of sources. Raises FileError, FormatError."""
    import pandas

    path = shared.joinpath(*parts)
    if not path.is_file():
        raise FileError(f"{path}: no such table; give the folder that holds the sources' folders")
    try:
        return pandas.read_parquet(path) if path.suffix == ".parquet" else pandas.read_csv(path)
    except (ValueError, OSError) as error:
        raise FormatError(f"{path}: not a table ({str(error).splitlines()[0]})") from error


def add_caveat(caveats: pandas.Series, where: np.ndarray, caveat: str) -> pandas.Series:
    """``caveats`` with one more in the rows ``where``; comma-separated."""
    added = np.where(caveats == "", caveat, caveats + "," + caveat)
    return caveats.where(~where, added)
