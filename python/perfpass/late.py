"""`dataclass` as the standard library has it, whose methods are compiled when they are first used.

`dataclasses` writes and compiles up to six methods as it makes a class: some 2.5 million instructions. A prediction on
the command line imports a hundred such classes and uses a tenth of their methods. So a module that it imports takes
`dataclass` from here, and all else (`field`, `replace`, ...) from `dataclasses`.

The standard library's own functions run here too, with one name changed among those that they see: what compiles the
source of a method gives a descriptor instead, which compiles it at the first look-up and puts the method in its place.
Until then `vars(cls)` tells the two apart; nothing else does. Python 3.13 compiles a class at once, and there it is the
standard decorator; Python 3.10 to 3.12, whose names are changed, receive nothing but security fixes.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass

__all__ = ["dataclass"]


class _Late:
    """A method of a class that is made when it is first looked up, and then stands where this stood."""

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.__name__ = name
        self.make = make

    def __get__(self, instance: object, owner: type) -> Any:
        method = self.make()
        for cls in owner.__mro__:
            if vars(cls).get(self.__name__) is self:
                method.__qualname__ = f"{cls.__qualname__}.{self.__name__}"
                setattr(cls, self.__name__, method)
                break
        return method.__get__(instance, owner)


def _late_dataclass() -> Callable[..., Any]:
    """`dataclasses.dataclass`, run on a copy of its module's names in which methods are late."""
    standard = vars(dataclasses)
    create, guard = standard["_create_fn"], standard["_recursive_repr"]

    def create_late(name: str, arguments: Any, body: Any, **rest: Any) -> _Late:
        return _Late(name, lambda: create(name, arguments, body, **rest))

    def guard_late(late: _Late) -> _Late:
        return _Late(late.__name__, lambda: guard(late.make()))

    names = dict(standard)
    for name, function in standard.items():
        if isinstance(function, FunctionType) and function.__module__ == dataclasses.__name__:
            copy = FunctionType(function.__code__, names, name, function.__defaults__, function.__closure__)
            copy.__kwdefaults__, copy.__doc__ = function.__kwdefaults__, function.__doc__
            names[name] = copy
    names["_create_fn"], names["_recursive_repr"] = create_late, guard_late
    # How a class gets its __hash__: a table of functions.
    names["_hash_action"] = {case: act and names[act.__name__] for case, act in standard["_hash_action"].items()}
    return names["dataclass"]


if not TYPE_CHECKING:
    dataclass = _late_dataclass() if sys.version_info < (3, 13) else dataclasses.dataclass
