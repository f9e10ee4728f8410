"""The shipped table of measured records: where it is, what its columns are, and how it is read.

One Parquet file, a row per measurement. DuckDB, pandas and others open it by `path`; docs/reference/evidence.md says
what each column means.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import FileError, FormatError, needs, shown
from perfpass.json_text import parse
from perfpass.predictors.relative import work
from perfpass.predictors.relative.relatives import Coded, Relatives

if TYPE_CHECKING:
    import pyarrow

SCHEMA_VERSION = 1
METADATA_KEY = b"perfpass evidence"
# Columns as text, one value for unknown: "".
TEXTS = (
    "kind", "source", "repository", "commit", "licence", "run", "model", "network", "architecture", "task", "device",
    "runtime", "runtime_version", "cuda_version", "precision", "layout", "optimizer", "quantization", "variant",
    "timing", "memory_kind", "throughput_unit", "caveats",
)  # fmt: skip
# Conditions; NaN where unknown.
NUMBERS = (
    "devices", "batch", "processes", "sequence", "input_tokens", "output_tokens", "concurrency", "img_height",
    "img_width",
)  # fmt: skip
# What was measured, as the source states it, and two figures that follow from it.
FIGURES = (
    "latency_ms", "latency_p10_ms", "latency_p90_ms", "throughput_per_s", "ttft_ms", "tpot_ms", "peak_memory_bytes",
    "power_w", "energy_j", "time_ms", "request_energy_j",
)  # fmt: skip
# What was counted of the network at the record's conditions.
COUNTED = ("macs", "parameters", "active_parameters", *work.WORK)
COLUMNS = (*TEXTS, *NUMBERS, *FIGURES, *COUNTED, "fingerprint")


def path() -> Path:
    """The shipped Parquet file, for DuckDB, pandas or any other reader."""
    return Path(__file__).parent / "records.parquet"


def load(file: str | os.PathLike[str] | None = None) -> Relatives:
    """The shipped records as columns, read once in a process; or those of another file of the same schema.

    Raises UnsupportedError without pyarrow (extra ``evidence``), FileError, LimitError, FormatError.
    """
    return _shipped() if file is None else read(file)


@lru_cache(maxsize=1)
def _shipped() -> Relatives:
    return read(path())


def read(file: str | os.PathLike[str]) -> Relatives:
    """The records of a file; errors as of `load`."""
    with needs("evidence", "measured records"):
        from perfpass.records.parquet import read_arrow
    if not Path(file).exists():
        raise FileError(f"{shown(file)}: no table of evidence; `python -m perfpass.evidence.build` makes it")
    with needs("evidence", "measured records"):
        found = read_arrow(file, "a table of evidence")
    _check(found, shown(file))
    texts = {name: _coded(found.column(name), shown(file)) for name in TEXTS}
    numbers = {
        name: np.concatenate([np.zeros(0), *map(_numbers, found.column(name).chunks)], dtype=np.float64)
        for name in (*NUMBERS, *FIGURES, *COUNTED)
    }
    networks, prints = _fingerprints(found, shown(file))
    with np.errstate(invalid="ignore"):
        numbers["request_ms"] = numbers["run_ms"] / np.maximum(numbers["batch"], 1.0)
    return Relatives(texts, numbers, networks, prints)


def _check(found: pyarrow.Table, where: str) -> None:
    note = parse((found.schema.metadata or {}).get(METADATA_KEY, b"{}"), f"{where}: its metadata")
    version = note.get("schema_version") if isinstance(note, dict) else None
    if version != SCHEMA_VERSION:
        raise FormatError(
            f"{where}: evidence of schema {version!r}, this version reads {SCHEMA_VERSION}; make it anew with "
            "`python -m perfpass.evidence.build`"
        )
    if note.get("work_version") != work.VERSION:
        raise FormatError(
            f"{where}: counted with work version {note.get('work_version')!r}, this version counts by {work.VERSION}; "
            "make it anew with `python -m perfpass.evidence.build`"
        )
    import pyarrow.types as types

    names = found.schema.names
    for name in COLUMNS:
        if names.count(name) != 1:
            raise FormatError(
                f"{where}: a table of evidence has the column {name!r} once, this one {names.count(name)} times"
            )
        of = found.schema.field(name).type
        of = of.value_type if types.is_dictionary(of) else of
        if name in TEXTS and not (types.is_string(of) or types.is_large_string(of)):
            raise FormatError(f"{where}: column {name!r} holds {of}; it is of text")
        if name == "fingerprint" and not (types.is_binary(of) or types.is_large_binary(of)):
            raise FormatError(f"{where}: column {name!r} holds {of}; it is of bytes")
        if name in (*NUMBERS, *FIGURES, *COUNTED) and not (types.is_floating(of) or types.is_integer(of)):
            raise FormatError(f"{where}: column {name!r} holds {of}; it is of numbers")


def _coded(column: pyarrow.ChunkedArray, where: str) -> Coded:
    import pyarrow

    if column.null_count:
        raise FormatError(f"{where}: a text that is null; an unknown one is empty")
    merged = pyarrow.chunked_array(column.chunks, column.type).unify_dictionaries().combine_chunks()
    if isinstance(merged, pyarrow.ChunkedArray):
        merged = pyarrow.concat_arrays(merged.chunks) if merged.num_chunks else pyarrow.array([], column.type)
    encoded = merged if isinstance(merged, pyarrow.DictionaryArray) else merged.dictionary_encode()
    return Coded(tuple(text.as_py() for text in encoded.dictionary), _numbers(encoded.indices).astype(np.int64))


def _numbers(array: pyarrow.Array) -> np.ndarray:
    """[N] of a column of numbers. What pyarrow converts itself imports pandas where it is installed, for 0.4 s."""
    return array.to_numpy(zero_copy_only=False) if array.null_count else np.from_dlpack(array)


def _fingerprints(found: pyarrow.Table, where: str) -> tuple[np.ndarray, np.ndarray]:
    """[N] index of each record's network, -1 for none; [M, P] what networks are made of."""
    coded = _coded(found.column("fingerprint"), where)
    stored: tuple[Any, ...] = coded.values
    known = [i for i, content in enumerate(stored) if content]
    lengths = {len(stored[i]) for i in known}
    if len(lengths) > 1 or any(length % 2 for length in lengths):
        raise FormatError(f"{where}: fingerprints that are not rows of 16-bit numbers of one length")
    place = np.full(len(coded.values) + 1, -1)
    place[known] = np.arange(len(known))
    width = lengths.pop() // 2 if lengths else 1
    prints = np.frombuffer(b"".join(stored[i] for i in known), dtype="<f2").astype(np.float32).reshape(-1, width)
    if not np.isfinite(prints).all():
        raise FormatError(f"{where}: a fingerprint that is not finite")
    return place[coded.code], prints
