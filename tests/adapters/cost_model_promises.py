"""Promises of the tuning cost model that hold in TVM 0.19 and 0.27: collected by a test file of each environment."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import cost_model_cases as cases
import numpy as np
import pytest

import tvm_perfpass.cost_model as autotuning
from perfpass.errors import ArgumentError, ArtefactError, FileError, FormatError, UnsupportedError
from tvm_perfpass.cost_model import features as counted
from tvm_perfpass.cost_model.hardware import Hardware, cores_of, detect
from tvm_perfpass.cost_model.ranking import FAILED, Measured, Ranker, shipped
from tvm_perfpass.cost_model.records import read_records

# A server core, so that what is tested does not depend on the machine.
CORE = Hardware(64, 32, 1, 2.6e9, 166e9, 48 << 10, 1 << 20, 32 << 20, 83e9, 41e9, 40e9)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A model that has tuned a product with every third build failing, and the folder of the database."""
    folder = tmp_path_factory.mktemp("tuned")
    model = autotuning.cost_model(hardware=CORE, pretrained=False)
    database = cases.tune(cases.product(), model, folder, trials=8, fail_every=3)
    return model, database, folder


@pytest.fixture(scope="module")
def sampled():
    """A tuning context of the product and eight of its candidates."""
    return cases.candidates(cases.product())


def agreement(ranker, task, places):
    """Share of pairs of measured candidates, a tenth of a power of two apart or more, that are ranked right."""
    speed, score = task.target()[places], ranker.score(task.features[places])
    i, j = np.triu_indices(len(places), 1)
    apart = np.abs(speed[i] - speed[j]) > 0.1
    return (np.sign(speed[i] - speed[j]) == np.sign(score[i] - score[j]))[apart].mean()


def test_a_real_tuning_run_measures_learns_and_survives_failed_builds(tuned):
    model, database, _ = tuned
    assert len(database) == 8
    (measured,) = model.ranker.own.values()
    # MetaSchedule itself keeps candidates that could not be built from the model.
    assert len(measured.seconds) == 6 and np.isfinite(measured.seconds).all()
    assert measured.target().max() == 0
    assert np.isfinite(measured.features).all()


def test_candidates_that_ran_out_of_time_count_as_slower_than_all_others(sampled):
    model = autotuning.cost_model(hardware=CORE, pretrained=False)
    result = cases.ms.runner.RunnerResult
    outcomes = [result([i * 1e-3], None) if i % 2 else result(None, "out of time") for i in range(1, 9)]
    outcomes[0] = result([1e10], None)  # what MetaSchedule writes into its database for a failure
    model.update(*sampled, outcomes)
    (measured,) = model.ranker.own.values()
    assert np.isinf(measured.seconds).tolist() == [True, True, False, True, False, True, False, True]
    assert measured.target()[0] == FAILED < measured.target()[6] < measured.target()[2] == 0


def test_a_saved_model_predicts_the_same_and_goes_on_learning(tuned, sampled, tmp_path):
    model, _, _ = tuned
    model.save(str(tmp_path / "model"))
    again = autotuning.cost_model(load=tmp_path / "model")
    expected = model.predict(*sampled)
    assert expected.shape == (8,) and expected.dtype == np.float64 and (expected > 0).all()
    np.testing.assert_array_equal(again.predict(*sampled), expected)
    assert list(again.ranker.own) == list(model.ranker.own)
    cases.tune(cases.doubled(), again, tmp_path / "tiny", trials=4)
    assert len(again.ranker.own) == 2


def test_what_is_saved_holds_no_pickle_and_replaces_what_was_there_in_one_step(tuned, tmp_path):
    model, _, _ = tuned
    for _ in range(2):
        model.save(str(tmp_path / "model"))
    files = {path.name for path in (tmp_path / "model").iterdir()}
    assert files == {"manifest.json", "pool.npz", "trees0.ubj", "trees1.ubj", "trees2.ubj"}
    with np.load(tmp_path / "model" / "pool.npz", allow_pickle=False) as pool:
        assert all(pool[name].dtype.kind in "fi" for name in pool.files)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("name", ["pool.npz", "trees0.ubj", "manifest.json"])
