"""What a device reaches on single operators: peak compute per precision, bandwidth by footprint, GEMM and convolution.

`characterise` measures the points of a sweep into a journal (perfpass.measure.journal, one record per operator) and
`summarise` makes of it what docs/internals/roofline.md describes. Torch only; the compiled core is not needed.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perfpass.bounded_file import reason
from perfpass.errors import ArgumentError, FileError
from perfpass.measure.bench import PROTOCOLS, Bench
from perfpass.measure.configuration import digest
from perfpass.measure.journal import Contents, Journal, known, read
from perfpass.measure.operators import Operator, from_dict
from perfpass.measure.sweeps import sweep
from perfpass.measure.timing import significant
from perfpass.whole_file import write_whole

JOURNAL = "operators.jsonl"
SUMMARY = "roofline.json"
FIGURE = "roofline.svg"
TABLE = "roofline.md"
SUMMARY_SCHEMA = 1

# The bandwidth of memory is that of footprints from here on, in multiples of the last-level cache.
_OUT_OF_CACHE = 4


@dataclass(frozen=True)
class Outcome:
    """What a run did: how many points it measured, by status, and how many it found in the journal."""

    path: Path
    measured: dict[str, int]
    skipped: int
    elapsed_s: float


def characterise(
    device: str,
    output: str | os.PathLike[str],
    *,
    quick: bool = False,
    threads: int | None = None,
    operators: Iterable[Operator] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Outcome:
    """Measures what of the sweep (or of ``operators``) is not yet in ``output``/operators.jsonl, and appends it there.

    A killed run loses at most the operator in flight; the next one goes on behind it. Raises ArgumentError,
    UnsupportedError (no such device here), FileError and FormatError (see `Journal`).
    """
    protocol = "quick" if quick else "full"
    bench = Bench(device, threads)
    started = time.monotonic()
    try:
        wanted = list(dict.fromkeys(sweep(bench.kind, quick) if operators is None else operators))
        with Journal(Path(output) / JOURNAL) as journal:
            done = known(journal.contents)
            environment = bench.facts["id"]
            keys = {operator: digest(operator.to_dict() | {"protocol": protocol}) for operator in wanted}
            left = [operator for operator in wanted if (keys[operator], environment) not in done]
            if left and environment not in journal.contents.facts:
                journal.append("facts", bench.facts | {"protocol": {name: asdict(p) for name, p in PROTOCOLS.items()}})
            counts: dict[str, int] = {}
            for number, operator in enumerate(left, 1):
                record = bench.measure(operator, protocol)
                journal.append("record", record)
                counts[record["status"]] = counts.get(record["status"], 0) + 1
                if progress is not None:
                    progress(number, len(left))
    finally:
        bench.close()
    return Outcome(journal.path, counts, len(wanted) - len(left), time.monotonic() - started)


def summarise(contents: Contents | str | os.PathLike[str], environment: str | None = None) -> dict[str, Any]:
    """Peaks, bandwidths, ridge points and all points of one environment (the last one measured if None).

    The peak of a precision is the fastest GEMM or convolution whose FLOPs are counted exactly (`Operator.exact`): the
    two come from different libraries, of which either may be the faster. Memory bandwidth is the better of copy and
    triad beyond four times the last-level cache (or at the largest footprints there are), cache
    bandwidth the best at any footprint. A ridge point is peak over bandwidth, in FLOP/byte. Of an operator measured
    twice the later record counts, a full one before a quick one.

    Raises FormatError, FileError; ArgumentError where there is no product or no bandwidth to make a roof of.
    """
    if not isinstance(contents, Contents):
        path = Path(contents)
        contents = read(path / JOURNAL if path.is_dir() else path)
    if not contents.records:
        raise ArgumentError("no operator was measured; run `perfpass roofline` first")
    environment = environment or contents.records[-1]["environment"]
    facts = contents.facts.get(environment)
    chosen: dict[Operator, dict[str, Any]] = {}
    for record in contents.records:
        if record["environment"] == environment:
            operator = from_dict(record["configuration"])
            before = chosen.get(operator)
            full = record["configuration"].get("protocol") == "full"
            if before is None or full or before["configuration"].get("protocol") != "full":
                chosen[operator] = record
    measured = {operator: record for operator, record in chosen.items() if record["status"] == "ok"}
    if facts is None:
        raise ArgumentError(f"no facts of the environment {environment}; the file is not whole")
    points = [_point(operator, record) for operator, record in measured.items()]
    peaks = _fastest([p for p in points if p["exact"] and p["operator"] in ("gemm", "convolution")])
    bandwidth = _bandwidth(points)
    if not peaks or not bandwidth:
        why = next((f" ({r['status']}: {r['message']})" for r in chosen.values() if r["status"] != "ok"), "")
        raise ArgumentError(f"a roofline needs at least one product and one copy or triad that ran{why}")
    cache, memory = _roofs(bandwidth, facts.get("last_level_cache_bytes", 0))
    return {
        "schema": SUMMARY_SCHEMA,
        "device": facts["device"]["name"],
        "kind": facts["device"]["kind"],
        "environment": environment,
        "facts": {name: facts[name] for name in ("device", "host", "software") if name in facts},
        "last_level_cache_bytes": facts.get("last_level_cache_bytes"),
        "measured_at": max(record["measured_at"] for record in measured.values()),
        "peak_flop_s": peaks,
        "gemm_flop_s": _fastest([point for point in points if point["operator"] == "gemm"]),
        "bandwidth": bandwidth,
        "memory_bytes_s": memory,
        "cache_bytes_s": cache,
        "ridge_flop_per_byte": {
            precision: {"memory": significant(peak / memory), "cache": significant(peak / cache)}
            for precision, peak in peaks.items()
        },
        "points": [point | {"share_of_roof": _share(point, peaks, memory)} for point in points],
        "not_measured": [
            {**record["configuration"], "status": record["status"], "message": record.get("message", "")}
            for record in chosen.values()
            if record["status"] != "ok"
        ],
    }


def write(summary: dict[str, Any], output: str | os.PathLike[str]) -> tuple[Path, Path, Path]:
    """roofline.json, roofline.svg and roofline.md in ``output``. Raises FileError, UnsupportedError (no matplotlib)."""
    from perfpass.measure.roofline.figure import save_figure, table

    folder = Path(output)
    paths = folder / SUMMARY, folder / FIGURE, folder / TABLE
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: {reason(error)}") from error
    write_whole(paths[0], json.dumps(summary, indent=1, allow_nan=False) + "\n")
    write_whole(paths[2], table(summary))
    save_figure(summary, paths[1])
    return paths


def attainable(summary: dict[str, Any], operator: Operator) -> float:
    """FLOP/s under the roof of memory and of the operator's precision: min(peak, bandwidth x intensity).

    Raises ArgumentError for a precision without a measured peak.
    """
    peak = summary["peak_flop_s"].get(operator.precision)
    if peak is None:
        known_precisions = ", ".join(summary["peak_flop_s"])
        raise ArgumentError(f"no peak was measured for {operator.precision}; there is one for {known_precisions}")
    return min(peak, summary["memory_bytes_s"] * operator.flops / operator.bytes)


def _point(operator: Operator, record: dict[str, Any]) -> dict[str, Any]:
    return {
        "group": operator.group,
        **operator.to_dict(),
        "exact": operator.exact,
        "protocol": record["configuration"].get("protocol"),
        "flops": operator.flops,
        "bytes": operator.bytes,
        "flop_per_byte": significant(operator.flops / operator.bytes),
        "median_ms": record["latency_ms"]["median"],
        "confidence_share": record["median_confidence_share"],
        "flop_s": record["flop_s"],
        "bytes_s": record["bytes_s"],
        "flags": record["flags"],
    }


def _fastest(points: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The highest FLOP/s by precision."""
    rates: dict[str, float] = {}
    for point in points:
        rates[point["precision"]] = max(point["flop_s"], rates.get(point["precision"], 0.0))
    return rates


