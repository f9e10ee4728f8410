"""Damage to documents: first to the tree that a text stands for, then to the text.

Every function takes its choices from a `random.Random`, so that a seed of the fuzzing engine decides all of them.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

# Numbers at and past the limits of the types that figures pass through (int32, int64, float, the digits of an int).
NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 7, 64, 100, 1000, -4, 2**31, 2**53 + 1, 2**63, 2**64, 10**30, 10**400, -(10**400)),
    *(0.0, -0.0, 0.5, 1.5, -1.5, 1e-300, 1e-9, 1e9, 1e300, float("nan"), float("inf"), float("-inf")),
)
TEXTS = (
    *("", " ", "0", "1", "-1", "1e9", "nan", "inf", "true", "false", "null", "None", "auto", "x", "\t", "a\nb", "\x00"),
    *(
        "\x1b[31m",
        "\u202eevil",
        "\ud800",
        "\uff46\uff5016",
        "é",
        "İ",
        "🦙",
        "a" * 300,
        "a" * 5000,
        "../../x",
        "%s%n",
        "{0}",
        "'\"\\",
    ),
)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": 1}, [1, 2, 3], {"a": {"b": {}}})
# What a text may hold that no tree does.
SCRAPS = (
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "-1e999",
        "9" * 5000,
        "0x" + "f" * 5000,
        "1_000",
        "00",
        "--1",
        "1.",
        ".5",
    ),
    *(
        "[" * 3000,
        "{" * 3000,
        '{"a":' * 3000,
        "[[" * 2000,
        "]",
        "}",
        ",",
        ":",
        '"',
        "\\",
        "\\u0000",
        "\\ud800",
        "\n",
        "\r",
    ),
    *("\x00", "\ufeff", "\u2028", "#", "=", "a.b.c", "inf", "nan", "1979-05-27T07:32:00Z", "07:32:00", "true", "null"),
)


def scalar(rng: random.Random) -> Any:
    """A value that few fields allow."""
    kind = rng.randrange(8)
    if kind < 4:
        return rng.choice(NUMBERS)
    if kind < 6:
        return rng.choice(TEXTS)
    return copy.deepcopy(rng.choice(OTHERS))


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Every (container, key or index) of a tree, in order."""
    found: list[tuple[Any, Any]] = []
    rest = [tree]
    while rest:
        node = rest.pop()
        keys = node.keys() if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            found.append((node, key))
            rest.append(node[key])
    return found


def damaged(tree: Any, rng: random.Random, words: Sequence[str], values: Sequence[Any] = ()) -> Any:
    """A copy of ``tree`` with one to four changes; ``words``: keys that its format has, ``values`` of its own."""
    root = [copy.deepcopy(tree)]
    for _ in range(1 + rng.randrange(2) * rng.randrange(4)):
        spots = places(root)
        # The root itself seldom: most readers look no further then.
        container, key = rng.choice(spots[1:]) if len(spots) > 1 and rng.randrange(40) else spots[0]
        _change(container, key, rng, words, values)
    return root[0]


def _change(container: Any, key: Any, rng: random.Random, words: Sequence[str], values: Sequence[Any]) -> None:
    value = container[key]
    kind = rng.randrange(16)
    if kind < 4:
        container[key] = scalar(rng)
    elif kind < 7:
        container[key] = _near(value, rng)
    elif kind < 9 and values:
        container[key] = copy.deepcopy(rng.choice(values))
    elif kind == 9:
        del container[key]
        if isinstance(container, list) and not container:
            container.append(value)  # the root keeps its one place
    elif kind == 10 and isinstance(container, dict):
        del container[key]
        container[_misspelt(str(key), rng)] = value
    elif kind == 11 and words:
        inside = value if isinstance(value, dict) else container
        if isinstance(inside, dict):
            inside[rng.choice(words)] = rng.choice(values) if values and rng.randrange(2) else scalar(rng)
    elif kind == 12:
        container[key] = rng.choice(
            (
                [value],
                {"default": value},
                [value] * (2 if isinstance(value, (list, dict)) else 1000),
                as_json(value).decode(),
            )
        )
    elif kind == 13 and isinstance(value, (list, dict)) and value:
        container[key] = next(iter(value.values())) if isinstance(value, dict) else value[0]
    elif kind == 14 and isinstance(value, list):
        container[key] = rng.choice((value + value, value[::-1], value[1:], value * 30))
    else:
        container[key] = copy.deepcopy(_other(container, rng))