def test_a_damaged_file_is_a_typed_error(tuned, tmp_path, name):
    model, _, _ = tuned
    model.save(str(tmp_path / "model"))
    path = tmp_path / "model" / name
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ArtefactError, match=r"SHA-256|not JSON"):
        autotuning.cost_model(load=tmp_path / "model")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": ["flops"]}, "features is not what this version computes"),
        ({"own": ["a", "b", "c"]}, "do not fit together"),
        ({"hardware": {"vector_bytes": -1}}, "lacks or garbles"),
        ({"schema_version": 99}, "artefact schema 99"),
    ],
)
def test_a_manifest_of_another_version_is_a_typed_error(tuned, tmp_path, change, message):
    model, _, _ = tuned
    model.save(str(tmp_path / "model"))
    path = tmp_path / "model" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ArtefactError, match=message):
        autotuning.cost_model(load=tmp_path / "model")


def test_records_of_an_earlier_session_are_earlier_knowledge(tuned):
    model, _, folder = tuned
    found = read_records(Path(folder), CORE)
    (mine,), (read,) = model.ranker.own.values(), found.values()
    assert list(found) == list(model.ranker.own)
    ran, again = np.isfinite(mine.seconds), np.isfinite(read.seconds)
    place, there = np.argsort(mine.seconds[ran]), np.argsort(read.seconds[again])
    np.testing.assert_allclose(read.seconds[again][there], mine.seconds[ran][place], rtol=1e-6)
    np.testing.assert_array_equal(read.features[again][there], mine.features[ran][place])
    warmed = autotuning.cost_model(hardware=CORE, records=[folder], pretrained=False)
    assert list(warmed.ranker.earlier) == list(found) and not warmed.ranker.own


def test_records_that_are_none_are_typed_errors(tuned, tmp_path):
    _, _, folder = tuned
    with pytest.raises(FileError, match="give the folder of a MetaSchedule database"):
        autotuning.cost_model(hardware=CORE, records=[tmp_path / "nowhere"])
    for name in ("database_workload.json", "database_tuning_record.json"):
        shutil.copy(folder / name, tmp_path / name)
    path = tmp_path / "database_tuning_record.json"
    path.write_text(path.read_text()[:-40])
    with pytest.raises(FormatError, match=r"line \d+ is not JSON"):
        autotuning.cost_model(hardware=CORE, records=[tmp_path])
    path.write_text("[1, 2]\n")
    with pytest.raises(FormatError, match="cannot read it as a MetaSchedule database"):
        autotuning.cost_model(hardware=CORE, records=[tmp_path])


def test_the_warm_start_ranks_measured_candidates_of_workloads_it_has_not_seen():
    """Of two really measured candidates the faster one first, more often than by chance, with the workload left out."""
    pool = shipped()
    held_out = ["dense_96x640x384", "conv5x5_48x24x48_s2", "column_product_144x224x288", "conv3d_6x20x16x32"]
    ranker = Ranker(CORE, {name: task for name, task in pool.items() if name not in held_out})
    for name in held_out:
        assert agreement(ranker, pool[name], np.arange(len(pool[name].seconds))) > 0.6, name


def test_measurements_of_the_task_improve_its_ranking():
    """On average over four workloads, each left out of the pool."""
    gains = []
    for name in ("dense_16x1536x640", "conv_grouped_36x96_g8", "batched_dense_6x96x160x80", "depthwise5x5_60x144_s2"):
        pool = shipped()
        task = pool.pop(name)
        ranker = Ranker(CORE, pool)
        order = np.random.default_rng(0).permutation(len(task.seconds))
        known, rest = order[:32], order[32:]
        before = agreement(ranker, task, rest)
        ranker.learn("task", task.features[known], task.seconds[known], [task.hashes[i] for i in known])
        gains.append(agreement(ranker, task, rest) - before)
    assert np.mean(gains) > 0.02


