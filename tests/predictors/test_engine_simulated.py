"""Promises of simulated deployments: what is asked is answered in order, within bounds, as the parts say."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from perfpass import simulate_llm
from perfpass.devices import device
from perfpass.errors import ArgumentError, LimitError, PerfPassError
from perfpass.llm import Parallelism
from perfpass.llm.configuration import language_model
from perfpass.predictors.engine.arrivals import Lengths, profile
from perfpass.predictors.engine.queueing import expected, most_rate
from perfpass.predictors.engine.requests import Requests
from perfpass.predictors.engine.tails import Tails
from perfpass.predictors.serving.predictor import predict_llm

BOARD, MODEL = "h100-sxm5-80gb", "llama-3.1-8b"
LOAD = {"rate": 6.0, "requests": 120, "input_length": 800, "output_length": 60}


@pytest.fixture(scope="module")
def plain():
    return simulate_llm(MODEL, BOARD, **LOAD, ttft_target_ms=100.0, tpot_target_ms=20.0)


def test_percentiles_rise_and_lie_within_their_bounds(plain):
    for tails in (plain.ttft_ms, plain.tpot_ms, plain.itl_ms, plain.request_ms):
        points = [tails.p50, tails.p90, tails.p95, tails.p99]
        for at in ("low", "median", "high"):
            assert [getattr(p, at) for p in points] == sorted(getattr(p, at) for p in points)
        assert tails.mean.low < tails.mean.median < tails.mean.high


def test_a_simulation_is_strict_json_and_a_table(plain):
    assert json.loads(json.dumps(plain.to_dict(), allow_nan=False))["requests"] == 120
    text = str(plain)
    assert "time to first token ms" in text and "120 requests, poisson at 6 a second" in text
    assert max(map(len, text.splitlines())) <= 100


def test_goodput_is_the_share_within_targets(plain):
    none = simulate_llm(MODEL, BOARD, **LOAD, ttft_target_ms=1e-3)
    assert none.goodput.share.median == 0.0 and plain.goodput.share.median > 0.9
    assert plain.goodput.requests_per_s.median <= plain.requests_per_s.median


def test_the_same_seed_is_the_same_answer_and_another_is_not(plain):
    again, other = (simulate_llm(MODEL, BOARD, **LOAD, seed=s) for s in (0, 1))
    assert again.ttft_ms == plain.ttft_ms and other.ttft_ms != plain.ttft_ms


@pytest.mark.parametrize("runtime", ["vllm", "sglang", "trtllm"])
def test_every_engine_is_near_its_closed_form(runtime):
    model, board = language_model(MODEL), device(BOARD)
    load = {**LOAD, "requests": 800}
    found = simulate_llm(model, board, **load, runtime=runtime)
    closed = expected(model, board, found.serving, LOAD["rate"])
    assert closed.ttft_mean_s * 1e3 == pytest.approx(found.ttft_ms.mean.median, rel=0.08)
    assert closed.tpot_s * 1e3 == pytest.approx(found.tpot_ms.mean.median, rel=0.08)


def test_a_lone_prompt_of_a_mixture_waits_for_its_host_event_by_event_as_elsewhere():
    """Without the host DeepSeek-V3 on eight B200 had 40 ms here and 100 in `predict_llm`."""
    load = {"concurrency": 1, "input_length": 600, "output_length": 8}
    simulated = simulate_llm("qwen3-30b-a3b", BOARD, arrivals="closed", requests=3, **load)
    predicted = predict_llm("qwen3-30b-a3b", BOARD, **load)
    assert simulated.ttft_ms.p50.median == pytest.approx(predicted.ttft_ms.median, rel=0.25)
    (words,) = (text for text in simulated.limits if text.startswith("time to first token"))
    shares = [int(share) for share in re.findall(r"(\d+)%", words)]
    assert "the host's" in words and 99 <= sum(shares) <= 101
    assert shares[0] < 15 < shares[1], "what the host issues is no waiting for others' steps"


def test_two_replicas_take_twice_the_rate_of_one():
    alone = simulate_llm(MODEL, BOARD, **LOAD)
    two = simulate_llm(MODEL, BOARD, **{**LOAD, "rate": 12.0, "requests": 240}, workers=2)
    assert two.serving.gpus == 2
    assert two.tpot_ms.mean.median == pytest.approx(alone.tpot_ms.mean.median, rel=0.1)


def test_prefill_apart_takes_stalls_from_decoding_and_adds_a_transfer():
    together = simulate_llm(MODEL, BOARD, **LOAD, workers=2)
    apart = simulate_llm(MODEL, BOARD, **LOAD, prefill=Parallelism.of(1), prefill_workers=1)
    assert apart.serving.mode == "disagg" and apart.use.prefill_busy > 0
    assert apart.itl_ms.p99.median < together.itl_ms.p99.median
    assert apart.ttft_ms.mean.median > together.ttft_ms.mean.median


def test_a_queue_that_grows_is_said():
    found = simulate_llm(MODEL, BOARD, rate=500.0, requests=400, input_length=4000, output_length=20)
    assert found.limits[0].startswith("queue: ")
    calm = simulate_llm(MODEL, BOARD, **LOAD)
    assert not any(limit.startswith("queue: ") for limit in calm.limits)


def test_a_trace_keeps_its_times_or_takes_another_rate():
    trace = Requests(np.arange(50) * 0.5, np.full(50, 300), np.full(50, 20))
    own, faster = (simulate_llm(MODEL, BOARD, trace=trace, rate=rate) for rate in (None, 10.0))
    assert own.arrivals["words"] == "as given" and "at 10 requests/s instead of 2" in faster.arrivals["words"]
    assert len(own.windows) == 12 and sum(w.requests for w in own.windows) == 50
    with pytest.raises(ArgumentError, match="a trace has its own lengths"):
        simulate_llm(MODEL, BOARD, trace=trace, input_length=5)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"rate": -1.0}, ArgumentError, "a rate must be from"),
        ({"rate": float("nan")}, ArgumentError, "a rate must be from"),
        ({"rate": 1.0, "runtime": "tgis"}, ArgumentError, "unknown runtime of arriving requests 'tgis'"),
        ({"rate": 1.0, "prefix_hit": 1.5}, ArgumentError, "a prefix hit is a share"),
        ({"rate": 1.0, "router": "random"}, ArgumentError, "unknown router 'random'"),
        ({"rate": 1.0, "ttft_target_ms": -1.0}, ArgumentError, "a target of ttft must be above 0"),
        ({"rate": 1.0, "max_sequences": -3}, ArgumentError, "max_sequences must be"),
        ({"rate": 1.0, "requests": 10**7}, LimitError, "at most 1,000,000 can be simulated"),
        ({"rate": 1.0, "window_s": -1.0}, ArgumentError, "a window must be"),
    ],
)
def test_options_out_of_range_are_refused(options, error, said):
    with pytest.raises(error, match=said):
        simulate_llm(MODEL, BOARD, **{"requests": 20, **options})


def test_a_model_without_room_for_a_cache_is_refused():
    with pytest.raises(PerfPassError, match="leaves no room for the cache"):
        simulate_llm("llama-3.1-70b", BOARD, rate=1.0, requests=20, tp=1)


def test_the_most_rate_keeps_the_target_and_a_little_more_does_not():
    model, board = language_model(MODEL), device(BOARD)
    serving = predict_llm(model, board, input_length=800, output_length=60).serving
    rate = most_rate(model, board, serving, 0.3, 0.02)
    for factor, keeps in ((0.99, True), (1.01, False)):
        found = expected(model, board, serving, rate * factor)
        assert (found is not None and found.ttft_p99_s <= 0.3 and found.tpot_s <= 0.02) == keeps
    with pytest.raises(ArgumentError, match="at any rate; loosen the targets"):
        most_rate(model, board, serving, 1e-4)


def test_rates_of_a_day_are_kept_part_by_part():
    found = profile((1.0, 4.0, 0.0, 2.0), 8000.0, Lengths(10), Lengths(5), seed=3)
    counts = np.histogram(found.arrival_s, np.arange(5) * 2000.0)[0]
    assert counts[2] == 0 and np.allclose(counts[[0, 1, 3]], [2000, 8000, 4000], rtol=0.08)


def test_percentiles_of_weighted_values_are_those_of_the_values_repeated():
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([2.0, 90.0, 8.0])
    found = Tails.of([(values, weights)], "ms")
    assert (found.p50.median, found.p95.median, found.p99.median) == (1.0, 2.0, 3.0)
    assert found.mean.median == pytest.approx(np.repeat(values, weights.astype(int)).mean())
