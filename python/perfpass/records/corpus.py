"""All readers of public measurements, run over a folder of sources: what was accepted, what was refused and why."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass.errors import ArgumentError, FileError
from perfpass.records import readers, schema

if TYPE_CHECKING:
    from perfpass.records.schema import Reading


def reader_names() -> list[str]:
    """Modules of `perfpass.records.readers`, by name."""
    return sorted(m.name for m in pkgutil.iter_modules(readers.__path__))


def read(shared: Path | str, names: Iterable[str] | None = None) -> Iterator[tuple[str, Reading]]:
    """Run readers (default: all) over the folder ``shared``, one after the other.

    Raises ArgumentError for an unknown reader, FileError where the folder or a table of it is missing.
    """
    root = Path(shared)
    if not root.is_dir():
        raise FileError(f"{root}: no such folder; give the folder that holds the sources' folders")
    chosen = list(names or reader_names())
    unknown = sorted(set(chosen) - set(reader_names()))
    if unknown:
        raise ArgumentError(f"no reader {', '.join(unknown)}; allowed are {', '.join(reader_names())}")
    for name in chosen:
        read_source: Callable[[Path], Reading] = import_module(f"{readers.__name__}.{name}").read
        yield name, read_source(root)


def summary(reading: Reading) -> dict[str, Any]:
    """Counts of a reading: rows, devices, metrics and caveats by kind, and refused rows by reason. Strict JSON."""
    metrics = [c.name for c in schema.METRICS]
    kinds = {}
    for kind, table in reading.tables.items():
        caveats = table.caveats[table.caveats != ""].str.split(",").explode().str.strip()
        kinds[kind] = {
            "rows": len(table),
            "devices": int(table.device.nunique()),
            "metrics": {m: int(table[m].notna().sum()) for m in metrics if m in table.columns and m != "n_samples"},
            "caveats": {str(k): int(v) for k, v in caveats.value_counts().items()},
        }
    return {"source": reading.source, "kinds": kinds, "refused": dict(reading.refused.most_common())}


def text(name: str, found: dict[str, Any]) -> str:
    """`summary` for people."""
    out = []
    for kind, counts in found["kinds"].items():
        metrics = ", ".join(f"{m} {n:,}" for m, n in counts["metrics"].items())
        out.append(f"{name}: {counts['rows']:,} records of kind {kind} on {counts['devices']} devices ({metrics})")
        out += [f"    caveat  {n:>9,}  {reason}" for reason, n in counts["caveats"].items()]
    out += [f"    refused {n:>9,}  {reason}" for reason, n in found["refused"].items()]
    return "\n".join(out) or f"{name}: no records"


def described() -> str:
    """The schema as Markdown tables, as docs/reference/records.md shows it."""
    out: list[str] = []
    parts = [("Columns of every table", schema.COMMON), ("Metrics", schema.METRICS)]
    parts += [(f"Workload of kind `{kind}`", columns) for kind, columns in schema.WORKLOADS.items()]
    for title, columns in parts:
        out += [f"**{title}**", "", "| column | type | meaning |", "|---|---|---|"]
        out += [f"| {c.name} | {c.type} | {c.meaning} |" for c in columns]
        out.append("")
    return "\n".join(out).rstrip()
