"""A pytest plugin: workers begin with the modules that take long, so that none of them is left alone with one.

`loadscope` itself begins with the modules of many tests, and what trains, measures or opens a browser has few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest


def long_first(items: list[pytest.Item]) -> Callable[[pytest.Item], tuple[int, int]]:
    """The key of an order: modules with most slow tests, then those with most tests; within a module as collected."""
    every = Counter(map(_module, items))
    slow = Counter(_module(item) for item in items if item.get_closest_marker("slow"))
    return lambda item: (-slow[_module(item)], -every[_module(item)])


def _module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=long_first(items))
