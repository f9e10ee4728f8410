"""LLM serving: what is predicted keeps physics, says what it rests on, and reads its source honestly."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import perfpass
from perfpass.devices import device
from perfpass.errors import ArgumentError, ArtefactError, DeviceError
from perfpass.llm import Parallelism, Quantization, Serving, language_model
from perfpass.predictors.serving.base import CONSTANTS, REQUEST_S, bounded, host_s, kept_tokens, prior, terms, times
from perfpass.predictors.serving.features import describe
from perfpass.predictors.serving.predictor import ServingPredictor
from served_records import served

LOAD = {"input_length": 1024, "output_length": 1024, "concurrency": 16}


def predicted(model="llama-3.1-8b", on="h200", **options):
    return perfpass.predict_llm(model, on, **{**LOAD, "tp": 1, "precision": "fp8", **options})


def test_a_prediction_is_whole_and_its_json_strict():
    found = predicted()
    shown = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    for name in ("ttft_ms", "tpot_ms", "request_ms", "output_tokens_per_s", "energy_per_token_j", "power_w"):
        assert 0 < shown[name]["low"] <= shown[name]["median"] <= shown[name]["high"]
    # A closed loop: requests in flight over the time of one is the rate of requests.
    rate = LOAD["concurrency"] / (shown["request_ms"]["median"] / 1e3)
    assert shown["output_tokens_per_s"]["median"] == pytest.approx(rate * LOAD["output_length"])
    assert shown["support"]["level"] == "near"
    assert str(found).count("\n") > 6


def test_measured_configurations_are_hit():
    # A run in the records: DeepSeek-R1 in fp8 on eight H200 with SGLang 0.5.9.
    stack = {"runtime": "sglang", "runtime_version": "0.5.9"}
    found = predicted("deepseek-ai/DeepSeek-R1", "h200", **stack, tp=8, concurrency=32)
    assert found.tpot_ms.median == pytest.approx(23.31, rel=0.15)
    assert found.tpot_ms.low < 23.31 < found.tpot_ms.high


def test_the_unseen_is_said_and_widens_the_interval():
    measured = predicted("openai/gpt-oss-120b", "h100", tp=4, precision="mxfp4")
    assert measured.provenance["evidence"] == "measured" and measured.support.level == "near"
    width = measured.tpot_ms.high / measured.tpot_ms.low
    for model, on, evidence in (
        ("qwen3-8b", "h100", "model unseen"),
        ("qwen3-32b", "a100-80gb", "device unseen"),
        ("qwen3-8b", "a100-80gb", "both unseen"),
    ):
        found = predicted(model, on, precision="bf16")
        assert found.provenance["evidence"] == evidence
        assert found.support.level in ("near", "outside") and found.support.reasons
        assert found.tpot_ms.high / found.tpot_ms.low > width


def test_what_does_not_fit_is_outside_and_says_so():
    found = predicted("deepseek-v3", "h100", tp=1)
    assert not found.memory.fits and found.memory.most_requests == 0
    assert found.support.level == "outside" and any("do not fit" in r for r in found.support.reasons)
    assert "split over more GPUs" in found.memory.reason
    assert predicted("deepseek-v3", "h200", tp=8).memory.fits


def test_what_does_not_fit_is_shown_no_queue_of_one_request_at_a_time():
    # The table says "those of the same device with enough memory", which runs its requests together.
    small, large = (predicted("llama-3.1-70b", on, precision="bf16") for on in ("h100", "b200"))
    assert not small.memory.fits and large.memory.fits
    assert small.breakdown["base_queue_ms"] == 0 == large.breakdown["base_queue_ms"]
    assert large.ttft_ms.median < small.ttft_ms.median < 5 * large.ttft_ms.median
    assert large.output_tokens_per_s.median < 5 * small.output_tokens_per_s.median
    # A load that no memory of the board's size holds does not come with one request less.
    assert predicted("llama-3.1-70b", "h100", precision="bf16", tp=2, concurrency=500).breakdown["base_queue_ms"] > 0


def test_trees_count_for_less_the_less_a_set_up_was_measured():
    predictor = ServingPredictor.load()
    model, gpu = language_model("llama-3.1-8b"), device("h200")
    off = {}
    # There are runs with vLLM in 8 bits; none in 16, and none with TensorRT-LLM.
    for runtime, precision in (("vllm", "fp8"), ("vllm", "bf16"), ("trtllm", "bf16")):
        quantization = Quantization(precision, precision, precision)
        serving = Serving(4000, 500, 96, runtime=runtime, quantization=quantization)
        w = describe(model, "llama-3.1-8b", gpu, serving)
        learned, base = (predictor.seconds(w, method) for method in ("known", "base"))
        added, _ = predictor.corrections(w)
        moved = {t: float(np.log(learned[t] / base[t])[0]) for t in ("tpot", "ttft")}
        off[runtime, precision] = {t: moved[t] / added[t][0] for t in moved}
    for target in ("tpot", "ttft"):
        near, other, far = (found[target] for found in off.values())
        assert near == pytest.approx(1.0) and near > other > abs(far), target
    assert abs(moved["ttft"]) < 0.006  # of the last, where nothing was measured


def test_memory_counts_weights_and_cache_exactly():
    memory = predicted("llama-3.1-8b", "h100", precision="bf16").memory
    model = language_model("llama-3.1-8b")
    assert memory.weights_bytes == 2 * model.parameters
    assert memory.cache_bytes == 16 * 2048 * 2 * 32 * 8 * 128 * 2
    assert memory.total_bytes < memory.usable_bytes
    split = predicted("llama-3.1-8b", "h100", precision="bf16", tp=8).memory
    assert split.weights_bytes == pytest.approx(memory.weights_bytes / 8, rel=0.01)
    assert split.most_requests > memory.most_requests


def test_nonsense_is_refused_by_name():
    for options, said in (
        ({"concurrency": 0}, "concurrency"),
        ({"input_length": 0}, "input_length"),
        ({"runtime": "ollama"}, "ollama"),
        ({"precision": "fp3"}, "fp3"),
        ({"tp": 3, "ep": 2}, "do not divide"),
        ({"prefill_workers": 1}, "split of its prefill"),
    ):
        with pytest.raises(ArgumentError, match=said):
            predicted(**options)
    with pytest.raises(ArgumentError, match="GPUs only"):
        predicted(on="core-i7-12700h")


def test_full_prefill_replicas_leave_decoders_as_many_requests_as_they_fill():
    def asked(concurrency, prefill_workers, prompt=8192):
        return predicted(
            "llama-3.1-70b",
            runtime="sglang",
            input_length=prompt,
            output_length=1024,
            concurrency=concurrency,
            tp=4,
            workers=2,
            prefill=Parallelism.of(4),
            prefill_workers=prefill_workers,
        )

    few, many = asked(256, 1), asked(1024, 1)
    # More requests wait for their prompts alone: as many tokens a second, and steps as long.
    assert many.output_tokens_per_s.median == pytest.approx(few.output_tokens_per_s.median, rel=0.05)
    assert many.tpot_ms.median == pytest.approx(few.tpot_ms.median, rel=0.01)
    assert many.ttft_ms.median > 3 * few.ttft_ms.median
    # With prefill to spare decoders are full.
    assert asked(256, 8).tpot_ms.median > 2 * few.tpot_ms.median
    assert asked(256, 8, prompt=128).tpot_ms.median == pytest.approx(asked(256, 4, prompt=128).tpot_ms.median, rel=0.01)


def test_boards_of_one_architecture_take_their_step_from_the_same_kernels():
    """By counts a mixture on the smaller A100 took 1.7 times as long as on the larger, whose memory is 1.3 times as
    fast.
    """
    for model, asked, lesser, better in (
        ("mixtral-8x7b", {"tp": 4, "concurrency": 16}, "a100-sxm4-40gb", "a100-sxm4-80gb"),
        ("gpt-oss-120b", {"tp": 2, "concurrency": 16}, "h100-pcie-80gb", "h100-sxm5-80gb"),
    ):
        asked = {**asked, "precision": None}
        slow, fast = (predicted(model, on, **asked).tpot_ms.median for on in (lesser, better))
        bandwidths = [device(on).memory_bandwidth_bytes_s for on in (better, lesser)]
        assert 1.0 <= slow / fast <= 1.2 * bandwidths[0] / bandwidths[1], model


def test_servers_are_refused_where_they_have_no_kernels_and_lengths_beyond_the_positions_are_named():
    for on in ("mi300x", "gaudi2"):
        with pytest.raises(DeviceError, match="TensorRT-LLM runs on NVIDIA GPUs only"):
            predicted("llama-3.1-8b", on, precision="bf16", runtime="trtllm")
    for on in ("p40", "jetson-tx2-8gb"):
        for runtime in ("vllm", "sglang", "trtllm"):
            with pytest.raises(DeviceError, match=f"{runtime} does not run on .*from Volta on; take llama.cpp"):
                predicted("llama-3.1-8b", on, precision="fp16", runtime=runtime)
    by_hand = replace(device("p40"), architecture="GP102")  # a device file's architecture is free text
    with pytest.raises(DeviceError, match="from Volta on"):
        predicted("llama-3.1-8b", by_hand, precision="fp16", runtime="vllm")
    assert predicted("llama-3.1-8b", "v100-sxm2-32gb", precision="fp16").tpot_ms.median > 0
    on_apple = predicted("llama-3.1-8b", "apple-m2-ultra", precision="bf16").support
    assert on_apple.level == "outside" and any("no kernels for Apple" in reason for reason in on_apple.reasons)
    found = predicted("llama-2-7b", "h100", precision="bf16", input_length=4000, output_length=200)
    assert found.support.level == "outside"
    assert any("4,200 tokens" in r and "4,096 positions of" in r for r in found.support.reasons)


def test_a_first_token_of_a_light_load_is_little_more_than_its_prompt():
    model, h100 = language_model("llama-3.1-8b"), device("h100")
    predictor = ServingPredictor.load()
    for runtime in ("vllm", "trtllm", "sglang"):
        load = Serving(2048, 128, 1.0, runtime)
        alone = {name: float(v[0]) for name, v in times(terms(model, h100, load), predictor.constants).items()}
        assert alone["steady"] == pytest.approx(alone["ttft"])
        assert alone["prompt"] < alone["steady"] < alone["prompt"] + 0.02
        found = predicted("llama-3.1-8b", "h100", precision="bf16", runtime=runtime, input_length=2048, concurrency=1)
        assert found.ttft_ms.median <= 1e3 * alone["steady"] * 1.001
        assert found.ttft_ms.high / found.ttft_ms.low < 6
    # Where requests arrive by themselves, a closed loop's waiting lies between none and all the others' prompts.
    many = times(terms(model, h100, Serving(2048, 128, 64.0, "vllm")), predictor.constants)
    one, steady = float(many["prompt"][0]), float(many["steady"][0])
    assert one < steady < 64 * one + 0.1


def test_a_mixture_s_lone_prompt_waits_for_its_host_to_issue_it():
    """DeepSeek-R1 with SGLang 0.5.6 on eight B200 (SGLang's cookbook): 126 ms of 610 tokens, 155 of 4,194."""
    constants, gpu = ServingPredictor.load().constants, device("b200")

    def first_s(name: str, tokens: int, **options: bool) -> float:
        eight = Quantization("fp8_block", "fp8_block", "fp8")
        asked = Serving(tokens, 1000, 1.0, "sglang", parallelism=Parallelism.of(8), quantization=eight)
        return float(times(terms(language_model(name), gpu, asked, **options), constants)["steady"][0])

    assert 0.126 / 1.6 < first_s("deepseek-v3", 610) < 0.126 * 1.6
    assert 0.155 / 1.6 < first_s("deepseek-v3", 4194) < 0.155 * 1.6
    assert first_s("deepseek-v3", 610, server=False) < 0.06
    assert first_s("llama-3.1-70b", 610) < 0.06


def test_a_server_of_before_0_6_waits_for_its_host():
    asked = {"precision": "bf16", "runtime": "vllm", "concurrency": 128}
    new, old = (predicted("mistral-7b", "a100-80gb", **asked, runtime_version=v) for v in ("0.6.0", "0.5.4"))
    assert old.tpot_ms.median - new.tpot_ms.median == pytest.approx(128 * 0.24 + 11, rel=0.2)
    asked |= {"concurrency": 1, "tp": 4}  # a lone prompt's step waits as well
    new, old = (predicted("mistral-7b", "a100-80gb", **asked, runtime_version=v) for v in ("0.6.0", "0.5.4"))
    assert old.ttft_ms.median - new.ttft_ms.median == pytest.approx(0.24 + 4 * 11, rel=0.1)


def test_a_request_that_is_alone_waits_for_no_prompt_between_its_tokens():
    """Also not for its own, which came before them: a step of 100,000 cached tokens, whatever its answer's length."""
    for model, gpu in (("llama-3.1-8b", "h100"), ("qwen2.5-14b", "a100-80gb")):
        alone, two = (
            perfpass.predict_llm(model, gpu, input_length=100_000, output_length=500, concurrency=n) for n in (1, 2)
        )
        assert alone.tpot_ms.median == pytest.approx(alone.breakdown["base_step_ms"], rel=0.3)
        assert two.tpot_ms.median > 1.3 * alone.tpot_ms.median


def test_a_batch_without_a_server_waits_for_the_scheduler_alone():
    """ML.ENERGY's Llama-3.1-70B on eight A100: 107 ms a token at 32 requests, of which its steps are 26."""
    old = Serving(128, 128, 8.0, "vllm", "0.5.0")
    (batch_step, batch_request), (step, request) = host_s(old, server=False), host_s(old)
    assert 0 < batch_step < step and 0 < batch_request < request
    assert host_s(replace(old, runtime_version="0.5.4")) == (step, request)
    assert host_s(replace(old, parallelism=Parallelism.of(8))) == (8 * step, request)
    assert 8 * step + 32 * request == pytest.approx(0.107 - 0.026, rel=0.3)
    for version in ("0.6.0", "0.12.0", "", "nightly"):
        assert host_s(replace(old, runtime_version=version), server=False) == (0, 0)


def test_a_batch_without_a_server_that_finds_no_room_takes_as_much_longer():
    """LLM-Inference-Bench, TensorRT-LLM, Llama 2 7B on an H100: 64 requests, 2,048 tokens in and out, 55 ms a token."""
    model, gpu, constants = language_model("llama-2-7b"), device("h100"), ServingPredictor.load().constants
    asked = terms(model, gpu, Serving(2048, 2048, 64.0, "trtllm"), server=False)
    waiting = float(asked.waiting[0])
    assert waiting == pytest.approx(1.15, abs=0.05)
    room = replace(asked, waiting=0 * asked.waiting)
    found, enough = (float(times(t, constants)["tpot"][0]) for t in (asked, room))
    assert found == pytest.approx((1 + waiting) * enough) == pytest.approx(55e-3, rel=0.1)


def test_a_prompt_without_a_server_waits_for_no_server():
    model, gpu, constants = language_model("llama-3.1-8b"), device("h100"), bounded(prior())
    asked = Serving(128, 128, 1.0, "trtllm")
    served, alone = (times(terms(model, gpu, asked, server=s), constants) for s in (True, False))
    step_s = constants["step_s.trtllm"]
    assert float((served["steady"] - alone["steady"])[0]) == pytest.approx(REQUEST_S - step_s)
    assert float((alone["steady"] - alone["prompt"])[0]) == pytest.approx(step_s)


def test_vllm_of_2024_issued_its_kernels_on_amd_s_boards():
    """LLM-Inference-Bench: 10 ms a token for Llama 2 7B on an MI300X and on four; an A100's had CUDA graphs."""
    model, constants = language_model("llama-2-7b"), ServingPredictor.load().constants

    def token_s(gpu: str, version: str, gpus: int = 1) -> float:
        serving = Serving(1024, 1024, 1.0, "vllm", version, parallelism=Parallelism.of(gpus))
        return float(times(terms(model, device(gpu), serving, server=False), constants)["tpot"][0])

    one = token_s("mi300x", "0.5.0")
    assert one == pytest.approx(10e-3, rel=0.25) and token_s("mi300x", "0.5.0", 4) > 0.95 * one
    assert token_s("mi300x", "0.7.0") < 0.75 * one
    assert token_s("a100-40gb", "0.5.0") < 1.1 * token_s("a100-40gb", "0.7.0")


def test_vllm_of_before_graphs_issues_every_kernel():
    model, gpu = language_model("llama-2-70b"), device("h100")
    split, constants = Parallelism.of(8), bounded(prior())

    def token_s(version: str, load: float) -> float:
        serving = Serving(128, 128, load, "vllm", version, parallelism=split)
        return float(times(terms(model, gpu, serving, server=False), constants)["tpot"][0])

    # 80 layers of nine launches, and their messages, after their host.
    host = sum(host_s(Serving(128, 128, 1.0, "vllm", "0.2.0", parallelism=split), server=False))
    assert 80 * 9 * 40e-6 < token_s("0.2.0", 1) - host < 80 * 12 * 40e-6
    assert token_s("0.2.6", 1) < 0.7 * token_s("0.2.0", 1)
    assert token_s("0.2.0", 1) <= token_s("0.2.0", 16) <= token_s("0.2.0", 256)


def test_a_step_that_drafts_is_shared_by_the_tokens_it_keeps():
    model, gpu = language_model("deepseek-v3"), device("h200")
    serving = Serving(1024, 1024, 32.0, "trtllm", parallelism=Parallelism.of(8))
    constants = bounded(prior())

    def token_s(drafts: int, acceptance: float) -> float:
        given = {**constants, "acceptance": acceptance, "step.acceptance": acceptance}
        return float(times(terms(model, gpu, serving, drafts=drafts), given)["tpot"][0])

    plain = token_s(0, 0.7)
    assert token_s(0, 0.1) == plain
    assert token_s(3, 0.0) > plain
    assert plain / 4 < token_s(3, 1.0) < token_s(3, 0.7) < plain
    assert kept_tokens(np.arange(4.0), 0.5) == pytest.approx([1, 1.5, 1.75, 1.875])
    assert kept_tokens(np.arange(4.0), 0.0) == pytest.approx([1, 1, 1, 1])


def test_the_base_obeys_physics():
    constants = bounded(prior())
    assert set(constants) == set(CONSTANTS)
    model, gpu = language_model("llama-3.1-70b"), device("h100")

    def seconds(**options):
        split = Parallelism.of(options.pop("tp", 4))
        given = {"input_length": 2048, "output_length": 256, "concurrency": 8, **options}
        return {
            k: float(v[0]) for k, v in times(terms(model, gpu, Serving(parallelism=split, **given)), constants).items()
        }

    first = seconds()
    assert seconds(concurrency=64)["tpot"] > first["tpot"]
    assert seconds(concurrency=64)["ttft"] > first["ttft"]
    assert seconds(input_length=8192)["ttft"] > first["ttft"]
    assert seconds(input_length=8192)["tpot"] > first["tpot"]
    assert seconds(tp=8)["prompt"] < first["prompt"]
    # Decoding cannot be quicker than reading the weights once.
    assert first["step"] > 2 * model.parameters / 4 / gpu.memory_bandwidth_bytes_s
    apart = Serving(
        2048, 256, 8, mode="disagg", parallelism=Parallelism.of(4), prefill=Parallelism.of(4), prefill_workers=1
    )
    alone = times(terms(model, gpu, apart), constants)
    assert float(alone["tpot"][0]) == float(alone["step"][0]), "no prefill stalls a decode worker"


def test_who_waits_for_room_waits_for_the_prompts_of_those_before_too():
    """Eight at once, of whose longest prompts one finds room: a request takes seven others' prompts and tokens too."""
    found = [
        perfpass.predict_llm("llama-2-7b", "rtx-3090", input_length=n, output_length=32, concurrency=8, tp=1)
        for n in (4096, 8192, 16000)
    ]
    taken = [one.request_ms.median for one in found]
    assert taken == sorted(taken)
    alone = perfpass.predict_llm("llama-2-7b", "rtx-3090", input_length=16000, output_length=32, concurrency=1, tp=1)
    assert taken[-1] > 6 * alone.request_ms.median


def test_requests_that_find_no_room_wait():
    constants = bounded(prior())
    model, gpu = language_model("llama-3.1-70b"), device("h100")

    def at(concurrency):
        serving = Serving(4096, 1024, concurrency, parallelism=Parallelism.of(4))
        return times(terms(model, gpu, serving), constants)

    assert float(at(4)["queue"][0]) == 0
    assert float(at(2000)["queue"][0]) > 100
    assert float(at(2000)["tpot"][0]) == pytest.approx(float(at(1000)["tpot"][0]))


def test_another_artefact_is_refused(tmp_path):
    with pytest.raises(ArtefactError):
        ServingPredictor(tmp_path)


def test_shipped_trees_and_neighbours_give_what_training_graded():
    data = served()
    rows = np.arange(0, len(data), 7)
    for target in ("tpot", "ttft"):
        found = ServingPredictor.load().seconds(data.workloads.take(rows), "known")[target]
        ape = np.abs(found / data.measured_s(target)[rows] - 1)
        # Fitted on these rows: what is left is what the table does not tell apart.
        assert np.median(ape) < 0.1


def test_bounds_grow_with_what_is_unknown():
    asked = {"precision": "bf16", "runtime": "vllm"}
    known = predicted("llama-3.1-8b", "h200", **asked)
    for more in (
        {"model": "mistral-7b"},
        {"on": "a100-80gb"},
        {"on": "mi300x"},
        {"runtime_version": "0.4.0"},
        {"pp": 2},
        {"input_length": 100_000},
    ):
        found = predicted(**{"model": "llama-3.1-8b", "on": "h200", **asked, **more})
        for name in ("tpot_ms", "ttft_ms"):
            one, other = getattr(known, name), getattr(found, name)
            assert other.high / other.low > one.high / one.low, more
            assert any("bounds lie a factor" in reason for reason in found.support.reasons)


def test_support_agrees_with_the_width_of_the_time_per_token():
    for model, on in (
        ("qwen3-32b", "h100"),
        ("mistral-7b", "h100"),
        ("mistral-7b", "l40s"),
        ("llama-3.1-8b", "mi300x"),
    ):
        found = predicted(model, on, precision="bf16")
        width = found.tpot_ms.high / found.tpot_ms.low
        assert found.support.level == "outside" or width <= 2.5
        assert found.support.level != "in range" or width <= 1.5


def test_one_token_more_moves_no_bound_by_much():
    edges = (15_000, 8192, 2048)
    for at in edges:
        for name in ("input_length", "output_length"):
            one, other = (predicted("qwen3-8b", "h100", precision="bf16", **{name: n}) for n in (at, at + 1))
            for metric in ("ttft_ms", "tpot_ms"):
                for part in ("low", "median", "high"):
                    first, second = (getattr(getattr(f, metric), part) for f in (one, other))
                    assert second == pytest.approx(first, rel=0.02), (name, at, metric, part)


def test_widths_of_a_source_come_from_the_others():
    from perfpass.predictors.serving.widths import CAUSES
    from perfpass.training.serving.widths import fitted
    from perfpass.training.spread import Errors, of_each_source

    base = {cause: float(cause in ("measurement", "laboratory")) for cause in CAUSES}
    own = Errors.of(np.full(50, 3.0), base, "source:far, server/vllm")
    near = Errors.of(np.linspace(-0.1, 0.1, 50), base, "source:near, server/vllm")
    held = Errors.of(np.linspace(-0.1, 0.1, 50), {**base, "laboratory": 0.0}, "random:0")
    low, high = of_each_source(Errors.joined([own, near]), [held], fitted("tpot"))
    assert (high[:50] < 1.0).all() and (low[:50] > -1.0).all()


def test_a_token_of_what_was_not_measured_together_is_no_wider_for_a_far_set_up():
    from perfpass.predictors.serving.widths import CAUSES, of_tokens

    base = dict.fromkeys(CAUSES, 0.0) | {"measurement": 1.0, "others": 1.0, "set-up": np.array([0.2, 1.7])}
    assert of_tokens(base)["set-up"].tolist() == [0.2, 1.0] and of_tokens(base)["others"] == 0.0
    for cause in ("model", "device", "pair"):
        assert of_tokens({**base, cause: 1.0})["set-up"].tolist() == [0.0, 0.0]


def test_a_limit_of_decoders_that_nobody_states_is_no_lack_of_their_steps():
    from perfpass.training.serving.held_out import HeldOut, folds_of
    from perfpass.training.serving.widths import held_out_errors

    data = served()
    fold = np.full(len(data), -1)
    for number, found in enumerate(folds_of(data, "device unseen")):
        fold[found.test] = number
    none = {target: np.zeros(len(data)) for target in ("tpot", "ttft")}
    held = HeldOut(none, fold, none, ())
    shares = {}
    for target in ("tpot", "ttft"):
        errors, rows = held_out_errors(data, held, "device unseen", target)
        lack = errors.lacks[:, errors.causes.index("unstated workers")]
        stated = ~np.asarray(data.workloads.terms.unstated)[rows]
        shares[target] = lack[stated & ~data.aggregated[rows]].mean()
        assert (lack[~stated] == 1).all()
    assert shares["tpot"] == 0 < shares["ttft"]


def test_widths_come_from_first_tokens_that_no_queue_makes_less_certain_than_their_prompts():
    from perfpass.training.serving.held_out import HeldOut, folds_of
    from perfpass.training.serving.widths import held_out_errors, near_full

    data, constants = served(), ServingPredictor.load().constants
    fold, folds = np.full(len(data), -1), list(folds_of(data, "device unseen"))
    for number, found in enumerate(folds):
        fold[found.test] = number
    none = {target: np.zeros(len(data)) for target in ("tpot", "ttft")}
    held = HeldOut(none, fold, none, (constants,) * len(folds))
    near, t = near_full(data, held), data.workloads.terms
    assert 0.01 < near.mean() < 0.1
    # Where one waits for room, or may, or for prefill replicas.
    assert ((t.waiting_bounds[:, 0] > 0) | t.split)[near].all()
    _, calm = held_out_errors(data, held, "device unseen", "ttft")
    assert not near[calm].any() and not data.queued[calm].any()
    _, tokens = held_out_errors(data, held, "device unseen", "tpot")
    assert len(tokens) == len(data)


def test_other_laboratories_are_asked_for_what_they_measured():
    from perfpass.training.serving import outside

    asked, left = outside.load()
    assert {a.target for a in asked} == {"tpot", "ttft"} and sum(left.values()) > 100
    assert {a.source.split(",")[0] for a in asked} >= {"source:splitwise", "source:argonne", "source:mlenergy"}
    assert all(a.measured_s > 0 and a.serving.runtime in ("vllm", "trtllm", "sglang") for a in asked)
    assert not {a.source for a in asked if a.target == "ttft" and a.serving.concurrency > 1 and "without" in a.source}


def test_decoders_that_nobody_counts_are_no_fuller_than_those_counted():
    """One worker was assumed from 500 requests on: a rank had twice as many as where it is stated."""
    data = served()
    t, loaded = data.workloads.terms, data.rows.disaggregated & (data.rows.concurrency >= 500)
    for runtime in ("sglang", "trtllm"):
        rows = np.asarray(loaded & (data.rows.runtime == runtime))
        guessed, stated = (np.median(t.batch[rows & (t.unstated == one)]) for one in (True, False))
        assert 0.5 < guessed / stated < 1.5


def test_experts_of_wide_servers_are_whole():
    """Nine rows state 32 tensor ranks of the experts, where the same layout by the list of sweeps states 32 ranks."""
    from perfpass.training.serving.dataset import serving_of

    data = served()
    wide = (data.rows.runtime == "sglang") & (data.rows.data_parallel > 8)
    rows = data.rows[wide]
    assert (rows.moe_expert_parallel == 1).any()
    for row in rows.itertuples():
        assert serving_of(row, data.models[row.family]).parallelism.expert == row.data_parallel
    inside = data.rows[(data.rows.data_parallel == 8) & (data.rows.moe_tensor_parallel == 8)]
    for row in inside.itertuples():  # within a node experts may be cut
        assert serving_of(row, data.models[row.family]).parallelism.expert == 1


def test_records_of_one_deployment_are_described_as_each_by_itself():
    from perfpass.training.serving.dataset import serving_of

    data = served()
    for at in np.flatnonzero(~data.rows.disaggregated)[::500]:
        row = next(data.rows.iloc[[at]].itertuples())
        model, target = data.models[row.family], device(row.device)
        drafts, looks = max(0, int(row.draft_tokens)), max(1, int(row.scheduler_interval))
        one = describe(model, row.family, target, serving_of(row, model), drafts=drafts, looks=looks)
        both = one, data.workloads.take(np.array([at]))
        for mine, found in zip(*(vars(w.terms).values() for w in both), strict=True):
            assert np.array_equal(mine, found)
        for mine, found in zip(*((*w.texts.values(), *w.numbers.values()) for w in both), strict=True):
            assert list(map(str, mine)) == list(map(str, found))  # unknown ones are no numbers


def test_no_measurement_is_on_both_sides_of_a_split():
    from perfpass.training.serving.fit import SET_UP
    from perfpass.training.serving.held_out import LEVELS, folds_of

    data = served()
    configuration = data.rows.configuration.to_numpy()
    family, gpu = data.rows.family.to_numpy(), data.rows.device.to_numpy()
    apart = {"model unseen": (family,), "device unseen": (gpu,), "both unseen": (family, gpu)}
    pair = family.astype(str) + "|" + gpu.astype(str)
    engine, precision = (data.workloads.texts[name].astype(str) for name in ("runtime", "quantization"))
    set_up = np.char.add(pair.astype(str), np.char.add(engine, precision))
    for level in LEVELS:
        tested = np.zeros(len(data), dtype=int)
        for fold in folds_of(data, level):
            assert not np.intersect1d(configuration[fold.train], configuration[fold.test]).size
            for labels in apart.get(level, ()):
                assert not set(labels[fold.train]) & set(labels[fold.test])
            if level == "apart":
                assert set(family[fold.test]) <= set(family[fold.train]) and set(gpu[fold.test]) <= set(gpu[fold.train])
            if level == SET_UP:
                assert set(pair[fold.test]) <= set(pair[fold.train])
                assert not set(set_up[fold.test]) & set(set_up[fold.train])
            tested[fold.test] += 1
        assert tested.max() == 1


def test_the_reader_corrects_what_the_source_garbled_and_says_so(tmp_path):
    import pandas

    from perfpass.records.readers import aiconfigurator_serving

    sizes = ("tp", "pp", "attention_dp", "moe_tp", "moe_ep")
    columns = [f"{side}{name}_size" for side in ("", "prefill_", "decode_") for name in sizes]
    row = dict.fromkeys([*columns, "batch_size", "prefill_batch_size", "decode_batch_size"])
    row |= dict.fromkeys(["prefill_num_workers", "decode_num_workers", "precision", "backend_version"])
    row |= {"device": "NVIDIA B200", "system": "b200_sxm", "backend": "sglang", "mode": "agg", "isl": 1024, "osl": 1024}
    row |= {"model_path": "deepseek-ai/DeepSeek-R1", "gemm_quant_mode": "fp8", "moe_quant_mode": "fp8", "pp_size": 1}
    row |= {"silicon_ttft_ms": 900.0, "silicon_concurrency": 32.0, "repeats_earlier_row": False}
    row |= {"silicon_data_source": ""}
    split = {"tp_size": 64, "attention_dp_size": 1, "moe_tp_size": 8, "moe_ep_size": 8}
    rows = [
        {**row, **split, "id": "product", "silicon_tpot_ms": 10.0},
        {**row, **split, "id": "repeat", "silicon_tpot_ms": 10.0, "repeats_earlier_row": True},
        {**row, "tp_size": 8, "moe_tp_size": 8, "moe_ep_size": 1, "id": "twin", "silicon_tpot_ms": 10.0},
        {
            **row,
            "tp_size": 8,
            "moe_tp_size": 8,
            "moe_ep_size": 1,
            "id": "queue",
            "silicon_tpot_ms": 9.0,
            "silicon_ttft_ms": 2e4,
        },
    ]
    (tmp_path / "aiconfigurator").mkdir()
    pandas.DataFrame(rows).to_csv(tmp_path / "aiconfigurator" / "e2e.csv", index=False)
    reading = aiconfigurator_serving.read(tmp_path)
    assert sum(reading.refused.values()) == 1
    table = reading.tables["serving"].set_index("run")
    assert table.loc["product", ["tensor_parallel", "moe_expert_parallel", "moe_tensor_parallel"]].tolist() == [8, 8, 1]
    assert table.loc["product", "caveats"] == "split-product" and table.loc["queue", "caveats"] == "queueing"
    assert (
        table.loc["product", "configuration"]
        == table.loc["twin", "configuration"]
        != table.loc["queue", "configuration"]
    )


def test_the_command_answers_without_heavy_packages():
    code = (
        "import sys; from perfpass.cli import main; "
        "code = main(['llm', 'llama-3.1-8b', '--device', 'h100', '--input-length', '512', '--output-length', '64', "
        "'--concurrency', '4', '--json']); "
        "heavy = [m for m in ('pandas', 'xgboost', 'torch', 'scipy') if m in sys.modules]; sys.exit(code or len(heavy))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout)["tpot_ms"]["unit"] == "ms"


def test_attention_heads_are_split_whole():
    with pytest.raises(ArgumentError, match="32 attention heads do not divide into 3 tensor ranks; choose 1, 2, 4"):
        predicted("llama-3.1-8b", "h100", tp=3)
