"""The order in which workers take the modules of tests."""

from __future__ import annotations

import pytest

import longest_first


def test_modules_of_slow_tests_come_first_then_those_of_most_tests(pytester: pytest.Pytester):
    few, slow = "def test_a(): pass\n", "import pytest\n@pytest.mark.slow\ndef test_a(): pass\n"
    many = few + "def test_c(): pass\ndef test_b(): pass\n"
    pytester.makeini("[pytest]\nmarkers = slow")
    pytester.makepyfile(
        test_few=few, test_many=many, test_slow=slow, test_whole=f"{slow}pytestmark = pytest.mark.slow\n{few}"
    )
    items, _ = pytester.inline_genitems()
    longest_first.in_order(items)
    found = [item.nodeid for item in items]
    assert found == [
        "test_slow.py::test_a",
        "test_whole.py::test_a",
        "test_many.py::test_a",
        "test_many.py::test_c",
        "test_many.py::test_b",
        "test_few.py::test_a",
    ]
