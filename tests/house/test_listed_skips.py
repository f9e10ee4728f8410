"""A skip that nobody wrote down fails continuous integration, with and without workers."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomllib

import listed_skips

LISTED = 'import pytest\ndef test_gpu(): pytest.skip("no CUDA device")\ndef test_fine(): pass\n'
UNLISTED = 'import pytest\ndef test_other(): pytest.skip("no package here")\ndef test_fine(): pass\n'
MODULE = 'import pytest\npytest.importorskip("a_package_that_is_not")\ndef test_never(): pass\n'


@pytest.fixture
def inner(pytester, monkeypatch):
    """A session of its own with the plugin."""
    pytester.makeini(f"[pytest]\npythonpath = {Path(listed_skips.__file__).parent}")
    pytester.makeconftest('pytest_plugins = ["listed_skips"]')
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # others' plugins take seconds to import
    return pytester


def session(inner, *workers):
    """A quick session in a process of its own."""
    return inner.runpytest_subprocess("-p", "no:cacheprovider", "-p", "xdist", *workers)


WORKERS = pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "workers"])


@WORKERS
def test_a_listed_skip_passes(inner, workers):
    inner.makepyfile(LISTED)
    assert session(inner, *workers).ret == 0


@WORKERS
def test_an_unlisted_skip_of_a_test_or_a_module_fails_where_ci_is_set(inner, workers):
    inner.makepyfile(test_unlisted=UNLISTED, test_module=MODULE)
    found = session(inner, *workers)
    assert found.ret == 1
    assert str(found.stdout).count("skips that are not in skips.toml") == 1
    for line in ("*test_other: no package here", "*test_module.py: could not import 'a_package*"):
        found.stdout.fnmatch_lines([line])


def test_elsewhere_an_unlisted_skip_is_printed_and_passes(inner, monkeypatch):
    monkeypatch.delenv("CI")
    inner.makepyfile(UNLISTED)
    found = session(inner)
    assert found.ret == 0
    found.stdout.fnmatch_lines(["*test_other: no package here"])


def test_a_failure_stays_a_failure(inner):
    inner.makepyfile(UNLISTED + "def test_wrong(): assert False\n")
    assert session(inner).ret == 1


def test_every_entry_says_what_and_why():
    for entry in tomllib.loads(listed_skips.LIST.read_text())["skip"]:
        assert set(entry) == {"tests", "reason", "when"} and all(entry.values())
        assert entry["tests"] == "*" or list(Path(__file__).parents[2].glob(entry["tests"].split("::")[0]))
