"""The coverage table's runner: every model is a row, whatever reading it does to the process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COVERAGE = ROOT / "benchmarks" / "coverage"

GROUP = """
import os, time
from row import NotMadeError, Reading
import perfpass

TITLE, PACKAGES = "tried", ("onnx",)

def models():
    return ["read", "refused", "not made", "wrong", "dies", "hangs", "read again"]

def read(model):
    if model == "dies":
        os._exit(3)
    if model == "hangs":
        time.sleep(60)
    if model == "not made":
        raise NotMadeError("no such exporter")
    if model == "wrong":
        raise KeyError("x")
    path = "missing.onnx" if model == "refused" else EXAMPLE
    return Reading(perfpass.load(path), 4089184256, 1)
"""


@pytest.fixture
def runner(tmp_path, monkeypatch):
    """`benchmarks/coverage/run.py` and a group of its own, journals in a temporary folder."""
    (tmp_path / "tried_group.py").write_text(GROUP.replace("EXAMPLE", repr(str(ROOT / "examples" / "resnet50.onnx"))))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(COVERAGE))
    import run

    monkeypatch.setattr(run, "JOURNALS", tmp_path / "journals")
    monkeypatch.setattr(run, "RESULTS", tmp_path / "results")
    yield run
    for name in ("run", "row", "tried_group"):
        sys.modules.pop(name, None)


def test_a_crash_and_a_hang_are_rows_and_the_rest_is_read(runner, tmp_path):
    group = runner.load("tried_group")
    with runner.Worker(group.name, seconds=20, memory_bytes=8 << 30) as worker:
        first = list(runner.rows(group, worker, ["read", "refused", "not made", "wrong", "dies"]))
    with runner.Worker(group.name, seconds=1.0, memory_bytes=8 << 30) as worker:
        assert "no answer after 1 s" in next(iter(runner.rows(group, worker, ["hangs"]))).reason
    with runner.Worker(group.name, seconds=20, memory_bytes=8 << 30) as worker:
        last = list(runner.rows(group, worker, ["read again"]))
    assert [row.outcome for row in [*first, *last]] == [
        *("imported", "refused", "refused", "failed", "failed", "imported")
    ]
    assert "ended with 3" in first[-1].reason
    assert (first[0].macs, first[0].agrees) == (4089184256, False)
    made = runner.journal(group.name)
    assert set(made) == set(group.models())
    runner.publish(group, group.models(), made)
    (tmp_path / "journals" / "tried_group.jsonl").unlink()
    assert runner.journal(group.name).keys() == made.keys()


def test_a_row_keeps_the_day_and_the_commit_that_it_was_read_by(runner, monkeypatch):
    group = runner.load("tried_group")
    models = ["read", "refused", "read again"]
    for day, code, wanted in (("2026-01-02", "1a2b3c4d", models), ("2026-02-03", "5e6f7a8b", models[1:2])):
        monkeypatch.setattr(runner, "today", lambda day=day, code=code: (day, code))
        with runner.Worker(group.name, seconds=20, memory_bytes=8 << 30) as worker:
            list(runner.rows(group, worker, wanted))
        runner.publish(group, models, runner.journal(group.name))
        (runner.JOURNALS / "tried_group.jsonl").unlink()
    assert {name: row["code"] for name, row in runner.journal(group.name).items()} == {
        "read": "1a2b3c4d",
        "refused": "5e6f7a8b",
        "read again": "1a2b3c4d",
    }


@pytest.mark.parametrize("name", [path.stem for path in sorted(COVERAGE.glob("*.py"))])
def test_no_module_of_the_table_has_the_name_of_a_package(name):
    import importlib.util

    assert importlib.util.find_spec(name) is None or str(COVERAGE) in str(importlib.util.find_spec(name).origin)
