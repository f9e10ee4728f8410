"""Energy, power, offline throughput and cost of a serving prediction."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import perfpass
from perfpass.deploy.cost import Options, per_million_tokens
from perfpass.deploy.money import price
from perfpass.devices import device
from perfpass.errors import ArgumentError
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import Parallelism, Quantization
from perfpass.llm.serving import MemoryFit, Serving
from perfpass.prediction import Interval, Support
from perfpass.predictors.serving.base import Sizes
from perfpass.predictors.serving.energy import decoding, with_energy
from perfpass.predictors.serving.loads import energy_per_token, predict_loads
from perfpass.predictors.serving.prediction import LlmPrediction


def _served(tokens_per_s: float, **options: object) -> LlmPrediction:
    serving = Serving(input_length=512, output_length=256, concurrency=32.0, **options)
    rate = Interval(tokens_per_s, 0.8 * tokens_per_s, 1.2 * tokens_per_s, "1/s")
    ms = Interval(10.0, 8.0, 12.0, "ms")
    fit = MemoryFit(1, 1, 1, 1, 10, 10, True, "")
    return LlmPrediction(ms, ms, ms, rate, rate, fit, Support("in range"), {}, {}, serving, {}, {})


def test_power_is_energy_times_throughput_within_the_board_limits():
    model, h100 = language_model("llama-3.1-8b"), device("h100")
    found = with_energy(_served(1500.0), model, h100)
    assert found.power_w.median == pytest.approx(found.energy_per_token_j.median * 1500.0)
    assert with_energy(_served(1e6), model, h100).power_w.median == h100.power_limit_w
    slow = with_energy(_served(1.0), model, h100).power_w.median
    assert h100.idle_power_w <= slow < 0.3 * h100.power_limit_w
    assert found.provenance["energy"]["kind"] == "learned" and found.support.level == "in range"


def test_energy_is_that_of_the_requests_that_share_a_step():
    """Not of those that wait for room, for their prompt or for a full prefill replica, by every door."""
    model, h100 = language_model("llama-3.1-70b"), device("h100")
    full = Serving(
        8192, 64, 512.0, "vllm", mode="disagg", parallelism=Parallelism.of(4), prefill=Parallelism.of(4),
        prefill_workers=1, quantization=Quantization("fp8", "fp8", "fp8"),
    )  # fmt: skip
    found = perfpass.predict_llm(
        "llama-3.1-70b", "h100", input_length=8192, output_length=64, concurrency=512, precision="fp8", tp=4,
        prefill=Parallelism.of(4), prefill_workers=1,
    )  # fmt: skip
    batch = float(decoding(found.output_tokens_per_s.median, found.tpot_ms.median, 1))
    assert 1.0 <= batch < 0.2 * full.decoded
    sizes = Sizes.of(full)
    loads = predict_loads(model, h100, full, sizes)
    joules = energy_per_token(model, h100, full, sizes, loads.output_tokens_per_s, loads.tpot_ms)
    assert joules.median[0] == pytest.approx(found.energy_per_token_j.median, rel=0.01)
    assert float(decoding(10.0, 5.0, 1)) == 1.0 and decoding(np.array([4000.0]), 10.0, 2)[0] == 20.0


def test_offline_throughput_is_given_where_the_runtime_was_measured():
    model, h100 = language_model("llama-3.1-8b"), device("h100")
    assert with_energy(_served(1500.0), model, h100).offline_tokens_per_s.median > 1000
    assert with_energy(_served(1500.0, runtime="sglang"), model, h100).offline_tokens_per_s is None
    large = with_energy(_served(1500.0), language_model("llama-3.1-405b"), h100)
    assert large.offline_tokens_per_s is None


def test_what_energy_was_not_measured_on_widens_and_is_said():
    model, h100 = language_model("llama-3.1-8b"), device("h100")
    plain = with_energy(_served(1500.0), model, h100)
    other = with_energy(_served(1500.0, runtime="trtllm", quantization=Quantization("fp8", "fp8", "fp8")), model, h100)
    assert any("16-bit" in r for r in other.support.reasons) and any("vLLM only" in r for r in other.support.reasons)
    before, after = plain.energy_per_token_j, other.energy_per_token_j
    assert after.high / after.low > 1.3 * before.high / before.low and after.median < before.median


def test_a_million_tokens_cost_energy_carbon_and_money():
    model, h100 = language_model("llama-3.1-8b"), device("h100")
    found = with_energy(_served(2000.0, parallelism=Parallelism.of(tensor=2)), model, h100)
    cost = per_million_tokens(found, h100, Options(region="FR", pue=1.1))
    assert cost.energy_j.median == pytest.approx(found.energy_per_token_j.median * 1.1e6)
    assert cost.carbon_g.median == pytest.approx(cost.energy_j.median / 3.6e6 * 56)
    assert cost.usd.median == pytest.approx(2 * price(h100).usd_per_hour * 1e6 / 2000.0 / 3600)
    assert cost.of == "output tokens" and cost.energy_kind == "learned"
    with pytest.raises(ArgumentError, match="with_energy"):
        per_million_tokens(dataclasses.replace(found, energy_per_token_j=None), h100, Options())


def test_the_command_adds_a_cost_block_where_asked(capsys):
    import json

    from perfpass.cli import main

    load = ["--input-length", "512", "--output-length", "128", "--concurrency", "32"]
    assert main(["llm", "llama-3.1-8b", "--device", "h100", *load, "--json", "--carbon-intensity", "100"]) == 0
    found = json.loads(capsys.readouterr().out)
    cost, energy = found["cost"], found["energy_per_token_j"]["median"]
    assert cost["carbon_g"]["median"] == pytest.approx(energy * 1e6 / 3.6e6 * 100)
    assert found["power_w"]["high"] <= 700 and found["offline_tokens_per_s"]["median"] > 0
