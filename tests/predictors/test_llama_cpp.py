"""llama.cpp where it was not measured: physics, order, believable figures, and what was measured stays."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise

import pytest

import perfpass
from perfpass.errors import ArtefactError
from perfpass.llm.configuration import language_model
from perfpass.predictors.generation.llama_cpp import SECTION, LlamaCpp, backend_of, prompt, token
from perfpass.predictors.generation.predictor import (
    GenerationPredictor,
    assumed_batch,
    batch_of,
    offline,
    predict_offline,
)
from perfpass.predictors.learned import artefacts

LLAMA = language_model("llama-3.1-8b")


def ask(model=LLAMA, device="rtx-4090", precision="q4_k_m", inputs=1024, outputs=128, **more):
    options = {"batch": 512, "input_tokens": inputs, "output_tokens": outputs, **more}
    return predict_offline(model, device, runtime="llama.cpp", precision=precision, **options)


@pytest.mark.parametrize(
    ("device", "least_ms", "most_ms"), [("rtx-4090", 5.5, 11), ("m2", 50, 85), ("ryzen-ai-max-plus-395", 22, 32)]
)
def test_a_token_takes_what_the_bandwidth_says(device, least_ms, most_ms):
    found = ask(device=device)
    assert least_ms < found.token_s.median * 1e3 < most_ms
    assert found.latency_s.median == pytest.approx(found.prompt_s.median + 128 * found.token_s.median)
    assert found.latency_s.high / found.latency_s.low < 12
    json.dumps(found.to_dict(), allow_nan=False)


def test_an_unmeasured_backend_is_answered_and_says_so():
    found = ask(device="m2")
    assert found.support.level == "outside"
    assert any("Metal" in reason for reason in found.support.reasons)
    known = ask(device="ryzen-ai-max-plus-395")
    assert known.token_s.high / known.token_s.low < found.token_s.high / found.token_s.low


@pytest.mark.parametrize("device", ["rtx-4090", "m2", "mi210", "t4", "arc-a770"])
@pytest.mark.parametrize("precision", ["q4_k_m", "q8_0"])
def test_nothing_is_faster_than_the_device(device, precision):
    model = language_model("llama-3.2-1b")
    found = ask(model, device, precision)
    board = perfpass.device(device)
    first = prompt(model, board, precision, 1024, 512).least()
    each = token(model, board, precision, 1024 + 64).least()
    assert first <= found.prompt_s.low <= found.prompt_s.median
    assert each <= found.token_s.low <= found.token_s.median


def _rises(found):
    times = [(f.latency_s.low, f.latency_s.median, f.latency_s.high) for f in found]
    pairs = [both for one, two in pairwise(times) for both in zip(one, two, strict=True)]
    return all(a <= b * (1 + 1e-9) for a, b in pairs)


@pytest.mark.parametrize("device", ["rtx-4090", "m2", "ryzen-ai-max-plus-395"])
@pytest.mark.parametrize("model", ["llama-3.2-1b", "llama-2-7b", "qwen3-30b-a3b"])
def test_more_work_never_takes_less(device, model):
    read = language_model(model)
    predictor = LlamaCpp.load()  # alone: whether it fits is asked elsewhere

    def at(precision="q4_k_m", inputs=700, outputs=100):
        return predictor.predict(
            batch_of(
                read, device, runtime="llama.cpp", batch=512, input_tokens=inputs, output_tokens=outputs,
                precision=precision,
            )
        )  # fmt: skip

    assert _rises([at(inputs=n) for n in (1, 2, 17, 511, 512, 513, 1023, 1024, 1025, 9000, 70_000, 200_000)])
    assert _rises([at(outputs=n) for n in (1, 2, 64, 100, 4096, 70_000, 200_000)])
    assert _rises([at(p) for p in ("iq2_xxs", "q3_k_m", "q4_0", "q4_k_m", "q6_k", "q8_0")])
    medians = [at(p).latency_s.median for p in ("q8_0", "fp16", "fp32")]
    assert medians == sorted(medians)


def test_larger_models_take_longer_and_more_bandwidth_never_does():
    sizes = [ask(name, "rtx-4090", "q4_0") for name in ("llama-3.2-1b", "llama-2-7b", "llama-2-13b")]
    assert _rises(sizes)
    board = perfpass.device("rtx-4090")
    slower = dataclasses.replace(board, id="slower", memory_bandwidth_bytes_s=board.memory_bandwidth_bytes_s / 2)
    assert _rises([ask(device=board), ask(device=slower)])


def test_what_was_measured_in_16_bits_is_learned_as_before():
    def at(device, runtime="llama.cpp"):
        return batch_of(
            "llama-2-7b", device, runtime=runtime, batch=64, input_tokens=512, output_tokens=512, precision="fp16"
        )

    for device in ("a100-sxm4-40gb", "h100-sxm5-80gb", "mi300x", "mi250-module", "max-1550"):
        batch = at(device)
        assert offline(batch).latency_s == GenerationPredictor.load().predict(batch).latency_s
        assert LlamaCpp.load().answers(dataclasses.replace(batch, precision="q4_0"))
    assert LlamaCpp.load().answers(at("rtx-4090"))
    assert not LlamaCpp.load().answers(at("rtx-4090", "vllm"))


def test_a_prompt_passes_in_pieces_of_512_tokens_unless_told_otherwise():
    batch, assumed = assumed_batch(LLAMA, "rtx-4090", runtime="llama.cpp", precision="q4_k_m")
    assert batch.batch == assumed["concurrency"] == 512
    learned, _ = assumed_batch(LLAMA, "a100-sxm4-40gb", runtime="llama.cpp", precision="fp16")
    assert learned.batch == 64
    assert ask(batch=32).prompt_s.median > ask(batch=512).prompt_s.median


def test_a_stack_by_name_is_asked_for():
    board = perfpass.device("ryzen-ai-max-plus-395")
    assert backend_of(board) != backend_of(board, "Vulkan") == "Vulkan"
    assert ask(device=board, stack="Vulkan").token_s.median < ask(device=board).token_s.median


@pytest.mark.parametrize("section", [None, {}, {"rates": {"CUDA": {"weights": 2.0}}}])
def test_an_artefact_without_rates_is_refused(section, tmp_path):
    artefacts.write(tmp_path / "generation", {SECTION: section}, {})
    with pytest.raises(ArtefactError, match="perfpass train"):
        LlamaCpp(tmp_path / "generation")


def test_the_shipped_rates_are_those_of_the_records():
    from perfpass.training.generation import llama_cpp

    runs = [r for r in llama_cpp.load() if r.backend == "Vulkan"]
    found, shipped = llama_cpp.fit_rates(runs), LlamaCpp.load().rates["Vulkan"]
    assert found.weights == pytest.approx(shipped.weights, rel=1e-3)
    off = sorted(abs(r.seconds / r.parts.at(shipped) - 1) for r in runs if r.kind == "token")
    assert off[len(off) // 2] < 0.06
