"""The comparison: splits that leak nothing, the same rows for every predictor, a journal that a kill cannot spoil."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from perfpass.errors import ArgumentError, FileError, FormatError
from perfpass.study import blend, findings, present, table
from perfpass.training.tasks import methods, tasks
from traced_records import by_rows, traced, training_steps


@pytest.fixture(scope="module")
def loaded():
    return {name: tasks.load(name) for name in tasks.TASKS}


@pytest.mark.parametrize("name", tasks.TASKS)
def test_splits_are_disjoint_by_what_they_hold_out(loaded, name):
    task = loaded[name]
    kinds = set()
    for split in task.splits():
        kind, _, device = split.name.partition(" ")
        kinds.add(kind)
        parts = split.train, split.valid, split.test
        joined = np.concatenate(parts)
        assert all(len(part) for part in parts) and len(np.unique(joined)) == len(joined)
        if kind in ("architecture", "family"):
            groups = [set(task.rows[kind].iloc[part]) for part in parts]
            assert groups[2].isdisjoint(groups[0] | groups[1]) and groups[0].isdisjoint(groups[1])
        if kind == "random":
            names = task.configurations()
            assert set(names[split.test]).isdisjoint(names[np.concatenate(parts[:2])])
        if kind == "device":
            assert set(task.rows.device.iloc[split.test]) == {device}
            assert device not in set(task.rows.device.iloc[np.concatenate(parts[:2])])
    assert {"random", "device"} <= kinds
    assert [s.name for s in task.splits()] == [s.name for s in task.splits()]


def test_more_records_of_a_device_hold_the_fewer_and_are_judged_on_the_same_rows(loaded):
    task = loaded["latency"]
    before = task.adaptation("rtx-4090", 8)
    for size in (16, 128):
        now = task.adaptation("rtx-4090", size)
        assert set(before.train) < set(now.train) and np.array_equal(before.test, now.test)
        new = task.rows.architecture.iloc[now.train[-size:]]
        assert set(new).isdisjoint(task.rows.architecture.iloc[now.test])
        before = now
    with pytest.raises(ArgumentError, match="no rows on l4"):
        task.adaptation("l4", 8)


def test_rows_of_every_task_are_the_records_that_our_own_design_learns_from(loaded):
    from perfpass.training.tasks import ours

    def of(name):
        return loaded[name].rows.record.to_numpy()

    np.testing.assert_allclose(
        ours.step_corpus().dataset.measured_s[of("training_step")] * 1e3, loaded["training_step"].value
    )
    np.testing.assert_allclose(ours.memory_data()[0].measured[of("memory")], loaded["memory"].value)
    np.testing.assert_allclose(ours.energy_data()["training_power"].measured[of("power")], loaded["power"].value)
    limits = loaded["energy"].rows.power_limit_w
    assert limits.notna().all() and limits.nunique() > 5


def test_joules_of_a_step_are_those_of_the_epoch_over_its_steps(loaded):
    task = loaded["energy"]
    import pandas

    stored = pandas.read_parquet(tasks.data_directory() / "records" / "training_power.parquet")
    row = task.rows[(task.rows.model == "resnet50") & (task.rows.batch == 256)].iloc[0]
    epoch = stored.iloc[row.record]
    assert epoch.dataset == "imagenet"
    assert task.value[row.name] * 5005 == pytest.approx(epoch.energy_j)  # 1,281,167 pictures by 256


@pytest.mark.slow
def test_joules_of_a_board_that_was_never_measured_follow_from_the_steps_of_others(loaded):
    from perfpass.training.tasks import step_power

    task = traced(loaded["energy"])
    work = step_power.step_work(task, table.graphs())
    assert (work.seconds > 0).all() and ((work.use > 0) & (work.use <= 1)).all()
    # Physics alone, then with factors that other boards taught; no step of the board either.
    board = (task.rows.device == "a40").to_numpy()
    split = task.without_device("a40")
    errors = {
        name: np.abs(methods.method(name).fit(task, table.graphs(), split).predict(split.test) / task.value[board] - 1)
        for name in ("constant", "roofline", "perfpass")
    }
    middle = {name: float(np.median(found)) for name, found in errors.items()}
    assert middle["perfpass"] < 0.5 * middle["roofline"] and middle["perfpass"] < 0.5 * middle["constant"]


@pytest.fixture
def small(monkeypatch):
    """The table on a few real networks; what is kept per process is made anew."""
    task = replace(training_steps())
    monkeypatch.setattr(table, "task_of", lambda name: task)
    for kept in (table.splits_of, table.method_of):
        kept.cache_clear()
    yield task
    for kept in (table.splits_of, table.method_of):
        kept.cache_clear()


def quick(name):
    found = methods.method(name)
    if not name.startswith("dippm"):
        return found
    return found.with_options(epochs=40, graphs_per_step=2, learning_rate=5e-3, half=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["perfpass", "boosting", "dippm"])
def test_a_predictor_beats_a_constant_and_learns_from_new_rows(small, name):
    split = by_rows(small)
    found, constant = (quick(n).fit(small, table.graphs(), split) for n in (name, "constant"))
    error, worst = (np.abs(np.log(f.predict(split.test) / small.value[split.test])).mean() for f in (found, constant))
    assert error < 0.75 * worst
    assert found.parameters >= 0
    # A device that takes twice as long for everything: a dozen of its records say so.
    rows = split.test[:12]
    slow = small.value.copy()
    slow[split.test] *= 2
    object.__setattr__(small, "value", slow)
    rest = split.test[12:]
    before, after = (np.abs(np.log(f.predict(rest) / slow[rest])).mean() for f in (found, found.adapted(rows)))
    object.__setattr__(small, "value", np.where(np.isin(np.arange(len(slow)), split.test), slow / 2, slow))
    assert after < before


@pytest.mark.slow
def test_a_journal_goes_on_where_it_stopped_and_a_kill_loses_nothing(small, tmp_path, monkeypatch):
    journal = table.Journal(tmp_path / "journal.jsonl")
    wanted = table.cells(["constant", "roofline", "boosting"], ["training_step"], ["random"], 0)
    assert [cell.predictor for cell in wanted] == ["constant", "roofline", "boosting"]
    table.run(journal, wanted[:2], quiet=True)
    # A kill in the middle of a line, and one between predictions and their line.
    with journal.path.open("a") as file:
        file.write('{"predictor": "boosting", "task": "training_step", "spl')
    assert [cell.predictor for cell in table.missing(journal, wanted, False)] == ["boosting"]
    fitted = []
    with monkeypatch.context() as patch:
        patch.setattr(table, "method_of", lambda name: fitted.append(name) or methods.method(name))
        table.run(journal, wanted, quiet=True)
    assert fitted == ["boosting"] and list(table.missing(journal, wanted, False)) == []
    lines = journal.path.read_text().splitlines()
    assert [json.loads(line)["predictor"] for line in lines] == ["constant", "roofline", "boosting"]
    split = table.splits_of("training_step", 0)["random"]
    for cell in wanted:
        kept = journal.predictions(cell)
        assert len(kept["test"]) == len(split.test) and len(kept["valid"]) == len(split.valid)
        assert journal.entries()[cell]["rows_digest"] == table.rows_digest(small, split)


@pytest.mark.slow
def test_a_journal_that_cannot_be_kept_or_holds_nothing_is_one_error_before_anything_is_fitted(small, tmp_path):
    from perfpass.study.evaluate import evaluate

    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="a journal cannot be kept there"):
        table.run(table.Journal(tmp_path / "file" / "journal.jsonl"), [], quiet=True)
    with pytest.raises(FileError, match="cannot be read"):
        table.Journal(tmp_path).entries()
    (tmp_path / "noise.jsonl").write_bytes(bytes(range(256)))
    assert table.Journal(tmp_path / "noise.jsonl").entries() == {}
    output = tmp_path / "tables"
    with pytest.raises(FileError, match="holds no result"):
        evaluate(["all"], journal=tmp_path / "none.jsonl", output=output, fit=False)
    assert not output.exists() and not (tmp_path / "none.jsonl").exists()


def test_damaged_lines_and_predictions_of_a_journal_are_as_good_as_none(tmp_path):
    journal = table.Journal(tmp_path / "journal.jsonl")
    whole = {"predictor": "trees", "task": "latency", "split": "random", "seed": 0}
    lines = [whole, {**whole, "split": {}}, {**whole, "seed": [[]]}, {**whole, "task": 7}, [whole], "trees"]
    journal.path.write_text("\n".join([*map(json.dumps, lines), "[" * 5000]))
    (cell,) = journal.entries()
    assert cell == table.Cell("trees", "latency", "random")
    journal.folder.mkdir()
    place = journal.folder / f"{cell.name}.npz"
    np.savez(place, valid=np.arange(3.0), test=np.arange(3.0))
    good = place.read_bytes()
    assert list(journal.predictions(cell)) == ["valid", "test"]
    for damaged in (b"", good[:4], good[:60], good[:30] + bytes([good[30] ^ 1]) + good[31:], b"\x80" + good):
        place.write_bytes(damaged)
        assert journal.predictions(cell) is None or damaged.endswith(good)


@pytest.mark.slow
def test_a_predictor_without_finite_answers_is_left_out_and_named(small, tmp_path, monkeypatch, capsys):
    class Endless:
        parameters = 0

        def fit(self, task, graphs, split, seed=0):
            return self

        def predict(self, rows):
            return np.full(len(rows), np.inf)

    journal = table.Journal(tmp_path / "journal.jsonl")
    wanted = table.cells(["constant", "boosting"], ["training_step"], ["random"], 0)
    with monkeypatch.context() as patch:
        patch.setattr(table, "method_of", lambda name: Endless() if name == "boosting" else methods.method(name))
        table.run(journal, wanted, quiet=True)
    assert [cell.predictor for cell in journal.entries()] == ["constant"]
    assert "boosting_training_step_random_0: predicts values that are not finite" in capsys.readouterr().err


@pytest.mark.slow
def test_cells_of_other_rows_are_fitted_again(small, tmp_path):
    journal = table.Journal(tmp_path / "journal.jsonl")
    wanted = table.cells(["constant"], ["training_step"], ["random"], 0)
    table.run(journal, wanted, quiet=True)
    object.__setattr__(small, "value", small.value * 1.01)
    assert list(table.missing(journal, wanted, False)) == wanted
    object.__setattr__(small, "value", small.value / 1.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--predictors", "dipm"], "unknown predictor 'dipm'; allowed are perfpass, "),
        (["--predictors", "dippm", "--tasks", "speed"], "unknown task 'speed'; allowed are latency, "),
        (["--predictors", "all", "--splits", "colour"], "unknown split 'colour'; allowed are random, "),
        (["--predictors", "all", "--area", "inference"], "leave out --area"),
        (["--predictors", "all", "--jobs", "0"], "--jobs must be at least 1"),
    ],
)
def test_a_wrong_name_is_one_clear_error(options, message, tmp_path, capsys):
    from perfpass.cli import main

    assert main(["evaluate", *options, "--journal", str(tmp_path / "j"), "--output", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and not (tmp_path / "j").exists()


def test_weights_come_from_validation_and_find_the_better_member():
    rng = np.random.default_rng(0)
    measured = rng.uniform(1, 10, 400)
    good, bad = measured * np.exp(rng.normal(0, 0.05, 400)), measured * np.exp(rng.normal(0, 1, 400))
    other = measured * np.exp(rng.normal(0, 0.05, 400))
    assert blend.choose({"good": good, "bad": bad}, measured) == {"good": 1.0}
    weights = blend.choose({"good": good, "other": other}, measured)
    assert sum(weights.values()) == pytest.approx(1) and len(weights) == 2
    both = blend.mix({"good": good, "other": other}, weights)
    assert blend.mape_pct(both, measured) < blend.mape_pct(good, measured)
    group = np.arange(400) // 4
    assert blend.validated_pct({"good": good, "bad": bad}, measured, group) == pytest.approx(
        blend.mape_pct(good, measured)
    )


def content_of(cells):
    line = {"rows": 5, "median_ape_pct": 1.0, "within_10_pct": 50.0, "rmse": 1.0, "kendall_tau": 0.5, "fit_s": 1.0}
    line |= {"predict_ms_per_row": 0.1, "parameters": 3, "worst_cases": []}
    found = [
        {"task": t, "split": s, "predictor": p, "mape_pct": m, "valid_mape_pct": m, **line} for t, s, p, m in cells
    ]
    splits = {"random": {"train": 1, "valid": 1, "test": 5}, "device a": {"train": 1, "valid": 1, "test": 5}}
    about = {"rows": 7, "networks": 2, "unit": "ms", "splits": splits}
    content = {"predictors": ["perfpass", "dippm", *[f"dippm-{k}" for k in ("gat", "gcn", "gin", "mlp")]], "seed": 0}
    content |= {"tasks": {"latency": about}, "cells": found, "adaptation": [], "published": [], "machines": ["x"]}
    content["defaults"] = present.defaults(found)
    return content | {"findings": findings.findings(content)}


def test_a_cell_that_was_not_fitted_is_a_dash_and_no_default():
    content = content_of([("latency", "random", "perfpass", 5.0), ("latency", "random", "dippm", 4.0),
                          ("latency", "device a", "perfpass", 9.0)])  # fmt: skip
    lines = present.overview(content, "latency").splitlines()
    assert "| dippm | 4.0 | - |" in lines and "| perfpass | 5.0 | 9.0 |" in lines
    assert "| dippm | 4.0 | - |" in present.markdown(content)


def test_the_studies_beside_the_table_have_their_claims(tmp_path, root):
    from perfpass.errors import FileError
    from perfpass.study.studied import studied

    results = root / "data" / "results" / "comparison"
    claims = {f["claim"]: f["verdict"] for f in studied(results)}
    assert {
        "Pre-training helps convergence (TraPPM)",
        "Graph tokens are better than text, in a study of their own",
    } < set(claims)
    assert studied(tmp_path) == []
    found = json.loads((results / "llm.json").read_text())
    for kinds in found["variants"].values():
        for cell in kinds.values():
            cell["mape_pct"] = 10.0
    (tmp_path / "llm.json").write_text(json.dumps(found))
    assert {f["claim"]: f["verdict"] for f in studied(tmp_path)}[
        "Trees are better than a graph network for language models"
    ] == "refuted"
    (tmp_path / "llm.json").write_text("{}")
    with pytest.raises(FileError, match="run the study again"):
        studied(tmp_path)


def test_the_findings_say_what_the_figures_say():
    errors = {"dippm": 10.0, "dippm-gat": 12.0, "dippm-gcn": 11.0, "dippm-gin": 13.0, "dippm-mlp": 9.0}
    cells = [("latency", "random", p, m) for p, m in errors.items()]
    found = content_of([*cells, ("latency", "random", "perfpass", 5.0)])["findings"]
    assert [f["verdict"] for f in found] == ["confirmed", "true on 1 of 1 splits", "refuted"]
    worse = [(t, s, p, 20.0 if p == "dippm" else m) for t, s, p, m in cells]
    assert content_of(worse)["findings"][0]["verdict"] == "refuted"
    assert findings.findings({"cells": content_of(cells[:3])["cells"]}) == []


def test_the_document_takes_its_tables_from_the_results(tmp_path):
    document = tmp_path / "d.md"
    document.write_text("a\n<!-- one -->\nold\n<!-- end -->\nb\n")
    for _ in range(2):
        present.fill(document, {"one": "new"})
        assert document.read_text() == "a\n<!-- one -->\n\nnew\n\n<!-- end -->\nb\n"
    with pytest.raises(FormatError, match="no part is called 'one'"):
        present.fill(document, {"two": ""})


def test_nothing_heavy_is_imported_by_the_command_line_alone():
    code = "import sys, perfpass.cli.parser; print([m for m in ('pandas', 'torch', 'xgboost') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
