"""The texts that are damaged: each format from its tree and back, so that damage can be done to either."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

import tomllib

from .mutations import as_json, damaged, lines_moved, torn

_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Json:
    """One JSON document. ``words``: keys that readers know; ``values``: values that they know."""

    words: Sequence[str] = ()
    values: Sequence[Any] = ()

    def mutated(self, data: bytes, rng: random.Random) -> bytes:
        """The document with damage done to its tree, or to its text."""
        try:
            tree = json.loads(data)
        except (ValueError, RecursionError):
            return torn(data, rng)
        if not rng.randrange(6):
            return torn(data, rng)
        return self.dumped(damaged(tree, rng, self.words, self.values))

    def dumped(self, tree: Any) -> bytes:
        """The tree as text."""
        return as_json(tree)

    def smaller(self, data: bytes) -> list[bytes]:
        """Documents with one part less, largest parts first; none where the text is no JSON."""
        try:
            tree = json.loads(data)
        except (ValueError, RecursionError):
            return []
        return [self.dumped(less) for less in without_one(tree)]


@dataclass(frozen=True)
class JsonLines:
    """One JSON document a line."""

    words: Sequence[str] = ()
    values: Sequence[Any] = ()

    def mutated(self, data: bytes, rng: random.Random) -> bytes:
        """The lines with damage done to one of them, or to their order."""
        kind = rng.randrange(8)
        if kind == 0:
            return torn(data, rng)
        if kind == 1:
            return lines_moved(data, rng)
        lines = data.split(b"\n")
        at = rng.randrange(len(lines))
        try:
            tree = json.loads(lines[at])
        except (ValueError, RecursionError):
            return lines_moved(data, rng)
        changed = json.dumps(damaged(tree, rng, self.words, self.values), default=str, separators=(",", ":")).encode()
        return b"\n".join([*lines[:at], changed, *lines[at + 1 :]])

    def smaller(self, data: bytes) -> list[bytes]:
        """The text without one of its lines, then with one part less of each."""
        lines = data.split(b"\n")
        found = [b"\n".join(lines[:i] + lines[i + 1 :]) for i in range(len(lines))]
        for i, line in enumerate(lines):
            try:
                less = without_one(json.loads(line))
            except (ValueError, RecursionError):
                continue
            found += [
                b"\n".join([*lines[:i], json.dumps(t, separators=(",", ":")).encode(), *lines[i + 1 :]]) for t in less
            ]
        return found


@dataclass(frozen=True)
class Toml:
    """One TOML document."""

    words: Sequence[str] = ()
    values: Sequence[Any] = ()

    def mutated(self, data: bytes, rng: random.Random) -> bytes:
        """The document with damage done to its tree, or to its text."""
        kind = rng.randrange(8)
        try:
            tree = tomllib.loads(data.decode())
        except (ValueError, RecursionError):
            return torn(data, rng)
        if kind == 0:
            return torn(data, rng)
        if kind == 1:
            return lines_moved(data, rng)
        return toml(damaged(tree, rng, self.words, self.values))

    def smaller(self, data: bytes) -> list[bytes]:
        """Documents with one part less; none where the text is no TOML."""
        try:
            tree = tomllib.loads(data.decode())
        except (ValueError, RecursionError):
            return []
        return [toml(less) for less in without_one(tree)]


@dataclass(frozen=True)
class Xml:
    """One XML document, whose elements are damaged as ``[tag, attributes, text, *children]``."""

    words: Sequence[str] = ()

    def mutated(self, data: bytes, rng: random.Random) -> bytes:
        """The document with damage done to its tree, or to its text."""
        try:
            tree = _of_element(ElementTree.fromstring(data))
        except (ElementTree.ParseError, ValueError, RecursionError):
            return torn(data, rng)
        if not rng.randrange(6):
            return torn(data, rng)
        return xml(damaged(tree, rng, self.words))

    def smaller(self, data: bytes) -> list[bytes]:
        """Documents with one part less, largest parts first; none where the text is no XML."""
        try:
            tree = _of_element(ElementTree.fromstring(data))
        except (ElementTree.ParseError, ValueError, RecursionError):
            return []
        return [xml(less) for less in without_one(tree)[:4000]]


def _of_element(element: ElementTree.Element) -> list[Any]:
    return [element.tag, dict(element.attrib), (element.text or "").strip(), *map(_of_element, element)]


def xml(tree: Any) -> bytes:
    """A tree as text, whatever damage was done to it; what XML has no letters for is left out."""
    return _as_xml(tree).encode("utf-8", "ignore")


def _as_xml(tree: Any) -> str:
    if not isinstance(tree, list) or not tree:
        return escape(str(tree)[:5000]) if isinstance(tree, str) else escape(as_json(tree).decode()[:5000])
    tag, attributes = str(tree[0])[:300] or "e", tree[1] if len(tree) > 1 and isinstance(tree[1], dict) else {}
    stated = "".join(
        f" {k}={quoteattr(v if isinstance(v, str) else as_json(v).decode())}" for k, v in attributes.items()
    )
    return f"<{tag}{stated}>{''.join(map(_as_xml, tree[2:]))}</{tag}>"


@dataclass(frozen=True)
class Binary:
    """Bytes without a tree that we would read; ``start``: the first of them that are damaged."""

    start: int = field(default=0)

    def mutated(self, data: bytes, rng: random.Random) -> bytes:
        """The bytes with damage done to them."""
        return data[: self.start] + torn(data[self.start :], rng)

    def smaller(self, data: bytes) -> list[bytes]:
        """The bytes without a half, a quarter, ... at the end."""
        return [data[: len(data) - (len(data) >> n)] for n in range(1, 8)]


def without_one(tree: Any) -> list[Any]:
    """The tree without one of its parts, for every part; larger parts first."""
    found: list[tuple[int, Any]] = []

    def visit(node: Any, rebuilt: Any) -> None:
        items = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
        for key, value in items:
            rest = [(k, v) for k, v in items if k != key]
            less = dict(rest) if isinstance(node, dict) else [v for _, v in rest]
            found.append((_size(value), rebuilt(less)))
            if isinstance(value, (dict, list)):

                def inside(new: Any, key: Any = key, node: Any = node, rebuilt: Any = rebuilt) -> Any:
                    copied = dict(node) if isinstance(node, dict) else list(node)
                    copied[key] = new
                    return rebuilt(copied)

                visit(value, inside)

    if isinstance(tree, (dict, list)):
        visit(tree, lambda new: new)
    return [less for _, less in sorted(found, key=lambda pair: -pair[0])]


def _size(value: Any) -> int:
    """Scalars of a tree."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_size, inside))


