"""Which room may know which, wherever an import stands; docs/internals/architecture.md says why."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from house.imports import COMPILED, Import, Sources, circles, room_of

ROOT = Path(__file__).resolve().parents[2]

# What a room may import beside itself and the compiled core, from the ground up.
_TEXT = {"errors", "text", "extensions", "late"}
_FILES = {*_TEXT, "bounded_file", "whole_file", "declared", "toml_table", "json_text", "safetensors", "npz"}
_FIGURES = {"interval", "decision", "prediction"}
_DEVICES = {*_FILES, "devices", *_FIGURES}
_GRAPH = {*_DEVICES, "graph"}
_READING = {*_GRAPH, "features", "importers"}
_MODELS = {*_READING, "llm"}
_PREDICTING = {*_MODELS, "predictors"}
_RECORDS = {*_MODELS, "measure", "records"}
_DECIDING = {*_PREDICTING, "search", "annotation", "deploy"}
_LEARNING = {*_DECIDING, *_RECORDS, "calibrate", "evidence", "training"}
MAY_KNOW: dict[str, set[str]] = {
    "errors": set(),
    "text": {"errors"},
    "extensions": {"errors"},
    "late": set(),
    "scratch": set(),
    "bounded_file": {"errors"},
    "whole_file": {"errors", "bounded_file"},
    "declared": {"errors", "text", "late"},
    "toml_table": {"errors", "bounded_file", "declared"},
    "json_text": {"errors", "text", "bounded_file", "declared"},
    "npz": {"errors", "text", "declared"},
    "safetensors": {"errors", "text", "declared", "json_text"},
    "interval": {"errors", "late"},
    "decision": {*_TEXT, "interval", "declared"},
    "prediction": {*_TEXT, "interval", "decision"},
    "stored_prediction": {"errors", "declared", *_FIGURES},
    "devices": _FILES,
    "graph": {*_TEXT, "declared"},
    "features": {*_FILES, "graph"},
    "importers": {*_FILES, "graph"},
    "llm": _READING,
    "predictors": _MODELS,
    "search": _PREDICTING,
    "annotation": _PREDICTING,
    "deploy": {*_PREDICTING, "search"},
    "simulators": _PREDICTING,
    "exporter": _PREDICTING,
    "torch": {*_PREDICTING, "deploy", "measure"},
    "measure": {*_DEVICES, "importers"},
    "records": {*_MODELS, "measure"},
    "calibrate": {*_PREDICTING, "records", "measure"},
    "evidence": {*_PREDICTING, *_RECORDS},
    "training": {*_PREDICTING, *_RECORDS, "search", "deploy", "calibrate", "evidence"},
    "study": _LEARNING,
    "report": {*_DECIDING, "evidence", "stored_prediction"},
    "serve": {*_DECIDING, "evidence", "stored_prediction", "scratch"},
    "ui": {*_DECIDING, "json_text", "report", "serve"},
    "cli": {*_LEARNING, "study", "stored_prediction", "report", "serve", "ui", "simulators", "exporter", "extensions"},
    "__main__": {"cli"},
    "tvm_perfpass": _DECIDING,
    "ort_extension": {*_DECIDING, "measure", "extensions"},
}
# perfpass's own face names what users import, and has the version, which every room may ask for.
_FACE = "perfpass"


@pytest.fixture(scope="module")
def sources() -> Sources:
    return Sources.of(ROOT)


def wrong_directions(sources: Sources) -> list[str]:
    found = []
    for one in sources.imports():
        room, target = room_of(one.module), room_of(one.target)
        if target == room or one.target in COMPILED or room == _FACE:
            continue
        if target == _FACE and one.name in (None, "__version__"):
            continue
        if target not in MAY_KNOW[room]:
            found.append(str(one))
    return found


def hidden_names(sources: Sources) -> list[str]:
    """Imports from another package of what its face does not list: a name of its own, or one of its modules."""
    found = []
    for one in sources.imports():
        here, there = sources.package_of(one.module), sources.package_of(one.target)
        if there in ("perfpass", "") or one.target in COMPILED or inside(here, there):
            continue
        listed = sources.face(there)
        wanted = one.name if one.target == there else one.target.rpartition(".")[2]
        private = (one.name or "").startswith("_")
        if wanted is not None and (private or wanted not in listed):
            found.append(f"{one} ({there} lists no {wanted})")
    return found


def inside(package: str, other: str) -> bool:
    """Whether a package stands in another, or is it."""
    return package == other or package.startswith(f"{other}.")


def test_every_room_has_its_directions(sources):
    rooms = {room_of(module) for module in sources.text} - {_FACE}
    assert rooms == set(MAY_KNOW)


def test_no_room_knows_one_that_it_may_not(sources):
    assert wrong_directions(sources) == []


def test_no_modules_import_each_other_in_a_circle(sources):
    assert circles(sources.imports(), sources.packages) == []


def test_other_packages_import_what_a_face_lists(sources):
    assert hidden_names(sources) == []


def test_faces_hold_names_and_no_logic(sources):
    import ast

    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr, ast.If)
    logic = []
    for package in sources.packages:
        for node in ast.parse(sources.text[package]).body:
            lazy = isinstance(node, ast.FunctionDef) and node.name in ("__getattr__", "__dir__")
            if not isinstance(node, allowed) and not lazy:
                logic.append(f"{package}, line {node.lineno}")
    assert logic == []


def test_what_a_face_lists_is_there(sources):
    missing = []
    for package in sources.packages:
        text = sources.text[package]
        for name in sources.face(package):
            if (
                f"{package}.{name}" not in sources.text
                and name not in text.replace("__all__", "", 1).split("__all__")[0]
            ):
                missing.append(f"{package}.{name}")
    assert missing == []


@pytest.mark.parametrize(
    ("module", "line", "check"),
    [
        ("perfpass.graph.costs", "    from perfpass.predictors import predict", wrong_directions),
        ("perfpass.predictors.roofline", "    from perfpass.records import schema", wrong_directions),
        ("perfpass.devices.spec", "if TYPE_CHECKING:\n    from perfpass.graph import OpGraph", wrong_directions),
        ("perfpass.importers.onnx", "    import tvm_perfpass.relax", wrong_directions),
        ("perfpass.search.items", "    from perfpass.cli import main", wrong_directions),
        ("perfpass.records.corpus", "    from perfpass.predictors import predict", wrong_directions),
        ("tvm_perfpass.points", "    from perfpass.study import table", wrong_directions),
        ("perfpass.search.scorer", "    from perfpass.predictors.learned.packed_trees import _VERSION", hidden_names),
        ("ort_extension.session", "    from perfpass.predictors.published import bpe", hidden_names),
    ],
)
def test_a_wrong_import_is_seen_wherever_it_stands(sources, module, line, check):
    text = sources.text[module]
    body = line if line.startswith("if") else f"def late():\n{line}\n"
    spoiled = dataclasses.replace(sources, text={**sources.text, module: f"{text}\n\n{body}\n"})
    assert check(sources) == []
    assert any(found.startswith(module) for found in check(spoiled))


def test_a_circle_is_seen():
    imports = [Import("a.x", 1, "a.y", None), Import("a.y", 2, "a.z", "f"), Import("a.z", 3, "a.x", None)]
    assert circles(imports, frozenset({"a"})) == [["a.x", "a.y", "a.z"]]
