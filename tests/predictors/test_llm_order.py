"""Promises of order of language models: more work takes no less time, and a better board no more."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import perfpass
from offline_batches import predict_batch
from perfpass.devices import device
from perfpass.devices.order import no_better
from perfpass.llm.configuration import language_model
from perfpass.llm.order import no_larger
from perfpass.llm.serving import Serving
from perfpass.prediction import Interval
from perfpass.predictors.learned import lattice
from perfpass.predictors.learned.order import in_order
from perfpass.predictors.serving.base import Sizes
from perfpass.predictors.serving.loads import Once, predict_loads

PARTS = ("median", "low", "high")
# In order but for the rounding of sums.
ROUNDING = 1 + 1e-9
PLACES = (
    ("qwen3-32b", "h100-sxm5-80gb", "sglang"),  # measured
    ("llama-3.1-8b", "b200-sxm-180gb", "vllm"),  # apart
    ("mistral-7b", "l40s", "vllm"),  # neither
    ("llama-2-7b", "a10", "tgis"),  # another predictor
)


def assert_rising(found: list[Interval], parts: tuple[str, ...] = PARTS) -> None:
    for one, other in itertools.pairwise(found):
        for part in parts:
            assert getattr(one, part) <= getattr(other, part) * ROUNDING, (part, one, other)


@pytest.mark.parametrize(("model", "gpu", "runtime"), PLACES)
def test_longer_prompts_and_more_load_never_serve_faster(model, gpu, runtime):
    def ask(prompt: int, load: int) -> perfpass.predictors.serving.prediction.LlmPrediction:
        return perfpass.predict_llm(
            model, gpu, input_length=prompt, output_length=200, concurrency=load, runtime=runtime
        )

    prompts = [ask(n, 8) for n in (1, 100, 300, 700, 1010, 2500, 5000, 14_000)]
    loads = [ask(700, n) for n in (1, 2, 5, 11, 24, 60, 100, 200, 500, 3000)]
    for found in (prompts, loads):
        # Bounds are wider outside of what was measured: they keep order among equals.
        for level in ("in range", "near", "outside"):
            alike = [f for f in found if f.support.level == level]
            assert_rising([f.ttft_ms for f in alike])
            assert_rising([f.request_ms for f in alike])
        assert_rising([f.ttft_ms for f in found], ("median",))
        memory = [f.memory.total_bytes for f in found]
        assert memory == sorted(memory)
    assert_rising([f.tpot_ms for f in loads], ("median",))
    rates = [f.output_tokens_per_s.median for f in loads]
    most = np.maximum.accumulate(rates)
    # As of measured loads, of which one step in twenty falls by over 14 % (tests/metamorphic/relations.py), and what
    # order with measured boards moves: more where tokens come in order but, with requests waiting, are not compared.
    assert (np.array(rates) >= 0.85 * most).all()


def test_a_full_server_answers_no_fewer_tokens_under_more_load():
    def ask(load: int) -> float:
        found = perfpass.predict_llm("llama-2-7b", "rtx-3090", input_length=4096, output_length=32, concurrency=load)
        return found.output_tokens_per_s.median

    rates = [ask(n) for n in (4, 8, 30, 100, 300, 1000, 5000)]
    assert all(b >= 0.9 * a for a, b in itertools.pairwise(rates))
    # Nor does it answer more than it holds: waiting requests add nothing.
    assert rates[-1] < 3 * rates[2]


@pytest.mark.parametrize(
    ("worse", "better"), [("b200-sxm-180gb", "b300-sxm-288gb"), ("h100-pcie-80gb", "h100-sxm5-80gb")]
)
@pytest.mark.parametrize("model", ["gpt-oss-120b", "qwen3-32b", "llama-3.1-8b"])
def test_bounds_of_a_measured_board_hold_for_its_neighbours(model, worse, better):
    asked = {"input_length": 500, "output_length": 300, "concurrency": 4, "precision": "fp16"}
    first, second = (perfpass.predict_llm(model, gpu, tp=2, **asked) for gpu in (worse, better))
    for name in ("ttft_ms", "tpot_ms"):
        one, other = getattr(first, name), getattr(second, name)
        assert other.high <= one.high * ROUNDING and other.low <= one.low * ROUNDING


@pytest.mark.parametrize(
    "asked",
    [{}, {"concurrency": 16}, {"concurrency": 64, "runtime": "trtllm"}, {"concurrency": 16, "precision": "fp8"}],
)
@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-8b"])
def test_a_board_of_more_bandwidth_decodes_faster_than_one_that_was_measured(model, asked):
    # A token of 8 B reads 8 to 16 GB of weights, and a B200 has 1.67 times the bandwidth of an H200.
    slow, fast = (perfpass.predict_llm(model, gpu, **asked) for gpu in ("h200-sxm-141gb", "b200-sxm-180gb"))
    assert fast.tpot_ms.median < 0.9 * slow.tpot_ms.median
    for name in ("ttft_ms", "tpot_ms", "request_ms"):
        assert_rising([getattr(fast, name), getattr(slow, name)])
    assert fast.ttft_ms.median < slow.ttft_ms.median


@pytest.mark.parametrize("asked", [{}, {"concurrency": 64}, {"concurrency": 64, "precision": "fp8"}])
@pytest.mark.parametrize(
    ("model", "beside_grace", "other"),
    [
        ("llama-3.1-8b", "gb200-186gb", "h200-sxm-141gb"), ("llama-3.1-8b", "gb300-279gb", "h200-sxm-141gb"),
        ("llama-3.1-8b", "gh200-144gb", "h200-sxm-141gb"),
    ],
)  # fmt: skip
def test_a_grace_processor_costs_a_better_board_no_more_than_a_tenth(model, beside_grace, other, asked):
    own, measured = (perfpass.predict_llm(model, gpu, input_length=1024, output_length=256, **asked)
                     for gpu in (beside_grace, other))  # fmt: skip
    assert own.tpot_ms.median <= 1.1 * measured.tpot_ms.median * ROUNDING


@pytest.mark.parametrize(("model", "precision"), [("llama-3.1-70b", "fp8"), ("llama-3.1-8b", "bf16")])
def test_a_gb300_s_products_run_as_a_gb200_s(model, precision):
    # By counts alone a GB300 took 0.7 of a GB200's time, whose kernels were measured.
    asked = {"concurrency": 64, "input_length": 1024, "output_length": 256, "precision": precision}
    old, new = (perfpass.predict_llm(model, gpu, **asked).tpot_ms.median for gpu in ("gb200-186gb", "gb300-279gb"))
    assert 0.85 * old < new <= old * 1.02


def test_a_smaller_model_is_no_slower_than_a_measured_one_of_its_family():
    asked = {"input_length": 1000, "output_length": 200, "concurrency": 16}
    found = [perfpass.predict_llm(f"qwen3-{size}", "h100", **asked) for size in ("0.6b", "1.7b", "8b", "32b")]
    assert_rising([f.ttft_ms for f in found])
    assert_rising([f.tpot_ms for f in found])


@pytest.mark.parametrize("runtime", ["vllm", "trtllm", "llama.cpp"])
@pytest.mark.parametrize("gpu", ["h100-sxm5-80gb", "v100-sxm2-32gb"])
def test_offline_times_never_fall_as_work_grows(runtime, gpu):
    def ask(prompt: int, answer: int, batch: int) -> perfpass.predictors.generation.prediction.Offline:
        return predict_batch(
            "llama-3.1-8b", gpu, runtime=runtime, batch=batch, input_tokens=prompt, output_tokens=answer
        )

    prompts = [ask(n, 200, 8) for n in (10, 90, 200, 400, 1500, 3000)]
    answers = [ask(200, n, 8) for n in (2, 30, 90, 200, 400, 1500, 3000)]
    chains = [prompts, answers]
    if runtime != "llama.cpp":  # there a batch is prompt tokens at a time
        chains.append([ask(200, 200, n) for n in (1, 2, 5, 11, 30, 64, 100)])
    for chain in chains:
        assert_rising([f.latency_s for f in chain])
    for chain in (prompts, *chains[2:]):
        for name in ("prompt_s", "token_s"):
            assert_rising([value for f in chain if (value := getattr(f, name))])


def test_an_unmeasured_neighbour_has_no_wider_upper_bound():
    asked = {"runtime": "llama.cpp", "batch": 32, "input_tokens": 1024, "output_tokens": 128}
    for worse, better in (("a100-sxm4-40gb", "a100-sxm4-80gb"), ("h100-sxm5-80gb", "h200-sxm-141gb")):
        first, second = (predict_batch("opt-6.7b", gpu, **asked).latency_s for gpu in (worse, better))
        assert second.high <= first.high * ROUNDING and second.low <= first.low * ROUNDING


def test_a_lattice_is_put_in_order_by_what_is_known_best():
    values = np.log(np.array([[1.0, 4.0, 2.0], [2.0, 3.0, 8.0], [1.5, 9.0, 9.0]]))
    weight = np.ones((3, 3))
    weight[0, 1] = 1e-6
    found = lattice.settled(values, weight)
    assert (np.diff(found, axis=0) >= -1e-12).all() and (np.diff(found, axis=1) >= -1e-12).all()
    # Whom nothing speaks for gives way; what was in order stays.
    assert found[0, 2] == pytest.approx(np.log(2.0), abs=1e-3)
    assert np.allclose(lattice.settled(found, weight), found)
    assert np.allclose(lattice.rising(found), found)
    assert lattice.between(found, ((1, 2, 4), (1, 10, 100)), (3, 1000)) <= found[2, 2]


def test_intervals_of_boards_are_put_in_order_but_for_what_was_measured():
    worse, better = Interval(1.0, 0.5, 2.0, "s"), Interval(3.0, 0.9, 4.0, "s")
    no_more = [[True, False], [True, True]]
    assert in_order([worse, better], no_more, [0.0, 5.0])[1] == Interval(1.0, 0.5, 2.0, "s")
    assert in_order([worse, better], no_more, [0.0, 1.0], near=1.5)[1] == better


def test_what_compares_is_of_one_vendor_host_and_family():
    def rate(gpu: perfpass.devices.Device) -> float:
        return gpu.peak_flops["fp16"]

    assert no_better(device("h100"), device("h200"), rate) and not no_better(device("h200"), device("h100"), rate)
    assert not no_better(device("h200"), device("gb200"), rate) and not no_better(
        device("mi300x"), device("h200"), rate
    )
    small, large = language_model("qwen3-8b"), language_model("qwen3-32b")
    assert no_larger(small, large) and not no_larger(large, small)
    assert not no_larger(small, language_model("llama-3.1-70b"))


def test_boards_that_compare_with_the_same_are_put_in_order_once_and_as_alone():
    model, serving = language_model("mistral-7b"), Serving(1024, 128, 8.0, "vllm")
    sizes, once = Sizes.of(serving), Once()
    for name in ("l40s", "rtx-4090", "a40"):
        together = predict_loads(model, device(name), serving, sizes, once)
        alone = predict_loads(model, device(name), serving, sizes)
        for figures in ("ttft_ms", "tpot_ms"):
            for part in PARTS:
                np.testing.assert_array_equal(
                    getattr(getattr(together, figures), part), getattr(getattr(alone, figures), part)
                )
    kept = once.in_order.cache_info()
    assert kept.hits > kept.misses > 0
