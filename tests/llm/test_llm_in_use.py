"""Memory of language models with intervals: alive, reserved, in use, needed; per runtime, against what was measured."""

from __future__ import annotations

import dataclasses
import itertools
import json

import pytest

import perfpass
from perfpass.devices import device
from perfpass.errors import ArgumentError
from perfpass.llm import language_model
from perfpass.llm.costs import Parallelism, Quantization, weight_bytes
from perfpass.llm.eager import in_eager_pytorch, peaks
from perfpass.llm.in_use import MOST_ABOVE, default_share
from perfpass.llm.llama_cpp import layers_alone
from perfpass.llm.memory import served
from perfpass.llm.serving import Serving
from perfpass.predictors.generation.features import memory
from perfpass.predictors.generation.predictor import batch_of

MEGABYTE = 1e6
FP16 = Quantization("fp16", "fp16", "fp16")
LLAMA = language_model("llama-2-7b")
FIGURES = ("alive", "reserved", "in_use", "needed", "least")

# Batch, tokens generated after 256 of prompt; MB allocated and reserved by PyTorch and in use by NVML: Llama-2-7B in
# fp16 on an A100-SXM4-80GB, torch 2.1.1, transformers 4.35 (huggingface/optimum-benchmark, Apache-2.0). One token is a
# forward pass. Where all of the device was reserved, NVML was read after cached blocks had been given back.
MEASURED = [
    (1, 1, 13738, 13767, 15239),
    (8, 1, 15037, 15701, 17172),
    (64, 1, 25422, 30440, 31911),
    (1, 512, 14356, 14480, 15954),
    (4, 512, 16774, 24983, 26457),
    (8, 512, 19997, 63755, 65229),
    (64, 512, 65111, 84420, 66915),
]


@pytest.mark.parametrize(("batch", "answer", "allocated", "reserved", "in_use"), MEASURED)
def test_generation_in_transformers_takes_what_was_measured(batch, answer, allocated, reserved, in_use):
    a100 = device("a100-sxm4-80gb")
    asked = {"sequences": batch, "prompt": 256, "answer": answer}
    room = 84_980 * MEGABYTE - 1_474 * MEGABYTE
    found = peaks(LLAMA, FP16, **asked, held_twice=True, room_bytes=room)
    assert found.fits
    assert found.alive == pytest.approx(allocated * MEGABYTE, rel=0.015)
    assert found.reserved == pytest.approx(reserved * MEGABYTE, rel=0.035)
    fit = in_eager_pytorch(LLAMA, a100, 1, FP16, **asked, version="4.35")
    assert fit.fits and fit.basis == "measured"
    assert fit.in_use.low <= in_use * MEGABYTE <= fit.in_use.high <= MOST_ABOVE * fit.in_use.median * 1.0001
    assert fit.alive.low <= allocated * MEGABYTE <= fit.alive.high


def test_a_cache_that_is_replaced_layer_by_layer_takes_one_copy_less():
    asked = {"sequences": 4, "prompt": 64, "answer": 64, "room_bytes": 1e12}
    cache = 4 * 128 * 2 * 32 * 4096 * 2
    twice, once = (peaks(LLAMA, FP16, **asked, held_twice=held) for held in (True, False))
    assert twice.alive - once.alive == pytest.approx(cache, rel=0.1)
    assert twice.reserved >= once.reserved > once.alive


def test_a_present_release_of_transformers_holds_weights_and_cache_once():
    """Qwen3 came with transformers 4.51. Alive over weights and the whole cache: what a long prompt's blocks take."""
    model, kept = language_model("Qwen/Qwen3-0.6B"), Quantization("bf16", "bf16", "bf16")
    asked = {"sequences": 1, "prompt": 8192, "answer": 128}
    versions = ("", "4.42", "nightly", "4.41.2")
    found = {v: in_eager_pytorch(model, device("h100"), 1, kept, **asked, version=v) for v in versions}
    present, old = found[""], found["4.41.2"]
    assert present == found["4.42"] == found["nightly"] and present.basis == "documented settings"
    certain = present.weights_bytes + present.cache_bytes
    assert certain < present.alive.median < 1.15 * certain
    assert old.alive.median > present.alive.median + 2 * 8192 * model.vocabulary  # every position's logits, in 16 bits
    assert old.alive.low == present.alive.low


