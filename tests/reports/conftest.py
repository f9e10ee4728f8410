"""Predictions that the tests of pictures and pages share."""

from __future__ import annotations

import pytest

import perfpass
import report_models
from report_models import DEVICE, EXAMPLES


@pytest.fixture(scope="session")
def vision() -> perfpass.Prediction:
    """An inference run with its decision by slice."""
    limits = perfpass.Limits(latency_ms=12)
    return perfpass.predict(EXAMPLES / "resnet50.onnx", DEVICE, batch=8, precision="fp16", limits=limits)


@pytest.fixture(scope="session")
def encoder() -> perfpass.Prediction:
    """A transformer whose exporter wrote operators out in parts."""
    return perfpass.predict(EXAMPLES / "vit_base_patch16_224.onnx", DEVICE, precision="amp")


@pytest.fixture(scope="session")
def step() -> perfpass.Prediction:
    """A training step."""
    return perfpass.predict(EXAMPLES / "resnet50.onnx", "t4", batch=16, mode="training")


@pytest.fixture(scope="session")
def hostile(tmp_path_factory) -> perfpass.Prediction:
    """A model whose names are made to harm whoever shows them."""
    path = report_models.hostile(tmp_path_factory.mktemp("hostile") / "evil<b>&.onnx")
    return perfpass.predict(path, DEVICE)


@pytest.fixture(scope="session")
def batches() -> perfpass.deploy.sweep.Sweep:
    """A network by device and batch."""
    return perfpass.sweep(EXAMPLES / "resnet50.onnx", devices=["t4", "l4"], batches=[1, 4, 16], precisions=["fp16"])


@pytest.fixture(scope="session")
def loads() -> perfpass.deploy.sweep.Sweep:
    """A served language model by load."""
    return perfpass.sweep("llama-3.1-8b", devices=["h100-sxm"], concurrencies=[1, 8, 64], tensor_parallel=[1])


@pytest.fixture(scope="session")
def served() -> perfpass.LlmPrediction:
    """A served language model."""
    return perfpass.predict_llm("llama-3.1-8b", "h100-sxm", concurrency=16)


@pytest.fixture(scope="session")
def fleet() -> perfpass.deploy.pack.Layout:
    """Models on the slices of a GPU."""
    pytest.importorskip("ortools")
    return perfpass.pack(EXAMPLES / "fleet.toml")
