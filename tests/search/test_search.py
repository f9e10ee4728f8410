"""Scoring many models gives what predicting them one by one gives, beside any others and on any number of threads."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from graph_strategies import graphs, written_out
from perfpass import _core
from perfpass.errors import ArgumentError, DeviceError, FileError, FormatError, PerfPassError, UnsupportedError
from perfpass.graph import at_batch
from perfpass.prediction import SUPPORT_LEVELS
from perfpass.predictors import predict_graph
from perfpass.records import nas_graphs
from perfpass.search import Candidate, Scorer, Template
from perfpass.search.scorer import CHUNK, METRICS

NAMES = ("resnet50", "vit_base_patch16_224", "deberta_v3_large", "llama_1b_prefill")
# Ways that together meet every predictor, allocator, precision, kind of device and support level.
WAYS = [
    {"device": "rtx-4090", "precision": "amp", "layout": "nhwc"},
    {"device": "rtx-3090", "precision": "fp16", "runtime": "torch.compile"},
    {"device": "a100-80gb"},
    {"device": "h100", "precision": "bf16"},
    {"device": "v100", "precision": "fp64"},
    {"device": "core-i9-10940x"},
    {"device": "core-i9-10940x", "runtime": "onnxruntime"},
    {"device": "h100", "precision": "fp8", "runtime": "tensorrt"},
    {"device": "a100-80gb", "precision": "int8", "runtime": "tvm"},
    {"device": "rtx-4090", "precision": "tf32", "runtime": "onnxruntime"},
    {"device": "a100-80gb:2g.20gb"},
    {"device": "a100-80gb:2g.20gb", "processes": 3},
    {"device": "h100", "precision": "amp", "processes": 2},
    {"device": "rtx-3090", "precision": "amp", "mode": "training", "optimizer": "adamw"},
    {"device": "h100", "precision": "tf32", "mode": "training"},
    {"device": "core-i7-12700h", "precision": "fp32", "mode": "training", "optimizer": "none"},
]


def named(way: dict) -> str:
    return "-".join(str(v) for v in way.values())


def figures(prediction: perfpass.Prediction) -> list[float]:
    return [getattr(getattr(prediction, m), b) for m in METRICS for b in ("median", "low", "high")]


def row(scores, i: int) -> list[float]:
    return [float(getattr(getattr(scores, m), b)[i]) for m in METRICS for b in ("median", "low", "high")]


def assert_as_one_by_one(scorer: Scorer, models: list, way: dict) -> None:
    scores = scorer.score(models)
    assert len(scores) == len(models)
    for i, model in enumerate(models):
        try:
            plain = predict_graph(model, **way)
        except PerfPassError as error:
            assert type(scores.problems[i]) is type(error) and str(scores.problems[i]) == str(error)
            assert scores.support[i] == -1 and np.isnan(row(scores, i)).all()
        else:
            assert scores.problems[i] is None
            assert row(scores, i) == figures(plain)
            assert SUPPORT_LEVELS[scores.support[i]] == plain.support.level


@pytest.fixture(scope="module")
def scorers() -> dict[str, Scorer]:
    return {named(way): Scorer(**way) for way in WAYS}


@pytest.fixture(scope="module")
def loaded(examples) -> list[perfpass.OpGraph]:
    return [perfpass.load(examples / f"{name}.onnx") for name in NAMES]


@pytest.mark.parametrize("way", WAYS, ids=named)
def test_real_models_score_as_they_are_predicted_one_by_one(scorers, loaded, way):
    spaces = [nas_graphs.graph("nasbench201", ("nor_conv_3x3", "none", "skip_connect") * 2, 64)]
    spaces.append(nas_graphs.graph("fbnet", ("k3_e6", "k5_e1_g2") * 11, 1))
    assert_as_one_by_one(scorers[named(way)], [*loaded, *spaces], way)


@settings(max_examples=60)
@given(st.lists(st.one_of(graphs(), written_out()), min_size=1, max_size=5), st.sampled_from(WAYS))
def test_random_graphs_score_as_they_are_predicted_one_by_one(scorers, found, way):
    assert_as_one_by_one(scorers[named(way)], found, way)


def test_all_support_levels_are_among_what_was_compared(scorers, loaded, examples):
    levels = {int(v) for scorer in scorers.values() for v in scorer.score(loaded).support}
    measured = [perfpass.load(examples / "resnet50.onnx", batch=256)]
    way = WAYS[0]
    assert_as_one_by_one(scorers[named(way)], measured, way)
    assert levels | set(scorers[named(way)].score(measured).support.tolist()) == {0, 1, 2}


def test_what_a_configuration_leaves_open_widens_the_memory_of_many_as_of_one(examples):
    """Which attention the program runs: its scores are in the bound of a described network alone."""
    traced = perfpass.load(examples / "vit_base_patch16_224.onnx", batch=32)
    models = [traced, replace(traced, by_description=True)]
    way = {"device": "a100-80gb", "precision": "amp", "mode": "training", "optimizer": "sgd"}
    scorer = Scorer(**way)
    assert_as_one_by_one(scorer, models, way)
    high = scorer.score(models).peak_memory_bytes.high
    assert high[0] < high[1]
    assert at_batch(models[1], models[1], (1, 2), 3).by_description


@pytest.mark.parametrize("way", WAYS, ids=named)
def test_features_score_as_the_models_they_were_made_of(scorers, loaded, way):
    scorer = scorers[named(way)]
    found = scorer.features(loaded)
    assert found.values.dtype == np.float64 and found.values.shape == (len(loaded), len(scorer.feature_names))
    assert len(set(scorer.feature_names)) == len(scorer.feature_names)
    order = [2, 0, 3, 1, 1]
    direct, scores = scorer.score(loaded), scorer.score_features(found.values[order])
    for place, i in enumerate(order):
        assert row(scores, place) == row(direct, i)
    assert scores.support.tolist() == direct.support[order].tolist()


def test_a_bad_model_does_not_fail_the_others(examples, tmp_path):
    good = examples / "resnet50.onnx"
    (tmp_path / "cut.onnx").write_bytes(good.read_bytes()[:5000])
    (tmp_path / "weights.pt").write_bytes(b"PK")
    dynamic = examples / "deberta_v3_large_dynamic.onnx"
    models = [good, tmp_path / "none.onnx", tmp_path / "cut.onnx", b"junk", 3, str(tmp_path / "weights.pt"), dynamic]
    models += [Candidate(good, batch=0), Candidate(good, dims={"nothing": 3}), good.read_bytes()]
    scores = Scorer("a100-80gb").score(models)
    kinds = [type(p) for p in scores.problems]
    assert kinds[:7] == [type(None), FileError, FormatError, FormatError, ArgumentError, UnsupportedError, kinds[6]]
    assert kinds[7:] == [ArgumentError, ArgumentError, type(None)] and kinds[6] is not type(None)
    assert scores.ok.tolist() == [k is type(None) for k in kinds]
    for i, model in enumerate(models):
        if not isinstance(model, Candidate) and not scores.ok[i]:
            with pytest.raises(kinds[i]) as raised:
                perfpass.predict(model, "a100-80gb")
            assert str(raised.value) == str(scores.problems[i]) or kinds[i] is FileError
    assert row(scores, 0) == row(scores, 9) == figures(perfpass.predict(good, "a100-80gb"))


def test_what_a_candidate_says_goes_before_what_the_call_says(examples):
    file = examples / "deberta_v3_large_dynamic.onnx"
    dims = {"batch": 2, "sequence": 64}
    scorer = Scorer("h100", precision="bf16")
    found = scorer.score([file, Candidate(file, dims={"batch": 1, "sequence": 32})], dims=dims)
    for i, asked in enumerate((dims, {"batch": 1, "sequence": 32})):
        assert row(found, i) == figures(perfpass.predict(file, "h100", precision="bf16", dims=asked))


def test_several_devices_are_columns(loaded):
    names = ["h100", "core-i9-10940x", "a100-80gb:1g.10gb"]
    scorer = Scorer(names)
    scores, features = scorer.score(loaded), scorer.features(loaded)
    assert scores.latency_ms.median.shape == scores.support.shape == (len(loaded), 3)
    assert features.values.shape == (len(loaded), len(scorer.feature_names))
    assert len(set(scorer.feature_names)) == len(scorer.feature_names)
    again = scorer.score_features(features.values)
    for d, name in enumerate(names):
        alone = Scorer(name).score(loaded)
        for metric in METRICS:
            for bound in ("median", "low", "high"):
                expected = getattr(getattr(alone, metric), bound)
                assert np.array_equal(getattr(getattr(scores, metric), bound)[:, d], expected)
                assert np.array_equal(getattr(getattr(again, metric), bound)[:, d], expected)


def test_a_stored_calibration_corrects_scores_as_it_corrects_predictions(loaded):
    def measured(device: str, **how):
        from perfpass.predictors.assemble import run_of
        from perfpass.predictors.calibration import correction as calibrated
        from perfpass.predictors.calibration import posterior as calibration
        from perfpass.predictors.lane import predictor_of

        points = []
        for batch in (1, 4, 16, 64):
            run = run_of(nas_graphs.graph("nasbench201", ("nor_conv_1x1",) * 6, batch), device, **how)
            points.append(calibrated.point(predictor_of(run.way).estimate(run), run))
        return calibration.Calibration(
            device=perfpass.device(device).id,
            kind=perfpass.device(device).kind,
            predictors={p.predictor: calibrated.digest_of(p.predictor) for p in points},
            predictor=tuple(p.predictor for p in points),
            software=tuple(p.software for p in points),
            traits=np.stack([p.traits for p in points]),
            log_ratio=np.array([0.3, 0.4, 0.5, 0.35]),
        )

    for way in ({"device": "h100"}, {"device": "h100", "runtime": "tensorrt"}, {"device": "core-i7-12700h"}):
        found = measured(**way)
        scores = Scorer(**way, calibration=found).score(loaded)
        for i, graph in enumerate(loaded):
            plain = predict_graph(graph, **way, calibration=found)
            assert "calibration" in plain.provenance
            np.testing.assert_allclose(row(scores, i), figures(plain), rtol=1e-12)


def test_results_do_not_depend_on_threads_nor_on_what_stands_beside(examples):
    names = NAMES[:2]
    models = [examples / f"{name}.onnx" for name in names] * 40
    expected = None
    for threads in (1, 2, 5):
        scores = Scorer("rtx-4090", precision="amp", threads=threads).score(models)
        found = [row(scores, i) for i in range(len(models))]
        assert found[: len(names)] * 40 == found
        assert expected is None or found == expected
        expected = found


def test_many_python_threads_share_a_scorer(examples, loaded):
    scorer = Scorer(["rtx-3090", "h100"], threads=2)
    expected = scorer.score(loaded).latency_ms.median
    features = scorer.features(loaded).values
    wrong: list[object] = []

    def work(seed: int) -> None:
        order = np.random.default_rng(seed).permutation(len(loaded))
        for _ in range(6):
            a = scorer.score([loaded[i] for i in order]).latency_ms.median
            b = scorer.score_features(features[order]).latency_ms.median
            if not (np.array_equal(a, expected[order]) and np.array_equal(b, expected[order])):
                wrong.append((a, b))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong


def test_a_stream_takes_models_as_it_needs_them(loaded):
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield loaded[0]

    stream = Scorer("h100").stream(endless())
    assert len(next(stream)) == CHUNK and taken == CHUNK
    assert len(next(stream)) == CHUNK and taken == 2 * CHUNK


def test_nothing_to_score_gives_empty_arrays():
    scores = Scorer(["h100", "a100"]).score([])
    assert scores.latency_ms.median.shape == (0, 2) and len(scores) == 0
    assert Scorer("h100").features([]).values.shape == (0, len(Scorer("h100").feature_names))
    assert len(Scorer("h100").score_features(np.empty((0, len(Scorer("h100").feature_names))))) == 0


def test_rows_that_are_no_features_have_a_problem(loaded):
    scorer = Scorer("h100")
    found = scorer.features([loaded[0], b"junk"])
    scores = scorer.score_features(found.values)
    assert scores.ok.tolist() == [True, False] and isinstance(found.problems[1], FormatError)
    with pytest.raises(ArgumentError, match="features of shape"):
        scorer.score_features(found.values[:, :-1])


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"device": []}, ArgumentError),
        ({"device": "abacus"}, DeviceError),
        ({"device": "h100", "precision": "fp42"}, ArgumentError),
        ({"device": ["h100", "p100"], "precision": "bf16"}, DeviceError),
        ({"device": "h100", "threads": 0}, ArgumentError),
        ({"device": "h100", "mode": "training", "precision": "int8"}, UnsupportedError),
        ({"device": "h100", "mode": "training", "processes": 2}, ArgumentError),
        ({"device": "h100", "processes": 0}, ArgumentError),
        ({"device": "core-i9-10940x", "processes": 2}, DeviceError),
    ],
)
def test_a_wrong_way_is_refused_when_the_scorer_is_made(given, error):
    with pytest.raises(error):
        Scorer(**given)


def test_an_interrupt_ends_the_scoring(examples):
    code = (
        "import itertools, signal\nfrom perfpass.search import Scorer\nscorer = Scorer('h100')\n"
        # A shell that runs the tests in the background leaves interrupts ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"print('ready', flush=True)\nscorer.score(itertools.repeat({str(examples / 'resnet50.onnx')!r}))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=600)
        finally:
            process.kill()
    assert "KeyboardInterrupt" in errors and process.returncode != 0


@pytest.mark.parametrize("name", ["resnet50", "vit_base_patch16_224"])
def test_a_template_gives_the_graph_of_every_batch_without_reading_again(examples, name):
    path = examples / f"{name}.onnx"
    template, scorer = Template(path), Scorer("a100-80gb")
    batches = (1, 2, 5, 64, 1000)
    scores = scorer.score(template.at(batch) for batch in batches)
    read = scorer.score(Candidate(path, batch=batch) for batch in batches)
    for i in range(len(batches)):
        assert row(scores, i) == row(read, i)


def test_a_template_traces_a_torch_module_but_twice():
    import torch

    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4))
    template = Template(module, input_shape=(3, 8, 8))
    for batch in (1, 7):
        traced = perfpass.load(module, batch=batch, input_shape=(3, 8, 8))
        assert np.array_equal(template.at(batch).dims, traced.dims)
    with pytest.raises(ArgumentError, match="batch must be"):
        template.at(0)


def test_neighbours_are_those_of_plain_arithmetic():
    generator = np.random.default_rng(7)
    for columns, points in ((1, 1), (16, 5), (53, 300)):
        known = generator.normal(size=(points, columns)).astype(np.float32)
        queries = np.concatenate([generator.normal(size=(20, columns)), known[:1]]).astype(np.float32)
        found = _core.Neighbours(known).distances(queries, 2)
        plain = np.sqrt(((queries[:, None].astype(float) - known) ** 2).sum(axis=2).min(axis=1))
        np.testing.assert_allclose(found, plain, rtol=1e-5)
        alone = [_core.Neighbours(known).distances(q[None].copy())[0] for q in queries]
        assert found.tolist() == alone and found[-1] == 0.0
    with pytest.raises(ArgumentError, match="the points have 53"):
        _core.Neighbours(known).distances(np.zeros((1, 3), np.float32))


def test_encodings_of_a_search_space_are_scored_in_order():
    ops = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
    cells = [c for c in itertools.islice(itertools.product(ops, repeat=6), 2000, 2040) if nas_graphs.connected(c)]
    scores = Scorer("rtx-2080-ti").score(nas_graphs.graph("nasbench201", cell, 256) for cell in cells)
    assert scores.ok.all() and len(np.unique(scores.latency_ms.median)) > len(cells) / 2


def test_a_scorer_over_cpus_and_gpus_says_of_a_file_what_a_prediction_says(examples):
    file, devices = examples / "vit_base_patch16_224.onnx", ["xeon-platinum-8380", "t4", "a100-80gb"]
    scorer = Scorer(devices, runtime="onnxruntime")
    scored = scorer.score([file]).latency_ms.median[0]
    by_features = scorer.score_features(scorer.features([file]).values).latency_ms.median[0]
    asked = [perfpass.predict(file, device=on, runtime="onnxruntime").latency_ms.median for on in devices]
    assert scored == pytest.approx(asked) and by_features == pytest.approx(asked)
