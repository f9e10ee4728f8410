"""Arithmetic on numbers, texts and lists that the program of a file holds: every result is of a bounded size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perfpass.errors import FormatError, LimitError, PerfPassError

_MOST_ITEMS = 1 << 20  # of a list or a text that a program makes
_MOST_BITS = 128


def computed(function: Callable[..., Any], values: Sequence[Any]) -> Any:
    """``function`` of the values. Raises FormatError where it fails, LimitError for a result past the bounds."""
    try:
        found = function(*values)
    except PerfPassError:
        raise
    except (ArithmeticError, TypeError, ValueError, LookupError, AttributeError) as error:
        raise FormatError(f"the program's arithmetic fails: {type(error).__name__}: {str(error)[:100]}") from error
    if isinstance(found, int) and found.bit_length() > _MOST_BITS:
        raise LimitError(f"the program's arithmetic passes {_MOST_BITS} bits")
    if isinstance(found, (list, tuple, str, dict)) and len(found) > _MOST_ITEMS:
        raise _too_long()
    return found


def appended(values: list[Any], item: Any) -> list[Any]:
    """``values`` with ``item`` behind."""
    if len(values) >= _MOST_ITEMS:
        raise _too_long()
    values.append(item)
    return values


def multiplied(a: Any, b: Any) -> Any:
    """A product, or a list or a text several times."""
    for values, times in ((a, b), (b, a)):
        if isinstance(values, (list, tuple, str)) and len(values) * max(times, 0) > _MOST_ITEMS:
            raise _too_long()
    return a * b


def remainder(a: Any, b: Any) -> Any:
    """A remainder; of a text it would be a format, whose widths have no bound."""
    if isinstance(a, str):
        raise TypeError("a text has no remainder")
    return a % b


def power(a: Any, b: Any) -> Any:
    """A power; a whole number to no exponent over 128."""
    if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and b > _MOST_BITS:
        raise LimitError(f"the program's arithmetic passes {_MOST_BITS} bits")
    return a**b


def ranged(*bounds: int) -> list[int]:
    """The numbers of a range."""
    found = range(*bounds)
    if len(found) > _MOST_ITEMS:
        raise _too_long()
    return list(found)


def _too_long() -> LimitError:
    return LimitError(f"the program makes a list of over {_MOST_ITEMS} items")
