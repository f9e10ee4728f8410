"""Host memory of CPU runs: the constants of each runtime, their fit, and what a prediction says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import perfpass
from perfpass.devices import device
from perfpass.errors import ArtefactError
from perfpass.predictors.learned import artefacts
from perfpass.predictors.memory.host import FLOOR_BYTES, Constants, HostMemory
from perfpass.predictors.way import Way
from perfpass.training.memory import host

RESNET = Path(__file__).resolve().parents[2] / "examples" / "resnet50.onnx"
MIB = 2.0**20


def _columns(weights: float, activations: float, reserved: float = 0.0) -> dict[str, np.ndarray]:
    names = ("weight_bytes", "activation_bytes", "reserved_bytes")
    return {name: np.array([value]) for name, value in zip(names, (weights, activations, reserved), strict=True)}


def _rows(count: int, constants: Constants, noise: float, seed: int = 0) -> host.Rows:
    generator = np.random.default_rng(seed)
    weights, activations = 10 ** generator.uniform(6, 9, (2, count))
    beside = 10 ** generator.uniform(6, 8, count)
    exact = constants.peak(weights, activations, beside)
    family = np.array([f"family{i % 40}" for i in range(count)])
    measured = exact * np.exp(noise * generator.standard_normal(count))
    return host.Rows(family, family, family, measured, weights, activations, beside)


def test_the_parts_are_the_peak():
    for runtime in HostMemory.load().constants:
        parts, peak = HostMemory.load().inference(
            _columns(100 * MIB, 20 * MIB, 150 * MIB), Way(device("cpu"), runtime=runtime)
        )
        total = sum(float(np.ravel(value)[0]) for value in parts.values())
        assert total == pytest.approx(float(peak.median[0]))
        assert peak.low[0] < peak.median[0] < peak.high[0]
        assert min(float(np.ravel(value)[0]) for value in parts.values()) >= 0.0


@pytest.mark.parametrize("runtime", ["torch", "onnxruntime"])
def test_a_prediction_on_the_cpu_counts_the_process(runtime):
    found = perfpass.predict(RESNET, "cpu", runtime=runtime, calibration=False)
    constants = HostMemory.load().constants[runtime]
    weights = found.breakdown["memory_bytes"]["weights"]
    assert found.peak_memory_bytes.median > constants.runtime + weights
    assert found.peak_memory_bytes.high > 1.05 * found.peak_memory_bytes.median
    more = perfpass.predict(RESNET, "cpu", runtime=runtime, batch=8, calibration=False)
    assert more.peak_memory_bytes.median > found.peak_memory_bytes.median + 10 * MIB


def test_pytorch_needs_more_than_onnxruntime_before_a_model_is_there():
    constants = HostMemory.load().constants
    assert 200 * MIB < constants["torch"].runtime < 500 * MIB
    assert 40 * MIB < constants["onnxruntime"].runtime < 150 * MIB
    assert constants["onnxruntime"].weights > 1.2  # packed beside the file's


def test_a_fit_finds_the_constants_and_its_bounds_hold_families_left_out():
    truth = Constants(300 * MIB, 1.2, 2.0, 0.5)
    rows = _rows(400, truth, 0.05)
    found = host.fit(rows)
    assert found.runtime == pytest.approx(truth.runtime, rel=0.05)
    assert found.weights == pytest.approx(truth.weights, rel=0.05)
    assert found.activations == pytest.approx(truth.activations, rel=0.05)
    predicted, low, high = host.bounded_by_family(rows)
    assert np.mean(rows.measured > high) <= 0.03
    assert np.mean(rows.measured < low) <= 0.13
    assert np.median(high / predicted) < 1.3


def test_a_bound_leaves_room_for_what_is_constant():
    constants = Constants(300 * MIB, 1.0, 1.0, 0.0, -0.1, 0.3)
    tiny = constants.bounds(np.array([300 * MIB]))
    assert tiny.high[0] - tiny.median[0] == pytest.approx(0.3 * FLOOR_BYTES)


def test_an_artefact_with_other_names_is_refused(tmp_path):
    artefacts.write(tmp_path / "host", {"runtimes": {"torch": {"runtime": 1.0, "speed": 2.0}}}, {})
    with pytest.raises(ArtefactError, match="host memory"):
        HostMemory(tmp_path / "host")


@pytest.mark.parametrize(
    ("model", "family", "domain"),
    [
        ("timm:resnet18", "resnet", "images"),
        ("torchvision:retinanet_resnet50_fpn", "retinanet", "detection"),
        ("torchvision:lraspp_mobilenet_v3_large", "lraspp", "segmentation and depth"),
        ("hf:bert-base", "bert", "text"),
        ("hf:vit-base", "vit", "images"),
        ("net:quartznet5x5", "quartznet", "speech"),
        ("net:dlrm-small", "dlrm", "recommendation"),
    ],
)
def test_a_domain_is_told_by_family(model, family, domain):
    assert host.domain_of(model, family) == domain


def test_the_measured_processes_are_read_with_their_plans():
    rows = host.load()
    assert {"torch", "onnxruntime"} <= set(rows)
    for of in rows.values():
        assert np.all(of.measured > of.weights)
        assert len(set(of.domain)) >= 5
