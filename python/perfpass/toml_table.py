"""Reading TOML: files that a person wrote (devices, prices, grids, campaigns), and those that ship with perfpass.

The one place that knows which package reads TOML: the standard library's since Python 3.11, tomli before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfpass.bounded_file import read_file
from perfpass.declared import too_large
from perfpass.errors import FormatError, LimitError

LARGEST_FILE_BYTES = 2**20


# Of an inline table: a text, which stays, or a key and its sign.
_INLINE = r'("[^"\\]*")|([A-Za-z0-9_-]+) = '

# Parts of a key; a parser's work grows with their square. A table of ours is three deep.
_MOST_PARTS = 16
_PART = r"""(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*\.[ \t]*"""
_LONG_KEY = rf"(?<![\w-])(?:{_PART}){{{_MOST_PARTS}}}"


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The content of ``path``, which is ``what`` ("a price table").

    Raises FileError (not there, no regular file), LimitError (over 1 MiB, or a key of over 16 parts) and FormatError
    for what is no TOML, is nested over 64 deep or has a whole number of over 64 bits.
    """
    content = read_file(path, what, LARGEST_FILE_BYTES)
    try:
        text = content.decode("utf-8-sig")
    except ValueError as error:
        raise FormatError(f"{path}: not a TOML file, as {what} is ({error})") from error
    return read_text(text, str(path), what)


def read_text(text: str, path: str, what: str) -> dict[str, Any]:
    """The content of a text that a person wrote in ``path``. Raises LimitError and FormatError as `read_toml`."""
    try:
        if long := re.search(_LONG_KEY, text):
            line = text.count("\n", 0, long.start()) + 1
            raise LimitError(f"{path}, line {line}: a key of over {_MOST_PARTS} parts; {what} has none")
        found = _read(text)
        wrong = too_large(found, finite=False)
    except LimitError:
        raise
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not a TOML file, as {what} is ({error})") from error
    if wrong is not None:
        raise FormatError(f"{path}: {wrong}")
    return found


def parse(text: str) -> dict[str, Any]:
    """The content of TOML that ships with perfpass.

    Nearly all of it is lines of a key and a value that JSON writes alike, which its parser in C reads in a tenth of the
    time that TOML's takes; what is anything else is left to that one.
    """
    found = _of_lines(text)
    return _read(text) if found is None else found


def _read(text: str) -> dict[str, Any]:
    """Any TOML. Raises ValueError and RecursionError."""
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def _of_lines(text: str) -> dict[str, Any] | None:
    """The content of TOML of bare keys, whose values stand in one line each or are an array of lines; else None."""
    found: dict[str, Any] = {}
    table, lines = found, iter(text.split("\n"))
    for line in lines:
        if not line or line[0] == "#":
            continue
        if line[0] == "[":
            name = line[1:-1]
            if not _is_bare(name) or name in found or line[-1] != "]":
                return None
            table = found[name] = {}
            continue
        key, _, value = line.partition(" = ")
        if not _is_bare(key) or key in table:
            return None
        if value == "[":
            value = f"[{''.join(_until_closed(lines)).removesuffix(',')}]"
        elif value[:1] == "{":
            value = re.sub(_INLINE, lambda part: part[1] or f'"{part[2]}": ', value)
        try:
            table[key] = json.loads(value)
        except ValueError:
            return None
    return found


def _until_closed(lines: Iterator[str]) -> Iterator[str]:
    """The lines of an array. Where it does not end, one that nothing reads."""
    for line in lines:
        if line == "]":
            return
        yield line
    yield "["


def _is_bare(key: str) -> bool:
    """Whether a key is one that TOML takes without quotes."""
    return key.isascii() and key.replace("-", "a").replace("_", "a").isalnum()
