"""Where our block lies in an ONNX file: a walk over the outermost protobuf fields, which skips graph and weights.

A file of gigabytes has some ten outermost fields, one of them the graph: two reads of the disk. Wire format:
protobuf.dev/programming-guides/encoding; field numbers: onnx.proto.
"""

from __future__ import annotations

import bisect
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfpass import _core
from perfpass.annotation.metadata import KEYS
from perfpass.errors import FormatError, LimitError, about

SEAL_KEY = "perfpass.seal"
MOST_BLOCK_BYTES = 1 << 22

_GRAPH, _METADATA = 7, 14  # fields of ModelProto
_INITIALIZER, _EXTERNAL_DATA = 5, 13  # of GraphProto and TensorProto
_METADATA_TAG = _METADATA << 3 | 2
_KEY_TAG, _VALUE_TAG = 0x0A, 0x12  # of StringStringEntryProto
_OURS = frozenset(key.encode() for key in (*KEYS, SEAL_KEY))
# Tag and length of an entry, tag and length of its key, and what is there of the key.
_HEAD_OF_ENTRY = re.compile(rb"r[\x80-\xff]{0,4}[\x00-\x7f]\n([\x00-\x7f])(.*)", re.DOTALL)
_SHORTEST_HEAD = 5
_MOST_KEY_BYTES = 1024
_MOST_FIELDS = 1_000_000
_MOST_HEAD_BYTES = 20  # two numbers of ten bytes
_BUFFER_BYTES = 4096
_SEAL_VALUE_BYTES = 77  # version, length, SHA-256
_KEY_OFFSET = 5  # of a block's first key in the block
_MOST_DAMAGE = 16  # bytes that were put into a block, or are missing, where it is still known as ours


@dataclass(frozen=True)
class Layout:
    """[0, body_end) is the model, [body_end, size) our block or what an interrupted write has left of it.

    ``scattered`` are our entries within the body, where another program wrote the file anew.
    """

    size: int
    body_end: int
    metadata: dict[str, str]
    interrupted: bool
    scattered: tuple[tuple[int, int], ...]
    foreign_keys: frozenset[str]

    @property
    def body_bytes(self) -> int:
        """Size of the model without any of our metadata."""
        return self.body_end - sum(end - start for start, end in self.scattered)


@dataclass(frozen=True)
class _Entry:
    """A metadata entry: its bytes [start, end) in the file, and its key."""

    start: int
    end: int
    key: bytes


def block_of(metadata: Mapping[str, str]) -> bytes:
    """The bytes to append: a ModelProto of these metadata and the seal."""
    entries = b"".join(_entry(key.encode(), value.encode()) for key, value in metadata.items())
    return entries + _seal(entries)


def _seal(entries: bytes) -> bytes:
    return _entry(SEAL_KEY.encode(), b"1:%010d:%s" % (len(entries), hashlib.sha256(entries).hexdigest().encode()))


def _entry(key: bytes, value: bytes) -> bytes:
    pair = bytes([_KEY_TAG, *_varint(len(key)), *key, _VALUE_TAG, *_varint(len(value)), *value])
    return bytes([_METADATA_TAG, *_varint(len(pair)), *pair])


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


_SEAL_BYTES = len(_seal(b""))
_SEAL = re.compile(re.escape(_seal(b"")[:-_SEAL_VALUE_BYTES]) + rb"1:(\d{10}):[0-9a-f]{64}")


