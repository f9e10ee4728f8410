"""`dataclass` as the standard library has it, whose methods are compiled when they are first used.

`dataclasses` writes and compiles up to six methods as it makes a class: some 2.5 million instructions. A prediction on
the command line imports a hundred such classes and uses a tenth of their methods. So a module that it imports takes
`dataclass` from here, and all else (`field`, `replace`, ...) from `dataclasses`.

The standard library's own functions run here too, with two names changed among those that they see: what compiles the
source of a method gives a descriptor instead, which compiles it at the first look-up and puts the method in its place.
An `__init__` that only takes and sets its fields is not even compiled for the first objects of a class: `_Plain` sets
them as it would. Most classes have one or two in a prediction, and to compile one takes as long as a hundred times
that. Until then `vars(cls)` tells the two apart; nothing else does. Python 3.13 compiles a class at once, and there it
is the standard decorator; Python 3.10 to 3.12, whose names are changed, receive nothing but security fixes.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass

__all__ = ["dataclass", "without_delay"]

_MOST_PLAIN = 64  # objects of a class that `_Plain` makes: together they take as long as to compile


class _Plain:
    """What an `__init__` does whose fields are all given or have a default, done by a loop over them."""

    most = _MOST_PLAIN

    def __init__(self, fields: Any, by_place: Any, frozen: bool, ends: bool) -> None:
        """``fields`` in order, those ``by_place`` first; ``ends``: whether there is a `__post_init__`."""
        self._fields = [(f.name, f.default, f.default_factory) for f in fields]
        self._by_place = [f.name for f in by_place]
        self._known = {f.name for f in fields}
        self._set = object.__setattr__ if frozen else setattr
        self._ends = ends
        self.made = 0

    def values(self, given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any] | None:
        """The arguments by their names; None where they are not what the method takes."""
        found = dict(zip(self._by_place, given, strict=False)) | named
        if len(found) != len(given) + len(named) or not found.keys() <= self._known:
            return None
        nothing = dataclasses.MISSING
        for name, default, factory in self._fields:
            if name not in found and default is nothing and factory is nothing:
                return None
        return found

    def fill(self, made: Any, values: dict[str, Any]) -> None:
        """Sets the fields of ``made``."""
        nothing, put = dataclasses.MISSING, self._set
        for name, default, factory in self._fields:
            put(made, name, values[name] if name in values else factory() if default is nothing else default)
        if self._ends:
            made.__post_init__()


def without_delay() -> None:
    """From now on a method is compiled at its first use: for a process that will use it often."""
    _Plain.most = 0


class _Late:
    """A method of a class that is made when it is first looked up, and then stands where this stood."""

    plain: _Plain | None = None

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.__name__ = name
        self.make = make

    def __get__(self, instance: object, owner: type) -> Any:
        if (plain := self.plain) is not None and instance is not None and plain.made < plain.most:
            plain.made += 1
            return MethodType(self._once, instance)
        return self._made(owner).__get__(instance, owner)

    def _once(self, made: Any, /, *given: Any, **named: Any) -> None:
        assert self.plain is not None
        if (values := self.plain.values(given, named)) is None:
            self._made(type(made))(made, *given, **named)  # which says what is wrong with them
        else:
            self.plain.fill(made, values)

    def _made(self, owner: type) -> Any:
        method = self.make()
        for cls in owner.__mro__:
            if vars(cls).get(self.__name__) is self:
                method.__qualname__ = f"{cls.__qualname__}.{self.__name__}"
                setattr(cls, self.__name__, method)
                break
        return method


def _out_of_order(by_place: Any) -> bool:
    """Whether a field without a default stands behind one with a default, which is refused as the class is made."""
    nothing = dataclasses.MISSING
    defaults = [f.default is not nothing or f.default_factory is not nothing for f in by_place if f.init]
    return defaults != sorted(defaults)


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
    init, compare, represent = names["_init_fn"], names["_cmp_fn"], names["_repr_fn"]

    def init_late(fields: Any, by_place: Any, by_name: Any, frozen: bool, ends: bool, *rest: Any) -> _Late:
        if not all(f.init and f._field_type is standard["_FIELD"] for f in fields) or _out_of_order(by_place):
            made: _Late = init(fields, by_place, by_name, frozen, ends, *rest)
            return made
        late = _Late("__init__", lambda: init(fields, by_place, by_name, frozen, ends, *rest).make())
        late.plain = _Plain(fields, by_place, frozen, ends)
        return late

    # What writes the source of a method is late too.
    names["_init_fn"] = init_late
    names["_cmp_fn"] = lambda name, *rest, **named: _Late(name, lambda: compare(name, *rest, **named).make())
    names["_repr_fn"] = lambda *given: _Late("__repr__", lambda: represent(*given).make())
    # How a class gets its __hash__: a table of functions.
    names["_hash_action"] = {case: act and names[act.__name__] for case, act in standard["_hash_action"].items()}
    return names["dataclass"]


if not TYPE_CHECKING:
    dataclass = _late_dataclass() if sys.version_info < (3, 13) else dataclasses.dataclass