def _bandwidth(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [
        {"operator": p["operator"], "footprint_bytes": p["bytes"], "bytes_s": p["bytes_s"]}
        for p in points
        if p["operator"] in ("copy", "triad")
    ]
    return sorted(found, key=lambda row: (row["operator"], row["footprint_bytes"]))


def _roofs(bandwidth: Sequence[dict[str, Any]], cache_bytes: int) -> tuple[float, float]:
    """Bandwidths of cache and of memory, in bytes per second."""
    largest = max(row["footprint_bytes"] for row in bandwidth)
    # Footprints of copy and triad differ by half; the largest of each count where none is beyond the cache.
    beyond = min(_OUT_OF_CACHE * cache_bytes, largest / 2) if cache_bytes else largest / 2
    outside = [row for row in bandwidth if row["footprint_bytes"] >= beyond]
    memory = max(
        statistics.median(row["bytes_s"] for row in outside if row["operator"] == operator)
        for operator in {row["operator"] for row in outside}
    )
    return max(row["bytes_s"] for row in bandwidth), memory


def _share(point: dict[str, Any], peaks: dict[str, float], memory: float) -> float | None:
    peak = peaks.get(point["precision"])
    if peak is None or not point["flops"]:
        return None
    return significant(point["flop_s"] / min(peak, memory * point["flop_per_byte"]))