def test_where_no_version_is_stated_the_upper_bound_holds_older_releases_that_read_the_model():
    asked = {"sequences": 4, "prompt": 256, "answer": 64}
    found = {v: in_eager_pytorch(LLAMA, device("a100-80gb"), 1, FP16, **asked, version=v) for v in ("", "4.45", "4.35")}
    for name in ("alive", "reserved", "in_use", "needed"):
        unstated, present, old = (getattr(found[v], name) for v in ("", "4.45", "4.35"))
        assert (unstated.median, unstated.low, unstated.high) == (present.median, present.low, old.high), name


def test_a_version_of_transformers_is_asked_for_by_name():
    asked = {"runtime": "transformers", "input_length": 1024, "output_length": 32, "precision": "fp16"}
    old, new = (
        perfpass.predict_offline("llama-2-7b", "a100-80gb", runtime_version=v, **asked) for v in ("4.38", "4.45")
    )
    assert old.memory.in_use.median > new.memory.in_use.median and old.latency_s == new.latency_s


def test_generation_that_finds_no_room_does_not_fit_and_more_devices_help():
    board, asked = device("rtx-4090"), {"sequences": 1, "prompt": 128, "answer": 16}
    large = language_model("llama-2-13b")
    one, two = (in_eager_pytorch(large, board, n, FP16, **asked) for n in (1, 2))
    assert not one.fits and one.answer == "no" and one.most_requests == 0 and one.reason
    assert two.fits and two.in_use.median < 0.6 * one.in_use.median


@pytest.mark.parametrize("batch", [1, 4, 64])
def test_no_generation_in_transformers_holds_less_than_its_weights(batch):
    fit = in_eager_pytorch(LLAMA, device("a100-80gb"), 1, FP16, sequences=batch, prompt=256, answer=1)
    assert min(fit.alive.low, fit.reserved.low, fit.in_use.low, fit.needed.low) >= fit.weights_bytes
    assert min(fit.in_use.low, fit.needed.low) >= fit.weights_bytes + 2**28


def test_more_sequences_tokens_and_bits_never_take_less():
    def needed(kind: str = "fp16", **more: int) -> float:
        asked = {"sequences": 2, "prompt": 64, "answer": 8} | more
        return in_eager_pytorch(LLAMA, device("h200"), 1, Quantization(kind, kind, "fp16"), **asked).needed.median

    assert needed() < needed(sequences=8) < needed(sequences=8, prompt=256)
    assert needed(answer=8) < needed(answer=128)
    assert needed("int4_wo") < needed("int8_wo") < needed()


@pytest.mark.parametrize("runtime", ["vllm", "sglang", "trtllm"])
def test_servers_fill_the_device_and_say_what_they_need(runtime):
    h100 = device("h100")
    small, large = (
        perfpass.predict_llm(
            "llama-3.1-8b", h100, input_length=512, output_length=128, concurrency=c, runtime=runtime
        ).memory
        for c in (1, 64)
    )
    for found in (small, large):
        assert found.basis == "documented settings" and found.answer == "yes"
        assert 0.83 * h100.memory_bytes < found.in_use.median <= found.in_use.high <= h100.memory_bytes
        assert found.alive.median < found.reserved.median < found.in_use.median
        assert found.needed.median == pytest.approx(found.total_bytes, rel=1e-6)
        assert found.needed.high <= MOST_ABOVE * found.needed.median * 1.0001
    assert large.needed.median > small.needed.median and large.least.median == small.least.median
    assert large.in_use.median == pytest.approx(small.in_use.median)


def test_llama_cpp_needs_what_it_uses():
    found = layers_alone(LLAMA, device("rtx-4090"), 1, Quantization("q4_k_m", "q4_k_m", "fp16"), context=4096)
    assert found.in_use == found.needed and found.alive == found.reserved
    assert found.in_use.median - found.alive.median == pytest.approx(found.runtime_bytes, abs=2)
    assert found.in_use.high / found.in_use.median == pytest.approx(1.1)


