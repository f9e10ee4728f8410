"""DIPPM: what ships answers, says what it knows, and its variants learn from a few real records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import perfpass
from perfpass.errors import ArgumentError, ArtefactError, PerfPassError
from perfpass.predictors import registry
from perfpass.predictors.learned import arrays as weights
from perfpass.predictors.learned import artefacts
from perfpass.predictors.published.dippm import DippmPredictor
from perfpass.predictors.published.run_features import RUN_FEATURES, run_features

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NETWORKS = ("resnet18", "resnet50", "vgg11", "mobilenet_v2", "squeezenet1_1", "shufflenet_v2_x1_0")


@pytest.fixture(scope="module")
def resnet():
    return perfpass.load(EXAMPLES / "resnet50.onnx")


def test_the_answer_is_dippms_time_and_our_memory_and_says_so(resnet):
    ours = perfpass.predict(resnet, "rtx-4090", batch=1, precision="amp")
    found = perfpass.predict(resnet, "rtx-4090", batch=1, precision="amp", predictor="dippm")
    assert found.latency_ms != ours.latency_ms
    assert ours.latency_ms.median / 4 < found.latency_ms.median < ours.latency_ms.median * 4
    assert found.peak_memory_bytes == ours.peak_memory_bytes and found.power_w == ours.power_w
    assert found.throughput_per_s.median == pytest.approx(1e3 / found.latency_ms.median)
    assert any("not said by DIPPM but by perfpass: peak memory" in reason for reason in found.support.reasons)
    assert found.provenance["predictor"] == "dippm"
    assert sum(found.breakdown["latency_ms"].values()) == pytest.approx(
        sum(ours.breakdown["latency_ms"].values()) * found.latency_ms.median / ours.latency_ms.median
    )
    assert perfpass.predict(resnet, "rtx-4090", batch=1, precision="amp", predictor="perfpass") == ours


def test_a_training_step_has_dippms_memory_with_the_networks_that_it_was_learned_from(resnet):
    ours = perfpass.predict(resnet, "rtx-3090", batch=1, mode="training")
    found = perfpass.predict(resnet, "rtx-3090", batch=1, mode="training", predictor="dippm")
    assert found.peak_memory_bytes != ours.peak_memory_bytes and found.power_w == ours.power_w
    joules = found.power_w.median * found.latency_ms.median / 1e3
    assert found.energy_j.median == pytest.approx(joules)
    assert any("DIPPM learned memory from" in reason for reason in found.support.reasons)


def test_the_mig_hint_is_the_published_rule_on_the_gpu_that_it_knows(resnet):
    found = perfpass.predict(resnet, "a100-sxm4-40gb", batch=1, predictor="dippm")
    assert found.mig.profile == "1g.5gb" and "DIPPM's rule" in found.mig.reason and found.mig.instances_per_gpu == 7
    other = perfpass.predict(resnet, "h100-sxm5-80gb", batch=1, predictor="dippm")
    assert "knows the A100 40 GB alone" in other.mig.reason


def test_a_device_that_it_never_learned_from_is_outside_with_wider_bounds(resnet):
    known = perfpass.predict(resnet, "rtx-4090", batch=32, precision="amp", predictor="dippm")
    unknown = perfpass.predict(resnet, "h100-sxm5-80gb", batch=32, precision="amp", predictor="dippm")
    assert unknown.support.level == "outside"
    assert unknown.latency_ms.high / unknown.latency_ms.median > known.latency_ms.high / known.latency_ms.median


def test_what_a_network_says_is_finite_whatever_it_says():
    from perfpass.predictors.published.answer import from_log

    found = from_log(np.array([-1e6, 0.0, 1e6, np.inf]))
    assert np.isfinite(found).all() and (found > 0).all() and found[1] == 1.0


@pytest.mark.parametrize("name", ["dippm", "trappm", "graph-language"])
def test_a_graph_unlike_all_measured_ones_is_outside_with_bounds_as_wide_as_ours(examples, name):
    from perfpass import predict

    how = {"device": "rtx-4090", "precision": "amp", "batch": 8}
    ours = predict(examples / "deberta_v3_large.onnx", **how)
    found = predict(examples / "deberta_v3_large.onnx", predictor=name, **how)
    assert found.support.level == ours.support.level == "outside"
    for one in (found.latency_ms, ours.latency_ms):
        assert one.high / one.median >= 0.999 * ours.latency_ms.high / ours.latency_ms.median
    assert found.latency_ms.low / found.latency_ms.median <= 1.001 * ours.latency_ms.low / ours.latency_ms.median


def test_an_unknown_predictor_is_refused_with_the_list(resnet):
    with pytest.raises(ArgumentError, match="unknown predictor 'dipm'; allowed are perfpass, dippm"):
        perfpass.predict(resnet, "a100", predictor="dipm")
    for name, (line, _) in registry.PREDICTORS.items():
        assert registry.check(name) == name and len(line) < 120


def test_many_ways_to_run_share_one_embedding(resnet):
    predictor = DippmPredictor.load()
    device = perfpass.device("rtx-4090")
    how = {"runtime": "torch", "layout": "nchw", "mode": "inference"}
    runs = np.stack([run_features(device, precision=p, **how) for p in ("amp", "fp32", "bf16")])
    together = predictor.outputs(resnet, runs)
    assert together.shape == (3, len(predictor.manifest["outputs"])) and (together > 0).all()
    np.testing.assert_allclose(together, np.concatenate([predictor.outputs(resnet, r[None]) for r in runs]), rtol=1e-5)


def test_features_of_a_run_tell_devices_and_software_apart():
    base = {"precision": "fp32", "runtime": "torch", "layout": "nchw", "mode": "inference"}
    seen = [run_features(perfpass.device("rtx-4090"), **base)]
    changes = ({"precision": "amp"}, {"runtime": "torch.compile"}, {"layout": "nhwc"}, {"mode": "training"})
    seen += [run_features(perfpass.device("rtx-4090"), **{**base, **change}) for change in changes]
    seen.append(run_features(perfpass.device("rtx-3090"), **base))
    assert len({tuple(values) for values in seen}) == len(seen) and all(len(v) == len(RUN_FEATURES) for v in seen)


def copied(folder: Path, manifest: dict, content: bytes) -> Path:
    artefacts.write(folder / "copy", manifest, {"weights.safetensors": content})
    return folder / "copy"


def test_a_damaged_artefact_is_one_error(tmp_path):
    shipped = artefacts.Artefact(artefacts.shipped("dippm"))
    manifest = {k: v for k, v in shipped.manifest.items() if k not in ("files", "schema_version")}
    content = shipped.read("weights.safetensors")
    arrays = weights.unpack(content, "shipped")
    assert DippmPredictor(copied(tmp_path, manifest, content)).network.spec == DippmPredictor.load().network.spec
    broken = [
        ({**manifest, "schema": "trappm"}, content),
        ({k: v for k, v in manifest.items() if k != "tasks"}, content),
        (manifest, content[:100]),
        (manifest, b"\xff" * 64),
        (manifest, content[:8] + b"[" * (len(content) - 8)),
        (manifest, weights.pack({k: v for k, v in arrays.items() if k != "targets.mean"})),
        (manifest, weights.pack({**arrays, "head.0.weight": arrays["head.0.weight"][:, :3]})),
    ]
    for other, bytes_ in broken:
        with pytest.raises(ArtefactError):
            DippmPredictor(copied(tmp_path, other, bytes_))


def test_the_shipped_artefact_is_small():
    assert sum(path.stat().st_size for path in artefacts.shipped("dippm").iterdir()) < 1.7e6


def test_the_command_line_answers_with_dippm_and_lists_predictors(capsys):
    from perfpass.cli import main

    arguments = ["predict", str(EXAMPLES / "resnet50.onnx"), "--device", "rtx-4090", "--json", "--predictor"]
    assert main([*arguments, "dippm"]) == 0
    assert json.loads(capsys.readouterr().out)["provenance"]["predictor"] == "dippm"
    assert main([*arguments, "nonsense"]) == 2
    assert "allowed are perfpass, dippm" in capsys.readouterr().err


# What follows learns, so it needs the packages of the training extra and torchvision's networks.


@pytest.fixture(scope="module")
def small():
    """Six networks on six devices, and a graph for each."""
    pytest.importorskip("torch")
    pytest.importorskip("pandas")
    from perfpass.training.tasks.graphs import Graphs
    from perfpass.training.tasks.tasks import load

    task = load("training_step")
    wanted = task.rows.model.isin(NETWORKS) & (task.rows.source == "torchvision") & (task.rows.precision != "fp64")
    task, graphs = task.subset(np.flatnonzero(wanted)), Graphs()
    try:
        return task.traced(graphs, quiet=True), graphs
    except PerfPassError as error:
        pytest.skip(f"networks cannot be traced here: {error}")


@pytest.mark.parametrize("name", ["dippm", "dippm-gat", "dippm-gcn", "dippm-gin", "dippm-mlp"])
def test_every_variant_beats_a_constant_on_real_records(small, name):
    from perfpass.training.tasks.methods import method

    task, graphs = small
    # Single rows: with repeats kept together six networks are too few to learn from.
    split = task._by_group("rows", np.arange(len(task)).astype(str), 0)
    quick = method(name).with_options(
        shared=False,
        shape=replace(method(name).shape, hidden=24),
        epochs=40,
        graphs_per_step=2,
        learning_rate=5e-3,
        half=False,
    )
    fitted = quick.fit(task, graphs, split)
    measured = task.value[split.test]
    error = np.abs(np.log(fitted.predict(split.test) / measured)).mean()
    constant = np.abs(np.log(np.exp(np.log(task.value[split.train]).mean()) / measured)).mean()
    assert error < 0.75 * constant
    assert fitted.parameters == sum(values.size for values in fitted.weights.values())


@pytest.mark.gpu
def test_a_gpu_learns_where_there_is_one(small):
    import torch

    from perfpass.training.tasks.methods import method

    task, graphs = small
    split = next(iter(task.splits()))
    torch.cuda.reset_peak_memory_stats()
    fitted = method("dippm").with_options(shared=False, epochs=3, graphs_per_step=2).fit(task, graphs, split)
    assert torch.cuda.max_memory_allocated() > 0
    assert fitted.history[-1]["loss"] < fitted.history[0]["loss"]


def test_an_interrupted_fit_goes_on_and_ends_as_if_it_had_not_been(small, tmp_path, monkeypatch):
    from perfpass.training.graph_networks import fit
    from perfpass.training.tasks.methods import method

    task, graphs = small
    split = next(iter(task.splits()))
    quick = method("dippm").with_options(shared=False, epochs=4, half=False)
    quick = replace(quick, shape=replace(quick.shape, hidden=8))
    whole = quick.fit(task, graphs, split)
    journal = replace(quick, journal=tmp_path / "journal.safetensors")
    judge, calls = fit.validation_error, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return judge(*arguments)

    monkeypatch.setattr(fit, "validation_error", interrupted)
    with pytest.raises(KeyboardInterrupt):
        journal.fit(task, graphs, split)
    monkeypatch.setattr(fit, "validation_error", judge)
    resumed = journal.fit(task, graphs, split)
    assert [entry["valid"] for entry in resumed.history] == [entry["valid"] for entry in whole.history]
    for key, values in whole.weights.items():
        np.testing.assert_array_equal(resumed.weights[key], values)


def test_other_tasks_tell_nothing_of_what_a_split_holds_out():
    pytest.importorskip("torch")
    pytest.importorskip("pandas")
    from perfpass.training.published.dippm import network as dippm
    from perfpass.training.tasks import tasks

    task = tasks.load("training_step")
    found = {}
    for split in task.splits():
        # `others` reads the tasks through `_traced`; which networks can be traced does not matter here.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dippm, "_traced", lambda name, graphs: tasks.load(name))
            found[split.name] = split, dippm.others(task, None, split)
    for column in ("architecture", "family"):
        split, others = found[column]
        held = set(task.rows[column].iloc[split.test]) | set(task.rows[column].iloc[split.valid])
        assert others and all(held.isdisjoint(other.rows[column]) for other in others)
    split, others = found["device rtx-3090"]
    assert others and all("rtx-3090" not in set(other.rows.device) for other in others)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dippm, "_traced", lambda name, graphs: tasks.load(name))
        others = dippm.others(task, None, task.adaptation("rtx-3090", 32))
    assert others and all("rtx-3090" not in set(other.rows.device) for other in others)
