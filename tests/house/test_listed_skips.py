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
    return pytester


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "workers"])
@pytest.mark.parametrize(
    ("content", "code", "named"),
    [(LISTED, 0, None), (UNLISTED, 1, "*test_other: no package here"), (MODULE, 1, "*could not import 'a_package*")],
    ids=["listed", "unlisted", "module"],
)
def test_an_unlisted_skip_fails_where_ci_is_set(inner, content, code, named, workers):
    inner.makepyfile(content)
    found = inner.runpytest_subprocess("-p", "no:cacheprovider", *workers)
    assert found.ret == code
    if named:
        found.stdout.fnmatch_lines(["*skips that are not in skips.toml*", named])
        assert str(found.stdout).count("skips that are not") == 1


def test_elsewhere_an_unlisted_skip_is_printed_and_passes(inner, monkeypatch):
    monkeypatch.delenv("CI")
    inner.makepyfile(UNLISTED)
    found = inner.runpytest_subprocess("-p", "no:cacheprovider")
    assert found.ret == 0
    found.stdout.fnmatch_lines(["*test_other: no package here"])


def test_a_failure_stays_a_failure(inner):
    inner.makepyfile(UNLISTED + "def test_wrong(): assert False\n")
    assert inner.runpytest_subprocess("-p", "no:cacheprovider").ret == 1


def test_every_entry_says_what_and_why():
    for entry in tomllib.loads(listed_skips.LIST.read_text())["skip"]:
        assert set(entry) == {"tests", "reason", "when"} and all(entry.values())
        assert entry["tests"] == "*" or list(Path(__file__).parents[2].glob(entry["tests"].split("::")[0]))