def read_layout(file: int, path: str | os.PathLike[str]) -> Layout:
    """Walk the file behind the descriptor. Raises FormatError where it is not a whole ONNX model."""
    size = os.fstat(file).st_size
    walk = _Walk(_Reader(file), 0, size)
    entries = list(walk.entries())
    end = walk.end
    mine: list[_Entry] = []
    for entry in entries:
        # Zeros in a key behind an entry of ours: a page of our block that did not reach the disk.
        lost = b"\0" in entry.key and bool(mine) and mine[-1].end == entry.start
        if entry.key in _OURS or lost:
            mine.append(entry)
    runs = _contiguous(mine)
    last = runs[-1] if runs and runs[-1][-1].end == end else []
    tail = os.pread(file, min(size - end, MOST_BLOCK_BYTES), end)
    metadata: dict[str, str] = {}
    sealed = 0
    for run in runs:
        for found in _sealed_blocks(file, run):
            metadata, sealed = found, sealed + len(found) + 1
    interrupted = bool(tail) or sealed != len(mine) or len(mine) > len(_OURS)
    scattered = runs[:-1] if last else runs
    body_end = last[0].start if last else end
    damaged = None
    if walk.has_graph and (tail or sealed != len(mine)):
        damaged = _damaged_block(file, size, walk.starts, runs)
    if damaged is not None:
        while before := next((entry for entry in mine if entry.end == damaged), None):
            damaged = before.start
        interrupted, body_end = True, damaged
        scattered = [run for run in runs if run[-1].end < damaged]
        entries = [entry for entry in entries if entry.start < damaged]
    else:
        if not walk.has_graph or size - end > MOST_BLOCK_BYTES or not _left_by_us(tail, bool(last)):
            _say_where_the_model_ends(file, path, size, walk, runs)
            _refuse(path, end, size)
        # An entry whose key is nearly one of ours, beside what an interrupted write has left: whose is it?
        nearly = [e.start for e in entries if interrupted and e.start < body_end and _is_nearly_ours(e.key)]
        if nearly or _others_among_ours([run for run in runs if not _is_sealed(file, run)], end):
            _say_where_the_model_ends(file, path, size, walk, runs, nearly)
    return Layout(
        size=size,
        body_end=body_end,
        metadata=metadata,
        interrupted=interrupted,
        scattered=tuple((run[0].start, run[-1].end) for run in scattered),
        foreign_keys=frozenset(entry.key.decode("utf-8", "replace") for entry in set(entries) - set(mine)),
    )


def _damaged_block(file: int, size: int, starts: Sequence[int], runs: Sequence[Sequence[_Entry]]) -> int | None:
    """Where our block at the end of the file begins, although some of its bytes are not what we wrote; None where
    nothing makes that certain.

    Certain are: a seal whose length leads to where a field begins, with our first key or what is left of it; our first
    entry at about that place; whole entries with a seal behind them that differs in one place alone.
    """
    seal = _SEAL.fullmatch(os.pread(file, _SEAL_BYTES, max(size - _SEAL_BYTES, 0)))
    first = next((run[0].start for run in reversed(runs) if run[0].key == KEYS[0].encode()), None)
    if seal is not None:
        stated = size - _SEAL_BYTES - int(seal[1])
        at = bisect.bisect_left(starts, stated)
        if at < len(starts) and starts[at] == stated and _begins_block(os.pread(file, _MOST_DAMAGE * 4, stated)):
            return stated
        if first is not None and abs(first - stated) <= _MOST_DAMAGE:
            return first
    run = next((run for run in reversed(runs) if run[0].start == first), [])
    for entry in run:
        if abs(size - entry.end - _SEAL_BYTES) <= _MOST_DAMAGE and first is not None:
            entries = os.pread(file, entry.end - first, first)
            if _differ_in_one_place(_seal(entries), os.pread(file, size - entry.end, entry.end)):
                return first
    return None


def _begins_block(head: bytes) -> bool:
    """Whether these bytes are the begin of a block, or were before a page of them was lost or some bits changed."""
    key = KEYS[0].encode()
    found = head[_KEY_OFFSET : _KEY_OFFSET + len(key)]
    return not head.strip(b"\0") or any(key[at : at + 6] == found[at : at + 6] for at in range(len(key) - 5))


def _differ_in_one_place(expected: bytes, found: bytes) -> bool:
    same = _equal_bytes(expected, found)
    rest = _equal_bytes(expected[same:][::-1], found[same:][::-1])
    return same + rest >= len(expected) - _MOST_DAMAGE


