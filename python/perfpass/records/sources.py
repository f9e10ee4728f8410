"""Tables of public sources: opening one, and adding caveats to some of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.bounded_file import exists
from perfpass.errors import FileError
from perfpass.records.parquet import read_frame

if TYPE_CHECKING:
    import pandas


def table_of(shared: Path, *parts: str) -> pandas.DataFrame:
    """A CSV or Parquet table below the folder of sources. Raises FileError, FormatError, LimitError."""
    path = shared.joinpath(*parts)
    if not exists(path):
        raise FileError(f"{path}: no such table; give the folder that holds the sources' folders")
    return read_frame(path, "a source's table")


def add_caveat(caveats: pandas.Series, where: np.ndarray, caveat: str) -> pandas.Series:
    """``caveats`` with one more in the rows ``where``; comma-separated."""
    added = np.where(caveats == "", caveat, caveats + "," + caveat)
    return caveats.where(~where, added)
