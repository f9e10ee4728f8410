"""Language models as a task of the comparison: the feature table, graphs at any size, trees, graph network."""

from __future__ import annotations

import numpy as np
import pytest

from perfpass.devices import device
from perfpass.errors import ArgumentError, ArtefactError
from perfpass.llm import table as llm_table
from perfpass.llm.configuration import language_model
from perfpass.predictors.generation.predictor import batch_of


def row(model="llama-2-7b", on="a100", **changed):
    run = {"batch": 8, "input_tokens": 512, "output_tokens": 128, **changed}
    values = llm_table.row(language_model(model), device(on), **run)
    return dict(zip(llm_table.COLUMNS, values, strict=True))


def test_the_table_counts_what_the_configuration_says():
    one, two = row(), row(batch=16)
    assert one["total_parameters"] == 6_738_415_616
    assert two["total_macs"] == 2 * one["total_macs"]
    # A token meets every matrix once: parameters without the input embedding, and attention beside them.
    tokens = 8 * 512
    body = one["total_parameters"] - 2 * 32000 * 4096
    assert 1.0 < one["total_macs"] / (tokens * body) < 1.05
    cache = 2 * 32 * 32 * 128 * 2 * (512 + 128) * 8
    assert one["total_memory_bytes"] == 2 * one["total_parameters"] + cache
    assert row(precision="fp8")["quantization_bits"] == 8


def test_hardware_columns_are_missing_where_no_source_states_them():
    nvidia, amd, intel = row(), row(on="mi300x"), row(on="max-1550")
    assert (nvidia["compute_capability_major"], nvidia["warp_size"], nvidia["registers_per_block"]) == (8, 32, 65536)
    assert np.isnan(amd["compute_capability_major"]) and amd["warp_size"] == 64
    assert np.isnan(intel["warp_size"]) and np.isnan(intel["max_threads_per_multiprocessor"])
    assert all(np.isnan(nvidia[name]) for name in llm_table.TRACED)


def test_an_unknown_group_or_precision_is_refused_with_what_is_allowed():
    with pytest.raises(ArgumentError, match="macs, size, shape, workload, hardware"):
        llm_table.columns_of(["weather"])
    with pytest.raises(ArgumentError, match="allowed are"):
        row(precision="int3")


@pytest.mark.parametrize("source", ["llm-prefill", "llm-decode"])
def test_a_graph_at_any_batch_and_length_is_the_one_that_a_trace_gives(source, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    from perfpass.graph import costs
    from perfpass.importers.huggingface import trace_config
    from perfpass.training.published.llm_trees import graphs

    graphs._stored.cache_clear()
    found = graphs.at(source, "pythia-70m", 333, 5)
    direct = trace_config("pythia-70m", batch=5, sequence_length=333, mode=graphs.MODES[source], dtype="float16")
    graphs._stored.cache_clear()
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


def test_the_shipped_trees_answer_with_bounds_and_say_what_was_not_measured():
    from perfpass.predictors.published.llm_trees import LlmTreesPredictor

    predictor = LlmTreesPredictor.load()
    sizes = {"batch": 16, "input_tokens": 512, "output_tokens": 512}
    known, support = predictor.predict(batch_of("llama-2-7b", "h100", **sizes))
    assert support.level == "in range" and known.low < known.median < known.high
    unseen, support = predictor.predict(batch_of("qwen3-8b", "l40s", **sizes))
    assert support.level == "outside" and len(support.reasons) == 2
    assert unseen.high / unseen.median > known.high / known.median


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


def test_lengths_and_sizes_that_no_record_has_are_outside_and_bounded_by_what_was_measured():
    from dataclasses import replace

    from perfpass.predictors.generation.predictor import GenerationPredictor, batch_of
    from perfpass.predictors.published.llm_trees import LlmTreesPredictor

    long = batch_of("llama-2-7b", "h100", runtime="vllm", batch=16, input_tokens=1024, output_tokens=1024)
    short = replace(long, input_tokens=128, output_tokens=128)
    trees = LlmTreesPredictor.load()
    for uneven in (replace(long, output_tokens=128), replace(long, input_tokens=128)):
        found, support = trees.predict(uneven)
        assert support.level == "outside" and "prompts as long as their answers" in " ".join(support.reasons)
        assert found.low < trees.predict(short)[0].median and found.high > trees.predict(long)[0].median
        ours = GenerationPredictor.load()
        found = ours.predict(uneven)
        assert found.support.level == "outside"
        equal = ours.predict(replace(uneven, input_tokens=uneven.output_tokens)).latency_s
        assert found.latency_s.low < equal.median < found.latency_s.high
    for beyond in ({"batch": 512}, {"precision": "fp8"}, {"input_tokens": 16, "output_tokens": 16}):
        found, support = trees.predict(replace(long, **beyond))
        assert support.level == "outside" and found.high / found.low > 1.5


OFFLINE = ["--input-length", "512", "--output-length", "512", "--concurrency", "16"]


def test_the_command_line_answers_a_batch_by_trees_and_says_what_they_do_not_know(capsys, examples):
    import json

    from perfpass.cli import main

    trees = ["llm", "llama-2-7b", "--device", "h100", "--predictor", "llm-trees", *OFFLINE]
    assert main([*trees, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["provenance"]["predictor"] == "llm-trees" and found["support"]["level"] == "in range"
    latency, rate = found["latency_s"]["median"], found["output_tokens_per_s"]["median"]
    assert rate == pytest.approx(16 * 512 / latency)
    assert main(trees) == 0
    assert "the whole batch" in capsys.readouterr().out
    refused = {
        "leave out --pp": [*trees, "--pp", "2"],
        "leave out a cost option": [*trees, "--region", "FR"],
        "answers operator graphs": [*trees[:5], "dippm", *OFFLINE],
        "allowed are perfpass, dippm, trappm, llm-trees": [*trees[:5], "weather", *OFFLINE],
        "does not fit": ["llm", "llama-2-70b", *trees[2:]],
        "perfpass llm MODEL --predictor llm-trees": [
            *("predict", str(examples / "resnet50.onnx"), "--device", "a100", "--predictor", "llm-trees")
        ],
    }
    for message, arguments in refused.items():
        assert main(arguments) != 0
        assert message in capsys.readouterr().err


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