def _equal_bytes(one: bytes, other: bytes) -> int:
    """How many bytes at the begin of both are the same."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _is_sealed(file: int, run: list[_Entry]) -> bool:
    return sum(len(found) + 1 for found in _sealed_blocks(file, run)) == len(run)


def _others_among_ours(runs: Sequence[Sequence[_Entry]], end: int) -> bool:
    """Whether entries of ours, of which no seal says that they are all, have others' fields before or behind them that
    may be damaged ones of ours.
    """
    keys = [entry.key for run in runs for entry in run]
    if not keys:
        return False
    if len(keys) == len(_OURS) == len(set(keys)):
        return False  # another program wrote them in an order of its own
    return len(runs) > 1 or runs[-1][-1].end != end or runs[0][0].key != KEYS[0].encode()


def _is_nearly_ours(key: bytes) -> bool:
    """Whether a key is one of ours but for a byte or two."""
    alike = (sum(a != b for a, b in zip(key, own, strict=True)) for own in _OURS if len(own) == len(key))
    return any(0 < different <= 2 for different in alike)


def _say_where_the_model_ends(
    file: int,
    path: str | os.PathLike[str],
    size: int,
    walk: _Walk,
    runs: Sequence[Sequence[_Entry]],
    nearly: Sequence[int] = (),
) -> None:
    """Raises FormatError with a way out where a block of ours is damaged behind a whole model."""
    origin = max(walk.graph_end, size - 2 * MOST_BLOCK_BYTES)
    behind = os.pread(file, size - origin, origin)
    keys = [at for key in _OURS if (at := behind.find(key)) >= 0]
    keys += [start + _KEY_OFFSET - origin for start in nearly if start >= origin]
    if not walk.has_graph or not keys:
        return
    place = origin + min(keys)
    seal = _SEAL.fullmatch(os.pread(file, _SEAL_BYTES, max(size - _SEAL_BYTES, 0)))
    near = size - _SEAL_BYTES - int(seal[1]) if seal else place - _KEY_OFFSET
    whole = min((start for start in (*walk.starts, walk.end) if start <= place), key=lambda start: abs(start - near))
    raise FormatError(
        f"{path}: the metadata of perfpass is damaged, and whose the bytes behind byte {whole} of {size} are cannot be "
        f"said; nothing was changed. The model before them is whole: `head -c {whole} FILE > NEW` takes it out"
    )


def _refuse(path: str | os.PathLike[str], end: int, size: int) -> None:
    """Raise what reading the model raises: the core names files of other formats and says where one is damaged."""
    with about(path):
        _core.onnx_inputs_file(os.fsencode(path))
    raise FormatError(f"{path}: no ONNX model: its outermost fields end at byte {end} of {size}")


def _left_by_us(tail: bytes, after_ours: bool) -> bool:
    """Whether bytes that are no whole field are what an interrupted write has left of our block.

    A power cut may leave zeros for pages that did not reach the disk. Without a whole entry of ours before them, the
    bytes must begin as a block does, with two letters of its first key at least: less could be any program's.
    """
    if not tail:
        return True
    if tail[0] not in (0, _METADATA_TAG):
        return False
    if any(key in tail for key in _OURS):
        return True
    visible = tail.rstrip(b"\0")
    head = _HEAD_OF_ENTRY.match(visible)
    if not after_ours:
        return head is not None and len(head[2]) > 1 and head[1][0] == len(KEYS[0]) and _is_begin(head[2], KEYS[:1])
    return _is_begin(head[2], (*KEYS, SEAL_KEY)) if head else len(visible) < _SHORTEST_HEAD


def _is_begin(text: bytes, keys: Sequence[str]) -> bool:
    return any(key.encode().startswith(text[: len(key)]) for key in keys)


def _contiguous(entries: list[_Entry]) -> list[list[_Entry]]:
    runs: list[list[_Entry]] = []
    for entry in entries:
        if runs and runs[-1][-1].end == entry.start:
            runs[-1].append(entry)
        else:
            runs.append([entry])
    return runs


def _sealed_blocks(file: int, run: list[_Entry]) -> Iterator[dict[str, str]]:
    """The metadata of each whole block of a run of entries that follow one another."""
    origin = run[0].start
    if run[-1].end - origin > 2 * MOST_BLOCK_BYTES:
        return
    data = os.pread(file, run[-1].end - origin, origin)
    first = 0
    for index, entry in enumerate(run):
        if entry.key != SEAL_KEY.encode():
            continue
        parts = run[first:index]
        first = index + 1
        entries = data[parts[0].start - origin : entry.start - origin] if parts else b""
        if data[entry.start - origin : entry.end - origin] == _seal(entries):
            yield {part.key.decode(): _value(data[part.start - origin : part.end - origin]) for part in parts}


def _value(entry: bytes) -> str:
    """The value of an entry that is sealed, so as `_entry` writes it."""
    _, at = _read_varint(entry, 1)
    length, at = _read_varint(entry, at + 1)
    _, at = _read_varint(entry, at + length + 1)
    return entry[at:].decode()


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at ``at`` and where it ends. Raises IndexError where the bytes end before it does."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise IndexError


class _Reader:
    """Small reads near one another, without a call of the system for each."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._buffer = b""
        self._start = 0

    def bytes(self, start: int, length: int) -> bytes:
        """At most ``length`` bytes: fewer where the file ends."""
        at = start - self._start
        if at < 0 or at + length > len(self._buffer):
            wanted = max(length, _BUFFER_BYTES)
            self._buffer, self._start, at = os.pread(self._file, wanted, start), start, 0
        return self._buffer[at : at + length]


