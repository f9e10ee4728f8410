"""What the parsers of all commands share: the frame of a command, and the types of its values."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from perfpass.errors import ArgumentError


def new_command(commands: Any, name: str, run: Callable[[Any], int], summary: str, epilog: str | None = None) -> Any:
    """One more command with its help; ``run(options)`` executes it."""
    command = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.set_defaults(run=run)
    return command


def lazy(name: str) -> Callable[[Any], int]:
    """The function of perfpass.cli.commands of that name, imported when it is called."""

    def run(options: Any) -> int:
        from perfpass.cli import commands

        code: int = getattr(commands, name)(options)
        return code

    return run


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text, 10)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def wholes(text: str) -> list[int]:
    """Whole numbers with commas between them."""
    return [whole(part.strip()) for part in text.split(",")]


def texts(text: str) -> list[str]:
    """Words with commas between them."""
    return [part.strip() for part in text.split(",")]


def seconds(text: str) -> float:
    """A time, as 90s, 25m or 2h."""
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:])
    try:
        value = float(text[:-1]) if unit else float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time (for example 90s, 25m or 2h)")
    return value * (unit or 1.0)


def pair(text: str) -> tuple[str, str]:
    """READER=PYTHON."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"expected READER=PYTHON, got {text!r}")
    return name, value


def dim(text: str) -> tuple[str, int]:
    """NAME=N."""
    name, equals, value = text.rpartition("=")
    if not equals or not name or not value.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=N (for example batch=8)")
    return name, int(value)


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """NAME=SIZExSIZE."""
    name, equals, value = text.rpartition("=")
    parts = value.lower().split("x")
    if not equals or not name or not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZExSIZE (for example input=1x3x224x224)")
    return name, tuple(int(part) for part in parts)


def once(pairs: Sequence[tuple[str, Any]], option: str) -> dict[str, Any] | None:
    """Repeated NAME=VALUE options as a mapping, None if there are none. Raises ArgumentError on a name given twice."""
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ArgumentError(f"{option} gives {twice!r} more than once; give each name once")
    return mapping or None
