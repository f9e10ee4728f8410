"""Figures whose bounds say nothing are refused with a reason; a device file's required keys are enough for figures."""

import pytest

import perfpass
from offline_batches import predict_batch
from perfpass.devices.toml_file import read
from perfpass.errors import UnsupportedError
from perfpass.llm.in_use import SERVERS
from perfpass.prediction import WIDEST_FACTOR, Interval
from perfpass.predictors.generation.predictor import GenerationPredictor, batch_of

RUN = {"batch": 16, "input_tokens": 512, "output_tokens": 128}
REQUIRED = """
[[device]]
id = "mine"
name = "Mine"
memory_gib = 80
bandwidth_gb_s = 2000
sm_count = 100
power_limit_w = 400
peak_tflops = { fp32 = 20, fp16 = 300, bf16 = 300 }
"""


@pytest.mark.parametrize("on", ["mi300x", "rtx-4090", "m2"])
def test_an_interval_of_many_orders_is_a_refusal_with_a_reason(on):
    asked = {"runtime": "llama.cpp", "precision": "q4_k_m", "batch": 64, "input_tokens": 4096, "output_tokens": 8}
    with pytest.raises(UnsupportedError, match=r"wider than a factor of 30.*(not q4_k_m|no run of)"):
        GenerationPredictor.load().predict(batch_of("llama-3.1-8b", on, **asked))
    assert predict_batch("llama-3.1-8b", on, **asked).latency_s.says_something  # it is counted instead


@pytest.mark.parametrize(("runtime", "on"), [("sambaflow", "a100-80gb"), ("deepspeed-mii", "mi300x")])
def test_a_runtime_that_was_not_measured_there_says_so(runtime, on):
    found = predict_batch("llama-2-7b", on, runtime=runtime, **RUN)
    assert found.support.level == "outside" and found.latency_s.high > 50 * found.latency_s.low
    assert any("to learn from" in reason or "not learned from" in reason for reason in found.support.reasons)


def test_an_engine_that_is_counted_like_others_is_less_sure_than_they_are():
    measured, found = (predict_batch("llama-2-7b", "h100", runtime=r, **RUN) for r in ("transformers", "deepspeed"))
    width, known = (f.latency_s.high / f.latency_s.low for f in (found, measured))
    assert found.support.level == "outside" and width > known
    assert any("to learn from" in reason or "not learned from" in reason for reason in found.support.reasons)


def test_every_figure_that_is_given_says_something():
    answered = 0
    for on in ("h100", "a100-80gb", "mi300x", "t4", "rtx-4090", "gtx-1080-ti"):
        for runtime in ("vllm", "trtllm", "deepspeed-mii", "deepspeed", "llama.cpp"):
            if (runtime, on) == ("trtllm", "mi300x") or (on == "gtx-1080-ti" and runtime in SERVERS):  # do not exist
                continue
            try:
                found = predict_batch("llama-2-7b", on, runtime=runtime, **{**RUN, "devices": 2})
            except UnsupportedError:
                continue
            answered += 1
            given = (found.latency_s, found.tokens_per_s, found.prompt_s, found.token_s)
            assert all(value.says_something for value in given if value)
            assert found.prompt_s or any("time to first token left out" in r for r in found.support.reasons)
    assert answered > 15


def test_bounds_may_be_a_stated_factor_either_way():
    assert Interval(1.0, 1 / WIDEST_FACTOR, WIDEST_FACTOR, "s").says_something
    assert not Interval(1.0, 1 / WIDEST_FACTOR, 1.01 * WIDEST_FACTOR, "s").says_something
    assert not Interval(1.0, 0.0, 2.0, "s").says_something


def test_the_required_keys_of_a_device_file_are_enough_for_language_models(tmp_path):
    place = tmp_path / "mine.toml"
    place.write_text(REQUIRED)
    (mine,) = read(place)
    load = {"input_length": 512, "output_length": 128, "concurrency": 16}
    for options in ({}, {"tp": 2}, {"tp": 2, "pp": 2}):
        assert perfpass.predict_llm("llama-3.1-8b", mine, **load, **options).tpot_ms.median > 0
    assert predict_batch("llama-3.1-8b", mine, devices=2, **RUN).latency_s.median > 0
