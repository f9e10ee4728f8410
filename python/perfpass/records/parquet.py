"""Opening tables that others wrote, Parquet and CSV: the one door of every table of records.

A Parquet file of a megabyte may state a billion rows. What a file states of itself is checked before a column is read.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perfpass.bounded_file import read_file
from perfpass.errors import FormatError, LimitError, shown

if TYPE_CHECKING:
    import pandas
    import pyarrow

LARGEST_FILE_BYTES = 256 << 20
LARGEST_CSV_BYTES = 64 << 20  # text takes a multiple of itself in memory
MOST_ROWS = 10_000_000
MOST_COLUMNS = 500
MOST_CELLS = 200_000_000
MOST_UNPACKED_BYTES = 2 << 30


def read_arrow(path: str | os.PathLike[str], what: str, content: bytes | None = None) -> pyarrow.Table:
    """A Parquet file, which is ``what`` ("a table of records"); ``content``: its bytes, where they have been read.

    Raises FileError, LimitError (256 MiB
    on the disk, 2 GiB unpacked, 10 million rows, 500 columns) and FormatError.
    """
    import pyarrow
    import pyarrow.parquet

    content = read_file(path, what, LARGEST_FILE_BYTES) if content is None else content
    where = shown(path)
    try:
        file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content))
        _check_size(file.metadata, where, what)
        table = file.read()
        _check_text(table, where, what)
        return table
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, (FormatError, LimitError)):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FormatError(f"{where}: not a Parquet table, as {what} is ({reason[:200]})") from error


def read_frame(path: str | os.PathLike[str], what: str, **options: Any) -> pandas.DataFrame:
    """A table of a public source by its suffix, .parquet or CSV; ``options`` of `pandas.read_csv`. Raises as
    `read_arrow`; a CSV file has at most 64 MiB.
    """
    import pandas

    if os.fspath(path).endswith(".parquet"):
        return _to_pandas(read_arrow(path, what), shown(path))
    content = read_file(path, what, LARGEST_CSV_BYTES)
    try:
        return pandas.read_csv(io.BytesIO(content), **options)
    except (ValueError, OverflowError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FormatError(f"{shown(path)}: not a table of commas, as {what} is ({reason[:200]})") from error


def _to_pandas(table: pyarrow.Table, where: str) -> pandas.DataFrame:
    import pyarrow

    try:
        return table.to_pandas()
    except (pyarrow.ArrowException, ValueError, TypeError) as error:
        raise FormatError(f"{where}: a column that pandas cannot hold ({str(error).splitlines()[0][:200]})") from error


def _check_size(stated: Any, where: str, what: str) -> None:
    groups = [stated.row_group(i) for i in range(min(stated.num_row_groups, MOST_ROWS))]
    rows, columns = max(stated.num_rows, sum(group.num_rows for group in groups)), stated.num_columns
    unpacked = sum(group.total_byte_size for group in groups)
    for count, most, unit in (
        (rows, MOST_ROWS, "rows"),
        (columns, MOST_COLUMNS, "columns"),
        (rows * columns, MOST_CELLS, "cells"),
        (unpacked, MOST_UNPACKED_BYTES, "bytes unpacked"),
    ):
        if count > most:
            raise LimitError(f"{where}: {count:,} {unit}; {what} has at most {most:,}")


def check_columns(schema: pyarrow.Schema, kinds: Mapping[str, str], where: str) -> None:
    """Raises FormatError for a column that ``kinds`` ("text", "int", "float", "bool" by name) does not have, one that
    occurs twice, and one of another type.
    """
    if unknown := sorted(set(schema.names) - set(kinds)):
        raise FormatError(f"{where}: unknown column {unknown[0][:60]!r}; docs/reference/records.md has those there are")
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise FormatError(f"{where}: two columns are called {twice[0]!r}")
    for name, found in zip(schema.names, schema.types, strict=True):
        if not _is_of(found, kinds[name]):
            raise FormatError(f"{where}: column {name!r} holds {found}; it is of {kinds[name]}")


def _is_of(found: pyarrow.DataType, kind: str) -> bool:
    from pyarrow import types

    if types.is_dictionary(found):
        found = found.value_type
    if types.is_null(found):
        return True
    if kind == "text":
        return bool(types.is_string(found) or types.is_large_string(found))
    if kind == "bool":
        return bool(types.is_boolean(found))
    return bool(types.is_integer(found) or (kind == "float" and types.is_floating(found)))


def _check_text(table: pyarrow.Table, where: str, what: str) -> None:
    """Rows that repeat one long text take little on the disk, and all of it in memory."""
    if table.nbytes > MOST_UNPACKED_BYTES:
        raise LimitError(f"{where}: {table.nbytes:,} bytes in memory; {what} has at most {MOST_UNPACKED_BYTES:,}")
