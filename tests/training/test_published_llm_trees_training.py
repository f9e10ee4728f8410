"""Language models as a task of the comparison: the rows, graphs at any size, trees, process, graph network."""

from __future__ import annotations

import numpy as np
import pytest

from perfpass.errors import ArgumentError, ArtefactError


@pytest.mark.parametrize("source", ["llm-prefill", "llm-decode"])
def test_a_graph_at_any_batch_and_length_is_the_one_that_a_trace_gives(source):
    from perfpass.graph import costs
    from perfpass.importers.huggingface import trace_config
    from perfpass.training.published.llm_trees import graphs

    found = graphs.at(source, "pythia-70m", 333, 5)
    direct = trace_config("pythia-70m", batch=5, sequence_length=333, mode=graphs.MODES[source], dtype="float16")
    assert found.node_count == direct.node_count
    np.testing.assert_array_equal(found.dims, direct.dims)
    assert costs.count(found).totals == costs.count(direct).totals


@pytest.fixture(scope="module")
def task():
    from perfpass.training.tasks.tasks import load

    return load("llm")


@pytest.fixture(scope="module")
def few(task):
    return task.subset(np.arange(0, len(task), 5))


def errors(fitted, task, rows):
    return np.abs(fitted.predict(rows) / task.value[rows] - 1.0).mean()


def constant_error(task, split):
    guess = np.exp(np.log(task.value[split.train]).mean())
    return np.abs(guess / task.value[split.test] - 1.0).mean()


def test_the_task_has_the_rows_of_the_generation_predictor(task):
    from perfpass.training.generation import dataset

    data = dataset.load()
    np.testing.assert_array_equal(task.value, data.quantity.measured)
    from perfpass.training.published.llm_trees.table import batches

    assert batches(task) == data.batches


def test_stratified_folds_keep_repeats_together_and_hold_out_every_row_once(few):
    from perfpass.training.published.llm_trees.evaluate import stratified

    folds = stratified(few)
    assert sorted(np.concatenate([f.test for f in folds])) == list(range(len(few)))
    keys = few.rows.drop(columns=["family", "record", "power_limit_w"]).astype(str).agg("|".join, axis=1).to_numpy(str)
    for fold in folds:
        assert not set(keys[fold.test]) & set(keys[fold.train])
        assert not np.intersect1d(fold.train, fold.valid).size


@pytest.mark.parametrize("name", ["llm-trees", "llm-process"])
def test_a_method_beats_a_constant_on_few_records(few, name):
    from perfpass.training.published.llm_trees.evaluate import stratified
    from perfpass.training.tasks.graphs import Graphs
    from perfpass.training.tasks.methods import method

    split = stratified(few)[0]
    fitted = method(name).fit(few, Graphs(), split)
    assert errors(fitted, few, split.test) < 0.3 * constant_error(few, split)
    assert fitted.parameters > 0


@pytest.mark.slow
def test_the_graph_network_beats_a_constant_on_one_model(task):
    from perfpass.training.published.llm_trees.evaluate import stratified
    from perfpass.training.published.llm_trees.gnn import Sage, Settings
    from perfpass.training.tasks.graphs import Graphs

    one = task.subset(np.flatnonzero(task.rows.model == "opt-6.7b"))
    split = stratified(one)[0]
    settings = Settings(hidden=16, steps=120, adaptation_steps=10, pairs=8, dropout=0.0)
    fitted = Sage(settings=settings).fit(one, Graphs(), split)
    known = np.concatenate([split.train, split.valid])
    guess = np.exp(np.log(one.value[known]).mean())
    assert errors(fitted, one, known) < 0.5 * np.abs(guess / one.value[known] - 1.0).mean()
    before = fitted.predict(split.test)
    assert errors(fitted.adapted(split.test), one, split.test) < errors(fitted, one, split.test)
    np.testing.assert_array_equal(fitted.predict(split.test), before)


def test_what_ships_scores_in_the_core_as_it_was_trained(few, tmp_path):
    from perfpass.predictors.learned import artefacts, packed_trees
    from perfpass.predictors.published.llm_trees import LlmTreesPredictor, columns, matrix
    from perfpass.training.published.llm_trees import trees
    from perfpass.training.published.llm_trees.table import batches
    from perfpass.training.tasks.graphs import Graphs
    from perfpass.training.tasks.tasks import Split

    method = trees.Trees(traced=False)
    everything = np.arange(len(few))
    fitted = method.fit(few, Graphs(), Split("all", everything, everything[:0], everything))
    runs = batches(few)
    np.testing.assert_array_equal(matrix(runs), trees.matrix(few, None, method.columns).astype(np.float32))
    manifest = artefacts.Artefact(artefacts.shipped("llm-trees")).manifest
    content = packed_trees.pack([bytes(fitted.booster.save_raw("json"))])
    artefacts.write(tmp_path / "a", {k: v for k, v in manifest.items() if k != "files"}, {"latency.trees": content})
    found = LlmTreesPredictor(tmp_path / "a").log_latency(runs)
    np.testing.assert_allclose(np.exp(found), fitted.predict(everything), rtol=5e-3)
    assert manifest["columns"] == list(columns())
    artefacts.write(tmp_path / "b", {**manifest, "columns": ["total_macs"]}, {"latency.trees": content})
    with pytest.raises(ArtefactError, match="columns is not what this version computes"):
        LlmTreesPredictor(tmp_path / "b")


def test_methods_of_other_tasks_and_language_models_refuse_each_other(task):
    from perfpass.training.tasks.graphs import Graphs
    from perfpass.training.tasks.methods import method
    from perfpass.training.tasks.tasks import load

    vision = load("memory")
    with pytest.raises(ArgumentError, match="made for the task llm"):
        method("llm-process").fit(vision, Graphs(), next(vision.splits()))
    with pytest.raises(ArgumentError, match="made for vision networks"):
        method("graph-language").fit(task, Graphs(), next(task.splits()))


@pytest.mark.parametrize("name", ["llm-trees", "llm-process"])
def test_a_few_records_of_an_unseen_device_help(few, name):
    from perfpass.training.tasks.graphs import Graphs
    from perfpass.training.tasks.methods import method

    split = few.without_device("h100-sxm5-80gb")
    fitted = method(name).fit(few, Graphs(), split)
    draw = np.random.default_rng(0).permutation(split.test)
    adapted = fitted.adapted(draw[:32])
    assert errors(adapted, few, draw[32:]) < 0.9 * errors(fitted, few, draw[32:])


def test_only_what_ships_is_trained_by_name(capsys):
    from perfpass.cli import main

    refused = {
        "what ships is llm-trees": ["--predictor", "llm-gnn"],
        "no sizes of the published trees": ["--predictor", "llm-trees", "--published"],
        "what ships is graph-language": ["--predictor", "graph-language-json"],
        "no other predictor stands on one": ["--predictor", "llm-trees", "--base", "folder"],
        "belong to --predictor": ["--base", "folder"],
    }
    for message, arguments in refused.items():
        assert main(["train", *arguments]) != 0
        assert message in capsys.readouterr().err
