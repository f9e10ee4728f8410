"""The records of a campaign: one append-only file of JSON lines that survives a kill at any moment.

Every line is one JSON object with ``kind`` ``facts`` (a machine and its software, once) or ``record`` (one measured
configuration). A line is appended with one write and synced before the next configuration starts; a line torn by a
kill is recognised by its missing end, one of a power cut by its empty pages, and cut off when the file is opened again.
docs/reference/records.md describes the fields.
"""

from __future__ import annotations

import fcntl
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

from perfpass.bounded_file import open_regular, read_file, reason
from perfpass.declared import Anything, Choice, Exactly, Flag, Items, Maybe, Named, Number, Table, Text
from perfpass.errors import FileError, FormatError, InputWarning, LimitError, PerfPassError, shown
from perfpass.json_text import parse as parse_json
from perfpass.text import shown_value
from perfpass.whole_file import append_at, end_of_lines, sync_folder

SCHEMA_VERSION = 1
LARGEST_LINE_BYTES = 2**20
LARGEST_FILE_BYTES = 2**28  # some 100,000 records
_WHAT = "a journal of measurements"
_BEGINNING = b'{"kind":"'  # of every line written here: what else stands at a file's end is not cut off
FINAL = ("ok", "out_of_memory", "unsupported")  # statuses that a resumed campaign does not measure again

_FIGURE = Number(0)
_PART = Named(Anything(), 1000)
_MESSAGE = Text(LARGEST_LINE_BYTES, empty=True, lines=True)
# What is known of a machine's parts, and everything else that was said of them.
_DEVICE = Table({"name": _MESSAGE, "catalogue_id": Maybe(Text())}, others=Anything())
_FACTS = Table(
    {
        "kind": Exactly("facts"),
        "schema": Exactly(SCHEMA_VERSION),
        "id": Text(),
        "device": _DEVICE,
        "host": _PART,
        "software": _PART,
        "capability": Maybe(_PART),
        "idle_power_w": Maybe(_FIGURE),
        "last_level_cache_bytes": Maybe(_FIGURE),
        "protocol": _PART,
        "measured_at": Text(),
    },
    ("kind", "schema", "id"),
)
_RECORD = Table(
    {
        "kind": Exactly("record"),
        "schema": Exactly(SCHEMA_VERSION),
        "campaign": _MESSAGE,
        **dict.fromkeys(("key", "environment", "measured_at"), Text()),
        "status": Choice((*FINAL, "failed", "crashed", "timed_out")),
        "message": _MESSAGE,
        "configuration": _PART,
        "latency_ms": Named(Maybe(_FIGURE)),
        **dict.fromkeys(("iterations", "warmup_iterations", "outliers"), Maybe(Number(0, 2**53, whole=True))),
        **dict.fromkeys(("throughput_per_s", "first_ms", "elapsed_s", "median_confidence_share"), Maybe(_FIGURE)),
        **dict.fromkeys(("drift_share", "overhead_share"), Maybe(Number())),
        **dict.fromkeys(("calls_per_iteration", "flops", "bytes", "flop_s", "bytes_s"), Maybe(_FIGURE)),
        "launch": Text(empty=True),
        "requested_bytes": Maybe(_FIGURE),
        "steady": Maybe(Flag()),
        "memory": Named(Maybe(_FIGURE)),
        "stages": Named(Named(_FIGURE)),
        "energy": Table(dict.fromkeys(("energy_j", "power_w", "power_max_w"), Maybe(_FIGURE)), others=Anything()),
        **dict.fromkeys(("host", "conditions", "reference_ms", "ran", "preparing", "predicted"), Maybe(_PART)),
        "flags": Items(Text(), 100),
        "kernels": Items(_PART, 10_000),
    },
    ("key", "environment", "status", "configuration"),
)
_KINDS: Mapping[str, Table] = MappingProxyType({"facts": _FACTS, "record": _RECORD})


@dataclass(frozen=True)
class Contents:
    """What a journal holds: facts by their id, records in the order measured, and bytes of a torn last line."""

    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    torn_bytes: int = 0


def read(path: str | os.PathLike[str]) -> Contents:
    """Reads a journal; a torn last line is left out and counted.

    Raises FileError, LimitError (over 256 MiB), FormatError for a line that is no record, be it the last without its
    end, or for another schema version.
    """
    return parse(read_file(path, _WHAT, LARGEST_FILE_BYTES), str(path))


