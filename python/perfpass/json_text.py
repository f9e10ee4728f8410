"""Reading JSON that others wrote: a journal's line, a calibration, a configuration, a graph summary.

Stricter than the standard library: a key that occurs twice has no meaning, NaN is no JSON, and what is nested without
end, has half characters or numbers of a thousand digits is refused before anything is made of it.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, NoReturn

from perfpass.bounded_file import read_file
from perfpass.declared import DEEPEST, too_large
from perfpass.errors import FormatError, shown
from perfpass.text import shown_value

_LONG = 4096  # letters, from which on a look by the core is quicker than a call for every object
_HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")  # as an escape, or as it came through decoding


def read_json(
    path: str | os.PathLike[str], what: str, most_bytes: int, *, any_number: bool = False, way_out: str = ""
) -> Any:
    """The content of the regular file ``path``, which is ``what`` ("a calibration").

    Raises FileError and LimitError as `perfpass.bounded_file.read_file`, FormatError as `parse`.
    """
    return parse(read_file(path, what, most_bytes), shown(path), any_number=any_number, way_out=way_out)


def parse(content: bytes | str, where: str, *, any_number: bool = False, way_out: str = "") -> Any:
    """The value that ``content`` is. ``where`` names it in errors and ``way_out`` says what to do then.

    ``any_number``: NaN, infinities and whole numbers of any size are taken, as other libraries write them; who counts
    with them checks them. Raises FormatError.
    """
    try:
        text = content if isinstance(content, str) else content.decode(json.detect_encoding(content), "surrogatepass")
        if plain := _is_plain(content, text):
            found = json.loads(text)
        else:
            found = json.loads(text, object_pairs_hook=_once, parse_constant=None if any_number else _refuse)
    except RecursionError as error:
        raise FormatError(f"{where} is not JSON (nested too deep){_then(way_out)}") from error
    except ValueError as error:
        raise FormatError(f"{where} is not JSON ({error}){_then(way_out)}") from error
    if not plain and (not any_number or text.count("[") + text.count("{") > DEEPEST):
        wrong = too_large(found, numbers=not any_number, finite=not any_number)
        if wrong is not None:
            raise FormatError(f"{where}: {wrong}{_then(way_out)}")
    if ("\\u" in text or not text.isascii()) and _HALF.search(text) and not _is_whole(found):
        raise FormatError(f"{where}: half a character (U+D800 to U+DFFF) in a text{_then(way_out)}")
    return found


def _is_plain(content: bytes | str, text: str) -> bool:
    """Whether nothing is in a long text that is looked for here, but for half a character as it came."""
    if len(text) < _LONG:
        return False
    from perfpass import _core

    return _core.is_plain_json(content if isinstance(content, bytes) else text.encode("utf-8", "surrogatepass"))


def _is_whole(found: Any) -> bool:
    """Whether every text in it can be written: pairs of escapes are a character, one of them is none."""
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _then(way_out: str) -> str:
    return f"; {way_out}" if way_out else ""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {shown_value(twice)} occurs twice in one object")
    return found


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")
