"""Damage to models' files: texts of tokens, protobuf messages field by field, archives entry by entry."""

from __future__ import annotations

import io
import random
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

from .documents import Binary
from .mutations import NUMBERS, SCRAPS, TEXTS, lines_moved, torn
from .target import Form

_TOKEN = re.compile(rb"[\w.+-]+")
_DEEPEST = 12
Field = tuple[int, int, bytes]  # of a message: its number, its wire type, its content


@dataclass(frozen=True)
class Tokens:
    """A text of words and numbers between signs: XML, MLIR, TorchScript, ncnn. ``words``: others that readers know."""

    words: Sequence[str] = ()

    def mutated(self, data: bytes, rng: random.Random) -> bytes:
        """The text with one to four tokens replaced, or with lines moved, or torn."""
        kind = rng.randrange(8)
        if kind == 0:
            return torn(data, rng)
        if kind == 1:
            return lines_moved(data, rng)
        for _ in range(1 + rng.randrange(2) * rng.randrange(4)):
            found = [match.span() for match in _TOKEN.finditer(data)]
            if not found:
                return torn(data, rng)
            start, end = rng.choice(found)
            data = data[:start] + self._token(data, found, rng) + data[end:]
        return data

    def _token(self, data: bytes, found: list[tuple[int, int]], rng: random.Random) -> bytes:
        kind = rng.randrange(8)
        if kind < 3:
            start, end = rng.choice(found)
            return data[start:end]
        if kind < 6:
            return str(rng.choice(NUMBERS[:24])).encode()[:400]
        if kind == 6 and self.words:
            return rng.choice(self.words).encode()
        return rng.choice((*SCRAPS, *TEXTS, "")).encode("utf-8", "surrogatepass")

    def smaller(self, data: bytes) -> list[bytes]:
        """The text without some of its lines, or of its bytes, most first."""
        lines = data.split(b"\n")
        pieces = [(lines, b"\n")] if len(lines) > 1 else [([data[i : i + 1] for i in range(len(data))], b"")]
        found = []
        for parts, between in pieces:
            step = max(1, len(parts) // 2)
            while step:
                found += [between.join(parts[:at] + parts[at + step :]) for at in range(0, len(parts), step)]
                step //= 2
                if len(found) > 2000:
                    break
        return found


@dataclass(frozen=True)
class Named:
    """A text with names of operators, one of which is another of ``words`` half of the time, before it is damaged."""

    inner: Form
    words: Sequence[str]

    def mutated(self, data: bytes, rng: random.Random) -> bytes:
        """As of the inner form."""
        if rng.randrange(2):
            known = {word.encode() for word in self.words}
            found = [match.span() for match in _TOKEN.finditer(data) if match[0] in known]
            if found:
                start, end = rng.choice(found)
                data = data[:start] + rng.choice(self.words).encode() + data[end:]
        return self.inner.mutated(data, rng) if rng.randrange(3) else data

    def smaller(self, data: bytes) -> list[bytes]:
        """As of the inner form."""
        return self.inner.smaller(data)


@dataclass(frozen=True)
class Wire:
    """A protobuf message, damaged by its fields at any depth; lengths around them stay right.

    ``words``: names of operators, ``numbers``: fields that tell an operator; one is another half of the time.
    """

    words: Sequence[str] = ()
    numbers: Sequence[int] = ()

    def mutated(self, data: bytes, rng: random.Random) -> bytes:
        """The message with one to four fields changed, or torn."""
        if (self.words or self.numbers) and rng.randrange(2):
            data = _renamed(data, rng, self)
            if not rng.randrange(3):
                return data
        if not rng.randrange(6):
            return torn(data, rng)
        for _ in range(1 + rng.randrange(2) * rng.randrange(4)):
            data = _field_changed(data, rng, 0)
        return data

    def smaller(self, data: bytes) -> list[bytes]:
        """The message without one of its fields, of any depth down to the third."""
        return _without_a_field(data, 3)


@dataclass(frozen=True)
class Archive:
    """A zip archive. ``forms``: how entries are damaged, by the pattern of their names; others stay as they are."""

    forms: Mapping[str, Form]

    def mutated(self, data: bytes, rng: random.Random) -> bytes:
        """The archive with damage to one entry, seldom to the archive itself."""
        entries = _entries(data)
        known = [name for name in entries if self._form(name)]
        if not known or not rng.randrange(10):
            return torn(data, rng)
        name = rng.choice(known)
        form = self._form(name)
        assert form is not None
        kind = rng.randrange(20)
        if kind == 0:
            del entries[name]
        elif kind == 1:
            entries[name] = entries[rng.choice(list(entries))]
        else:
            entries[name] = form.mutated(entries[name], rng)
        return archived(entries)

    def smaller(self, data: bytes) -> list[bytes]:
        """Archives without an entry, or with a smaller one."""
        entries = _entries(data)
        found = [archived({k: v for k, v in entries.items() if k != name}) for name in entries]
        for name, content in entries.items():
            if form := self._form(name):
                found += [archived({**entries, name: less}) for less in form.smaller(content)[:300]]
        return found

    def _form(self, name: str) -> Form | None:
        return next((form for pattern, form in self.forms.items() if fnmatch(name, pattern)), None)


@dataclass(frozen=True)
class Framed:
    """A JSON document behind its length in eight bytes: a header of safetensors."""

    inner: Form

    def mutated(self, data: bytes, rng: random.Random) -> bytes:
        """The document damaged under its right length, or all of it torn."""
        if not rng.randrange(6):
            return torn(data, rng)
        content = self.inner.mutated(data[8:], rng)
        return len(content).to_bytes(8, "little") + content

    def smaller(self, data: bytes) -> list[bytes]:
        """As of the document."""
        return [len(less).to_bytes(8, "little") + less for less in self.inner.smaller(data[8:])]


BINARY = Binary()


def archived(entries: Mapping[str, bytes]) -> bytes:
    """A stored zip archive whose bytes follow from its entries alone."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return stream.getvalue()


def _entries(data: bytes) -> dict[str, bytes]:
    """The entries that can be unpacked; none of what is no archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {info.filename: archive.read(info) for info in archive.infolist() if info.file_size < 1 << 20}
    except Exception:  # damaged in one of many ways
        return {}


def fields(data: bytes) -> list[Field] | None:
    """The fields of a message; None for bytes that are none."""
    found, at = [], 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        start = at
        if wire == 0:
            _, at = _varint(data, at)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        elif wire == 2:
            length, start = _varint(data, at)
            at = start + length
        else:
            return None
        if number <= 0 or not start <= at <= len(data):
            return None
        found.append((number, wire, data[start:at]))
    return found


def message(parts: Sequence[Field]) -> bytes:
    """A message of these fields."""
    out = bytearray()
    for number, wire, content in parts:
        out += _as_varint(number << 3 | wire)
        out += _as_varint(len(content)) + content if wire == 2 else content
    return bytes(out)


def _field_changed(data: bytes, rng: random.Random, depth: int) -> bytes:
    parts = fields(data)
    if not parts:
        return torn(data, rng) if data else data
    at = rng.randrange(len(parts))
    number, wire, content = parts[at]
    if wire == 2 and content and depth < _DEEPEST and rng.randrange(4):
        parts[at] = (number, wire, _field_changed(content, rng, depth + 1))
        return message(parts)
    kind = rng.randrange(6)
    if kind == 0:
        del parts[at]
    elif kind == 1:
        parts.insert(at, parts[at])
    elif kind == 2:
        parts[at] = (number, *rng.choice(parts)[1:])
    elif kind == 3:
        parts.append((rng.randrange(1, 40), wire, content))
    elif kind == 4:
        other = rng.randrange(len(parts))
        parts[at], parts[other] = parts[other], parts[at]
    else:
        parts[at] = (number, wire, _content(wire, content, rng))
    return message(parts)


def _renamed(data: bytes, rng: random.Random, form: Wire) -> bytes:
    """The message with one of its operators, at any depth, called another."""
    known = frozenset(word.encode() for word in form.words)
    places: list[tuple[int, ...]] = []

    def seek(content: bytes, path: tuple[int, ...]) -> None:
        for at, (number, wire, inner) in enumerate(fields(content) or ()):
            if number in form.numbers or (wire == 2 and inner in known):
                places.append((*path, at))
            elif wire == 2 and len(path) < _DEEPEST and len(inner) > 3:
                seek(inner, (*path, at))

    def change(content: bytes, path: tuple[int, ...]) -> bytes:
        parts = fields(content) or []
        number, wire, inner = parts[path[0]]
        if len(path) > 1:
            parts[path[0]] = (number, wire, change(inner, path[1:]))
        elif number in form.numbers:
            parts[path[0]] = (rng.choice(form.numbers), wire, inner)
        else:
            parts[path[0]] = (number, wire, rng.choice(form.words).encode())
        return message(parts)

    seek(data, ())
    return change(data, rng.choice(places)) if places else data


def _content(wire: int, content: bytes, rng: random.Random) -> bytes:
    if wire == 0:
        value = rng.choice((0, 1, 2, 3, 7, 64, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1))
        return _as_varint(value)
    if wire in (1, 5):
        return rng.choice((bytes(len(content)), b"\xff" * len(content), content[:-1] + b"\x7f"))
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice((*TEXTS, "9" * 40)).encode("utf-8", "surrogatepass")[:400]
    if kind == 1:
        return b"".join(_as_varint(rng.choice((0, 1, 3, 1 << 40, (1 << 64) - 1))) for _ in range(rng.randrange(6)))
    return torn(content, rng)


def _without_a_field(data: bytes, depth: int) -> list[bytes]:
    parts = fields(data)
    if not parts or not depth:
        return []
    found = [message(parts[:at] + parts[at + 1 :]) for at in range(len(parts))]
    for at, (number, wire, content) in enumerate(parts):
        if wire == 2:
            smaller = _without_a_field(content, depth - 1)
            found += [message([*parts[:at], (number, wire, less), *parts[at + 1 :]]) for less in smaller]
    return sorted(found, key=len)[:4000]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            return 0, at
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
    return 0, len(data) + 1


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