def _other(container: Any, rng: random.Random) -> Any:
    """A value from elsewhere in the same container."""
    held = list(container.values()) if isinstance(container, dict) else container
    return rng.choice(held) if held else scalar(rng)


_LONG = 10_000  # of a text that is repeated: kept inputs are damaged again and again


def _near(value: Any, rng: random.Random) -> Any:
    """Nearly the same: of a neighbouring type, sign or size."""
    if isinstance(value, bool):
        return rng.choice((not value, int(value), str(value).lower(), str(value), None))
    if isinstance(value, (int, float)):
        ways: tuple[Callable[[], Any], ...] = (
            *(lambda: -value, lambda: value + 1, lambda: value - 1, lambda: value * 2, lambda: value / 2),
            *(lambda: value * 1000, lambda: str(value), lambda: float(value), lambda: [value], lambda: value * 10**12),
        )
        try:
            return rng.choice(ways)()
        except OverflowError:
            return None
    if isinstance(value, str):
        longer = value * 50 if len(value) < _LONG else value
        return rng.choice(
            (value.upper(), value + "x", value[:-1], f" {value} ", longer, [value], value.replace("-", "_"))
        )
    return scalar(rng)


def _misspelt(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word) + 1)
    return rng.choice((word.upper(), word + "s", word[:at] + word[at + 1 :], word.replace("_", "-"), f"_{word}", ""))


def torn(data: bytes, rng: random.Random) -> bytes:
    """Damage to the bytes: cut off, bits turned, spans doubled, removed or put elsewhere, scraps of other text."""
    out = bytearray(data)
    for _ in range(1 + rng.randrange(3)):
        at = rng.randrange(len(out) + 1)
        length = rng.choice((1, 1, 2, 4, 16, 64))
        kind = rng.randrange(8)
        if kind == 0:
            del out[at:]
        elif kind == 1 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            out[at:at] = out[at : at + length]
        elif kind == 3:
            del out[at : at + length]
        elif kind == 4:
            out[at:at] = rng.choice(SCRAPS).encode("utf-8", "surrogatepass")
        elif kind == 5 and at < len(out):
            out[at] = rng.randrange(256)
        elif kind == 6:
            source = rng.randrange(len(out) + 1)
            out[at:at] = out[source : source + length * 8]
        else:
            _instead_of_a_number(out, rng)
    return bytes(out)


def _instead_of_a_number(out: bytearray, rng: random.Random) -> None:
    digits = [i for i, byte in enumerate(out[:20_000]) if 48 <= byte <= 57]
    if digits:
        start = end = rng.choice(digits)
        while end < len(out) and 48 <= out[end] <= 57:
            end += 1
        out[start:end] = rng.choice(SCRAPS).encode("utf-8", "surrogatepass")


def lines_moved(data: bytes, rng: random.Random) -> bytes:
    """The lines of a text with one of them doubled, dropped, moved or cut."""
    lines = data.split(b"\n")
    at, to = rng.randrange(len(lines)), rng.randrange(len(lines) + 1)
    kind = rng.randrange(4)
    if kind == 0:
        lines.insert(to, lines[at])
    elif kind == 1:
        del lines[at]
    elif kind == 2:
        lines.insert(min(to, len(lines) - 1), lines.pop(at))
    else:
        lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
    return b"\n".join(lines)


def as_json(tree: Any) -> bytes:
    """A tree as JSON, with NaN and Infinity where it has them; lone surrogates as escapes."""
    try:
        return json.dumps(tree, indent=1, default=str).encode()
    except (ValueError, RecursionError):  # whole numbers of over 4,300 digits
        return b"0"
