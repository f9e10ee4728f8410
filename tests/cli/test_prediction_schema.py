"""JSON of predictions fulfils docs/reference/prediction.schema.json."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

import perfpass

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "reference" / "prediction.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
RESNET = str(ROOT / "examples" / "resnet50.onnx")


@pytest.mark.parametrize(
    "how",
    [
        {"device": "a100-80gb"},
        {"device": "rtx-4090", "precision": "amp", "batch": 64},
        {"device": "a100-80gb:2g.20gb", "processes": 3},
        {"device": "h100", "mode": "training", "optimizer": "adamw"},
        {"device": "h100", "precision": "int8"},
        {"device": "cpu", "runtime": "onnxruntime"},
        {"device": "a100-80gb", "runtime": "tensorrt", "cuda_graph": True},
        {"device": "a100-80gb", "limits": perfpass.Limits(latency_ms=5, energy_j=1, memory_bytes=2**31)},
        {"device": "rtx-3090", "mode": "training", "predictor": "trappm"},
    ],
    ids=lambda how: "-".join(map(str, how.values())),
)
def test_a_prediction_is_of_the_schema(how):
    content = perfpass.predict(RESNET, **how).to_dict()
    VALIDATOR.validate(json.loads(json.dumps(content, allow_nan=False)))
    if "predictor" in how:  # which says the peak itself, while the parts stay ours
        return
    assert abs(sum(content["breakdown"]["memory_bytes"].values()) / content["peak_memory_bytes"]["median"] - 1) < 1e-9


def test_a_serving_prediction_is_of_the_schema():
    found = perfpass.predict_llm("llama-3.1-8b", "h100", input_length=1024, output_length=128, concurrency=64)
    VALIDATOR.validate(json.loads(json.dumps(found.to_dict(), allow_nan=False)))


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", RESNET, "--device", "l4", "--region", "FR"),
        ("llm", "llama-2-7b", "--device", "h100", "--predictor", "llm-trees", "--input-length", "512",
         "--output-length", "512", "--concurrency", "16"),
        ("llm", "llama-3.1-8b", "--device", "h100", "--prefill-workers", "1", "--decode-batch", "4",
         "--concurrency", "16"),
        ("llm", "llama-3.1-8b", "--device", "h100", "--draft", "eagle", "--prefix-hit", "0.4", "--lora", "16x8"),
    ],
    ids=("cost", "offline", "prefill apart", "switched on"),
)  # fmt: skip
def test_what_the_command_prints_is_of_the_schema(arguments):
    command = [sys.executable, "-m", "perfpass", *arguments, "--json"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert printed.isascii()
    VALIDATOR.validate(json.loads(printed))


def test_another_document_is_not_of_the_schema():
    content = perfpass.predict(RESNET, "a100").to_dict()
    content["latency_ms"]["median"] = "3 ms"
    assert not VALIDATOR.is_valid(content)
    assert not VALIDATOR.is_valid({"schema_version": 1})
