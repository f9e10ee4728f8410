"""DIPPM: what ships answers and says what it knows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import perfpass
from perfpass.errors import ArtefactError
from perfpass.predictors.learned import arrays as weights
from perfpass.predictors.learned import artefacts
from perfpass.predictors.published.dippm import DippmPredictor
from perfpass.predictors.published.run_features import run_features

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


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


def test_a_device_that_it_never_learned_from_is_outside_with_wider_bounds():
    # A batch at which no host decides, whose speed is unknown on every board.
    resnet = perfpass.load(EXAMPLES / "resnet50.onnx", batch=512)
    known = perfpass.predict(resnet, "rtx-4090", batch=512, precision="amp", predictor="dippm")
    unknown = perfpass.predict(resnet, "h100-sxm5-80gb", batch=512, precision="amp", predictor="dippm")
    assert unknown.support.level == "outside"
    assert unknown.latency_ms.high / unknown.latency_ms.median > known.latency_ms.high / known.latency_ms.median


def test_many_ways_to_run_share_one_embedding(resnet):
    predictor = DippmPredictor.load()
    device = perfpass.device("rtx-4090")
    how = {"runtime": "torch", "layout": "nchw", "mode": "inference"}
    runs = np.stack([run_features(device, precision=p, **how) for p in ("amp", "fp32", "bf16")])
    together = predictor.outputs(resnet, runs)
    assert together.shape == (3, len(predictor.manifest["outputs"])) and (together > 0).all()
    np.testing.assert_allclose(together, np.concatenate([predictor.outputs(resnet, r[None]) for r in runs]), rtol=1e-5)


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
