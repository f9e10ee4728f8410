"""What the package says of itself: one version everywhere, extras for doors, and what the wheel leaves out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import perfpass
from perfpass.toml_table import parse

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def pyproject() -> dict:
    return parse((ROOT / "pyproject.toml").read_text())


def test_the_version_stands_in_one_place(pyproject):
    assert "version" not in pyproject["project"] and pyproject["project"]["dynamic"] == ["version"]
    assert [d["input"] for d in pyproject["tool"]["dynamic-metadata"]] == ["python/perfpass/__init__.py"]
    cmake = (ROOT / "CMakeLists.txt").read_text()
    assert "file(STRINGS python/perfpass/__init__.py PERFPASS_VERSION" in cmake
    assert not re.search(r"PERFPASS_VERSION[ =]+\"?\d", cmake)


def test_the_citation_and_the_changelog_are_of_this_version():
    version = re.escape(perfpass.__version__)
    assert re.search(rf"^version: {version}$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None and newest[1].startswith(perfpass.__version__)


def test_all_collects_doors_that_stand_beside_one_another(pyproject):
    extras = pyproject["project"]["optional-dependencies"]
    named = {e for one in extras["all"] for e in re.findall(r"[\w-]+", one.partition("[")[2])}
    assert named <= set(extras)
    assert not {"tvm", "relax"} <= named, "two packages are called tvm"


def test_the_wheel_holds_neither_studies_nor_sources(pyproject):
    left_out = pyproject["tool"]["scikit-build"]["wheel"]["exclude"]
    for folder in ("perfpass/study/**", "tvm_perfpass/native/**", "ort_extension/provider/**"):
        assert folder in left_out
    for pattern in left_out:
        home = ROOT / "python" if pattern.startswith("perfpass/") else ROOT
        assert list(home.glob(pattern)), f"{pattern}: nothing there"


def test_only_one_module_knows_who_reads_toml():
    importing = [
        path.relative_to(ROOT).as_posix()
        for folder in ("python", "tvm_perfpass", "ort_extension")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"^\s*import (tomllib|tomli)\b", path.read_text(), re.MULTILINE)
    ]
    assert importing == ["python/perfpass/toml_table.py"]
