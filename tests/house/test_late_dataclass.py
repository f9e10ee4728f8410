"""A dataclass that is made at its first use is that of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpass.late_dataclass import dataclass

OPTIONS = st.fixed_dictionaries({"frozen": st.booleans(), "eq": st.booleans(), "kw_only": st.booleans()})
KINDS = st.lists(st.sampled_from(["plain", "default", "factory", "not given"]), min_size=0, max_size=4)
ORDER = ["plain", "default", "factory", "not given"]


def bodies(kinds: list[str], base: type = object) -> type:
    """A class of such fields, before it is a dataclass; those without a default first."""
    every = {
        "default": lambda: 7,
        "factory": lambda: dataclasses.field(default_factory=list),
        "not given": lambda: dataclasses.field(default=3, init=False),
    }
    names = [f"_put_{i}" if kind == "default" else f"field{i}" for i, kind in enumerate(kinds)]
    body: dict[str, Any] = {"__annotations__": dict.fromkeys(names, "int"), "__doc__": "Fields."}
    body |= {name: every[kind]() for name, kind in zip(names, kinds, strict=True) if kind != "plain"}
    return type("Body", (base,), body)


def outcome(act: Any) -> Any:
    """What it gives, or the class and the text of its error."""
    try:
        return act()
    except (TypeError, AttributeError) as error:
        return type(error), str(error)


@given(kinds=KINDS.map(lambda kinds: sorted(kinds, key=ORDER.index)), options=OPTIONS, more=KINDS)
def test_it_behaves_as_the_one_of_the_standard_library(kinds, options, more):
    made = [maker(**options)(bodies(kinds)) for maker in (dataclass, dataclasses.dataclass)]
    if options["kw_only"]:
        made = [dataclass(**options)(bodies(more, made[0])), dataclasses.dataclass(**options)(bodies(more, made[1]))]
    values = {f.name: i for i, f in enumerate(dataclasses.fields(made[1])) if f.init}
    late, usual = (cls(**values) for cls in made)
    assert vars(late) == vars(usual)
    assert [dataclasses.asdict(made[0](**values))] == [dataclasses.asdict(usual)]
    assert repr(late) == repr(usual)
    for act in (
        lambda cls, one: one == cls(**values),
        lambda cls, one: hash(one) == hash(cls(**values)),
        lambda cls, one: setattr(one, "another", 1),
        lambda cls, one: [setattr(one, f.name, 1) for f in dataclasses.fields(cls)],
        lambda cls, one: [delattr(one, f.name) for f in dataclasses.fields(cls)],
        lambda cls, one: cls(1, 2, 3, 4, 5, 6, 7, 8, 9),
        lambda cls, one: cls(unknown=1),
        lambda cls, one: (cls.__dataclass_params__.frozen, cls.__match_args__),
    ):
        assert outcome(partial(act, made[0], late)) == outcome(partial(act, made[1], usual))


@dataclass(frozen=True)
class Point:
    """For the tests that need a class of a module."""

    x: int
    y: list[int] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seen", True)


def test_copies_and_pickles_are_equal():
    point = Point(1)
    assert copy.copy(point) == point == pickle.loads(pickle.dumps(point)) == dataclasses.replace(point)
    assert point.seen


def test_a_standard_dataclass_may_inherit_from_one():
    @dataclasses.dataclass(frozen=True)
    class Further(Point):
        z: int = 0

    assert Further(1, [2], 3) == Further(1, [2], 3) != Further(1, [2], 4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Further(1).x = 2


def test_threads_make_one_class_once():
    for _ in range(20):
        cls = dataclass(frozen=True)(bodies(["plain", "factory"]))
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda i, cls=cls: cls(i), range(8)))
        assert [one.field0 for one in found] == list(range(8))
        assert len(set(map(type, found))) == 1