def test_without_anything_measured_the_roofline_speaks(sampled):
    model = autotuning.cost_model(hardware=CORE, pretrained=False)
    features, _ = model.extractor.extract(*sampled)
    scores = model.predict(*sampled)
    assert np.argsort(scores).tolist() == np.argsort(np.maximum(features[:, counted.ANALYTIC], FAILED)).tolist()


def test_candidates_are_counted_once(sampled, monkeypatch):
    model = autotuning.cost_model(hardware=CORE, pretrained=False)
    first = model.predict(*sampled)
    monkeypatch.setattr(model.extractor, "_rows", lambda *_: pytest.fail("counted again"))
    np.testing.assert_array_equal(model.predict(*sampled), first)


def test_candidates_without_usable_counts_come_last(sampled):
    features, _ = counted.candidate_features([np.zeros((0, 164)), np.full((2, 164), np.nan)], CORE)
    assert np.isnan(features).all()
    ranker = Ranker(CORE)
    assert (ranker.score(features) == FAILED).all()
    ranker.learn("task", features, np.array([1e-3, 1e-3]), [1, 2])
    assert ranker.size == 0


def test_a_candidate_measured_twice_counts_once_with_its_faster_time():
    measured = Measured()
    row = np.zeros((1, counted.COUNT), dtype=np.float32)
    measured.add(np.repeat(row, 3, axis=0), np.array([3.0, 2.0, 5.0]), [7, 7, 9])
    measured.add(row, np.array([1.0]), [9])
    assert measured.hashes == [7, 9] and measured.seconds.tolist() == [2.0, 1.0]


def test_when_everything_failed_the_task_teaches_nothing():
    ranker = Ranker(CORE)
    ranker.learn("task", np.zeros((4, counted.COUNT), dtype=np.float32), np.full(4, np.inf), range(4))
    assert np.isfinite(ranker.score(np.zeros((2, counted.COUNT), dtype=np.float32))).all()


def test_features_are_those_of_one_candidate_at_a_time(sampled):
    """The batched features against each candidate alone, as a loop would make them."""
    context, candidates = sampled
    extractor = autotuning.cost_model(hardware=CORE, pretrained=False).extractor
    rows = extractor._rows(context, candidates)
    together, seconds = counted.candidate_features(rows, CORE, 1e6)
    for i, row in enumerate(rows):
        alone, second = counted.candidate_features([row], CORE, 1e6)
        np.testing.assert_allclose(together[i], alone[0], rtol=2e-3, atol=1e-3)
        np.testing.assert_allclose(seconds[i], second[0])


def test_the_hardware_is_read_and_bad_figures_are_refused():
    found = detect(1)
    assert found.cores == 1 and found.lanes in (4, 8, 16) and found.l1_bytes < found.l2_bytes
    assert Hardware.from_dict(found.to_dict()) == found
    assert cores_of(cases.TARGET) == 1
    with pytest.raises(UnsupportedError, match="target cuda"):
        autotuning.cost_model(target={"kind": "cuda", "arch": "sm_80"})
    with pytest.raises(ArgumentError, match="not a target of TVM"):
        autotuning.cost_model(target="nonsense")
    measured = {"peak_flop_s": {"fp32": 2e11}, "memory_bytes_s": 3e10, "cache_bytes_s": 1e11}
    assert detect(1, roofline=measured).memory_bytes_s == 3e10
    with pytest.raises(ArgumentError, match="perfpass roofline"):
        detect(1, roofline={"peak_flop_s": {}})
    with pytest.raises(ArgumentError, match="l1_bytes"):
        Hardware.from_dict({**found.to_dict(), "l1_bytes": 0})
