"""With workers the modules that take long are begun first; alone they run as they are collected."""

from __future__ import annotations

from pathlib import Path

import pytest

import long_first

MODULES = {
    "test_a": "def test_one(): pass\n",
    "test_b": "def test_one(): pass\ndef test_two(): pass\n",
    "test_c": "import pytest\n@pytest.mark.slow\ndef test_slow(): pass\n",
}


@pytest.mark.parametrize(("workers", "order"), [([], "abbc"), (["-n", "1"], "cbba")], ids=["alone", "worker"])
def test_slow_modules_stand_first_where_there_are_workers(pytester, monkeypatch, workers, order):
    pytester.makeini(f"[pytest]\npythonpath = {Path(long_first.__file__).parent}\nmarkers = slow")
    pytester.makeconftest('pytest_plugins = ["long_first"]')
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # others' plugins take seconds to import
    pytester.makepyfile(**MODULES)
    words = ["-p", "no:cacheprovider", "-p", "xdist", "-v", *workers]
    words += ["--dist", "loadscope", "--no-loadscope-reorder"] if workers else []
    done = pytester.runpytest_subprocess(*words)
    assert done.ret == 0
    assert "".join(line.split("test_")[1][0] for line in done.outlines if "PASSED" in line) == order
