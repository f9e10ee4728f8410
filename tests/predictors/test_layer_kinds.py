"""Layers of a kind that nothing was learned from: they are named, and bounds allow for their kernels."""

import numpy as np
import pytest

import perfpass
from perfpass.errors import PerfPassError
from perfpass.interval import Interval
from perfpass.llm import language_model
from perfpass.predictors import layer_kinds
from perfpass.predictors.generation.engines import Engines
from perfpass.predictors.serving.predictor import ServingPredictor

HYBRIDS = {
    "LiquidAI/LFM2-1.2B": "short convolution",
    "tiiuae/Falcon-H1-0.5B-Base": "Mamba-2",
    "ibm-granite/granite-4.0-h-tiny": "Mamba-2",
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": "Kimi delta attention",
    "NX-AI/xLSTM-7b": "mLSTM",
    "ai21labs/Jamba-v0.1": "Mamba",
    "mistralai/Mamba-Codestral-7B-v0.1": "Mamba-2",
    "Zyphra/ZAYA1-8B": "compressed convolutional attention",
}


def test_kinds_that_were_learned_from_are_those_of_the_models_of_the_records():
    models = {*ServingPredictor.load().manifest["families"]}
    models |= {name for known in Engines.load().measured.values() for name in known["models"]}
    found = set()
    for name in models:
        try:
            layers = language_model(name).layers
        except PerfPassError:
            continue  # read from the arguments of a run (Megatron), all of them attention
        found |= {layer.recurrence.kind for _, layer in layers if layer.recurrence}
    assert found == layer_kinds.LEARNED_FROM


@pytest.mark.parametrize("name", sorted(HYBRIDS))
def test_a_hybrid_is_answered_and_what_is_not_known_of_it_is_named(name):
    found = perfpass.predict_llm(name, "h100", tp=None)
    model = language_model(name)
    assert any(f"{HYBRIDS[name]} layers" in reason for reason in found.support.reasons)
    assert found.support.level != "in range"
    # Every weight that a token meets is read once a step, and no kernel reads faster than the memory.
    matrices = model.active_parameters - model.embedding_extra
    floor_ms = 2e3 * matrices / (found.asked.serving.parallelism.tensor * 3.35e12)
    assert floor_ms < found.tpot_ms.low
    # Small ones wait for their kernels to start: by up to a tenth of a millisecond a layer.
    assert found.tpot_ms.median < max(8 * floor_ms, 0.1 * model.layer_count)


def test_bounds_are_wider_by_the_share_of_such_layers():
    plain = Interval(10.0, 8.0, 13.0, "ms")
    none, some, every = (
        layer_kinds.wider(plain, language_model(name))
        for name in ("qwen3.5-35b-a3b", "LiquidAI/LFM2-1.2B", "NX-AI/xLSTM-7b")
    )
    assert (none.low, none.high) == (8.0, 13.0)
    assert every.low < some.low < 8.0 and 13.0 < some.high < every.high
    assert np.log(every.high / 10) == pytest.approx(np.hypot(np.log(1.3), 0.5))


def test_a_batch_without_a_server_says_it_too():
    for runtime in ("vllm", "llama.cpp", "transformers"):
        found = perfpass.predict_offline("LiquidAI/LFM2-1.2B", "rtx-4090", runtime=runtime)
        assert any("short convolution layers (62%" in reason for reason in found.support.reasons), runtime
        assert found.latency_s.median * found.tokens_per_s.median == pytest.approx(1152)
        assert found.latency_s.high * found.tokens_per_s.low == pytest.approx(1152)
