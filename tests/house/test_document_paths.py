"""Paths and module names that the documents mention are there."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*.md")),
]
_SOURCE = (".py", ".cpp", ".hpp", ".cc", ".sh")
_QUOTED = re.compile(r"`([^`\n]+)`")
_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"python3? (?:-m )?(\S+)")
# Keys of metadata and of a module's attributes, entry points, and the command of a settings entry: no Python names.
_KEYS = re.compile(
    r"perfpass\.(latency_ms|throughput_per_s|peak_memory_bytes|peak_memory_mib|energy_j|power_w|mig|support|workload|"
    r"node_features|edge_index|provenance|prediction|predictions|seal|observation|readers|commands)(\[.*)?"
)


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name for name in names.split("\0") if name}


def mentions(document: Path) -> list[str]:
    """What stands in backticks, and the programs of commands."""
    text = document.read_text(encoding="utf-8")
    words = [word for quoted in _QUOTED.findall(_BLOCK.sub("", text)) for word in re.split(r"[\s(),:]+", quoted)]
    return [*words, *(f"python:{name}" for name in _COMMAND.findall(text))]


def missing_path(word: str, tracked: set[str], folders: set[str]) -> bool:
    """Whether ``word`` names a file or folder of this repository that is not there."""
    word = word.removeprefix("python:").rstrip("/.")
    if any(mark in word for mark in "*<>{}[]$="):
        return False
    if word.split("/")[0] in folders and "/" in word:
        return word not in tracked and not any(name.startswith(f"{word}/") for name in tracked)
    if word.endswith(_SOURCE) and re.fullmatch(r"[\w./-]+", word):
        return not any(name == word or name.endswith(f"/{word}") for name in tracked)
    return False


# Sources of other projects (onnxruntime, NNLQP) that a document cites.
_ELSEWHERE = {
    *("core/framework/resource_accountant.cc", "resource_accountant.cc", "sequential_executor.cc"),
    *("feature_utils.py", "node_feature.py"),
}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_in_a_document_is_there(document, tracked):
    folders = {name.split("/")[0] for name in tracked if "/" in name}
    assert {word for word in mentions(document) if missing_path(word, tracked, folders)} - _ELSEWHERE == set()


def resolves(name: str) -> bool:
    """Whether a dotted name is a module of perfpass, or a word of one; nothing is imported."""
    place, parts = ROOT / "python", name.split(".")
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    if parts and (place / f"{parts[0]}.py").is_file():
        place /= f"{parts.pop(0)}.py"
    source = place / "__init__.py" if place.is_dir() else place
    return not parts or re.search(rf"\b{parts[0]}\b", source.read_text(encoding="utf-8")) is not None


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_name_of_perfpass_in_a_document_is_one(document):
    dotted = re.compile(r"perfpass(\.[A-Za-z_]\w*)+")
    names = {m[0] for word in mentions(document) if (m := dotted.match(word.removeprefix("python:")))}
    assert {name for name in names if not _KEYS.fullmatch(name) and not resolves(name)} == set()


def test_what_is_not_there_is_noticed(tracked):
    folders = {"docs", "python"}
    assert missing_path("python/perfpass/no_such_room.py", tracked, folders)
    assert missing_path("no_such_program.py", tracked, folders)
    assert not missing_path("python/perfpass/errors.py", tracked, folders)
    assert not missing_path("errors.py", tracked, folders)
    assert not resolves("perfpass.no_such_room.f") and resolves("perfpass.errors.ShapeError")


def test_every_document_that_code_names_is_there(tracked):
    named = re.compile(r"(?<![\w/])docs/[\w/.-]+?\.(?:md|json|svg|png)\b")
    code = (
        name for name in tracked if name.endswith((*_SOURCE, ".toml")) and name != "tests/house/test_document_paths.py"
    )
    wrong = [
        f"{name}: {target}"
        for name in sorted(code)
        for target in named.findall((ROOT / name).read_text(encoding="utf-8"))
        if target not in tracked
    ]
    assert wrong == []


_IMPORTED = re.compile(r"^ *from ((?:perfpass|tvm_perfpass|ort_extension)[\w.]*) import (\w+(?:, \w+)*)$", re.MULTILINE)
_PROGRAMS = [*DOCUMENTS, *sorted((ROOT / "benchmarks").rglob("*.py")), *sorted((ROOT / "examples").glob("*.py"))]


@pytest.mark.parametrize("program", _PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_documents_and_benchmarks_import_is_there(program):
    """Programs inside strings too: no linter sees those."""
    missing = []
    for module, names in _IMPORTED.findall(program.read_text(encoding="utf-8")):
        if "relax" in module:  # another TVM, in an environment of its own
            continue
        found = importlib.import_module(module)
        inside = {one.name for one in pkgutil.iter_modules(getattr(found, "__path__", []))}
        missing += [f"{module}.{name}" for name in names.split(", ") if name not in inside and not hasattr(found, name)]
    assert missing == []