def test_what_may_not_fit_is_said_between_yes_and_no():
    answers = []
    for length in (512, 16384, 49152, 65536, 98304):
        load = {"input_length": length, "output_length": 128, "concurrency": 1}
        found = perfpass.predict_llm("llama-3.1-8b", "rtx-4090", precision="bf16", tp=1, **load)
        verdict, fit = found.memory_verdict, found.memory
        assert verdict.fits == fit.answer and (verdict.fits == "yes") == (not verdict.headline)
        assert (verdict.headline in str(found)) or not verdict.headline
        assert ("hypothetical" in str(found)) == (verdict.fits == "no")
        if verdict.fits == "perhaps":
            assert fit.fits and verdict.needed_bytes <= verdict.needed_high_bytes > verdict.available_bytes
        answers.append(verdict.fits)
    order = ["yes", "perhaps", "no"]
    assert [order.index(a) for a in answers] == sorted(order.index(a) for a in answers)
    assert set(answers) == set(order)


def test_figures_stand_in_json_and_table():
    batch = batch_of("llama-2-7b", "a100-80gb", runtime="transformers", batch=2, input_tokens=64, output_tokens=8)
    for fit in (memory(batch), memory(dataclasses.replace(batch, runtime="vllm"))):
        content = json.loads(json.dumps(fit.to_dict()))
        for name in FIGURES:
            assert (
                set(content[name]) == {"median", "low", "high", "unit", "coverage"} and content[name]["unit"] == "byte"
            )
            assert content[name]["low"] <= content[name]["median"] <= content[name]["high"]
    text = str(perfpass.predict_llm("llama-3.1-8b", "h100", input_length=512, output_length=128, concurrency=1))
    for label in ("alive", "reserved", "in use", "needed"):
        assert f"\n    {label} " in text


@pytest.mark.parametrize("runtime", ["vllm", "sglang", "trtllm", "tgis"])
def test_no_figure_of_a_server_falls_as_prompts_answers_or_load_grow(runtime):
    model = language_model("llama-3.1-8b")
    for board in ("l4", "a100-40gb", "h100"):
        for grown in (
            [Serving(length, 128, 4, runtime=runtime) for length in (128, 1024, 8192, 32768)],
            [Serving(512, length, 4, runtime=runtime) for length in (16, 256, 4096, 32768)],
            [Serving(512, 128, load, runtime=runtime) for load in (1, 8, 64, 512)],
        ):
            found = [served(model, device(board), serving) for serving in grown]
            for name in FIGURES:
                for bound in ("low", "median", "high"):
                    values = [getattr(getattr(fit, name), bound) for fit in found]
                    grows = all(b >= a * (1 - 1e-9) for a, b in itertools.pairwise(values))
                    assert grows, (board, name, bound, values)


def test_ollama_takes_what_a_tag_says_and_what_was_published_packed():
    """Its library's gpt-oss:20b has 14 GB: experts in mxfp4, all else in 16 bits."""
    for tag, precision in (("llama3.2:3b", "q4_k_m"), ("llama3:70b-instruct-q4_0", "q4_0"), ("gpt-oss:20b", "mxfp4")):
        asked = batch_of(tag, "apple-m3-ultra", runtime="ollama", input_tokens=64, output_tokens=8)
        assert asked.precision == precision, tag


def test_a_file_of_gpt_oss_has_the_bytes_that_llama_bench_prints():
    """MXFP4_MOE, which ggml-org publishes and nobody has to ask for: all but the experts in 8 bits."""
    for size, gib in (("20b", 11.27), ("120b", 59.02)):
        asked = {"runtime": "llama.cpp", "input_tokens": 128, "output_tokens": 8}
        found = memory(batch_of(f"openai/gpt-oss-{size}", "apple-m3-ultra", **asked))
        assert found.weights_bytes / 2**30 == pytest.approx(gib, rel=0.01)
    board = {"device": "rtx-3060-12gb", "runtime": "llama.cpp", "context": 4096}
    file, sixteen = (perfpass.fit("openai/gpt-oss-20b", **board, precision=p).probability for p in (None, "mxfp4"))
    assert file > 0.5 > sixteen


