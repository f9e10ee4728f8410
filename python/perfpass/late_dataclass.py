"""Dataclasses that are made as they are used: a question must not pay for classes and methods that it leaves alone.

`dataclasses.dataclass` writes and compiles up to six methods a class, half a millisecond before Python 3.13; a cold
prediction imports a hundred classes and makes objects of half of them. Here the fields are collected and ``__init__``
is written at the first instance, and the very call of the standard library waits until something is compared, hashed
or shown. Until then methods of the same names stand there, which make what is missing and go on. To a type checker it
is `dataclasses.dataclass`.
"""

from __future__ import annotations

import dataclasses
from threading import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """As `dataclasses.dataclass`, without slots; what it would refuse is refused at the first use."""
        return _Late(cls, options).cls if cls is not None else lambda decorated: _Late(decorated, options).cls


_FIELDS = "__dataclass_fields__"
_PARAMETERS = "__dataclass_params__"
_MAKING = RLock()


class _Late:
    """A class of which only so much is made as was used."""

    def __init__(self, cls: type, options: dict[str, bool]) -> None:
        self.cls, self._options = cls, options
        methods = ["__init__", "__repr__"]
        if options.get("eq", True):
            methods += ["__eq__", "__hash__"] if options.get("frozen") else ["__eq__"]
        self._waiting = [name for name in methods if name not in cls.__dict__]
        self._frozen = [name for name in ("__setattr__", "__delattr__") if options.get("frozen")]
        self._defaults = {name: cls.__dict__[name] for name in cls.__annotations__ if name in cls.__dict__}
        self._step = 0
        for name in self._waiting:
            setattr(cls, name, self._method(name))
        for name, doing in zip(self._frozen, ("assign to", "delete"), strict=False):
            setattr(cls, name, self._refusing(doing))
        setattr(cls, _FIELDS, self)

    def __get__(self, instance: object, owner: type) -> Any:
        """The fields, to whoever asks the class for them."""
        self._with_init()
        return self.cls.__dict__[_FIELDS]

    def _with_init(self) -> None:
        """Fields and ``__init__``, as the standard library makes them."""
        with _MAKING:
            if self._step:
                return
            delattr(self.cls, _FIELDS)
            for base in self.cls.__mro__[1:]:
                getattr(base, _FIELDS, None)  # which makes it
            plain = {name: value for name, value in self._options.items() if name == "kw_only"}
            bases = [vars(base)[_PARAMETERS] for base in self.cls.__mro__ if _PARAMETERS in vars(base)]
            frozen = [parameters.frozen for parameters in bases]
            _mark(bases, [False] * len(bases))  # or a class with methods of its own could not inherit from frozen ones
            dataclasses.dataclass(init=False, repr=False, eq=False, **plain)(self.cls)
            _mark([*bases, vars(self.cls)[_PARAMETERS]], [*frozen, bool(self._frozen)])
            if "__init__" in self._waiting:
                self.cls.__init__ = _init(self.cls, bool(self._frozen))  # type: ignore[misc]
                self._waiting.remove("__init__")
            self._step = 1

    def _whole(self) -> None:
        """All methods."""
        with _MAKING:
            self._with_init()
            if self._step == 2:
                return
            for name in (*self._waiting, *self._frozen, _FIELDS, _PARAMETERS, "__match_args__"):
                if name in self.cls.__dict__:
                    delattr(self.cls, name)
            for name, value in self._defaults.items():
                setattr(self.cls, name, value)
            dataclasses.dataclass(init=False, **self._options)(self.cls)  # type: ignore[call-overload]
            self._step = 2

    def _method(self, name: str) -> Any:
        make = self._with_init if name == "__init__" else self._whole

        def method(instance: Any, *given: Any, **named: Any) -> Any:
            make()
            return getattr(self.cls, name)(instance, *given, **named)

        return method

    def _refusing(self, doing: str) -> Any:
        cls = self.cls
        usual = object.__setattr__ if doing == "assign to" else object.__delattr__

        def method(instance: Any, name: str, *value: Any) -> None:
            if type(instance) is cls or name in getattr(cls, _FIELDS):
                raise dataclasses.FrozenInstanceError(f"cannot {doing} field {name!r}")
            usual(instance, name, *value)

        return method


def _mark(parameters: list[Any], frozen: list[bool]) -> None:
    for one, value in zip(parameters, frozen, strict=True):
        one.frozen = value


def _init(cls: type, frozen: bool) -> Any:
    """``__init__`` of the fields of ``cls``, as dataclasses write it."""
    given: dict[str, Any] = {"_made_": object(), "_put_": object.__setattr__}
    plain: list[str] = []
    named: list[str] = []
    lines: list[str] = []
    for i, field in enumerate(dataclasses.fields(cls)):
        value = parameter = name = field.name
        if field.default_factory is not dataclasses.MISSING:
            given[f"_factory_{i}"] = field.default_factory
            parameter = f"{name}=_made_"
            value = f"_factory_{i}() if {name} is _made_ else {name}" if field.init else f"_factory_{i}()"
        elif not field.init:
            continue  # the class has its value
        elif field.default is not dataclasses.MISSING:
            given[f"_default_{i}"] = field.default
            parameter = f"{name}=_default_{i}"
        if field.init:
            (named if field.kw_only else plain).append(parameter)
        lines.append(f"_put_(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join(["self", *plain, *(["*", *named] if named else [])])
    exec(f"def __init__({parameters}):\n  " + "\n  ".join(lines or ["pass"]), given)
    init = given["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init
