"""A device learned from a few measurements: the model, its file, and what predict makes of it."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from perfpass.cli import main
from perfpass.errors import ArgumentError, ArtefactError, FormatError, LimitError
from perfpass.measure.configuration import Configuration
from perfpass.predictors import predict_graph
from perfpass.predictors.calibration import correction as calibrated
from perfpass.predictors.calibration import posterior as calibration
from perfpass.predictors.calibration.posterior import TRAITS, Calibration, Prior, learn, plan
from small_networks import network

PRIOR = Prior(0.3, 0.05, ((0.05, 0.06), (0.2, 0.1)), 1.7)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("PERFPASS_DEVICES", raising=False)


def runs(count: int, seed: int = 0) -> tuple[np.ndarray, list[str]]:
    return np.random.default_rng(seed).normal(size=(count, 12)), ["amp torch nchw"] * count


def made(factor: float = 1.5, points: int = 12, **changes) -> Calibration:
    """A calibration of an A100 whose runs all take ``factor`` times what was predicted."""
    values = {
        "device": "a100-sxm4-80gb",
        "kind": "gpu",
        "predictors": {"inference": calibrated.digest_of("inference")},
        "predictor": ("inference",) * points,
        "software": ("amp torch nchw",) * points,
        "traits": np.full((points, len(TRAITS)), np.nan),
        "log_ratio": np.full(points, np.log(factor)),
        "provenance": {"records": "records.jsonl", "made_at": "2026-01-01T00:00:00+00:00"},
    }
    return Calibration(**{**values, **changes})


def asked(**arguments):
    return predict_graph(network(batch=64), "a100-sxm4-80gb", precision="amp", **arguments)


# The model


def test_a_scale_is_learned_from_ten_runs_and_a_disturbed_one_does_not_move_it():
    z, software = runs(10)
    ratio = np.full(10, 0.25) + np.random.default_rng(1).normal(scale=0.02, size=10)
    clean, _ = learn(PRIOR, z, software, ratio).predict(np.zeros((1, 12)), software[:1])
    ratio[3] += 2.0
    disturbed, _ = learn(PRIOR, z, software, ratio).predict(np.zeros((1, 12)), software[:1])
    assert abs(clean[0] - 0.25) < 0.03
    assert abs(disturbed[0] - clean[0]) < 0.1


def test_a_trait_on_which_the_device_differs_is_learned_and_the_deviation_shrinks():
    z, software = runs(200)
    ratio = 0.3 * z[:, 0] / np.sqrt(12) * 2
    few, many = (learn(PRIOR, z[:n], software[:n], ratio[:n]) for n in (10, 200))
    new, names = runs(300, seed=9)
    truth = 0.3 * new[:, 0] / np.sqrt(12) * 2
    errors = [np.abs(p.predict(new, names)[0] - truth).mean() for p in (few, many)]
    assert errors[1] < 0.3 * errors[0]
    assert many.predict(new, names)[1].mean() < few.predict(new, names)[1].mean()


def test_leave_one_out_errors_are_those_of_leaving_one_out():
    z, software = runs(12)
    prior = Prior(0.3, 0.05, ((0.2, 0.5),), 1.0)  # so much noise that no run is an outlier
    ratio = np.random.default_rng(2).normal(scale=0.2, size=12)
    whole = learn(prior, z, software, ratio)
    keep = np.arange(12) != 4
    mean, _ = learn(prior, z[keep], software[:11], ratio[keep]).predict(z[4:5], software[:1])
    assert whole.left_out[4] == pytest.approx(ratio[4] - mean[0], abs=1e-9)


def test_one_measurement_is_refused():
    with pytest.raises(ArgumentError, match="1 usable measurements"):
        learn(PRIOR, np.zeros((1, 12)), ["a"], np.zeros(1))


def test_a_plan_tells_more_than_the_same_number_at_random_and_repeats_nothing():
    z, software = runs(80)
    z[:60] = z[0]  # sixty runs that say the same
    chosen = plan(PRIOR, z, software, 10)
    assert len(set(chosen)) == 10 and sum(i < 60 for i in chosen) <= 4  # 7.5 at random
    with pytest.raises(ArgumentError, match="81 of 80"):
        plan(PRIOR, z, software, 81)


# The file


def test_a_calibration_survives_its_file_and_a_second_one_takes_its_place():
    path = calibration.write(made())
    found = calibration.read(path)
    assert found.to_dict() == made().to_dict()
    calibration.write(made(factor=3.0))
    assert calibration.read(path).log_ratio[0] == pytest.approx(np.log(3.0), abs=1e-5)
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda text: text[: len(text) // 2], FormatError),
        (lambda text: text.replace('"log_ratio": 0.405465', '"log_ratio": 0.905465', 1), FormatError),
        (lambda text: json.dumps({"schema_version": 99}), ArtefactError),
        (lambda text: "[" * 100_000, FormatError),
        (lambda text: " " * (9 << 20), LimitError),
        (lambda text: json.dumps([1]), ArtefactError),
    ],
)
def test_a_damaged_calibration_is_one_typed_error_that_names_the_way_out(damage, error):
    path = calibration.write(made())
    path.write_text(damage(path.read_text()))
    with pytest.raises(error, match="no-calibration"):
        asked()
    assert asked(calibration=False).latency_ms.median > 0


def test_a_file_with_a_point_that_cannot_be_is_refused_though_its_digest_holds():
    path = calibration.write(made(log_ratio=np.full(12, 500.0)))
    with pytest.raises(FormatError, match="off"):
        calibration.read(path)


# What predict makes of it


def test_predict_uses_the_stored_calibration_says_so_and_can_leave_it_out():
    plain = asked()
    calibration.write(made(factor=1.5))
    found = asked()
    assert found.latency_ms.median / plain.latency_ms.median == pytest.approx(1.5, rel=0.03)
    assert found.latency_ms.low < found.latency_ms.median < found.latency_ms.high
    assert found.provenance["calibration"]["points"] == 12
    assert any("corrected by 12 measurements" in reason for reason in found.support.reasons)
    assert asked(calibration=False).latency_ms == plain.latency_ms
    total = sum(found.breakdown["latency_ms"].values())
    assert total == pytest.approx(found.latency_ms.median, rel=1e-6)


def test_a_calibration_of_another_version_of_the_predictor_is_not_used():
    plain = asked()
    found = asked(calibration=made(predictors={"inference": "0" * 64}))
    assert found.latency_ms == plain.latency_ms
    assert any("another version of the predictor" in reason for reason in found.support.reasons)


def test_a_calibration_of_another_predictor_changes_nothing():
    plain = asked()
    found = asked(calibration=made(predictor=("analytic",) * 12, predictors={"analytic": "perfpass 0"}))
    assert found.latency_ms == plain.latency_ms


def test_what_launched_kernels_teach_of_their_host_is_less_of_a_graph_that_is_replayed():
    taught = made(factor=0.5, software=("fp32 torch.compile nchw",) * 12)

    def factor(**how):
        one = {"runtime": "torch.compile", **how}
        found = predict_graph(network(), "a100-sxm4-80gb", calibration=taught, **one)
        return found.provenance["calibration"]["factor"]

    launched, replayed = factor(), factor(cuda_graph=True)
    assert launched < replayed < 1.0


# The command


def journal(path, factor: float, models=("resnet18", "mobilenetv2_100"), **facts):
    """A journal whose runs take ``factor`` times what is predicted for the T4."""
    from perfpass.records import own_device

    entries = [{"kind": "facts", "schema": 1, "id": "e", "device": {"name": "T4", "catalogue_id": "t4", **facts}}]
    for i, (model, batch) in enumerate((m, b) for m in models for b in (8, 32)):
        c = Configuration(model=f"timm:{model}", batch=batch, precision="fp16", device="cuda")
        plain = predict_graph(own_device.graph_of(c), "t4", batch=batch, precision="fp16", calibration=False)
        latency = {"median": factor * plain.latency_ms.median}
        record = {"key": f"k{i}", "environment": "e", "status": "ok", "configuration": c.to_dict()}
        entries.append({"kind": "record", "schema": 1, **record, "latency_ms": latency})
    path.write_text("".join(json.dumps(e) + "\n" for e in entries))
    return path


def test_the_command_learns_a_device_and_the_device_shows_it(tmp_path, capsys):
    records = journal(tmp_path / "records.jsonl", 2.0)
    assert main(["calibrate", "--device", "t4", "--records", str(records)]) == 0
    assert "t4 learned from 4 measurements" in capsys.readouterr().out
    assert main(["devices", "t4"]) == 0
    assert "by 4 measurements (records.jsonl" in " ".join(capsys.readouterr().out.split())
    plain, found = (
        predict_graph(network(batch=32), "t4", precision="fp16", calibration=used).latency_ms for used in (False, True)
    )
    assert found.median / plain.median == pytest.approx(2.0, rel=0.1)


def test_a_parquet_table_of_records_teaches_the_same(tmp_path, capsys):
    import pandas

    from perfpass.records import own_device, schema

    rows = []
    for batch in (8, 16, 32):
        c = Configuration(model="timm:resnet18", batch=batch, precision="fp16", device="cuda")
        plain = predict_graph(own_device.graph_of(c), "t4", batch=batch, precision="fp16", calibration=False)
        common = {"source": "timm", "model": "resnet18", "img_size": 224, "device": "t4", "n_devices": 1}
        how = {"batch": batch, "precision": "fp16", "runtime": "torch", "layout": "nchw", "mode": "inference"}
        rows.append({**common, **how, "latency_ms": 2.0 * plain.latency_ms.median})
    rows.append({**rows[0], "device": "l4"})
    reading = schema.Reading("timm")
    reading.add("vision", pandas.DataFrame(rows))
    schema.write(tmp_path / "records.parquet", "vision", reading.tables["vision"])
    assert main(["calibrate", "--device", "t4", "--records", str(tmp_path / "records.parquet")]) == 0
    out = capsys.readouterr().out
    assert "t4 learned from 3 measurements" in out and "left out 1: measured on l4" in out


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (None, 3, "No such file"),
        (b"PAR1 not parquet", 4, "not a Parquet table"),
        (b'{"kind": "record"\n{}\n', 4, "line"),
        (b"", 2, "no measurement"),
    ],
)
def test_a_bad_file_is_one_line_and_its_exit_code(tmp_path, capsys, content, code, message):
    path = tmp_path / "records"
    if content is not None:
        path.write_bytes(content)
    assert main(["calibrate", "--device", "t4", "--records", str(path)]) == code
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_measurements_of_another_device_are_refused(tmp_path, capsys):
    records = journal(tmp_path / "records.jsonl", 2.0, models=("resnet18",), catalogue_id="l4")
    assert main(["calibrate", "--device", "t4", "--records", str(records)]) == 2
    assert "2 measured on l4" in capsys.readouterr().err


def test_a_plan_is_a_campaign_that_measure_reads(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("perfpass.calibrate._PLAN_MODELS", ("resnet18", "mobilenetv3_small_100"))
    assert main(["calibrate", "--device", "t4", "--plan", "5", "--precision", "fp16"]) == 0
    path = tmp_path / "plan.toml"
    path.write_text(capsys.readouterr().out)
    assert main(["measure", "--campaign", str(path), "--device", "cuda", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and all("precision=fp16" in line for line in lines)
