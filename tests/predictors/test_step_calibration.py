"""Training steps learned from own ones: the posterior of shares, its file, predictions, and journals of loops."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from perfpass.calibrate import calibrate
from perfpass.cli import main
from perfpass.devices import device
from perfpass.errors import ArgumentError, ArtefactError, FormatError
from perfpass.interval import Interval
from perfpass.predictors import predict_graph
from perfpass.predictors.calibration import device_file, steps
from perfpass.predictors.calibration.steps import StepCalibration, StepPoint
from perfpass.records.location import data_directory
from small_networks import network

SHARES = ({"products": 0.8, "attention": 0.2}, {"products": 0.5, "tensor": 0.5}, {"attention": 1.0})
A100 = "a100-sxm4-80gb"


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("PERFPASS_DEVICES", raising=False)


def learned(factors, predictor="llm_training", metric="step_s", model="llama", board=A100):
    points = tuple(
        StepPoint(predictor, metric, model, math.log(f), SHARES[i % len(SHARES)]) for i, f in enumerate(factors)
    )
    return StepCalibration(board, {predictor: steps.digest_of(predictor)}, points, {"records": "runs.jsonl"})


def at(calibration, shares=SHARES[0], model="llama", metric="step_s"):
    found, factor = calibration.corrected("llm_training", metric, Interval(2.0, 1.0, 4.0, "s"), model, shares)
    assert found.median == pytest.approx(2.0 * factor)
    return found, factor


@settings(max_examples=40, deadline=None)
@given(factor=st.floats(0.3, 3.0), count=st.integers(1, 32))
def test_own_steps_that_agree_draw_a_prediction_to_them(factor, count):
    found, drawn = at(learned([factor] * count))
    few, once = at(learned([factor]))
    assert abs(math.log(drawn)) <= abs(math.log(factor)) + 1e-9
    assert abs(math.log(drawn / factor)) <= abs(math.log(once / factor)) + 1e-9
    assert found.high / found.low <= few.high / few.low + 1e-9
    assert drawn == pytest.approx(factor, rel=0.3 if count == 1 else 0.12)


def test_networks_that_scatter_with_no_share_to_blame_bend_no_share():
    """A few networks that are off by a quarter each way say little of the next; a correction by them must be small."""
    prior, moved = steps.prior_of("training_step", "step_s"), []
    for seed in range(20):
        random = np.random.default_rng(seed)
        z = steps.traits(tuple("abcd"), [dict(zip("abcd", one, strict=True)) for one in random.dirichlet([1] * 4, 16)])
        names = [str(i) for i in range(16)]
        found = steps.learned_from(prior, z[:8], names[:8], random.normal(0, 0.25, 8))
        moved.append(np.abs(found.predict(z[8:], names[8:])[0]).mean())
    assert np.mean(moved) < 0.08  # 0.11 where no level scatters so


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0.5, 2.0), min_size=2, max_size=9), st.randoms())
def test_the_order_of_own_steps_does_not_matter(factors, random):
    made = learned(factors)
    points = list(made.points)
    random.shuffle(points)
    other = StepCalibration(made.device, made.predictors, tuple(points))
    for shares in SHARES:
        assert at(made, shares)[1] == pytest.approx(at(other, shares)[1], rel=1e-6)


def test_what_takes_longer_is_told_by_the_shares():
    points = [
        StepPoint("llm_training", "step_s", f"m{i}", math.log(1 + a), {"products": 1 - a, "attention": a})
        for i, a in enumerate(np.linspace(0, 0.9, 10))
    ]
    made = StepCalibration(A100, {"llm_training": steps.digest_of("llm_training")}, tuple(points))
    little, much = (at(made, {"products": 1 - a, "attention": a}, "other")[1] for a in (0.1, 0.8))
    assert little == pytest.approx(1.1, rel=0.1) and much == pytest.approx(1.8, rel=0.1)


def test_a_model_that_was_measured_is_surer_than_another():
    made = learned([1.5] * 4)
    own, _ = at(made)
    other, _ = at(made, model="mistral")
    assert other.high / other.low > own.high / own.low


def test_a_figure_without_own_steps_is_left_as_it_was():
    assert at(learned([1.5]), metric="memory_bytes") == (Interval(2.0, 1.0, 4.0, "s"), 1.0)


def test_a_layout_is_corrected_and_says_so():
    asked = {"gpus": 8, "sharding": "zero3"}
    before = perfpass.train_cost("llama-3.1-8b", A100, **asked)
    steps.write(learned([1.3] * 6, model="llama-3.1-8b"))
    after = perfpass.train_cost("llama-3.1-8b", A100, **asked)
    assert after.predicted.step_s.median == pytest.approx(1.3 * before.predicted.step_s.median, rel=0.06)
    assert float(after.predicted.parts_s.seconds) == pytest.approx(after.predicted.step_s.median)
    assert after.predicted.mfu * after.predicted.step_s.median == pytest.approx(
        before.predicted.mfu * before.predicted.step_s.median
    )
    assert after.predicted.in_use == before.predicted.in_use
    assert after.notes[0].startswith("corrected by own steps on NVIDIA A100-SXM4-80GB: time by a factor of 1.")
    again = perfpass.train_cost("llama-3.1-8b", A100, calibration=False, **asked)
    assert again.predicted.step_s == before.predicted.step_s


def test_a_step_of_a_graph_is_corrected_and_adds_up(capsys):
    asked = {"precision": "amp", "mode": "training"}
    before = predict_graph(network(batch=64), A100, **asked)
    points = tuple(StepPoint("training_step", metric, "", math.log(1.2), {"matmul": 1.0}) for metric in steps.METRICS)
    steps.write(StepCalibration(A100, {"training_step": steps.digest_of("training_step")}, points * 4))
    after = predict_graph(network(batch=64), A100, **asked)
    assert after.latency_ms.median > 1.1 * before.latency_ms.median
    assert after.energy_j.median == pytest.approx(after.latency_ms.median * after.power_w.median / 1e3)
    assert sum(after.breakdown["phase_ms"].values()) == pytest.approx(
        sum(before.breakdown["phase_ms"].values()) * after.latency_ms.median / before.latency_ms.median
    )
    assert after.power_w.high <= device(A100).power_limit_w
    assert "corrected by own steps" in after.support.reasons[-1]
    assert predict_graph(network(batch=64), A100, calibration=False, **asked).latency_ms == before.latency_ms
    assert predict_graph(network(batch=64), A100, precision="amp").latency_ms.median > 0  # inference is another matter


def test_a_file_is_read_as_it_was_written():
    made = learned([1.5, 1.2, 0.9])
    path = steps.write(made)
    assert path.name == f"{A100}.steps.json"
    found = steps.read(path)
    assert found.predictors == made.predictors and found.provenance == made.provenance
    assert [p.model for p in found.points] == ["llama"] * 3
    assert [p.log_ratio for p in found.points] == pytest.approx([p.log_ratio for p in made.points], abs=1e-6)


def test_steps_that_another_version_predicted_are_not_used():
    old = StepCalibration(A100, {"llm_training": "0" * 64}, learned([1.5]).points)
    steps.write(old)
    found = perfpass.train_cost("llama-3.1-8b", A100)
    assert "predicted by another version and are not used" in found.notes[0]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda c: c | {"schema_version": 9}, ArtefactError),
        (lambda c: c | {"device": "h100"}, FormatError),
        (lambda c: steps_with(c, log_ratio=99), FormatError),
        (lambda c: steps_with(c, shares={"products": 7.0}), FormatError),
        (lambda c: steps_with(c, metric="beauty"), FormatError),
        (lambda c: [], ArtefactError),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, change, error):
    path = steps.write(learned([1.5]), tmp_path)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(error, match="perfpass calibrate"):
        steps.read(path)


def steps_with(content, **changes):
    """With a point changed, and a digest that is right."""
    content.pop("sha256")
    content["points"] = [content["points"][0] | changes]
    return device_file.digested(content)


def loop(key="run", factor=1.5, **changes):
    """A line of a training loop's journal, as `perfpass.torch.Watch` writes it."""
    told = {
        "predictor": "training_step",
        "digest": steps.digest_of("training_step"),
        "uncorrected": {"step_s": 0.1, "memory_bytes": 1e9, "power_w": 100.0},
        "operator_shares": {"matmul": 0.7, "activation": 0.3},
        "alive_bytes": {"weights": 1e8, "activations": 9e8},
    }
    measured = {"memory": {"device_used_peak_bytes": 1.1e9}, "energy": {"power_w": 90.0}}
    line = {"kind": "record", "schema": 1, "key": key, "environment": "here", "status": "ok"}
    line |= {"configuration": {"model": "Net", "mode": "training"}, "latency_ms": {"median": 100.0 * factor}}
    return line | measured | {"predicted": told | changes}


