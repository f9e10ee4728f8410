"""Files of the user are opened by one door: no module opens one itself but those listed here, each with its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("python/perfpass", "tvm_perfpass", "ort_extension")
# Calls that open a file or parse what one holds, by their last name; a name before it narrows what is meant.
OPENING = {"open", "fopen", "read_text", "read_bytes", "memmap", "fromfile", "loadtxt", "genfromtxt"}
PARSING = {
    ("json", "load"),
    ("json", "loads"),
    ("tomllib", "load"),
    ("tomllib", "loads"),
    ("tomli", "loads"),
    ("np", "load"),
    ("numpy", "load"),
    ("onnx", "load"),
    ("pandas", "read_csv"),
    ("pandas", "read_parquet"),
    ("pandas", "read_json"),
    ("pq", "read_table"),
    ("parquet", "read_table"),
    ("zipfile", "ZipFile"),
    ("pickle", "load"),
    ("torch", "load"),
}
DOORS = "the door itself"
SYSTEM = "what the operating system says of itself"
SHIPPED = "ships with perfpass"
OURS = "a file of this process or a child of its own, or a message between them"
STUDY = "a study's own journal or result; not in the installed package"
TRAINING = "training's own journals, caches and results in the repository"
WRITING = "opened to be written"
# Module: why it may open files itself.
ALLOWED = {
    "python/perfpass/bounded_file.py": DOORS,
    "python/perfpass/toml_table.py": DOORS,
    "python/perfpass/json_text.py": DOORS,
    "python/perfpass/npz.py": DOORS,
    "python/perfpass/importers/formats/archive.py": DOORS,
    "python/perfpass/records/parquet.py": DOORS,
    "python/perfpass/scratch.py": "folders to be locked",
    "python/perfpass/whole_file.py": f"{WRITING}, its folder to be synced, and the end of a journal of its own",
    "python/perfpass/annotation/file.py": f"{WRITING}, and the folder to be synced",
    "python/perfpass/cli/running.py": "/dev/null in the place of closed streams",
    "python/perfpass/cli/resident.py": "the question of a process of the same user, and its streams",
    "python/perfpass/deploy/advise/files.py": "onnx opens again what the door has looked at",
    "python/perfpass/deploy/advise/rewrites.py": "onnx opens again what the door has looked at",
    "python/perfpass/devices/clouds.py": SHIPPED,
    "python/perfpass/devices/host.py": SYSTEM,
    "python/perfpass/devices/mig.py": SHIPPED,
    "python/perfpass/devices/names.py": SHIPPED,
    "python/perfpass/devices/shipped.py": SHIPPED,
    "python/perfpass/importers/configuration_names.py": SHIPPED,
    "python/perfpass/measure/bench.py": SYSTEM,
    "python/perfpass/measure/facts.py": SYSTEM,
    "python/perfpass/measure/host.py": SYSTEM,
    "python/perfpass/measure/journal.py": "the descriptor that the door gave",
    "python/perfpass/measure/local.py": OURS,
    "python/perfpass/measure/own_process.py": OURS,
    "python/perfpass/measure/sampler.py": OURS,
    "python/perfpass/predictors/calibration/correction.py": "hashes the shipped manifest",
    "python/perfpass/predictors/learned/artefacts.py": WRITING,
    "python/perfpass/predictors/learned/packed_trees.py": "what XGBoost has just given",
    "python/perfpass/records/build/outside.py": SHIPPED,
    "python/perfpass/records/build/vision.py": TRAINING,
    "python/perfpass/records/graph_cache.py": "a cache that perfpass writes and throws away",
    "python/perfpass/records/readers/inferencex_sweeps.py": SHIPPED,
    "python/perfpass/report/page/html.py": SHIPPED,
    "python/perfpass/ui/app.py": OURS,
    "python/perfpass/ui/page.py": SHIPPED,
    "tvm_perfpass/attributes.py": "what TVM holds in memory",
    "tvm_perfpass/cost_model/hardware.py": SYSTEM,
    "tvm_perfpass/onnx_model.py": "onnx opens again, with its external data, what the door has looked at",
    "tvm_perfpass/relax/library.py": "what a loaded library returns",
    "tvm_perfpass/relay/library.py": "what a loaded library returns",
}
FOLDERS_ALLOWED = {"python/perfpass/study/": STUDY, "python/perfpass/training/": TRAINING}


def openings(text: str) -> Iterator[tuple[int, str]]:
    """Line and name of every call of a module that opens or parses a file."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id == "open":
            yield node.lineno, "open"
        elif isinstance(called, ast.Attribute):
            owner = called.value.attr if isinstance(called.value, ast.Attribute) else getattr(called.value, "id", "")
            if called.attr in OPENING or (owner, called.attr) in PARSING:
                yield node.lineno, f"{owner}.{called.attr}"


def modules() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_module_opens_a_file_beside_the_door():
    found = [
        f"{name_of(path)}, line {line}: {call}"
        for path in modules()
        if name_of(path) not in ALLOWED and not name_of(path).startswith(tuple(FOLDERS_ALLOWED))
        for line, call in openings(path.read_text())
    ]
    assert found == [], "open it by perfpass.bounded_file, toml_table, json_text, npz or records.parquet"


def test_the_list_of_those_that_may_has_nobody_who_does_not():
    known = {name_of(path): path for path in modules()}
    assert [name for name in ALLOWED if name not in known or not list(openings(known[name].read_text()))] == []


@pytest.mark.parametrize(
    "line",
    [
        "open(path)",
        "Path(path).open()",
        "os.open(path, 0)",
        "path.read_text()",
        "Path('x').read_bytes()",
        "json.load(file)",
        "json.loads(text)",
        "np.load(path)",
        "pandas.read_csv(path)",
        "pyarrow.parquet.read_table(path)",
        "zipfile.ZipFile(path)",
        "onnx.load(path)",
        "tomllib.loads(text)",
    ],
)
def test_an_opening_is_seen_wherever_it_stands(line):
    assert list(openings(f"def f():\n    if x:\n        y = {line}\n"))
