"""Workers begin with the modules that take longest: what is begun last ends last, and one would wait for the other.

pytest-xdist, told not to sort modules itself (``--no-loadscope-reorder``), hands them out in the order of the
collection. It would begin with those of most tests, so that minutes of two tests come last.
"""

from __future__ import annotations

from collections import Counter

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A plugin of pytest: of a worker's tests alone."""
    if hasattr(config, "workerinput"):
        in_order(items)


def in_order(items: list[pytest.Item]) -> None:
    """Sorts ``items``: modules of most tests that are marked ``slow``, then modules of most tests.

    A module stays whole, and its tests in their order.
    """
    slow, tests = Counter[object](), Counter[object]()
    for item in items:
        tests[item.path] += 1
        slow[item.path] += item.get_closest_marker("slow") is not None
    items.sort(key=lambda item: (-slow[item.path], -tests[item.path]))