def toml(tree: Any) -> bytes:
    """A tree as TOML: tables and lists of tables of the first level as blocks, the rest inline."""
    if not isinstance(tree, dict):
        return _inline(tree).encode("utf-8", "surrogatepass")
    plain, blocks = [], []
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            blocks.append(f"\n[{_key(key)}]\n" + _rows(value))
        elif isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
            blocks += [f"\n[[{_key(key)}]]\n" + _rows(row) for row in value]
        else:
            plain.append(f"{_key(key)} = {_inline(value)}\n")
    return "".join([*plain, *blocks]).encode("utf-8", "surrogatepass")


def _rows(table: dict[Any, Any]) -> str:
    return "".join(f"{_key(key)} = {_inline(value)}\n" for key, value in table.items())


def _key(key: Any) -> str:
    text = str(key)
    return text if _BARE.fullmatch(text) else json.dumps(text)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(k)} = {_inline(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # nan, inf and -inf are TOML
    if isinstance(value, int):
        return hex(value) if value > 10**100 else str(value)  # long numbers have no other way in
    if isinstance(value, (float, date, datetime, time)):
        return value.isoformat() if isinstance(value, (date, time)) else repr(value)
    return json.dumps("" if value is None else str(value), ensure_ascii=not str(value).isprintable())


def vouched(data: bytes) -> bytes:
    """A JSON object that has a digest with the digest of its content, whatever that is: damage that its writer did."""
    from perfpass.predictors.calibration import device_file

    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if not (isinstance(content, dict) and "sha256" in content):
        return data
    del content["sha256"]
    return json.dumps(device_file.digested(content)).encode()
