"""Requests as they were recorded: JSON lines and CSV, plain or gzipped, read line by line.

Columns of JSON lines: ``timestamp`` (ms; as of Mooncake's traces) or ``arrival_s``; ``input_length``, ``output_length``
(tokens); ``hash_ids`` (ids of the prompt's blocks of 512 tokens, or of what ``block_tokens`` says) and ``priority``
(lower first) may be left out. Columns of CSV: ``TIMESTAMP`` (a date and time), ``ContextTokens``, ``GeneratedTokens``
(Azure's traces), or ``arrival_s``, ``input_length``, ``output_length``. Other columns are passed over.
"""

from __future__ import annotations

import csv
import gzip
import os
import zlib
from array import array
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np

from perfpass.bounded_file import open_regular
from perfpass.errors import ArgumentError, FileError, FormatError, LimitError, shown
from perfpass.json_text import parse
from perfpass.predictors.engine.requests import MOST_IDS, MOST_REQUESTS, MOST_TOKENS, Requests
from perfpass.text import shown_value

HASH_TOKENS = 512  # of an id in Mooncake's traces (kvcache-ai/Mooncake, FAST'25 release)
_LONGEST_LINE = 4 * 2**20
_WHAT = "a trace of requests"
_MOST_ID = 2**62


def read_trace(path: str | os.PathLike[str], *, block_tokens: int = HASH_TOKENS, most: int | None = None) -> Requests:
    """The requests of a trace in its order, the first at 0 s; with ``most`` only the first so many.

    Raises FileError for what cannot be read; FormatError, with the line, for one that is no request, a time that is not
    finite or before that of the line above, a length that is none; LimitError for a trace of more requests, ids or
    characters in a line than are taken.
    """
    name = shown(path)
    if not 1 <= block_tokens <= MOST_TOKENS:
        raise ArgumentError(f"block_tokens must be 1 to {MOST_TOKENS:,}, got {block_tokens}")
    found = _Columns(name, block_tokens)
    with os.fdopen(open_regular(path, _WHAT), "rb") as file:
        zipped = file.peek(2)[:2] == b"\x1f\x8b"
        lines = _lines(gzip.GzipFile(fileobj=file) if zipped else file, name)
        try:
            is_csv = name.removesuffix(".gz").endswith(".csv")
            for number, time_s, row in (_from_csv if is_csv else _from_json)(lines, name):
                if most is not None and len(found.arrival_s) >= most:
                    break
                found.add(number, time_s, row)
        except (OSError, EOFError, zlib.error) as error:
            if isinstance(error, FileError):
                raise
            raise FileError(f"{name}: cannot be read as {_WHAT}: {error}") from error
    return found.requests()


def _lines(file: IO[bytes] | gzip.GzipFile, name: str) -> Iterator[tuple[int, str]]:
    number = 0
    while line := file.readline(_LONGEST_LINE + 1):
        number += 1
        if len(line) > _LONGEST_LINE:
            raise LimitError(f"{name}, line {number}: longer than {_LONGEST_LINE:,} bytes, the limit of a request")
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            raise FormatError(f"{name}, line {number} is not UTF-8 ({error.reason})") from error
        if text:
            yield number, text


def _from_json(lines: Iterator[tuple[int, str]], name: str) -> Iterator[tuple[int, float, dict[str, Any]]]:
    for number, text in lines:
        row = parse(text, f"{name}, line {number}", way_out="a trace has one JSON object a line")
        if not isinstance(row, dict):
            raise FormatError(f"{name}, line {number}: a request is a JSON object, got {shown_value(row)}")
        key, scale = ("timestamp", 1e-3) if "timestamp" in row else ("arrival_s", 1.0)
        time = row.get(key)
        if isinstance(time, bool) or not isinstance(time, (int, float)):
            raise FormatError(
                f"{name}, line {number}: no time: a request has timestamp (ms) or arrival_s, got {shown_value(time)}"
            )
        yield number, time * scale, row


