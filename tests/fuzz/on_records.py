"""Records: journals of measurements and of the comparison, and Parquet tables."""

from __future__ import annotations

import io
import json
from functools import cache
from typing import Any

import perfpass
from perfpass.measure import journal
from perfpass.measure.configuration import Configuration
from perfpass.records import measured, own_device, schema
from perfpass.study import table

from .documents import Binary, Json, JsonLines
from .mutations import as_json, places
from .oracle import Violation, figures, naming
from .target import Target, file, folder

_FACTS = {
    "kind": "facts", "schema": 1, "id": "57b3c85e399eef5581f1", "host": {"cpu": "AMD EPYC", "logical_cpus": 2},
    "software": {"torch": "2.13.0", "onnxruntime": "1.31.1"}, "idle_power_w": None,
    "device": {"kind": "gpu", "name": "H100", "catalogue_id": "h100-sxm5-80gb"},
}  # fmt: skip


def _record(batch: int, latency_ms: float, **more: Any) -> dict[str, Any]:
    configuration = Configuration(model="timm:resnet18", batch=batch, device="cuda")
    return {
        "kind": "record", "schema": 1, "campaign": "repeats", "key": configuration.key,
        "environment": _FACTS["id"], "configuration": configuration.to_dict(),
        "measured_at": "2026-11-21T14:00:32+00:00", "status": "ok",
        "latency_ms": {"p10": latency_ms * 0.9, "median": latency_ms, "p90": latency_ms * 1.1, "p99": latency_ms * 1.2},
        "iterations": 36, "memory": {"allocated_peak_bytes": 4096}, "energy": {"energy_j": 1.5, "method": "nvml"},
        "ran": {"parameters": 11_689_512, "image_size": 224}, "host": {"cpu_share_of_others": 0.01}, "flags": ["drift"],
        "reference_ms": {"before": {"gemm": 1.0, "copy": 2.0}, "after": {"gemm": 1.1, "copy": 2.1}}, **more,
    }  # fmt: skip


@cache
def _journal_seeds() -> tuple[bytes, ...]:
    failed = {
        "kind": "record", "schema": 1, "key": "0" * 20, "environment": _FACTS["id"], "status": "failed",
        "configuration": {"model": "hf:bert-tiny", "mode": "training"}, "measured_at": "2026-11-21T14:00:32+00:00",
        "message": "no",
    }  # fmt: skip
    rows = [_FACTS, _record(1, 2.5), _record(8, 16.0), failed]
    whole = b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)
    return (whole, whole[:-40])


def _journal(data: bytes) -> None:
    """A journal of measurements: read, opened to be gone on with, learned from, and made a table."""
    path = file("records.jsonl", data)
    with naming(path):
        before = journal.read(path)
    journal.known(before)
    with naming(path), journal.Journal(path) as opened:
        opened.append("record", _record(2, 3.0))
    after = journal.read(path)
    if after.records[:-1] != before.records or after.facts != before.facts or after.torn_bytes:
        raise Violation("a journal that lost or doubled a record")
    path.write_bytes(data)
    with naming(path):
        learned = own_device.read(path, perfpass.device("h100"))
    stated = {float(v) for c, k in places(before.records)
              if isinstance(v := c[k], (int, float)) and not isinstance(v, bool)}  # fmt: skip
    for row in learned.rows:
        if row.latency_ms not in stated:
            raise Violation("a latency that the journal does not state", str(row.latency_ms))
    with naming(path):
        measured.load([path])


def _tables(data: bytes) -> None:
    """The comparison's journal: what is damaged in it is passed over."""
    path = file("journal.jsonl", data)
    with naming(path):
        found = table.Journal(path).entries()
    for cell, entry in found.items():
        if not isinstance(entry, dict):
            raise Violation("an entry that is none")
        if not all(isinstance(part, str) for part in (cell.predictor, cell.task, cell.split)):
            raise Violation("a cell without a name", str(cell))


