"""PyTorch operators in fp32 on eight GPUs from P4 to H100, as NeuSight measured them.

283,848 rows. All of the source's test shapes (those of transformer models) stay, of its random training shapes a fixed
sample. Rules: docs/reference/records.md, "Kernels".
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.bounded_file import exists
from perfpass.errors import FileError
from perfpass.records.build.sampling import NOT_SAMPLED, rounded, row_hash
from perfpass.records.parquet import read_frame
from perfpass.records.schema import Reading

LICENCE = "MIT"
TIMING = "mean of the fastest 5 of 25, CUDA events, warm caches"
# Sizes of each operator in the order of `dimensions`; every operator that is not named takes (b, h).
DIMENSIONS = {
    "bmm": ("b", "m", "n", "k"),
    "linear": ("b", "m", "n", "k"),
    "conv": ("b", "in_channels", "out_channels", "kernel_size", "input_size", "stride", "padding"),
}
VECTOR = ("b", "h")
# Training rows that stay, of each operator on all devices together.
KEPT = {"bmm": 8_000, "linear": 6_000, "conv": 5_000}
KEPT_VECTOR = 500


def read(shared: Path) -> Reading:
    """All test rows and a sample of the training rows. Raises FileError for a missing table."""
    path = Path(shared) / "neusight" / "operators.parquet"
    if not exists(path):
        raise FileError(f"{path}: not found; the folder of sources holds neusight/operators.parquet")
    reading = Reading("neusight")
    raw = read_frame(path, "a table of NeuSight")
    for operator in sorted(raw["op"].unique()):
        sizes = DIMENSIONS.get(operator, VECTOR)
        rows = raw[raw["op"] == operator]
        good = (rows["latency_ms"] > 0) & rows[list(sizes)].notna().all(axis=1)
        rows = reading.keep(rows, good, "no positive latency, or a size is missing")
        whole = rows[list(sizes)].astype(int).astype(str)
        rows = rows.assign(dimensions=whole.iloc[:, 0].str.cat(whole.iloc[:, 1:], sep=","))
        groups = rows.groupby(["device", "split", "dimensions", "torch_version", "cuda_version"], sort=True)
        kept = groups["latency_ms"].median().reset_index()
        if len(kept) < len(rows):
            reading.refused["repeats a measurement, whose median is kept"] += len(rows) - len(kept)
        train = np.flatnonzero(kept["split"] == "train")
        order = np.argsort(row_hash(kept.iloc[train], ("device", "dimensions")), kind="stable")
        stay = np.concatenate(
            [np.flatnonzero(kept["split"] != "train"), train[order[: KEPT.get(operator, KEPT_VECTOR)]]]
        )
        reading.refused[NOT_SAMPLED] += len(kept) - len(stay)
        kept = kept.iloc[np.sort(stay)]
        reading.add(
            "operator",
            kept.assign(
                licence=LICENCE,
                run="operators.parquet",
                n_devices=1,
                runtime="torch",
                runtime_version=kept["torch_version"],
                precision="fp32",
                mode="kernel",
                timing=TIMING,
                operator=operator,
                latency_ms=rounded(kept["latency_ms"].to_numpy()),
            ).drop(columns="torch_version"),
        )
    return reading
