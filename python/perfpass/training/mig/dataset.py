"""The MIG records with the work of each row: `perfpass.predictors.mig.latency.Work`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.devices import device
from perfpass.measure.configuration import Configuration
from perfpass.predictors.assemble import run_of
from perfpass.predictors.mig.latency import Work, work_of
from perfpass.predictors.way import Way
from perfpass.records import own_device, schema, tables
from perfpass.records.location import data_directory

LANGUAGE_MODEL = "bert-large"
# BERT-large reaches 59 TFLOP/s in the whole GPU, three times its fp32 rate: its products used TF32.
TOKENS = 128
# The source feeds every network 224 pixels (its batches have one shape), Inception too as far as it says.
_PIXELS = 224


@dataclass(frozen=True, eq=False)
class Dataset:
    """N rows that ran: the records, the ``work`` and ``latency_s`` [N] of each. ``refused``: rows that did not run."""

    rows: Any
    work: Work
    latency_s: np.ndarray
    refused: int

    @property
    def model(self) -> np.ndarray:
        """[N] names."""
        return np.asarray(self.rows.model.to_numpy(), dtype=str)


def load(folder: Path | str | None = None) -> Dataset:
    """The rows of `data/records/mig.parquet` that ran. Raises FileError, FormatError."""
    root = Path(folder) if folder else data_directory()
    table = schema.read(root / "records" / "mig.parquet", "mig")
    rows = table[table.fits].reset_index(drop=True)
    parts = [work_of(table, way, int(row.processes)) for row, table, way in counted(rows, folder)]
    return Dataset(rows, Work.stacked(parts), rows.latency_ms.to_numpy() * 1e-3, int((~table.fits).sum()))


def questions(folder: Path | str | None = None) -> Iterator[tuple[Any, Any, Way]]:
    """Every row that ran, its operator table and how it ran. Raises FileError, FormatError."""
    root = Path(folder) if folder else data_directory()
    table = schema.read(root / "records" / "mig.parquet", "mig")
    return counted(table[table.fits], folder)


def counted(rows: Any, folder: Path | str | None) -> Iterator[tuple[Any, Any, Way]]:
    """Rows of the records, the operator table of each and how it ran. Raises FileError, FormatError."""
    root = Path(folder) if folder else data_directory()
    known = tables.load(root / "graphs" if folder else None)
    seen: dict[tuple[str, int], Any] = {}
    for row in rows.itertuples():
        key = (row.model, int(row.batch))
        if key not in seen:
            seen[key] = _table(known, row.model, int(row.batch), row.device)
        slice_ = device(f"{row.device}:{row.mig_profile}")
        language = row.model == LANGUAGE_MODEL
        copied = row.batch * (TOKENS * 8 if language else 3 * _PIXELS * _PIXELS * 4)
        if language:  # a slice whose fp32 products run at the TF32 rate
            rates = {**slice_.peak_flops, "fp32": slice_.peak_flops["tf32"]}
            slice_ = replace(slice_, peak_flops=rates)
        yield row, seen[key], Way(slice_, copied_bytes=copied)


def _table(known: tables.RecordedTables, model: str, batch: int, name: str) -> Any:
    """The operator table of a network at a batch size: recorded, or traced without weights."""
    if ("torchvision", model, _PIXELS) in known:
        return known.table("torchvision", model, _PIXELS, batch, 32)
    if model == LANGUAGE_MODEL:
        asked = Configuration(model=f"hf:{model}", batch=batch, sequence_length=TOKENS, device="cuda")
    else:
        asked = Configuration(model=f"torchvision:{model}", batch=batch, image_size=_PIXELS, device="cuda")
    return run_of(own_device.graph_of(asked), device(name), batch=batch).table