def _predictions(data: bytes) -> None:
    """The arrays beside the comparison's journal; damaged ones are as good as none."""
    (folder() / "kept.jsonl.predictions").mkdir(exist_ok=True)
    cell = table.Cell("trees", "latency", "random")
    (folder() / "kept.jsonl.predictions" / f"{cell.name}.npz").write_bytes(data)
    found = table.Journal(folder() / "kept.jsonl").predictions(cell)
    if found is not None:
        sum(len(values) for values in found.values())


def _arrays() -> list[bytes]:
    import numpy as np

    out = io.BytesIO()
    np.savez(out, valid=np.arange(4.0), test=np.arange(3.0))
    return [out.getvalue()]


_COLUMNS: dict[str, list[Any]] = {
    "source": ["timm", "timm"], "device": ["h100-sxm5-80gb", "h100-sxm5-80gb"], "mig_profile": ["", ""],
    "mode": ["inference", "inference"], "batch": [1, 8], "precision": ["fp32", "amp"], "runtime": ["torch", "torch"],
    "n_devices": [1, 1], "model": ["resnet18", "resnet50"], "architecture": ["a", "b"], "family": ["resnet", "resnet"],
    "img_size": [224, 224], "layout": ["nchw", "nhwc"], "optimizer": ["", ""], "listed": [True, True],
    "latency_ms": [2.5, 9.0],
}  # fmt: skip


def _parquet(content: Any) -> bytes:
    import pyarrow
    import pyarrow.parquet

    arrow = pyarrow.table(content["columns"])
    metadata = {str(k): json.dumps(v) for k, v in content["metadata"].items()}
    out = io.BytesIO()
    pyarrow.parquet.write_table(arrow.replace_schema_metadata(metadata), out, compression="zstd")
    return out.getvalue()


def _admitted(data: bytes) -> None:
    """A Parquet table of any columns and metadata."""
    try:
        parquet = _parquet(json.loads(data))
    except Exception:
        return  # no table can be made of it
    _read_table(parquet)


def _read_table(data: bytes) -> None:
    """A Parquet table of records: latencies above 0, or an error that names the file."""
    path = file("records.parquet", data)
    with naming(path):
        schema.read(path, "vision")
    with naming(path):
        learned = own_device.read(path, perfpass.device("h100"))
    figures([row.latency_ms for row in learned.rows])


_CONTENT = {"metadata": {"perfpass": {"schema_version": 2, "kind": "vision"}}, "columns": _COLUMNS}
_CELL = {
    "predictor": "trees",
    "task": "latency",
    "split": "random",
    "seed": 0,
    "rows_digest": "0" * 16,
    "mape_pct": 9.5,
}


def _p(*names: str) -> tuple[str, ...]:
    return tuple(f"python/perfpass/{name}" for name in names)


TARGETS = (
    Target(
        "journal",
        _journal,
        _journal_seeds,
        JsonLines(
            ("kind", "schema", "id", "key", "environment", "status", "configuration", "latency_ms", "median", "device"),
            ("facts", "record", "ok", "failed", "out_of_memory", "h100-sxm5-80gb", "cuda", 2.5),
        ),
        _p("measure/journal.py", "records/own_device.py", "records/measured.py", "measure/configuration.py"),
    ),
    Target(
        "comparison-journal",
        _tables,
        lambda: [json.dumps(_CELL).encode() + b"\n" + json.dumps({**_CELL, "seed": 1}).encode() + b"\n"],
        JsonLines(tuple(_CELL)),
        (),
    ),
    Target("comparison-predictions", _predictions, _arrays, Binary(), ()),
    Target(
        "records-table",
        _admitted,
        lambda: [as_json(_CONTENT)],
        Json(tuple(c.name for c in schema.columns_of("vision")), ("vision", "mig", 2, -1, "training")),
        _p("records/schema.py", "records/own_device.py"),
    ),
    Target(
        "records-file",
        _read_table,
        lambda: [_parquet(_CONTENT)],
        Binary(),
        _p("records/schema.py", "records/own_device.py"),
    ),
)
