"""HELP (NeurIPS 2021): latency of every NAS-Bench-201 cell and of 5,000 FBNet networks on fourteen devices."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.records.nas_graphs import connected
from perfpass.records.schema import Reading
from perfpass.records.sources import add_caveat, table_of

FOLDER = "help"
_WHOLE_MS = ("Google Pixel 2", "Essential PH-1", "Samsung Galaxy S7", "Samsung Galaxy A50")
_FRAMEWORK = {"gpu": "torch", "cpu": "torch"}


def read(shared: Path) -> Reading:
    """Every latency as a record of kind ``nas``; ``architecture`` holds the operators, comma-separated.

    Cells without a path from input to output are refused for every device (H2: a runtime may leave them out whole).
    Phones with whole milliseconds (H1) and the FPGA generator's values (H3) have a caveat.
    """
    reading = Reading("help")
    table = table_of(shared, FOLDER, "latency.parquet")
    cells = {text: connected(tuple(text.split(","))) for text in table.ops[table.space == "nasbench201"].unique()}
    good = (table.space != "nasbench201") | table.ops.map(cells).fillna(False).astype(bool)
    table = reading.keep(table, good, "a cell without a path from its input to its output")
    rows = table.assign(
        licence="MIT",
        run=table.source_device,
        n_devices=1,
        runtime=table.device_kind.map(_FRAMEWORK).fillna(""),
        precision=np.where(table.device_kind.isin(list(_FRAMEWORK)), "fp32", ""),
        mode="inference",
        batch=table.batch_size,
        timing="unknown",
        model=table.arch_index.astype(str),
        architecture=table.ops,
        caveats="software_not_stated",
    )
    rows["caveats"] = add_caveat(rows.caveats, rows.device.isin(_WHOLE_MS).to_numpy(), "whole_milliseconds")
    rows["caveats"] = add_caveat(rows.caveats, (rows.device == "FPGA").to_numpy(), "from_a_generator")
    columns = (
        *("licence", "run", "device", "n_devices", "runtime", "precision", "mode", "batch", "timing", "caveats"),
        *("latency_ms", "space", "model", "architecture"),
    )
    reading.add("nas", rows[list(columns)])
    return reading
