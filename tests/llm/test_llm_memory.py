"""Memory of language models: caches by hand, paging, splits, and runs that are known to fit."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfpass
from perfpass.devices import device
from perfpass.errors import ArgumentError
from perfpass.llm import language_model
from perfpass.llm.costs import Parallelism, Quantization, weight_bytes
from perfpass.llm.in_use import SYSTEM_LOW_BYTES, filled_share
from perfpass.llm.memory import (
    likely_sequences,
    padding_bytes,
    plan,
    sequence_bytes,
    served,
    server_workspace_bytes,
    workspace_bytes,
)
from perfpass.llm.serving import Serving
from perfpass.predictors.engine.settings import engine_settings

BF16 = Quantization()


def test_grouped_queries_cache_their_key_value_heads_alone():
    model = language_model("llama-3.1-8b")  # 32 layers, 8 key-value heads of 128
    assert sequence_bytes(model, Parallelism(), BF16, 4096) == 4096 * 32 * 2 * 8 * 128 * 2


def test_blocks_are_handed_out_whole():
    model = language_model("llama-3.1-8b")
    one, sixteen, seventeen = (sequence_bytes(model, Parallelism(), BF16, n) for n in (1, 16, 17))
    assert one == sixteen == seventeen / 2


def test_heads_are_split_down_to_one_and_copied_beyond():
    model = language_model("llama-3.1-8b")
    whole = sequence_bytes(model, Parallelism(), BF16, 1024)
    assert sequence_bytes(model, Parallelism(tensor=8), BF16, 1024) == whole / 8
    assert sequence_bytes(model, Parallelism(tensor=32), BF16, 1024) == whole / 8
    assert sequence_bytes(model, Parallelism(pipeline=4), BF16, 1024) == whole / 4


def test_a_quantized_cache_takes_half():
    model = language_model("mistral-7b")
    half = sequence_bytes(model, Parallelism(), Quantization("fp8", "fp8", "fp8"), 2048)
    assert half == sequence_bytes(model, Parallelism(), BF16, 2048) / 2


def test_latents_are_small_and_copied_to_every_rank():
    model = language_model("deepseek-v3")  # 61 layers of 512 + 64
    each = sequence_bytes(model, Parallelism(), BF16, 4096)
    assert each == 4096 * 61 * 576 * 2
    assert sequence_bytes(model, Parallelism(tensor=8), BF16, 4096) == each


def test_keys_of_an_indexer_are_kept_in_8_bits_with_scales_whatever_the_cache():
    model = language_model("deepseek-v3.2")  # 61 layers; latents of 512 + 64, indexer keys of 128
    for kind, latents in (("bf16", 2 * 576), ("fp8", 512 + 4 * 4 + 2 * 64)):  # vLLM's fp8_ds_mla has 656 bytes
        held = sequence_bytes(model, Parallelism.of(8), replace(BF16, kv_cache=kind), 4096)
        assert held == pytest.approx(4096 * 61 * (latents + 128 + 4)), kind


def test_kernels_for_experts_in_mxfp4_round_their_widths_up():
    # GiB that vLLM 0.10 loaded on one H100 (vllm-project/vllm#23278); the file has 60.8
    model, mxfp4 = language_model("gpt-oss-120b"), Quantization("bf16", "mxfp4")
    stored = weight_bytes(model, Parallelism(), mxfp4)
    loaded = stored + padding_bytes(model, Parallelism(), mxfp4, device("h100"))
    assert stored / 2**30 < 61 and loaded / 2**30 == pytest.approx(65.97, rel=0.003)
    assert padding_bytes(model, Parallelism(), mxfp4, device("b200")) > loaded - stored  # both widths to 256
    assert padding_bytes(model, Parallelism(), BF16, device("h100")) == 0


# Peaks of activations in GiB that vLLM logged where its sampler is larger than a step: vllm-project/vllm#10511 (0.6.4,
# which sampled for 256 on every board), #13882 (0.7), DeepSeek-R1-0528-Qwen3-8B on four A10 (0.8.5) and Qwen3-8B-FP8 on
# an RTX 4090 (0.10.2), both from users' notes; of #23278 (0.10.1) what is beside weights and context. Since 0.17 none
# sorts: gemma-4-31B on a B300 (0.26) and Qwen3.8-27B, of Qwen3.5's shape, on a GB10 (0.27), both from users' notes.
SAMPLED = [
    ("llama-3-8b", "a100-sxm4-80gb", "0.6.4", 1.26),
    ("qwen2.5-7b", "rtx-4060", "0.7", 1.42),
    ("qwen3-8b", "a10", "0.8.5", 1.45),
    ("qwen3-8b", "rtx-4090", "0.10.2", 1.40),
    ("gpt-oss-120b", "h100", "0.10.1", 7.4),
    ("gemma-4-26b-a4b", "b300", "0.26", 3.9),
    ("qwen3.5-27b", "gb10", "", 3.78),
]


@pytest.mark.parametrize(("name", "board", "version", "logged_gib"), SAMPLED)
def test_a_servers_workspace_is_its_sampler_where_that_is_larger_than_a_step(name, board, version, logged_gib):
    usual, most = server_workspace_bytes(language_model(name), device(board), "vllm", 1e8, version)
    assert usual / 2**30 == pytest.approx(logged_gib, rel=0.09)
    assert most >= usual


def test_a_step_larger_than_the_sampler_is_the_workspace():
    model, board = language_model("gpt-oss-120b"), device("h100")
    assert server_workspace_bytes(model, board, "vllm", 1e10) == (1e10, 2e10)
    assert server_workspace_bytes(model, board, "sglang", 1e9) == (1e9, 2e9)
    told = {v: server_workspace_bytes(model, board, "vllm", 1e9, v) for v in ("", "0.16.0", "0.17.0", "0.21.0")}
    assert told[""] == told["0.17.0"] == told["0.21.0"]  # kernels that sort nothing (vllm-project/vllm#33538)
    assert told["0.16.0"][0] / told[""][0] == 38 / 16 and told[""][1] < told["0.16.0"][1]


def test_an_indexers_workspace_is_as_long_as_the_longest_context():
    # vLLM 0.26 logs 6.31 GiB of activations for GLM-5.2 in nvfp4 on four B200, with its 1,048,576 positions.
    model, board = language_model("glm-5"), device("b200")
    short, whole = (server_workspace_bytes(model, board, "vllm", 2e9, "0.26", context=n) for n in (8192, 1 << 20))
    assert whole[0] - short[0] == 40 * ((1 << 20) - 8192) * (128 + 4)
    assert 0.83 < 6.31 / (whole[0] / 2**30) < 1 < whole[1] / whole[0]
    assert server_workspace_bytes(model, board, "sglang", 2e9, context=1 << 20) == (2e9, 4e9)


def test_vllms_first_engine_samples_for_as_many_requests_as_it_runs():
    model, board = language_model("llama-3.1-8b"), device("h100")
    first, present = (server_workspace_bytes(model, board, "vllm", 1e8, version)[0] for version in ("0.7.3", "0.8.0"))
    runs = [engine_settings("vllm", board.memory_bytes, version=v).max_sequences for v in ("0.7.3", "0.8.0")]
    assert first / present == runs[0] / runs[1] == 256 / 1024


def test_where_less_than_is_usual_would_have_to_be_taken_the_reason_says_so():
    less, enough = (
        perfpass.predict_llm("llama-3.1-70b", "h100", tp=2, runtime_version=v, input_length=n, output_length=128).memory
        for v, n in (("0.10", 1024), ("", 12000))
    )
    for fit, words in ((less, "less than is usual"), (enough, "no more than usual")):
        assert fit.answer == "perhaps" and fit.reason.endswith(words)
        assert (fit.needed.median > fit.limit_bytes) == (fit is less)


def test_two_boards_that_run_a_model_by_default_are_what_is_assumed():
    for board in ("h100", "a100-80gb"):  # Llama-3.1-70B in 16 bits
        assert perfpass.predict_llm("llama-3.1-70b", board).serving.gpus == 2


def test_what_a_server_needs_beside_weights_and_cache_is_what_vllm_logs():
    # GiB of 0.9 of an H100 (71.3) beside weights and cache: vllm-project/vllm#21348 (Qwen3-235B in fp8 on four, 0.9 or
    # 0.10) and vLLM 0.10.2's startup log of Qwen3-Next on four, 4.71 of activations and 1.84 not of PyTorch.
    for name, precise, logged in (
        ("qwen3-235b-a22b", Quantization("fp8_block", "fp8_block"), 71.3 - 55.12 - 8.11),
        ("qwen3-next-80b-a3b-instruct", BF16, 4.71 + 1.84),
    ):
        serving = Serving(8192, 1, 1, runtime_version="0.10", parallelism=Parallelism.of(4), quantization=precise)
        found = served(language_model(name), device("h100"), serving)
        beside = (found.activation_bytes + found.runtime_bytes) / 2**30
        assert beside == pytest.approx(logged, rel=0.2), name


def test_a_window_keeps_its_own_tokens():
    content = {
        "model_type": "mistral",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 100,
        "sliding_window": 256,
        "max_position_embeddings": 4096,
    }
    model = language_model(content)
    per_token = 2 * 2 * 2 * 16 * 2
    assert sequence_bytes(model, Parallelism(), BF16, 200) == 208 * per_token
    assert sequence_bytes(model, Parallelism(), BF16, 4000) == (256 + 16) * per_token


def test_the_careful_count_never_holds_more():
    for name, board, tensor in (("llama-3.1-8b", "l40s", 1), ("llama-2-13b", "a100-sxm4-80gb", 2)):
        found = plan(language_model(name), device(board), Parallelism(tensor=tensor), BF16, context=4096)
        assert 1 <= found.safe_sequences <= found.most_sequences
        room = found.usable_bytes - found.weights_bytes - found.workspace_bytes - found.runtime_bytes
        assert found.most_sequences == math.floor(room / found.cache_per_sequence_bytes)


def test_what_does_not_fit_says_so():
    found = plan(language_model("llama-2-13b"), device("l4"), Parallelism(), BF16, context=4096)
    assert not found.fits and not found.surely_fits and found.most_sequences == 0


def test_of_a_memory_that_the_system_shares_its_part_is_no_room_for_sequences():
    model, chip = language_model("llama-3.1-8b"), device("jetson-agx-orin-32gb")
    serving = Serving(1024, 128, 1.0, "vllm", quantization=BF16)
    alone = replace(chip, unified_memory=False)
    shared, own = (float(likely_sequences(model, one, serving, 1152, 1152)) for one in (chip, alone))
    assert own - shared == pytest.approx(SYSTEM_LOW_BYTES / sequence_bytes(model, Parallelism(), BF16, 1152))


def test_who_runs_at_once_follows_from_what_an_engine_fills_and_reserves():
    model, board, split = language_model("qwen3-32b"), device("h100-sxm5-80gb"), Parallelism(tensor=2)

    def held(runtime, answer):
        serving = Serving(4096, answer, 128.0, runtime, parallelism=split, quantization=BF16)
        return float(likely_sequences(model, board, serving, 4096 + answer / 2, 4096 + answer))

    # vLLM 0.12 ran 59 of 64 such requests at once on two H100, and 63 of 128.
    assert 64 < held("vllm", 1024) < 80
    each = sequence_bytes(model, split, BF16, 4096 + 512)
    weights = weight_bytes(model, split, BF16)
    assert held("sglang", 1024) == pytest.approx((0.87 * board.memory_bytes - weights) / each, rel=0.01)
    # TensorRT-LLM keeps room for whole answers, the others for what is there.
    assert held("vllm", 1024) / held("vllm", 4096) < held("trtllm", 1024) / held("trtllm", 4096)


def test_a_vllm_that_fills_more_by_its_release_runs_more_at_once():
    model, board = language_model("qwen3-32b"), device("h100-sxm5-80gb")

    def bytes_held(version):
        serving = Serving(4096, 1024, 128.0, "vllm", version, parallelism=Parallelism(tensor=2), quantization=BF16)
        each = sequence_bytes(model, serving.parallelism, BF16, 4608)
        return each * float(likely_sequences(model, board, serving, 4608, 5120))

    # gpu_memory_utilization is 0.9 before 0.21 and 0.92 since.
    assert bytes_held("0.12.0") == bytes_held("0.20.2") < bytes_held("0.21.0") == bytes_held("")
    assert bytes_held("") - bytes_held("0.12.0") == pytest.approx(0.02 * board.usable_bytes, rel=0.01)


def test_where_weights_fill_what_an_engine_takes_by_default_it_was_set_by_hand():
    model, board = language_model("deepseek-v3"), device("b200-sxm-180gb")
    fp8 = Quantization("fp8", "fp8", "fp8")
    serving = Serving(8192, 1024, 32.0, "sglang", parallelism=Parallelism.of(4), quantization=fp8)
    assert weight_bytes(model, serving.parallelism, fp8) > filled_share("sglang", 4) * board.memory_bytes
    assert float(likely_sequences(model, board, serving, 8704, 9216)) > 32  # as InferenceX ran it


def test_workspace_grows_with_the_chunk_and_shrinks_with_the_split():
    model = language_model("llama-3.1-8b")
    whole = workspace_bytes(model, Parallelism(), 8192)
    assert whole == pytest.approx(2 * workspace_bytes(model, Parallelism(), 4096), rel=0.01)
    assert workspace_bytes(model, Parallelism(tensor=4), 8192) < whole


def test_arguments_out_of_range_are_refused():
    model, board = language_model("llama-3.1-8b"), device("h100-sxm5-80gb")
    for options in ({"context": 0}, {"context": 1, "utilization": 1.5}, {"context": 1, "chunk_tokens": 0}):
        with pytest.raises(ArgumentError):
            plan(model, board, Parallelism(), BF16, **options)


def test_serving_runs_that_were_measured_fit():
    from perfpass.training.memory.serving import notes

    for note in notes():
        assert "the count refuses 0, with default settings 0, " in note


@given(st.sampled_from(("vllm", "sglang", "trtllm")), st.floats(60e9, 200e9), st.floats(1.0, 1.2))
def test_more_memory_never_holds_fewer_requests(runtime, memory_bytes, more):
    model, board = language_model("llama-3.1-70b"), device("a100-sxm4-80gb")
    serving = Serving(1024, 256, 8.0, runtime, parallelism=Parallelism.of(2), quantization=BF16)
    sizes = (int(memory_bytes), int(memory_bytes * more))
    boards = (replace(board, memory_bytes=size) for size in sizes)
    fewer, rest = (float(likely_sequences(model, one, serving, 1152, 1280)) for one in boards)
    assert fewer <= rest