def journal(tmp_path, *lines, identity=A100):
    facts = {"kind": "facts", "schema": 1, "id": "here", "device": {"name": "board", "catalogue_id": identity}}
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (facts, *lines)))
    return path


def test_journals_of_loops_are_learned_and_the_last_line_of_a_run_holds(tmp_path, capsys):
    path = journal(tmp_path, loop("a", 9.0), loop("a", 1.5), loop("b", 1.4))
    assert main(["calibrate", "--device", A100, "--records", str(path)]) == 0
    assert "a100-sxm4-80gb learned from 6 training figures" in capsys.readouterr().out
    found = steps.find(device(A100))
    assert sorted(round(math.exp(p.log_ratio), 3) for p in found.of("training_step", "step_s")) == [1.4, 1.5]
    assert found.of("training_step", "memory_bytes")[0].shares["activations"] == pytest.approx(0.9)
    assert math.exp(found.of("training_step", "power_w")[0].log_ratio) == pytest.approx(0.9)


def test_one_step_is_enough(tmp_path):
    outcome = calibrate(A100, journal(tmp_path, loop()))
    assert outcome.points == 3 and steps.find(device(A100)) is not None


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((loop(digest="0"),), "another version predicted"),
        ((loop() | {"status": "failed"},), "did not succeed"),
    ],
)
def test_steps_that_teach_nothing_are_counted(tmp_path, lines, words):
    with pytest.raises(ArgumentError, match=words):
        calibrate(A100, journal(tmp_path, *lines))


