"""`ort_extension.InferenceSession` before its creation: budgets, targets and policies."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path

import onnx
import pytest
from ort_sessions import images, session

import ort_extension
from perfpass.decision import Limits
from perfpass.errors import ArgumentError
from perfpass.importers import onnx as onnx_importer

GIB = 2**30


def large_model(folder: Path, gigabytes: int = 8, layers: int = 2, batch: int | str = 1) -> Path:
    """Products whose weights, ``gigabytes`` in all, lie in weights.bin; the file is not made."""
    side = int((gigabytes * 2**30 / 4 / layers) ** 0.5)
    weights, nodes = [], []
    for i in range(layers):
        tensor = onnx.TensorProto(name=f"w{i}", data_type=onnx.TensorProto.FLOAT, dims=[side, side])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "weights.bin"), ("offset", i * side * side * 4), ("length", side * side * 4)):
            tensor.external_data.add(key=key, value=str(value))
        weights.append(tensor)
        nodes.append(onnx.helper.make_node("MatMul", [f"t{i}" if i else "x", f"w{i}"], [f"t{i + 1}"]))
    graph = onnx.helper.make_graph(
        nodes,
        "large",
        [onnx.helper.make_tensor_value_info("x", 1, [batch, side])],
        [onnx.helper.make_tensor_value_info(f"t{layers}", 1, [batch, side])],
        weights,
    )
    path = folder / "large.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.parametrize("weights", ["absent", "sparse", "unreadable", "pipe"])
def test_a_model_over_the_budget_is_refused_without_its_weights_being_read(tmp_path, weights):
    path, data = large_model(tmp_path), tmp_path / "weights.bin"
    if weights == "sparse":
        with data.open("wb") as file:
            file.truncate(8 * GIB)
    elif weights == "unreadable":
        data.write_bytes(b"")
        data.chmod(0)
    elif weights == "pipe":  # opening it would wait for a writer for ever
        os.mkfifo(data)
    seen = data.stat().st_atime_ns if data.exists() else None
    before = bytes_read()
    with pytest.raises(ort_extension.DoesNotFitError) as refusal:
        session(path, device="a100-40gb", memory_budget_bytes=4 * GIB, policy="raise")
    assert bytes_read() - before < 2**20  # the model's file, the catalogue and what else is imported by then
    assert seen == (data.stat().st_atime_ns if data.exists() else None)
    verdict, message = refusal.value.verdict, str(refusal.value)
    assert verdict.fits == "no" and verdict.memory.median > 8 * GIB and verdict.budget_bytes == 4 * GIB
    assert "GiB of memory predicted" in message and "4 GiB stated as the budget" in message and "a budget of" in message
    assert "NVIDIA A100" in message


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])


def test_a_refusal_says_what_would_do(tmp_path):
    path = large_model(tmp_path, gigabytes=8, batch="batch")
    with pytest.raises(ort_extension.DoesNotFitError, match=r"2g\.10gb, .*MIG profile 3g\.20gb .*; device"):
        session(path, device="a100-40gb:2g.10gb", batch=8 << 10, policy="raise")
    for gigabytes in (14, 16, 20):
        with pytest.raises(ort_extension.DoesNotFitError) as refused:
            session(path, device="a100-40gb", batch=64 << 10, memory_budget_bytes=gigabytes * GIB, policy="raise")
        said = r"what would do: batch ([\d,]+) \(([\d.]+) GiB, P\(fits\) ([\d.]+) %\)"
        batch, memory, chance = re.search(said, str(refused.value)).groups()
        size, held = int(batch.replace(",", "")), {"device": "a100-40gb", "memory_budget_bytes": gigabytes * GIB}
        # The largest that fits by the rule of every verdict, to a hundredth.
        assert size > 1 and float(memory) <= gigabytes and float(chance) >= 90
        # Weights are left out of the file, so that only what is let through meets onnxruntime's own error.
        with warnings.catch_warnings(), pytest.raises(Exception, match="External data path"):
            warnings.simplefilter("error")
            session(path, batch=size, policy="raise", **held)
        with (
            pytest.warns(ort_extension.PredictionWarning, match="may not fit"),
            pytest.raises(Exception, match="External data path"),
        ):
            session(path, batch=size + size // 50, policy="raise", **held)


def test_open_dimensions_do_not_hide_a_model_that_cannot_fit(tmp_path, models):
    path = large_model(tmp_path, batch="batch")
    with pytest.raises(ort_extension.DoesNotFitError, match="with every open dimension at 1"):
        session(path, device="l4", memory_budget_bytes=4 * GIB, policy="raise")
    with pytest.warns(ort_extension.PredictionWarning, match="leaves batch open"):
        ours = session(models / "open.onnx", policy="raise")
    assert ours.prediction is None and "batch" in ours.problem and ours.perfpass.verdict.fits == "unknown"
    with pytest.raises(ort_extension.NotPredictedError, match="leaves batch open"):
        session(models / "open.onnx", policy="require")


def test_each_policy_does_what_it_says(models):
    tight = {"memory_budget_bytes": 1 << 20, "device": "a100-80gb"}
    with pytest.warns(ort_extension.PredictionWarning, match="does not fit") as caught:
        ours = session(models / "fixed.onnx", **tight)
    assert Path(caught[0].filename).name == "ort_sessions.py" and ours.run(None, images())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert session(models / "fixed.onnx", policy="ignore", **tight).perfpass.verdict.fits == "no"
        session(models / "fixed.onnx", policy="raise", device="a100-80gb")
    seen: list = []
    session(models / "fixed.onnx", policy=seen.append, **tight)
    session(models / "fixed.onnx", policy=seen.append, device="a100-80gb")
    assert [verdict.fits for verdict in seen] == ["no"]

    def stop(verdict):
        raise KeyError(verdict.fits)

    with pytest.raises(KeyError, match="no"):
        session(models / "fixed.onnx", policy=stop, **tight)


def test_a_latency_target_is_kept_or_refused_with_devices_that_keep_it(models):
    with pytest.raises(
        ort_extension.MissesTargetError, match=r"misses the target of 2 ms: .* ms predicted .*: device "
    ):
        session(models / "open.onnx", batch=256, device="t4", latency_target_ms=2, policy="raise")
    assert session(models / "fixed.onnx", latency_target_ms=1e5, policy="raise").perfpass.verdict.meets_target == "yes"


def test_what_may_not_fit_is_a_warning_whatever_the_policy(models):
    peak = session(models / "fixed.onnx").prediction.peak_memory_bytes
    budget = int(peak.median)
    for policy in ("warn", "raise"):
        with pytest.warns(ort_extension.PredictionWarning, match="may not fit"):
            session(models / "fixed.onnx", memory_budget_bytes=budget, policy=policy, reader="file")


def test_the_policy_ignore_predicts_nothing_before_somebody_asks(models, monkeypatch):
    reads: list = []
    monkeypatch.setattr(
        onnx_importer, "read", lambda *a, _read=onnx_importer.read, **k: reads.append(a) or _read(*a, **k)
    )
    ours = session(models / "fixed.onnx", policy="ignore", drift=False)
    ours.run(None, images())
    assert reads == []
    assert ours.prediction is not None and reads


def test_a_session_is_refused_by_the_confidence_asked_for_with_the_decision_in_the_error(models):
    path, how = models / "fixed.onnx", {"device": "a100-80gb", "policy": "raise"}
    expected = session(path, **how).perfpass.before.decision
    assert expected.limits == Limits() and len(expected.slices) == 6
    median, high = expected.place.latency_ms.median, expected.place.latency_ms.high
    session(path, **how, latency_target_ms=median)  # by the bounds: it may be met
    with pytest.raises(ort_extension.MissesTargetError, match=r"P\(latency\) 50 %") as refusal:
        session(path, **how, latency_target_ms=median, confidence=0.9)
    decision = refusal.value.decision
    assert decision is refusal.value.verdict.decision and decision.answer == "cannot say"
    assert decision == expected.under(Limits(latency_ms=median, confidence=0.9))
    kept = session(path, **how, latency_target_ms=high, confidence=0.9)
    assert kept.perfpass.verdict.decision.answer == "yes"
    with pytest.raises(ort_extension.MissesTargetError):
        session(path, **how, latency_target_ms=high, confidence=0.97)


def test_a_budget_of_memory_and_of_energy_is_kept_by_confidence(models):
    path, how = models / "fixed.onnx", {"device": "a100-80gb", "policy": "raise"}
    place = session(path, **how).perfpass.before.decision.place
    budget = int(place.memory_bytes.median)
    with pytest.raises(ort_extension.DoesNotFitError, match=r"P\(memory\)"):
        session(path, **how, memory_budget_bytes=budget, confidence=0.9)
    with pytest.raises(ort_extension.MissesTargetError, match=r"P\(energy\)") as refusal:
        session(path, **how, energy_target_j=place.energy_j.low)
    assert refusal.value.decision.probabilities["energy_j"] == pytest.approx(0.05)
    with pytest.warns(ort_extension.PredictionWarning, match="energy"):
        session(path, device="a100-80gb", energy_target_j=place.energy_j.low)
    with pytest.raises(ArgumentError, match="confidence"):
        session(path, **how, confidence=1.5)


def test_the_decision_of_a_session_stands_in_its_metadata(models):
    from perfpass.annotation.metadata import from_metadata

    ours = session(models / "fixed.onnx", device="a100-80gb", latency_target_ms=50)
    stored = from_metadata(ours.get_modelmeta().custom_metadata_map)
    assert stored.decisions == {"a100-sxm4-80gb": ours.prediction.decision}
    assert ours.prediction.decision.limits.latency_ms == 50