def parse(content: bytes, where: str) -> Contents:
    """The journal of these bytes; ``where`` names it in errors and warnings. Raises as `read`.

    Entries of lines that this version does not know are passed over; an InputWarning names them once.
    """
    end = end_of_lines(content)
    whole, tail = content[:end], content[end:]
    facts: dict[str, dict[str, Any]] = {}
    records: list[dict[str, Any]] = []
    unknown: set[str] = set()
    for number, line in enumerate(whole.split(b"\n")[:-1], 1):
        if len(line) > LARGEST_LINE_BYTES:
            raise LimitError(f"{where}: line {number} has {len(line)} bytes; at most {LARGEST_LINE_BYTES} are allowed")
        entry = parse_json(line, f"{where}: line {number}", way_out="move the file away")
        kind = entry.get("kind") if isinstance(entry, dict) else None
        if not isinstance(kind, str) or kind not in _KINDS:
            raise FormatError(f"{where}: line {number} is no record of a campaign")
        if entry.get("schema") != SCHEMA_VERSION:
            raise FormatError(
                f"{where}: line {number} has schema {entry.get('schema')!r}; this version reads {SCHEMA_VERSION}"
            )
        table = _KINDS[kind]
        if new := entry.keys() - table.keys.keys():
            unknown.update(new)
            entry = {name: value for name, value in entry.items() if name not in new}
        table.take(entry, f"{where}: line {number}")
        if kind == "facts":
            facts[entry["id"]] = entry
        else:
            records.append(entry)
    if not _is_torn(tail, bool(whole)):
        raise FormatError(
            f"{where}: its end is no line of a campaign that was cut short, but something else; move the file away"
        )
    if unknown:
        names = ", ".join(shown_value(name) for name in sorted(unknown)[:5])
        warnings.warn(f"{where}: unknown entries {names} are passed over", InputWarning, stacklevel=2)
    return Contents(facts, records, len(tail))


def _is_torn(tail: bytes, behind_lines: bool) -> bool:
    """Whether this may be a line of ours that was being written: its beginning, or pages that the disk never got."""
    head = tail.partition(b"\0")[0]
    if tail and not head:
        return behind_lines or not tail.strip(b"\0")
    return _BEGINNING.startswith(head[: len(_BEGINNING)])


class Journal:
    """An open journal: `contents` as found, `append` for what is new. One process at a time holds it (file lock).

    Raises FileError where the file cannot be written or another process has it open, FormatError as `read`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{shown(self.path)}: {reason(error)}") from error
        new = not os.path.exists(self.path)
        self._file = open_regular(self.path, _WHAT, os.O_RDWR | os.O_CREAT)
        try:
            self._lock()
            if new:
                sync_folder(self.path.parent)
            if (size := os.fstat(self._file).st_size) > LARGEST_FILE_BYTES:
                raise LimitError(f"{self.path}: {size} bytes, over the {LARGEST_FILE_BYTES} of {_WHAT}; choose another")
            with open(self._file, "rb", closefd=False) as file:
                content = file.read()
            self.contents = parse(content, str(self.path))
            self._end = len(content) - self.contents.torn_bytes
            os.ftruncate(self._file, self._end)
        except PerfPassError:
            os.close(self._file)
            raise
        except BaseException as error:
            os.close(self._file)
            if isinstance(error, OSError):
                raise FileError(f"{shown(self.path)}: {reason(error)}") from error
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise FileError(
                f"{self.path}: another campaign writes here; wait for it or choose another output"
            ) from error

    def append(self, kind: str, entry: Mapping[str, Any]) -> None:
        """Adds one line and waits until it is on the disk.

        Raises FileError (a full disk, say), LimitError for a line or a file that could not be read again; the file
        then ends where it did before.
        """
        line = json.dumps({"kind": kind, "schema": SCHEMA_VERSION, **entry}, separators=(",", ":"), allow_nan=False)
        content = line.encode() + b"\n"
        if len(content) > LARGEST_LINE_BYTES or self._end + len(content) > LARGEST_FILE_BYTES:
            raise LimitError(
                f"{self.path}: a line of {len(content)} bytes behind {self._end}; at most {LARGEST_LINE_BYTES} in a "
                f"file of {LARGEST_FILE_BYTES} are allowed; choose another output"
            )
        try:
            append_at(self._file, self._end, content)
        except OSError as error:
            raise FileError(
                f"{self.path}: {reason(error)}; the records written so far are safe, the same command goes on"
            ) from error
        self._end += len(content)

    def close(self) -> None:
        """Gives the file back to other processes."""
        os.close(self._file)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def known(contents: Contents, retry_failed: bool = False) -> set[tuple[str, str]]:
    """(key, environment) of what a resumed campaign skips: measured, too large or unsupported; failures unless
    retried.
    """
    return {
        (record["key"], record["environment"])
        for record in contents.records
        if record["status"] in FINAL or not retry_failed
    }
