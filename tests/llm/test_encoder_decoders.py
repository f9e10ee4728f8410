"""Encoder-decoders token by token: windows of sound, positions of either side, what a step passes, measured runs."""

from __future__ import annotations

import numpy as np
import pytest

import perfpass
from perfpass.errors import ArgumentError
from perfpass.llm import Parallelism, Quantization, assumed, language_model
from perfpass.llm.costs import Step, step_costs
from perfpass.llm.serving import beyond_positions

WHISPER = "openai/whisper-large-v3"


@pytest.mark.parametrize(
    ("name", "published"),
    [
        (WHISPER, 1_543_490_560),
        ("openai/whisper-tiny", 37_760_640),
        ("distil-whisper/distil-large-v3", 756_405_760),
    ],
)
def test_whisper_has_the_parameters_that_are_published(name: str, published: int) -> None:
    assert language_model(name).parameters == published


def test_a_window_of_sound_is_a_prompt_of_its_own_length() -> None:
    model = language_model(WHISPER)
    assert (model.window, model.max_positions) == (1500, 1948)
    assert assumed.lengths(model, None, None) == assumed.lengths(model, 1500, None) == (1500, 128)
    with pytest.raises(ArgumentError, match="windows of 1,500 positions, got an input length of 3,000: leave it out"):
        assumed.lengths(model, 3000, 100)
    assert "beyond the 1,948 positions" in beyond_positions(model, 1500, 449)
    assert not beyond_positions(model, 1500, 448)
    found = perfpass.predict_llm(WHISPER, "l4")
    assert found.serving.input_length == 1500
    assert any("one window of 30 s of sound" in reason for reason in found.support.reasons)


def test_memory_of_a_window_is_the_encoders_positions_and_what_is_written() -> None:
    held = perfpass.fit(WHISPER, "l4", runtime="transformers", context=1500 + 448).answers[0]
    row = 2 * 32 * 1280 * 2  # bytes of keys and values of a position, over the decoder's layers
    assert held.cache == {"keys and values": 448 * row, "keys and values across": 1500 * row}
    with pytest.raises(ArgumentError, match=r"holds no answer of openai/whisper-large-v3.* 1,501 to 1,948"):
        perfpass.fit(WHISPER, "l4", context=448)


def test_positions_of_bart_are_those_of_a_prompt_and_of_an_answer_each() -> None:
    model = language_model("facebook/bart-large")
    assert assumed.lengths(model, None, None) == (1024, 128)
    assert not beyond_positions(model, 1024, 1024)
    assert "a prompt or an answer of 1,025 tokens is beyond the 1,024 positions" in beyond_positions(model, 1025, 1)


def test_a_token_passes_no_encoder_and_three_blocks_of_a_decoder() -> None:
    model = language_model("openai/whisper-large-v3-turbo")  # 32 layers and a pair of convolutions, then 4
    assert model.passed_layers(decode=True) == 4 * 1.5
    assert model.passed_layers(decode=False) == 32 + 1 + 4 * 1.5
    assert model.scoring_heads(decode=True) == 4 * 20
    assert model.scoring_heads(decode=False) == 2 * 32 * 20
    plain = language_model("llama-3.1-8b")
    assert plain.passed_layers(decode=True) == plain.passed_layers(decode=False) == 32
    assert plain.scoring_heads(decode=True) == plain.scoring_heads(decode=False) == 32 * 32
    # What chooses the keys of sparse attention is as many kernels as the rest of a layer.
    assert language_model("deepseek-v3.2").passed_layers(decode=True) == 2 * 61
    assert language_model("deepseek-v3").passed_layers(decode=True) == 61


def test_an_encoder_works_as_its_matrices_say() -> None:
    """FLOPs of a window: every position through every matrix of the encoder, the decoder's share once."""
    model, one = language_model(WHISPER), Parallelism()
    costs = step_costs(model, one, Quantization(), Step.of_prefill(1.0, 1500.0))
    d, layers = 1280, 32
    encoder = 2 * 1500 * (layers * 12 * d * d + 3 * d * (d + 128))
    across = layers * (2 * 1500 * 2 * d * d + 2 * 2 * d * d)  # keys and values of all, query and output of one token
    decoder = 2 * layers * 12 * d * d
    counted = sum(np.ravel(costs.parts[name].flops)[0] for name in ("projections", "dense_mlp"))
    assert counted == pytest.approx(encoder + across + decoder, rel=1e-12)


# Whisper base in transformers' generate on a T4, as examples/whisper of huggingface/optimum-benchmark reports it:
# precision, requests at once, tokens written, seconds of the whole. Nothing was fitted on these.
MEASURED = [
    ("fp32", 1, 10, 0.0931),
    ("fp32", 1, 100, 0.718),
    ("fp32", 8, 10, 0.371),
    ("fp32", 8, 100, 1.050),
    ("fp16", 1, 10, 0.0979),
    ("fp16", 1, 100, 0.771),
    ("fp16", 8, 10, 0.221),
    ("fp16", 8, 100, 0.918),
]


def test_generation_of_whisper_is_near_what_was_measured() -> None:
    """45 % away where the encoder's layers waited for the host at every token, 19 % now."""
    off, held = [], 0
    for precision, batch, written, seconds in MEASURED:
        found = perfpass.predict_offline(
            "openai/whisper-base", "t4", runtime="transformers", precision=precision, concurrency=batch,
            output_length=written,
        ).latency_s  # fmt: skip
        off.append(abs(found.median / seconds - 1))
        held += found.low <= seconds <= found.high
    assert np.mean(off) < 0.25
    assert held == len(MEASURED)