def _from_csv(lines: Iterator[tuple[int, str]], name: str) -> Iterator[tuple[int, float, dict[str, Any]]]:
    numbers = [0]

    def texts() -> Iterator[str]:
        for number, text in lines:
            numbers[0] = number
            yield text

    rows = csv.reader(texts())
    header = next(rows, [])
    azure = {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} <= set(header)
    names = (
        ("TIMESTAMP", "ContextTokens", "GeneratedTokens") if azure else ("arrival_s", "input_length", "output_length")
    )
    if missing := [column for column in names if column not in header]:
        raise FormatError(f"{name}: no column {', '.join(missing)}; a trace has {', '.join(names)}, as Azure's or ours")
    places = [header.index(column) for column in names]
    read: Callable[[str], float] = _date_s if azure else float
    for row in rows:
        number = numbers[0]
        try:
            time, prompt, answer = (row[i] for i in places)
            yield number, read(time), {"input_length": int(prompt), "output_length": int(answer)}
        except (ValueError, IndexError):
            raise FormatError(
                f"{name}, line {number}: {shown_value(','.join(row))} has no time and two whole lengths"
            ) from None


def _date_s(text: str) -> float:
    moment = np.datetime64(text.removesuffix("Z").removesuffix("+00:00").replace(" ", "T"), "us")
    if np.isnat(moment):
        raise ValueError("no time")
    return float(moment.astype(np.int64)) / 1e6


class _Columns:
    """The columns of a trace while it is read; numbers of a fixed size, whatever stands in a line."""

    def __init__(self, name: str, block_tokens: int) -> None:
        self.name, self.block_tokens = name, block_tokens
        self.arrival_s, self.priority = array("d"), array("d")
        self.prompts, self.outputs, self.ids, self.starts = array("q"), array("q"), array("q"), array("q", [0])
        self.begin_s = 0.0

    def add(self, number: int, time_s: float, row: dict[str, Any]) -> None:
        where = f"{self.name}, line {number}"
        if len(self.arrival_s) >= MOST_REQUESTS:
            raise LimitError(f"{self.name}: more than {MOST_REQUESTS:,} requests; take a part of it (--requests)")
        if not np.isfinite(time_s) or time_s < 0:
            raise FormatError(f"{where}: a time must be finite and at least 0, got {time_s}")
        if not self.arrival_s:
            self.begin_s = time_s
        elif time_s - self.begin_s < self.arrival_s[-1]:
            raise FormatError(f"{where}: its time is before that of the line above; sort the trace by time")
        self.arrival_s.append(time_s - self.begin_s)
        for column, kept in (("input_length", self.prompts), ("output_length", self.outputs)):
            length = row.get(column)
            if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= MOST_TOKENS:
                raise FormatError(
                    f"{where}: {column} must be a whole number from 1 to {MOST_TOKENS:,}, got {shown_value(length)}"
                )
            kept.append(length)
        priority = row.get("priority", 0)
        if isinstance(priority, bool) or not isinstance(priority, (int, float)):
            raise FormatError(f"{where}: priority must be a number, got {shown_value(priority)}")
        self.priority.append(priority)
        self._add_ids(where, row.get("hash_ids", ()))

    def _add_ids(self, where: str, ids: Any) -> None:
        most = (self.prompts[-1] + self.outputs[-1]) // self.block_tokens + 1
        whole = isinstance(ids, (list, tuple)) and all(type(i) is int and -_MOST_ID < i < _MOST_ID for i in ids)
        if not whole or len(ids) > most:
            raise FormatError(
                f"{where}: hash_ids must be at most {most} whole numbers, one for {self.block_tokens} tokens; got "
                f"{shown_value(ids)}"
            )
        # Of a prompt the last id stands for what is left of a block: nobody can read that.
        self.ids.extend(ids[: self.prompts[-1] // self.block_tokens])
        if len(self.ids) > MOST_IDS:
            raise LimitError(f"{self.name}: more than {MOST_IDS:,} ids of prefixes; take a part of it (--requests)")
        self.starts.append(len(self.ids))

    def requests(self) -> Requests:
        if not self.arrival_s:
            raise FormatError(f"{self.name}: no request in it")
        has_ids, has_priority = len(self.ids) > 0, any(self.priority)
        return Requests(
            np.frombuffer(self.arrival_s, dtype=np.float64),
            np.frombuffer(self.prompts, dtype=np.int64),
            np.frombuffer(self.outputs, dtype=np.int64),
            ids=np.frombuffer(self.ids, dtype=np.int64) if has_ids else None,
            starts=np.frombuffer(self.starts, dtype=np.int64) if has_ids else None,
            block_tokens=self.block_tokens,
            priority=np.frombuffer(self.priority, dtype=np.float64) if has_priority else None,
        )