class _Walk:
    """The fields of a message that lies in [start, end) of a file; ``end`` moves to where the last whole one ends."""

    def __init__(self, reader: _Reader, start: int, limit: int) -> None:
        self.end = start
        self.has_graph = False
        self.graph_end = 0
        self.starts: list[int] = []
        self._reader = reader
        self._limit = limit

    def entries(self) -> Iterator[_Entry]:
        """Every metadata entry of a ModelProto, in the file's order."""
        for number, payload, end in self.fields():
            self.starts.append(self._start)
            if number == _GRAPH:
                self.has_graph, self.graph_end = True, end
            elif number == _METADATA:
                head = self._reader.bytes(payload, min(end - payload, _MOST_KEY_BYTES))
                yield _Entry(self._start, end, _first_text(head))

    def fields(self) -> Iterator[tuple[int, int, int]]:
        """Number, begin of the payload, and end of every whole field."""
        count = 0
        while self.end < self._limit:
            count += 1
            if count > _MOST_FIELDS:
                raise LimitError(f"the model has over {_MOST_FIELDS} fields in one message")
            self._start = self.end
            try:
                number, payload, end = self._field(self.end)
            except IndexError:
                return
            if end > self._limit:
                return
            self.end = end
            yield number, payload, end

    def _field(self, start: int) -> tuple[int, int, int]:
        head = self._reader.bytes(start, _MOST_HEAD_BYTES)
        tag, at = _read_varint(head, 0)
        number, kind = tag >> 3, tag & 7
        if number == 0 or kind not in (0, 1, 2, 5):
            raise IndexError
        if kind == 2:
            length, at = _read_varint(head, at)
            return number, start + at, start + at + length
        end = _read_varint(head, at)[1] if kind == 0 else at + (8 if kind == 1 else 4)
        return number, start + at, start + end


def _first_text(pair: bytes) -> bytes:
    """The key of a StringStringEntryProto, whose fields are written in order."""
    try:
        length, at = _read_varint(pair, 1)
    except IndexError:
        return b""
    return pair[at : at + length] if pair[0] == _KEY_TAG else b""


def external_files(file: int) -> list[str]:
    """The files beside the model that hold the data of its graph's initializers."""
    reader = _Reader(file)
    found: dict[str, None] = {}
    for number, start, end in _Walk(reader, 0, os.fstat(file).st_size).fields():
        if number != _GRAPH:
            continue
        for in_graph, tensor, tensor_end in _Walk(reader, start, end).fields():
            if in_graph != _INITIALIZER:
                continue
            for in_tensor, pair, pair_end in _Walk(reader, tensor, tensor_end).fields():
                if in_tensor == _EXTERNAL_DATA and pair_end - pair <= _MOST_KEY_BYTES:
                    entry = reader.bytes(pair, pair_end - pair)
                    if _first_text(entry) == b"location":
                        found[entry.rpartition(b"location\x12")[2][1:].decode("utf-8", "replace")] = None
    return list(found)
