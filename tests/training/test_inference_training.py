"""Training and grading the inference predictor on a small corpus; nothing held out is seen."""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas
import pytest

from perfpass.errors import ArgumentError
from perfpass.predictors.roofline import GROUPS, SOFTWARE
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training.tasks import splits


def test_efficiencies_are_recovered_from_sums():
    from perfpass.training.inference.model import MOVED, fit_efficiency
    from perfpass.training.ratio_trees import PRIOR_FACTOR

    generator = np.random.default_rng(5)
    group_s = generator.exponential(1.0, (4000, len(GROUPS)))
    truth = generator.uniform(0.5, 3.0, len(GROUPS))
    found = fit_efficiency(group_s, np.zeros(4000, dtype=np.int64), group_s @ truth)
    eager = found[SOFTWARE.index("eager")]
    assert np.corrcoef(eager, truth)[0, 1] > 0.95
    # Software without rows keeps the prior, of which what moves the bytes is in the roofline of GPUs.
    assert (found[SOFTWARE.index("compiled")] == PRIOR_FACTOR / MOVED).all()
    assert (found[SOFTWARE.index("cpu")] == PRIOR_FACTOR).all()
    before = np.abs(group_s.sum(1) * PRIOR_FACTOR / (group_s @ truth) - 1).mean()
    after = np.abs(group_s @ eager / (group_s @ truth) - 1).mean()
    assert after < before / 2


@pytest.fixture(scope="module")
def small_corpus(tmp_path_factory):
    """One in twelve architectures on one device, in the layout of data/."""
    source = data_directory()
    folder = tmp_path_factory.mktemp("data")
    (folder / "records").mkdir()
    (folder / "graphs").symlink_to(source / "graphs")
    rows = pandas.read_parquet(source / "records" / "vision.parquet")
    names = sorted(set(rows.architecture))[::12]
    rows = rows[rows.architecture.isin(names) & rows.device.isin(["rtx-4090"])]
    schema.write(folder / "records" / "vision.parquet", "vision", rows)
    return folder


def test_evaluate_grades_and_writes_the_table(small_corpus, tmp_path, monkeypatch):
    from perfpass.training import areas, evaluate
    from perfpass.training import inference as vision

    def quick(folder, seed, *, quiet):
        return vision.evaluate(folder, seed, splits=["architecture"], folds=3, rounds=80, quiet=quiet)

    monkeypatch.setattr(areas, "module", lambda name: SimpleNamespace(evaluate=quick))
    report = evaluate(str(small_corpus), ["inference"], output=str(tmp_path), quiet=True)
    written = json.loads((tmp_path / "inference.json").read_text())
    assert written["lines"] == json.loads(json.dumps(report.to_dict()))["areas"]["inference"]["lines"]
    on_gpus = {x["method"]: x for x in written["lines"] if x["judged_on"] == "GPUs (timm)"}
    ours = on_gpus["perfpass"]
    assert ours["mape_pct"] < 20
    assert ours["mape_pct"] < on_gpus["MACs only"]["mape_pct"]
    assert "| latency ms | architecture | perfpass |" in (tmp_path / "inference.md").read_text()
    assert (tmp_path / "inference.png").read_bytes().startswith(b"\x89PNG")


def test_families_on_which_settings_were_chosen_are_not_graded(small_corpus):
    from perfpass.training.inference import evaluate

    report = evaluate(str(small_corpus), splits=["random"], folds=2, rounds=5, baselines=False, quiet=True)
    rows = pandas.read_parquet(small_corpus / "records" / "vision.parquet")
    aside = report.corpus["rows_set_aside"]
    assert 0 < aside < report.corpus["rows"] <= len(rows)
    assert report.lines[0].grade.rows == report.corpus["rows"] - aside
    assert splits.set_aside(report.corpus["families_set_aside"]).all()


