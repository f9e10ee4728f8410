"""`perfpass.late.dataclass` beside the standard library's own, on classes of every shape."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import operator
import pickle
import subprocess
import sys
import threading
import typing
import unittest.mock
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpass import late

STANDARD_FROM = (3, 13)
COMPILED_LATE = sys.version_info < STANDARD_FROM
SWITCHES = ("init", "repr", "eq", "order", "unsafe_hash", "frozen", "match_args", "kw_only", "slots")
NAMES = ("a", "self", "name", "other", "value", "cls")
Shape = dict[str, Any]


def _own_eq(self: Any, other: Any) -> bool:
    return self is other


def _post_init(self: Any, *given: Any) -> None:
    object.__setattr__(self, "seen", given) if hasattr(self, "__dict__") else None


OWN: dict[str, Callable[..., Any]] = {
    "__eq__": _own_eq,
    "__hash__": lambda self: 7,
    "__repr__": lambda self: "mine",
    "__post_init__": _post_init,
}


@st.composite
def fields(draw: st.DrawFn) -> dict[str, Shape]:
    """Of one class: what `dataclasses.field` is given, or a plain default, or a marker of another kind."""
    found: dict[str, Shape] = {}
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4)):
        kind = draw(
            st.sampled_from(["needed", "default", "factory", "computed", "quiet", "keyword", "init-only", "class"])
        )
        found[name] = {"kind": kind}
    return found


@st.composite
def shapes(draw: st.DrawFn) -> list[Shape]:
    """One to three classes, each derived from the one before."""
    return [
        {
            "fields": draw(fields()),
            "switches": {name: draw(st.booleans()) for name in draw(st.sets(st.sampled_from(SWITCHES)))},
            "own": draw(st.sets(st.sampled_from(sorted(OWN)))),
            "doc": draw(st.booleans()),
        }
        for _ in range(draw(st.integers(1, 3)))
    ]


def built(shapes: list[Shape], decorator: Callable[..., Any]) -> type:
    """The last of the classes. Raises what the decorator raises."""
    made: type = object
    for number, shape in enumerate(shapes):
        content: dict[str, Any] = {name: OWN[name] for name in shape["own"]}
        annotations: dict[str, Any] = {}
        for name, field in shape["fields"].items():
            annotations[name] = int
            match field["kind"]:
                case "default":
                    content[name] = 3
                case "factory":
                    content[name] = dataclasses.field(default_factory=list)
                case "computed":
                    content[name] = dataclasses.field(default=5, init=False)
                case "quiet":
                    content[name] = dataclasses.field(repr=False, compare=False)
                case "keyword":
                    content[name] = dataclasses.field(kw_only=True)
                case "init-only":
                    annotations[name] = dataclasses.InitVar[int]
                case "class":
                    annotations[name] = typing.ClassVar[int]
        content |= {"__annotations__": annotations, "__module__": __name__, "__qualname__": f"Made{number}"}
        if shape["doc"]:
            content["__doc__"] = "Documented."
        made = decorator(**shape["switches"])(type(f"Made{number}", (made,), content))
    return made


def outcome(act: Callable[[], Any]) -> Any:
    """What `act` gives, or the kind and words of what it raises."""
    try:
        return act()
    except Exception as error:
        return type(error), str(error)


def drawn(data: st.DataObject, made: type) -> tuple[list[int], dict[str, int]]:
    """Arguments for a class, mostly fitting ones."""
    parameters = list(inspect.signature(made).parameters.values())
    named = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY or data.draw(st.booleans())}
    ordered = [data.draw(st.integers(0, 2)) for p in parameters if p.name not in named]
    return ordered, {name: data.draw(st.integers(0, 2)) for name in sorted(named)}


def seen(made: type) -> list[Any]:
    """What can be asked of a class without an instance of it."""
    asked: list[Callable[[], Any]] = [
        lambda: str(inspect.signature(made)),
        lambda: made.__doc__,
        lambda: made.__match_args__,  # type: ignore[attr-defined]
        lambda: made.__slots__,  # type: ignore[attr-defined]
        lambda: str(made.__dataclass_params__),  # type: ignore[attr-defined]
        lambda: [str(field) for field in dataclasses.fields(made)],
        lambda: sorted(set(vars(made)) - {"__weakref__", "__dict__"}),
        lambda: list(vars(made)),
        *(
            lambda name=name: (getattr(made, name).__qualname__, str(getattr(made, name).__annotations__))  # type: ignore[misc]
            for name in ("__init__", "__repr__", "__eq__", "__lt__", "__hash__", "__setattr__", "__delattr__")
        ),
    ]
    return [outcome(act) for act in asked]


def answers(made: type, first: tuple[Any, Any], second: tuple[Any, Any]) -> list[Any]:
    """What instances of a class answer."""
    one, other = (outcome(lambda given=given: made(*given[0], **given[1])) for given in (first, second))  # type: ignore[misc]
    if not isinstance(one, made) or not isinstance(other, made):
        return [one if not isinstance(one, made) else None, other if not isinstance(other, made) else None]
    plain = "object at" not in str(outcome(lambda: repr(one)))  # which has an address
    asked: list[Callable[[], Any]] = [
        lambda: repr(one) if plain else None,
        lambda: (one == other, one == one, one != other, one == 3),
        lambda: one < other,
        lambda: one >= other,
        lambda: operator.gt(one, 3),
        lambda: hash(one) == hash(other) if type(one).__hash__ is not object.__hash__ else None,
        lambda: dataclasses.asdict(one),
        lambda: dataclasses.astuple(one),
        lambda: dataclasses.is_dataclass(one),
        lambda: dataclasses.asdict(dataclasses.replace(one)),
        lambda: dataclasses.astuple(copy.copy(one)),
        lambda: dataclasses.astuple(copy.deepcopy(one)),
        lambda: dataclasses.astuple(_through_pickle(one)),
        *(lambda name=name: setattr(one, name, 9) for name in (*NAMES, "new")),  # type: ignore[misc]
        *(lambda name=name: delattr(one, name) for name in (*NAMES, "new")),  # type: ignore[misc]
        lambda: repr(one) if plain else None,
    ]
    return [outcome(act) for act in asked]


def _through_pickle(one: Any) -> Any:
    kind = type(one)
    globals()[kind.__qualname__] = kind
    return pickle.loads(pickle.dumps(one))


@given(shapes(), st.sampled_from([0, 1, 64]), st.data())
def test_a_class_is_that_of_the_standard_library(shapes, by_a_loop, data):
    with unittest.mock.patch.object(late._Plain, "most", by_a_loop):
        _compared(shapes, data)


def _compared(shapes: list[Shape], data: st.DataObject) -> None:
    plain, made = (outcome(lambda d=d: built(shapes, d)) for d in (dataclasses.dataclass, late.dataclass))
    if not isinstance(plain, type):
        assert made == plain  # the same refusal in the same words
        return
    first, second = drawn(data, plain), drawn(data, plain)
    if data.draw(st.booleans()):  # asked of the class before its instances, or after them
        assert seen(made) == seen(plain)
    assert answers(made, first, second) == answers(plain, first, second)
    assert seen(made) == seen(plain)


@pytest.mark.skipif(not COMPILED_LATE, reason="the standard decorator from Python 3.13 on")
def test_a_method_is_compiled_when_it_is_first_used_and_then_stands_in_its_place():
    @late.dataclass(frozen=True)
    class Point:
        """A point."""

        x: int
        y: int = 0

    waiting = {name for name, value in vars(Point).items() if isinstance(value, late._Late)}
    assert waiting == {"__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__"}
    assert repr(Point(1)).endswith("Point(x=1, y=0)")
    assert {name for name, value in vars(Point).items() if isinstance(value, late._Late)} == waiting - {"__repr__"}
    assert inspect.isfunction(vars(Point)["__repr__"])
    for number in range(late._MOST_PLAIN):  # one was made above, so that the last of these is made by the method
        assert isinstance(vars(Point)["__init__"], late._Late)
        assert dataclasses.astuple(Point(number, y=2)) == (number, 2)
    assert inspect.isfunction(vars(Point)["__init__"])


@pytest.mark.skipif(not COMPILED_LATE, reason="the standard decorator from Python 3.13 on")
@pytest.mark.parametrize("given", [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"z": 1})])
def test_wrong_arguments_of_a_first_object_are_refused_in_the_words_of_the_method(given):
    class Point:
        """A point."""

        x: int
        y: int = 0

    mine, theirs = (make(type("Point", (), dict(vars(Point)))) for make in (late.dataclass, dataclasses.dataclass))
    refused = outcome(lambda: mine(*given[0], **given[1]))
    assert refused[0] is TypeError and refused == outcome(lambda: theirs(*given[0], **given[1]))


@pytest.mark.skipif(not COMPILED_LATE, reason="the standard decorator from Python 3.13 on")
def test_a_process_that_answers_often_compiles_at_the_first_use():
    program = (
        "from perfpass import late\n"
        "kind = late.dataclass(type('A', (), {'__annotations__': {'x': int}}))\n"
        "late.without_delay()\nkind(3)\nassert not isinstance(vars(kind)['__init__'], late._Late)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_standard_library_is_left_as_it_is():
    program = (
        "import dataclasses; before = dict(vars(dataclasses)); table = dict(dataclasses._hash_action)\n"
        "from perfpass.late import dataclass\n"
        "dataclass(frozen=True)(type('A', (), {'__annotations__': {'x': int}}))(3)\n"
        "assert vars(dataclasses) == before and dataclasses._hash_action == table\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_method_of_a_base_is_found_through_super_and_derived_classes():
    @late.dataclass
    class Base:
        """A base."""

        x: int

    @late.dataclass
    class Derived(Base):
        """Derived from it."""

        y: int

        def __repr__(self) -> str:
            return f"{super().__repr__()} and {self.y}"

    class Plain(Base):
        def __init__(self) -> None:
            super().__init__(5)

    assert repr(Derived(1, 2)).endswith("Derived(x=1) and 2")
    assert Plain().x == 5 and Base.__init__.__qualname__.endswith("Base.__init__")
    assert Plain() == Plain() and Plain() != Base(5)


def test_threads_that_use_a_class_first_together_see_one_method():
    for _ in range(50):

        @late.dataclass(order=True)
        class Pair:
            """A pair."""

            x: int
            y: int

        start, wrong = threading.Barrier(4), []

        def use(kind: type = Pair, start: threading.Barrier = start, wrong: list[Any] = wrong) -> None:
            start.wait()
            try:
                assert kind(1, 2) == kind(1, 2) and kind(1, 2) < kind(1, 3)
            except Exception as error:  # an assertion in a thread fails no test
                wrong.append(error)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
