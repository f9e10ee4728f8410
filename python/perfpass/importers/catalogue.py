"""The catalogue of models by name: figures of their configurations as facts, each with its source (`catalogue.tsv`).

A line is the names that share a configuration, separated by "|", a tab, and a JSON object: ``config`` (fields of a
config.json), ``like`` (the name of a configuration that it changes), ``from`` (the key of its source), ``parameters``
and ``counted`` (a published count and who states it, where there is one). Lines that begin with "#" hold the sources.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfpass.bounded_file import read_file
from perfpass.declared import Anything, Named, Number, Table, Text
from perfpass.errors import FormatError
from perfpass.json_text import parse

PATH = Path(__file__).with_suffix(".tsv")
_LARGEST_BYTES = 4 * 2**20
_LARGEST_LINE = 64 * 2**10
_ENTRY = Table(
    {
        "config": Named(Anything(), most=200),
        "like": Text(120),
        "from": Text(40),
        "parameters": Number(1, 1e13, whole=True),
        "counted": Text(80),
    },
    ("config", "from"),
)


@functools.cache
def _lines() -> dict[str, tuple[tuple[str, ...], str]]:
    """First name of a line -> all its names and its JSON text, not parsed."""
    text = read_file(PATH, "the catalogue of models", _LARGEST_BYTES).decode()
    found = {}
    for line in text.split("\n"):
        if line and not line.startswith("#"):
            names, _, content = line.partition("\t")
            every = tuple(names.split("|"))
            found[every[0]] = (every, content)
    return found


@functools.cache
def sources() -> dict[str, str]:
    """Key of a source -> what it is, with its version and the day on which it was read."""
    text = read_file(PATH, "the catalogue of models", _LARGEST_BYTES).decode()
    lines = (line[2:].partition(" = ") for line in text.split("\n") if line.startswith("# ") and " = " in line)
    return {key: what for key, _, what in lines}


def names() -> dict[str, tuple[str, ...]]:
    """The first name of every entry -> all its names."""
    return {first: every for first, (every, _) in _lines().items()}


@functools.cache
def entry(name: str) -> Mapping[str, Any]:
    """What the catalogue says of the entry of this first name. Raises FormatError where it is damaged."""
    content = _lines()[name][1]
    if len(content) > _LARGEST_LINE:
        raise FormatError(f"{PATH.name}: {name} is longer than {_LARGEST_LINE} characters")
    found = parse(content, f"{PATH.name}, {name}")
    return _ENTRY.take(found, f"{PATH.name}, {name}")


def holds(name: str) -> bool:
    """Whether an entry has this first name."""
    return name in _lines()
