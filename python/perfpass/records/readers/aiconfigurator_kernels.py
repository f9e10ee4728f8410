"""Kernels of LLM serving stacks as aiconfigurator collected them: matrix products, attention, experts, collectives.

7 to 9 million rows on grids of shapes. `read` checks all of them, refuses what cannot be trusted, marks what needs
care, and keeps a sample that is the same on every machine. The rules and what stays:
docs/reference/records.md, "Kernels".
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.bounded_file import exists
from perfpass.devices import device as find_device
from perfpass.errors import FileError
from perfpass.records.build.sampling import NOT_SAMPLED, rounded, row_hash
from perfpass.records.parquet import read_frame
from perfpass.records.schema import Reading

if TYPE_CHECKING:
    import pandas

SOURCE = "aiconfigurator"
LICENCE = "Apache-2.0"
TIMING = "kernel back to back in a CUDA graph, CUDA events"
# Of each collection (device, stack and version of one operator) so large a share above what the device can do refuses
# it whole: its other rows were measured by the same program. Collections below it have at most 3.2 % of such rows.
DOUBTFUL_SHARE = 0.05
# Products this small take under 20 us in every stack that launches from a graph; a collection whose fastest tenth of
# them takes longer than this timed the host that issued them.
HOST_BOUND_MS = 0.04


@dataclass(frozen=True)
class Table:
    """One table of the source: its file, the kind of record, the columns that make a shape, how many rows stay."""

    file: str
    kind: str
    shape: tuple[str, ...]
    kept_rows: int
    mode: str = "kernel"


_ATTENTION = ("batch", "query_tokens", "context_tokens", "heads", "kv_heads", "head_dim", "window")
TABLES: tuple[Table, ...] = (
    Table("gemm.parquet", "gemm", ("m", "n", "k"), 150_000),
    Table("context_attention.parquet", "attention", _ATTENTION, 80_000, "prefill"),
    Table("generation_attention.parquet", "attention", _ATTENTION, 80_000, "decode"),
    Table(
        "moe.parquet",
        "moe",
        (
            *("tokens", "hidden", "intermediate", "experts", "active_experts"),
            *("moe_tensor_parallel", "moe_expert_parallel", "distribution"),
        ),
        80_000,
    ),
    Table("collectives.csv", "collective", ("operation", "n_devices", "elements"), 20_000),
)
# What names one piece of software on one device; with the shape it names a measurement.
COLLECTION = ("device", "runtime", "runtime_version", "kernel", "precision", "kv_precision")
_RENAMED = {
    "stack": "runtime",
    "kernel_source": "kernel",
    "gemm_dtype": "precision",
    "attn_dtype": "precision",
    "kv_cache_dtype": "kv_precision",
    "moe_dtype": "precision",
    "dtype": "precision",
    "num_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "window_size": "window",
    "batch_size": "batch",
    "num_experts": "experts",
    "topk": "active_experts",
    "hidden_size": "hidden",
    "inter_size": "intermediate",
    "moe_tp_size": "moe_tensor_parallel",
    "moe_ep_size": "moe_expert_parallel",
    "num_tokens": "tokens",
    "op_name": "operation",
    "num_gpus": "n_devices",
    "message_size": "elements",
}
_PRECISIONS = {"bfloat16": "bf16", "half": "fp16", "sq": "int8", "nvfp4": "fp4"}


def read(shared: Path) -> Reading:
    """The sample that the repository keeps, with the refusals of all rows. Raises FileError for a missing table."""
    reading = Reading(SOURCE)
    for table in TABLES:
        good = trusted(shared, table, reading)
        kept = sample(good, table)
        reading.refused[NOT_SAMPLED] += len(good) - len(kept)
        reading.add(table.kind, kept)
    return reading


def trusted(shared: Path, table: Table, reading: Reading) -> pandas.DataFrame:
    """All rows of one table that can be trusted, in the columns of the schema; refusals are counted in ``reading``."""
    rows = _canonical(_raw(shared, table), table)
    sizes = [name for name in table.shape if rows[name].dtype.kind in "iuf" and name != "window"]
    rows = reading.keep(rows, (rows["latency_ms"] > 0) & (rows[sizes] > 0).all(axis=1), "no positive latency or size")
    if "above_physical_bound" in rows:
        folder = [rows[name] for name in ("device", "runtime", "stack")]
        share = rows["above_physical_bound"].groupby(folder).transform("mean")
        reason = f"collection with over {DOUBTFUL_SHARE:.0%} of its rows above a physical bound"
        rows = reading.keep(rows, share <= DOUBTFUL_SHARE, reason)
        rows = reading.keep(rows, ~rows["above_physical_bound"], "above a physical bound")
    identity = [name for name in (*COLLECTION, *table.shape) if name in rows]
    rows = reading.keep(rows, ~rows.duplicated([*identity, "latency_ms"]), "copied from another folder, or repeated")
    rows = rows.assign(caveats=_caveats(rows, table))
    groups = rows.groupby(identity, sort=True, observed=True)
    metrics = [name for name in ("latency_ms", "power_w", "power_limit_w") if name in rows]
    kept = groups[metrics].median()
    kept["caveats"], kept["stack"], kept["run"] = (groups[name].first() for name in ("caveats", "stack", "run"))
    if len(kept) < len(rows):
        reading.refused["repeats a measurement, whose median is kept"] += len(rows) - len(kept)
    kept = kept.reset_index()
    for name in ("latency_ms", "power_w"):
        if name in kept:
            kept[name] = rounded(kept[name].to_numpy())
    return kept.assign(licence=LICENCE, mode=table.mode, timing=TIMING)


def _raw(shared: Path, table: Table) -> pandas.DataFrame:
    path = Path(shared) / "aiconfigurator" / table.file
    if not exists(path):
        raise FileError(f"{path}: not found; the folder of sources holds aiconfigurator/{table.file}")
    return read_frame(path, "a table of aiconfigurator")


def _canonical(raw: pandas.DataFrame, table: Table) -> pandas.DataFrame:
    rows = raw.rename(columns=_RENAMED)
    for name in ("precision", "kv_precision"):
        if name in rows:
            rows[name] = rows[name].replace(_PRECISIONS)
    rows["device"] = rows["device"].map({name: find_device(name).id for name in rows["device"].unique()})
    if "library" in rows:
        rows["kernel"] = rows["kernel"].fillna(rows["library"])
        rows["operation"] = rows["operation"].replace({"alltoall": "all_to_all"})
    else:
        rows["n_devices"] = 1
    folder = rows["stack_version"].astype(str)
    rows["runtime_version"] = rows["version"].where(rows["version"].notna(), folder).astype(str)
    rows["stack"] = rows["runtime"] + " " + folder
    rows["run"] = table.file
    if table.kind == "attention":
        # A prefill row attends to its own tokens alone (step is 0 throughout), a decode row to its cache and itself.
        rows["query_tokens"] = rows["isl"]
        rows["context_tokens"] = rows["isl"] + rows["step"]
        rows["window"] = rows["window"].fillna(0).astype(np.int64)
    wanted = {*COLLECTION, *table.shape, "latency_ms", "power_w", "power_limit_w", "above_physical_bound", "n_devices"}
    return rows[[n for n in rows.columns if n in wanted or n in ("stack", "run")]]


def _caveats(rows: pandas.DataFrame, table: Table) -> np.ndarray:
    """[N] comma-separated doubts of each row."""
    import pandas

    marks = {"version differs from its folder": (rows["stack"] != rows["runtime"] + " " + rows["runtime_version"])}
    if "power_w" in rows:
        marks["power above its limit"] = rows["power_w"] > rows["power_limit_w"]
    if table.kind == "collective":
        without = [name for name in rows["device"].unique() if find_device(name).nvlink_bandwidth_bytes_s == 0]
        marks["no NVLink"] = rows["device"].isin(without)
    if table.kind == "gemm":
        names = [name for name in COLLECTION if name in rows]
        small = rows[(rows["m"] <= 32) & (rows["n"] * rows["k"] <= 1 << 18)]
        fastest = small.groupby(names, observed=True)["latency_ms"].quantile(0.1)
        slow = fastest.index[fastest > HOST_BOUND_MS]
        marks["issued by the host"] = pandas.Series(
            pandas.MultiIndex.from_frame(rows[names]).isin(slow), index=rows.index
        )
    out = np.full(len(rows), "", dtype=object)
    for text, mask in marks.items():
        found = mask.to_numpy()
        out[found] = [f"{old}, {text}" if old else text for old in out[found]]
    return out


def sample(rows: pandas.DataFrame, table: Table) -> pandas.DataFrame:
    """A share of the rows of every collection and range of sizes, chosen by a hash of what the row is.

    Strata are the collection and one bit per size (above its median). Of each the rows of least hash stay, in
    proportion to the stratum, and at least one.
    """
    if len(rows) <= table.kept_rows:
        return rows
    collection = [name for name in COLLECTION if name in rows]
    strata = rows.groupby(collection, observed=True, sort=True).ngroup().to_numpy()
    for name in table.shape:
        values = rows[name].to_numpy()
        if values.dtype.kind in "iuf":
            strata = strata * 2 + (values > np.median(values))
    order = np.lexsort((row_hash(rows, (*collection, *table.shape)), strata))
    ordered = strata[order]
    first = np.concatenate([[0], np.flatnonzero(np.diff(ordered)) + 1])
    size = np.diff(np.append(first, len(ordered)))
    rank = np.arange(len(ordered)) - np.repeat(first, size)
    quota = np.maximum(np.round(size * (table.kept_rows / len(rows))), 1)
    return rows.iloc[np.sort(order[rank < np.repeat(quota, size)])].reset_index(drop=True)