@pytest.mark.parametrize(("board", "logged"), [("h100", 0.83), ("h200", 0.903)])
def test_sglang_fills_by_itself_what_its_guess_of_activations_and_graphs_leaves(board, logged):
    # mem_fraction_static in the server_args that SGLang logged in 2026 for a small model on one board.
    assert default_share("sglang", device(board), 1) == pytest.approx(logged, abs=0.0011)
    assert default_share("sglang", device(board), 1, "0.4.9") == 0.88


def test_vllm_fills_more_since_it_counts_its_graphs():
    h100 = device("h100")
    assert [default_share("vllm", h100, 1, v) for v in ("0.20.2", "0.21.0", "")] == [0.9, 0.92, 0.92]


@pytest.mark.parametrize("version", ["0.10", "0.20.2", "0.21.0", ""])
def test_a_batch_without_a_server_has_the_room_of_its_release(version):
    asked = {"input_length": 900, "output_length": 124, "concurrency": 4, "runtime": "vllm"}
    asked["runtime_version"] = version
    batch = perfpass.predict_offline("llama-3.1-8b", "h100", **asked).memory
    served = perfpass.predict_llm("llama-3.1-8b", "h100", **asked).memory
    assert (batch.limit_bytes, batch.most_requests) == (served.limit_bytes, served.most_requests)


@pytest.mark.parametrize(("name", "kind"), [("gpt-oss-120b", None), ("llama-3.1-8b", "q8_0"), ("llama-3.1-8b", "fp16")])
def test_llama_cpp_holds_no_less_than_weights_that_are_known_to_the_byte(name, kind):
    batch = perfpass.predict_offline(name, "rtx-pro-6000-server", runtime="llama.cpp", precision=kind).memory
    fitted = perfpass.fit(name, "rtx-pro-6000-server", runtime="llama.cpp", precision=kind).answers[0]
    assert batch.alive.low >= batch.weights_bytes
    assert fitted.needed.low >= fitted.parts["weights"]
    mixed = perfpass.predict_offline(name, "rtx-pro-6000-server", runtime="llama.cpp", precision="q4_k_m").memory
    if name != "gpt-oss-120b":
        assert mixed.alive.low < mixed.weights_bytes  # K types are mixtures that differ by the file


def test_the_head_that_llama_cpp_leaves_to_the_host_is_not_held_for_certain():
    """With the first layer the head is left there: of 80 layers 79 remain, and none of the table of 1.1 GB."""
    model, board, kind = language_model("llama-3.1-70b"), device("h200"), Quantization("q8_0", "q8_0", "fp16")
    for hosted in (0, 1, 40):
        found = layers_alone(model, board, 1, kind, context=4096, host_layers=hosted)
        held = weight_bytes(model, Parallelism(), kind, tables=int(not hosted), towers=False)
        assert found.alive.low == pytest.approx(held * (1 - hosted / 80))


@pytest.mark.parametrize("precision", ["awq", "gptq", "nf4"])
def test_llama_cpp_reads_no_files_of_other_methods(precision):
    for asked in ({"model": "qwen2.5-7b", "precision": precision}, {"model": "Qwen/Qwen2.5-7B-Instruct-AWQ"}):
        for door in (perfpass.predict_offline, perfpass.fit):
            how = dict(asked)
            with pytest.raises(ArgumentError, match=r"llama\.cpp reads GGUF files.*q4_k_m"):
                door(how.pop("model"), "rtx-4090", runtime="llama.cpp", **how)


def test_a_methods_own_bits_are_said():
    found = perfpass.predict_llm("llama-3.1-8b", "a100", precision="awq")
    assert "precision awq: 4.16 bits a weight as it packs them, at the pace of int4" in found.support.reasons
