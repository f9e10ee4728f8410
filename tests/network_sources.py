"""Tables as sources of records of whole networks deliver them, written for tests."""

from __future__ import annotations

import pandas

from perfpass.records import networks

NONE = float("nan")


def written(root, path, **columns):
    """A source's table of the given columns, as CSV or Parquet."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    table = pandas.DataFrame(columns)
    table.to_parquet(file) if path.endswith("parquet") else table.to_csv(file, index=False)
    return root


def rows_of(reading):
    return reading.tables[networks.KIND].reset_index(drop=True)
