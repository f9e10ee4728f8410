"""Numbers, sizes and tables as plain text, aligned, at most 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

WIDTH = 100
_SHOWN = 60  # characters of a wrong value, and of a name whose like is sought
_WIDEST = 2**64  # no count, size or time of ours comes near it

_BINARY = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0))
_DECIMAL = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))


def printable(text: str) -> str:
    """Text from a model file, safe for a terminal: control and escape characters are shown as their codes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown_value(value: Any) -> str:
    """A value for an error of one line, cut off where it is long."""
    if isinstance(value, int) and abs(value) > _WIDEST:
        return f"a whole number of about {value.bit_length() * 0.30103:.0f} digits"  # repr refuses those of thousands
    try:
        text = repr(value[:_SHOWN] if isinstance(value, str) else value)
    except (RecursionError, ValueError):
        text = f"a {type(value).__name__}"
    if isinstance(value, str):
        return text if len(value) <= _SHOWN else f"{text}... ({len(value)} characters)"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def nearest(name: str, known: Iterable[str], most: int = 3) -> str:
    """A question after those of ``known`` that ``name`` is like, with a space before it; empty where there is none."""
    import difflib

    spellings = {_plain(one): one for one in known}
    near = difflib.get_close_matches(_plain(name[:_SHOWN]), spellings, n=most, cutoff=0.6)
    return f" did you mean {' or '.join(spellings[key] for key in near)}?" if near else ""


def instead(name: object, allowed: Iterable[str], listed: str = "") -> str:
    """The end of an error about a name that is none of ``allowed``: the nearest ones, then all.

    ``listed`` says them, where they are too many for a line.
    """
    known = list(allowed)
    like = nearest(name, known) if isinstance(name, str) else ""
    return f";{like} allowed are {listed or ', '.join(known)}"


def unknown(what: str, name: object, allowed: Iterable[str], listed: str = "") -> str:
    """The error of a name that is none of ``allowed``, as `instead` says it."""
    return f"unknown {what} {shown_value(name)}{instead(name, allowed, listed)}"


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")


def digits(value: float) -> str:
    """Four significant digits, without an exponent where it is not needed."""
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e7:
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    return f"{value:.3e}"


def size(value: float) -> str:
    """Bytes with a binary unit."""
    unit, factor = _binary(value)
    return f"{digits(value / factor)} {unit}"


def _binary(value: float) -> tuple[str, float]:
    """The largest binary unit that a number of bytes fills, and its bytes."""
    return next(((u, f) for u, f in _BINARY if abs(value) >= f), _BINARY[-1])


def interval(median: float, low: float, high: float, unit: str) -> tuple[str, str, str]:
    """Median, unit and bounds as cells; bytes ("byte") in the binary unit of the median."""
    factor = 1.0
    if unit == "byte":
        unit, factor = _binary(median)
    return digits(median / factor), unit, f"{digits(low / factor)} to {digits(high / factor)}"


def figure(value: float) -> str:
    """A number within a sentence: with a decimal prefix from a million on."""
    return count(value) if abs(value) >= 1e6 else digits(value)


def count(value: float, unit: str = "") -> str:
    """A count with a decimal prefix and its ``unit``."""
    prefix, factor = next(((p, f) for p, f in _DECIMAL if abs(value) >= f), _DECIMAL[-1])
    return f"{digits(value / factor)} {prefix}{unit}".rstrip()


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = (), indent: str = "  ") -> str:
    """Rows as aligned columns; those of index ``right`` are flush right. The last column is cut at ``WIDTH``."""
    if not rows:
        return ""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        line = (indent + "  ".join(cells)).rstrip()
        lines.append(line if len(line) <= WIDTH else line[: WIDTH - 3] + "...")
    return "\n".join(lines)


def item(text: str) -> str:
    """A text as a point of a list, wrapped under itself."""
    return textwrap.fill(printable(text), WIDTH, initial_indent="    - ", subsequent_indent="      ")


def paragraph(label: str, text: str) -> str:
    """A labelled text, wrapped under itself."""
    head = f"  {label:<12} "
    return textwrap.fill(printable(text), WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
