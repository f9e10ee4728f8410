"""Quantised weights as a what-if: less memory, work at the rate of 8 bits, and an interval that does not promise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import perfpass
from perfpass.devices import catalogue
from perfpass.errors import ArgumentError, DeviceError, UnsupportedError
from perfpass.prediction import Interval
from perfpass.predictors import loads, predict_graph

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LLAMA = str(EXAMPLES / "llama_1b_prefill.onnx")


@pytest.fixture(scope="module")
def found():
    how = {"device": "a100", "runtime": "torch"}
    return {p: perfpass.predict(LLAMA, precision=p, **how) for p in ("fp16", "w8a8", "w8a16", "w4a16", "nf4")}


def test_weights_take_the_memory_of_their_bits(found):
    held = {p: one.breakdown["memory_bytes"]["weights"] for p, one in found.items()}
    assert held["w8a8"] < 0.65 * held["fp16"]
    assert held["w4a16"] < 0.45 * held["fp16"]
    assert held["w8a8"] < held["w8a16"] < 0.65 * held["fp16"]
    packed = held["fp16"] - held["w4a16"]  # 2 bytes a weight less 4 bits and a 64th of a byte
    weights = packed / (2 - 0.5 - 2 / 128)
    assert held["nf4"] - held["w4a16"] == pytest.approx(weights * (4 / 64 - 2 / 128), rel=1e-3)


def test_8_bits_run_faster_and_4_bits_no_slower(found):
    times = {p: one.latency_ms for p, one in found.items()}
    assert times["w8a8"].median < times["fp16"].median
    assert times["w4a16"].median <= times["fp16"].median * 1.001


def test_what_was_not_measured_so_is_said_and_the_interval_holds_the_run_without(found):
    for name in ("w8a8", "w8a16", "w4a16", "nf4"):
        one = found[name]
        assert any(reason.startswith(f"{name}:") for reason in one.support.reasons)
        assert one.support.level != "in range"
        assert one.workload["precision"] == name
        assert one.latency_ms.low <= found["fp16"].latency_ms.low
        assert one.latency_ms.high >= found["fp16"].latency_ms.median


def test_networks_and_language_models_know_one_anothers_names_of_weights_in_fewer_bits(found):
    from perfpass.llm.costs import named_precision

    assert perfpass.predict(LLAMA, "a100", precision="int8_wo").memory == found["w8a16"].memory
    assert perfpass.predict(LLAMA, "a100", precision="int4").memory == found["w4a16"].memory
    for ours, theirs in (("w8a8", "int8"), ("w8a16", "int8_wo"), ("w4a16", "int4")):
        assert named_precision(ours) == named_precision(theirs)


def test_a_network_in_pytorch_wholly_in_8_bits_names_weights_alone():
    for precision, runtime, said in (("fp8", "torch", True), ("int8", "tensorrt", False), ("bf16", "torch", False)):
        one = perfpass.predict(LLAMA, "h100", precision=precision, runtime=runtime)
        assert any("w8a16" in reason for reason in one.support.reasons) == said


def test_products_in_8_bits_on_a_cpu_are_as_they_were_measured():
    how = {"device": "xeon-platinum-8380", "runtime": "onnxruntime", "batch": 1}
    model = str(EXAMPLES / "vit_base_patch16_224.onnx")
    plain, eight = (perfpass.predict(model, precision=p, **how) for p in ("fp32", "w8a8"))
    assert eight.latency_ms.median < plain.latency_ms.median
    assert not any("not measured so" in reason for reason in eight.support.reasons)


def test_training_and_scoring_in_quantised_weights_are_refused():
    from perfpass.search import Scorer

    with pytest.raises(UnsupportedError, match="w4a16"):
        perfpass.predict(LLAMA, "a100", precision="w4a16", mode="training")
    with pytest.raises(UnsupportedError, match="leave one of them out"):
        perfpass.predict(LLAMA, "a100", precision="w4a16", runtime="tensorrt", sparsity="2:4")
    with pytest.raises(UnsupportedError, match="w8a8"):
        Scorer("a100", precision="w8a8")
    without = next(d for d in catalogue() if d.is_gpu and "fp16" in d.peak_flops and "int8" not in d.peak_flops)
    with pytest.raises(DeviceError, match="int8"):
        perfpass.predict(LLAMA, without, precision="w8a8")


def test_a_difference_says_what_a_scheme_changes():
    found = perfpass.diff(LLAMA, LLAMA, "a100", precision="fp16", change={"precision": "w4a16"})
    ratios = {r.metric: r.interval.median for r in found.devices[0].ratios}
    assert ratios["memory"] < 0.9
    assert ratios["latency"] <= 1.001


def test_the_command_line_shows_the_change_against_the_model_as_it_is(capsys):
    import json

    from perfpass.cli import main

    assert main(["predict", LLAMA, "--device", "a100", "--precision", "fp16", "--quantize", "w4a16"]) == 0
    shown = capsys.readouterr().out
    assert "w4a16" in shown
    assert "over fp16" in shown
    assert main(["predict", LLAMA, "--device", "a100", "--precision", "fp16", "--quantize", "w4a16", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["quantized"]["from"] == "fp16"
    assert found["quantized"]["ratios"]["memory"]["ratio"] < 0.9
    assert main(["predict", LLAMA, "--device", "a100", "--dim", "batch=1,2", "--quantize", "w4a16"]) == 2
    assert "--quantize" in capsys.readouterr().err


@pytest.mark.parametrize("precision", [["fp16"], {"w4a16": 1}])
def test_a_precision_that_is_no_name_is_refused_as_an_unknown_one(precision):
    with pytest.raises(ArgumentError, match="unknown precision"):
        predict_graph(perfpass.load(LLAMA), "a100", precision=precision)


def test_an_interval_that_begins_at_nothing_is_stretched_above_all_the_same(found):
    one, other = found["fp16"], found["w8a8"]
    begun = replace(one, energy_j=Interval(2.0, 0.0, 3.0, "J"))
    beside = replace(other, energy_j=Interval(1.0, 0.5, 5.0, "J"))
    assert loads.stretched(begun, beside).energy_j == Interval(2.0, 0.0, 5.0, "J")
