"""The rows with what was counted of them, as one Parquet file."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.evidence.build.graphs import Graphs
from perfpass.evidence.build.language import Language
from perfpass.evidence.build.rows import everything
from perfpass.evidence.table import COLUMNS, COUNTED, FIGURES, METADATA_KEY, NUMBERS, SCHEMA_VERSION, TEXTS
from perfpass.predictors.relative import work
from perfpass.whole_file import replacing

if TYPE_CHECKING:
    import pandas


def build(path: str | os.PathLike[str], folder: Path | None = None) -> Path:
    """Write the table of all records below ``folder`` (default: data) to ``path``, and print what is not counted."""
    import pyarrow
    import pyarrow.parquet

    rows = everything(folder)
    graphs, language = Graphs(), Language()
    counted = np.full((len(rows), len(COUNTED)), np.nan)
    prints = [b""] * len(rows)
    for i, row in enumerate(rows.itertuples(index=False)):
        if row.kind in ("inference", "step"):
            if (graph := graphs.of(row)) is not None:
                known = {"macs": graph.macs, "parameters": graph.parameters, "run_ms": graph.run_ms}
                counted[i] = [{**known, "held_bytes": graph.held_bytes}.get(name, np.nan) for name in COUNTED]
                prints[i] = graph.fingerprint
        elif row.kind in ("serving", "generation") and (model := language.of(row)) is not None:
            known = {"parameters": model.parameters, "active_parameters": model.active_parameters, **model.work}
            counted[i] = [known.get(name, np.nan) for name in COUNTED]
    print_summary(rows, counted, {**graphs.failures, **language.failures})
    columns: dict[str, pyarrow.Array] = {
        name: pyarrow.array(rows[name].to_numpy(object), pyarrow.string()).dictionary_encode() for name in TEXTS
    }
    for name in (*NUMBERS, *FIGURES):
        columns[name] = pyarrow.array(rows[name].to_numpy(np.float64))
    for i, name in enumerate(COUNTED):
        columns[name] = pyarrow.array(counted[:, i].astype(np.float32))
    columns["fingerprint"] = pyarrow.array(prints, pyarrow.binary()).dictionary_encode()
    note = json.dumps({"schema_version": SCHEMA_VERSION, "work_version": work.VERSION}).encode()
    table = pyarrow.table({name: columns[name] for name in COLUMNS}).replace_schema_metadata({METADATA_KEY: note})
    target = Path(path)
    with replacing(target) as file:
        pyarrow.parquet.write_table(table, file, compression="zstd", compression_level=19)
    print(f"{target.name}: {len(rows):,} records, {target.stat().st_size:,} bytes")
    return target


def print_summary(rows: pandas.DataFrame, counted: np.ndarray, failures: dict[str, int]) -> None:
    """How many rows of each kind and source are counted, and why others are not."""
    import pandas

    known = pandas.Series(np.isfinite(counted[:, COUNTED.index("run_ms")]), index=rows.index)
    for (kind, source), part in known.groupby([rows.kind, rows.source]):
        print(f"{kind:<11} {source:<22} {len(part):>7,} records, {int(part.sum()):>7,} counted")
    for reason, count in sorted(failures.items(), key=lambda item: -item[1])[:60]:
        print(f"    {count:>6,}  {reason}", file=sys.stderr)