def test_steps_of_another_device_are_left_out(tmp_path):
    with pytest.raises(ArgumentError, match="measured on l4"):
        calibrate(A100, journal(tmp_path, loop(), identity="l4"))


@pytest.mark.parametrize(
    "changes",
    [{"uncorrected": {}}, {"operator_shares": {"matmul": -1}}, {"alive_bytes": [1]}, {"uncorrected": {"step_s": "x"}}],
)
def test_a_broken_line_is_named(tmp_path, changes):
    with pytest.raises(FormatError, match="record run is broken"):
        calibrate(A100, journal(tmp_path, loop(**changes)))


def test_steps_of_a_campaign_are_learned_too(tmp_path):
    source = data_directory() / "records" / "measured" / "epyc-2-cores" / "records.jsonl"
    lines = [json.loads(line) for line in source.read_text().splitlines()]
    facts = [line for line in lines if line["kind"] == "facts"]
    own = [
        line
        for line in lines
        if line["kind"] == "record"
        and line["configuration"].get("mode") == "training"
        and line["configuration"]["model"] == "timm:mobilenetv3_small_100"
        and line["status"] == "ok"
    ][:2]
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (*facts, *own)))
    outcome = calibrate("cpu", path)
    assert outcome.points == 2 and {p.metric for p in outcome.calibration.points} == {"step_s"}


def test_a_device_shows_what_was_learned_of_its_steps(capsys):
    steps.write(learned([1.5, 1.2]))
    assert main(["devices", A100]) == 0
    assert "step (2), memory (0), power (0); predictors: llm_training (current)" in " ".join(
        capsys.readouterr().out.split()
    )
    assert main(["devices", A100, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"]["figures"]["step_s"] == 2
