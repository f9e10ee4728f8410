"""What other packages bring: found by the entry points they declare, or registered by their code when it is imported.

An entry point is enough for what is installed; code that runs from a source tree has none and registers itself. Nothing
is looked for before it is asked for.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from perfpass.errors import UnsupportedError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_registered: dict[tuple[str, str], Any] = {}


def register(group: str, name: str, brought: Any) -> None:
    """Makes ``brought`` known under ``name``, in the place of an entry point of that name."""
    _registered[group, name] = brought


def names(group: str) -> tuple[str, ...]:
    """Everything in a group: what is declared, in the order of its declaration, and what else is registered."""
    return tuple(dict.fromkeys((*_declared(group), *(name for known, name in _registered if known == group))))


def find(group: str, name: str) -> Any:
    """What a group has under a name, imported now; None where there is nothing.

    Raises UnsupportedError where an entry point names what cannot be imported.
    """
    if (group, name) in _registered:
        return _registered[group, name]
    point = _declared(group).get(name)
    if point is None:
        return None
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise UnsupportedError(
            f"{name}: {point.value}, which is declared for it, cannot be imported: {error}"
        ) from error


@cache
def _declared(group: str) -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=group)}
