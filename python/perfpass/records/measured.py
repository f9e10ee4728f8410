"""Our own measurements (`perfpass measure`) as one table: a row per configuration, facts of the machine beside it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass.declared import Anything, Number, Table
from perfpass.errors import FormatError
from perfpass.measure.configuration import Configuration
from perfpass.measure.journal import read
from perfpass.records.location import data_directory

if TYPE_CHECKING:
    import pandas

# Columns from the record's nested parts, by the name they get here.
_NESTED = {
    "latency_ms": ("latency_ms", "median"),
    "latency_p10_ms": ("latency_ms", "p10"),
    "latency_p90_ms": ("latency_ms", "p90"),
    "latency_p99_ms": ("latency_ms", "p99"),
    "allocated_peak_bytes": ("memory", "allocated_peak_bytes"),
    "reserved_peak_bytes": ("memory", "reserved_peak_bytes"),
    "device_used_peak_bytes": ("memory", "device_used_peak_bytes"),
    "process_device_bytes": ("memory", "process_device_bytes"),
    "host_peak_rss_bytes": ("memory", "host_peak_rss_bytes"),
    "host_opening_peak_rss_bytes": ("memory", "host_opening_peak_rss_bytes"),
    "host_whole_peak_rss_bytes": ("memory", "host_whole_peak_rss_bytes"),
    "host_baseline_rss_bytes": ("memory", "host_baseline_rss_bytes"),
    "energy_j": ("energy", "energy_j"),
    "power_w": ("energy", "power_w"),
    "energy_method": ("energy", "method"),
    "parameters": ("ran", "parameters"),
    "ran_image_size": ("ran", "image_size"),
    "ran_sequence_length": ("ran", "sequence_length"),
    "others_cpu_share": ("host", "cpu_share_of_others"),
    "stolen_cpu_share": ("host", "cpu_share_stolen"),
}
_PLAIN = (
    *("key", "environment", "campaign", "measured_at", "status", "message", "throughput_per_s", "iterations"),
    *("median_confidence_share", "first_ms", "drift_share", "outliers", "overhead_share", "elapsed_s"),
)
_FACTS = {
    "device_name": ("device", "name"),
    "catalogue_id": ("device", "catalogue_id"),
    "torch_version": ("software", "torch"),
    "onnxruntime_version": ("software", "onnxruntime"),
}

_WORK = Table(dict.fromkeys(("gemm", "copy"), Number(0, above=True)), ("gemm", "copy"), others=Anything())
_REFERENCE = Table({"before": _WORK, "after": _WORK}, ("before", "after"), others=Anything())


def journals() -> list[Path]:
    """The journals that the repository keeps, `data/records/measured/*/records.jsonl`. Raises FileError."""
    return sorted((data_directory() / "records" / "measured").glob("*/records.jsonl"))


def load(paths: Iterable[str | os.PathLike[str]] | None = None) -> pandas.DataFrame:
    """One row per record of ``paths`` (default `journals`), whatever its status.

    Columns: the configuration's fields, the record's own, and those of `_NESTED` and `_FACTS`; ``flags`` is a text
    with spaces between; ``gemm_slowdown`` and ``copy_slowdown`` are the times of the
    reference work (the slower of before and after) over their least in the same environment with the same threads, NaN
    where a record has none. A record
    that occurs in several journals (merged ones) is kept once. Raises FileError, FormatError.
    """
    import pandas

    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for path in journals() if paths is None else paths:
        contents = read(path)
        for record in contents.records:
            facts = contents.facts.get(record["environment"], {})
            row: dict[str, Any] = {
                field.name: record["configuration"].get(field.name) for field in fields(Configuration)
            }
            row |= {name: record.get(name) for name in _PLAIN}
            row |= {name: (record.get(outer) or {}).get(inner) for name, (outer, inner) in _NESTED.items()}
            row |= {name: facts.get(outer, {}).get(inner) for name, (outer, inner) in _FACTS.items()}
            row["reference_ms"] = reference = record.get("reference_ms")
            if reference is not None:
                _REFERENCE.check(reference, f"{path}: record {record['key']}", "reference_ms", FormatError)
            row["flags"] = " ".join(record.get("flags", ()))
            rows[record["key"], record["environment"], record.get("measured_at", "")] = row
    table = pandas.DataFrame(list(rows.values()))
    return table if table.empty else _with_slowdown(table)


def _with_slowdown(table: pandas.DataFrame) -> pandas.DataFrame:
    import pandas

    for name in ("gemm", "copy"):
        times = [max(r[name] for r in (ref["before"], ref["after"])) if ref else math.nan for ref in table.reference_ms]
        least = pandas.Series(times).groupby([table.environment, table.threads], dropna=False).transform("min")
        table[f"{name}_slowdown"] = times / least
    return table.drop(columns="reference_ms")
