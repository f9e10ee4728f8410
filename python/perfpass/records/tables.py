"""Operator tables of the recorded models at any batch size and precision, from one small Parquet file.

Every size in a traced graph is affine in the batch size, so a table row is an intercept and a slope per column. Models
that run the same operators (one architecture under several weights' names) share one table.

Files (data/graphs): `vision_tables.parquet`, one row per table row, sorted by `table`; `vision_graphs.parquet`, one row
per (source, model, img_size) with its `table` and the statics of its graph. docs/reference/records.md is the schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.errors import ArgumentError, FileError, FormatError
from perfpass.graph.table import OperatorColumns
from perfpass.records.location import data_directory
from perfpass.records.parquet import read_frame

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 1
# Affine columns: count per execution, at 32 bits for floating tensors ("_16": the same at 16 bits).
AFFINE = [
    "macs",
    "flops",
    "bytes_read",
    "bytes_written",
    "bytes_read_16",
    "bytes_written_16",
    "input_elements",
    "output_elements",
    "b",
    "m",
    "n",
    "k",
]
FIXED = {
    "op": np.uint16,
    "op_class": np.uint8,
    "dtype": np.uint8,
    "view": np.uint8,
    "count": np.float64,
    "weight_bytes": np.int64,
    "weight_bytes_16": np.int64,
    "kernel_area": np.int32,
    "stride": np.int32,
    "groups": np.int32,
}
# Graph statics. Peaks are recorded at each of PEAK_BATCHES, because a peak is the largest of several affine sums.
STATICS = ["nodes", "edges", "kernels", "critical_path", "parameters", "input_elements_per_sample"]
PEAK_BATCHES = (1, 2, 8, 64, 512, 4096)


@dataclass(frozen=True, eq=False)
class RecordedTable(OperatorColumns):
    """The columns of an `OperatorTable` for one recorded model at one batch size, and its graph's statics."""

    statics: dict[str, float]


class RecordedTables:
    """Every recorded model's table, in memory (some 20 MB); `table` takes some 50 microseconds."""

    def __init__(self, rows: pandas.DataFrame, graphs: pandas.DataFrame) -> None:
        self._fixed = {name: rows[name].to_numpy(kind) for name, kind in FIXED.items()}
        self._base = np.stack([rows[name].to_numpy(np.int64) for name in AFFINE])
        self._slope = np.stack([rows[f"{name}_per_sample"].to_numpy(np.int64) for name in AFFINE])
        table = rows["table"].to_numpy()
        self._fixed["constant"] = (~self._slope.any(axis=0)).astype(np.uint8)
        self._first = np.searchsorted(table, np.arange(table[-1] + 2))
        self.graphs = graphs
        keys = zip(graphs.source, graphs.model, graphs.img_size, strict=True)
        self._row = {(s, m, int(z)): i for i, (s, m, z) in enumerate(keys)}
        self._table_of = graphs["table"].to_numpy()
        self._statics = graphs[STATICS].to_numpy(np.float64)
        self._peaks = {
            bits: np.stack(graphs[f"peak_activation_bytes_{bits}"].to_numpy()).astype(np.float64) for bits in (32, 16)
        }
        self._weights = {bits: graphs[f"weight_bytes_{bits}"].to_numpy(np.float64) for bits in (32, 16)}

    def __contains__(self, key: tuple[str, str, int]) -> bool:
        return key in self._row

    def table_id(self, source: str, model: str, img_size: int) -> int:
        """Models with equal operators share an id. Raises ArgumentError for a model that has no table."""
        return int(self._table_of[self._find(source, model, img_size)])

    def _find(self, source: str, model: str, img_size: int) -> int:
        row = self._row.get((source, model, int(img_size)))
        if row is None:
            raise ArgumentError(
                f"no operator table for {source} {model} at {img_size} px; docs/reference/records.md lists the losses"
            )
        return row

    def table(self, source: str, model: str, img_size: int, batch: int, bits: int = 32) -> RecordedTable:
        """The table at one batch size, floating tensors of ``bits`` (32, 16 or 8) bits.

        Bytes grow by equal steps with the width: those of 8 bits lie as far below those of 16 as half the step to 32.

        Raises ArgumentError for an unknown model, another width or a batch below 1.
        """
        if bits not in (8, 16, 32) or batch < 1:
            raise ArgumentError(f"bits must be 8, 16 or 32 and batch at least 1, got {bits} and {batch}")
        row = self._find(source, model, img_size)
        at = slice(*self._first[self._table_of[row] : self._table_of[row] + 2])
        values = dict(zip(AFFINE, self._base[:, at] + self._slope[:, at] * batch, strict=True))
        fixed = {name: column[at] for name, column in self._fixed.items()}
        for of, name in ((values, "bytes_read"), (values, "bytes_written"), (fixed, "weight_bytes")):
            wide, narrow = of[name], of.pop(f"{name}_16")
            of[name] = wide if bits == 32 else narrow if bits == 16 else narrow - (wide - narrow) // 2
        statics = dict(zip(STATICS, self._statics[row].tolist(), strict=True))
        # Between two recorded batch sizes a peak is convex and nearly affine; beyond the last it grows affinely.
        peaks, where = self._at_width(self._peaks, row, bits), np.asarray(PEAK_BATCHES, np.float64)
        i = int(np.clip(np.searchsorted(where, batch) - 1, 0, len(where) - 2))
        growth = (peaks[i + 1] - peaks[i]) / (where[i + 1] - where[i])
        statics["peak_activation_bytes"] = float(peaks[i] + growth * (batch - where[i]))
        statics["weight_bytes"] = float(self._at_width(self._weights, row, bits))
        return RecordedTable(**fixed, **values, statics=statics)

    @staticmethod
    def _at_width(of: dict[int, np.ndarray], row: int, bits: int) -> np.ndarray:
        found: np.ndarray = of[bits][row] if bits in of else 1.5 * of[16][row] - 0.5 * of[32][row]
        return found


def load(folder: Path | str | None = None, name: str = "vision") -> RecordedTables:
    """Read the tables ``name`` of data/graphs: "vision", "outside" (networks of outside training records), "networks".

    "networks" are those that records of kind ``network`` name: `perfpass.records.named.questions` has the keys.

    Raises FileError where they are missing and FormatError where columns are.
    """
    root = Path(folder) if folder else data_directory() / "graphs"
    parts = []
    for file in (f"{name}_tables.parquet", f"{name}_graphs.parquet"):
        if not (root / file).is_file():
            raise FileError(f"{root / file}: not found; run `python -m perfpass.records.build_{name}` to make it")
        parts.append(read_frame(root / file, "a table of recorded graphs"))
    try:
        return RecordedTables(*parts)
    except KeyError as error:
        raise FormatError(f"{root}: the tables lack the column {error}; make them anew with build_vision") from error