def test_nothing_of_the_held_out_rows_reaches_their_predictions(small_corpus):
    from perfpass.training.inference import model
    from perfpass.training.inference.dataset import load

    dataset = load(small_corpus)
    test = np.flatnonzero(splits.groups_into_folds(dataset.rows.family, 3) == 0)
    train = np.setdiff1d(np.arange(len(dataset)), test)
    before = model.held_out(dataset, train, test, portable=False, seed=0, rounds=20).predicted_s
    dataset.measured_s[test] *= np.random.default_rng(0).uniform(0.1, 10.0, len(test))
    after = model.held_out(dataset, train, test, portable=False, seed=0, rounds=20).predicted_s
    np.testing.assert_array_equal(before, after)


def test_trees_learn_of_the_device_and_not_of_the_host_beside_it():
    """The runs of torchvision's networks state no release, and each board stood in a machine of its own."""
    from perfpass.training.inference import model
    from perfpass.training.inference.dataset import load

    dataset = load()
    rows = np.flatnonzero((dataset.rows.source == "torchvision").to_numpy())
    device, everything = dataset.rows.device.to_numpy(), np.arange(len(dataset))
    efficiency = model.efficiency_of(dataset, everything)
    board = device == "titan-xp"
    others = np.flatnonzero(~board)
    assumed = model.Arrays(dataset, *dataset.features(efficiency))
    found = model.hosts(assumed, everything)
    # 69 us an operator, 56 and 31, where 40 are assumed.
    assert {name: round(float(found[device == name][0]), 1) for name in ("titan-xp", "titan-rtx", "rtx-2080-ti")} == {
        "titan-xp": 1.7, "titan-rtx": 1.4, "rtx-2080-ti": 0.8,
    }  # fmt: skip
    assert (np.delete(found, rows) == 1.0).all()
    # The host of a board that is left out is not known.
    assert (model.hosts(assumed, others)[board] == 1.0).all()
    waits = np.zeros(len(dataset), dtype=bool)
    waits[rows] = assumed.x[rows, model.FEATURES.index("log_issue")] > np.log(2.0)
    learned = model.arrays(dataset, efficiency, everything)
    assert np.abs(learned.target[waits]).mean() < 0.6 * np.abs(assumed.target[waits]).mean()


def test_graphs_that_run_in_one_way_are_summed_together_as_each_by_itself(small_corpus, monkeypatch):
    from perfpass.training import ratio_trees
    from perfpass.training.inference.dataset import load
    from perfpass.training.training_step.dataset import inference

    def summed():
        steps = inference(small_corpus, size=40)
        return [*vars(load(small_corpus).sums).values(), *vars(steps.sums).values(), steps.base_s]

    dataset = load(small_corpus)
    places = list(ratio_trees.in_one_way(dataset.ways, dataset.rows.precision, most=5))
    assert sorted(i for some in places for i in some) == list(range(len(dataset)))
    assert 1 < max(map(len, places)) <= 5
    together = summed()
    monkeypatch.setattr(ratio_trees, "in_one_way", partial(ratio_trees.in_one_way, most=1))
    for many, alone in zip(together, summed(), strict=True):
        np.testing.assert_array_equal(many, alone)


def test_choosing_settings_names_the_best_of_those_tried(small_corpus):
    from perfpass.training.inference import choose
    from perfpass.training.inference.dataset import load

    grid = ({"max_depth": 1, "rounds": 2}, {"max_depth": 6, "rounds": 60})
    found = choose.choose(load(small_corpus), grid)
    assert found["best"] == grid[1]
    assert found["settings"][0]["mean"] > found["settings"][1]["mean"]
    assert [f["fade"] for f in found["fades"]["gpu"]] == list(choose.FADES)
    assert found["best_fade"]["gpu"] in choose.FADES


def test_the_settings_in_use_are_those_that_were_chosen():
    from perfpass.training.inference.model import ROUNDS, TREES, TREES_FADE

    stored = json.loads((data_directory() / "results" / "settings.json").read_text())
    assert stored["best"] == {**{k: TREES[k] for k in ("max_depth", "colsample_bytree")}, "rounds": ROUNDS}
    assert stored["best_fade"] == {kind: list(fade) for kind, fade in TREES_FADE.items()}


def test_evaluate_refuses_an_unknown_split(small_corpus):
    from perfpass.training.inference import evaluate

    with pytest.raises(ArgumentError, match="unknown split 'weather'"):
        evaluate(str(small_corpus), splits=["weather"])
