"""A language model's forward pass keeps its cache to the end, and its logits in fp32 where its releases cast them."""

from __future__ import annotations

from typing import Any

import pytest

import perfpass
from perfpass.graph import kept_outputs, liveness
from perfpass.importers import torchvision_schemas
from perfpass.search import Scorer

torch = pytest.importorskip("torch")
torchvision_schemas.define()
transformers = pytest.importorskip("transformers")

LAYERS, HEADS, KV_HEADS, WIDTH, VOCABULARY, BATCH, LENGTH = 3, 4, 2, 64, 512, 2, 32
DECODER = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": WIDTH,
    "intermediate_size": 128,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": VOCABULARY,
}
CACHE_ELEMENTS = 2 * LAYERS * BATCH * LENGTH * WIDTH * KV_HEADS // HEADS
LOGITS = BATCH * LENGTH * VOCABULARY


def _module(**more: Any) -> Any:
    settings = {k: v for k, v in (DECODER | more).items() if k not in ("model_type", "architectures")}
    with torch.device("meta"):
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))


def _graph(module: Any) -> perfpass.graph.OpGraph:
    return perfpass.load(module, batch=BATCH, input_shape={"input_ids": ((LENGTH,), "int64")})


def test_cache_lives_to_the_end_of_the_forward_pass() -> None:
    with_cache, without = _graph(_module()), _graph(_module(use_cache=False))
    found = [kept_outputs.cache_bytes(g, liveness.plan(g)) for g in (with_cache, without)]
    assert found == [4 * CACHE_ELEMENTS, 0]
    assert len(with_cache.graph_outputs) == 1 + 2 * LAYERS
    last = [int(liveness.plan(g).live_bytes[-1]) for g in (with_cache, without)]
    assert last[0] - last[1] == 4 * CACHE_ELEMENTS


def test_grouped_heads_are_kept_as_few_and_layers_add_up() -> None:
    def cache(**more: Any) -> int:
        graph = _graph(_module(**more))
        return kept_outputs.cache_bytes(graph, liveness.plan(graph, "float16"))

    assert cache() == 2 * CACHE_ELEMENTS
    assert cache(num_key_value_heads=HEADS) == 2 * cache()
    assert cache(num_hidden_layers=2 * LAYERS) == 2 * cache()


def test_decoding_does_not_count_the_given_cache_twice() -> None:
    from perfpass.importers.huggingface import trace_config

    graph = trace_config(DECODER, batch=BATCH, sequence_length=LENGTH, mode="decode")
    assert kept_outputs.cache_bytes(graph, liveness.plan(graph)) == 0
    assert liveness.plan(graph).input_bytes >= 4 * CACHE_ELEMENTS


def test_encoder_decoders_keep_both_caches() -> None:
    config = transformers.T5Config(
        d_model=WIDTH, d_kv=16, d_ff=64, num_layers=2, num_heads=HEADS, vocab_size=VOCABULARY, decoder_start_token_id=0
    )
    with torch.device("meta"):
        module = transformers.T5ForConditionalGeneration(config)
    ids = ((LENGTH,), "int64")
    graph = perfpass.load(module, batch=BATCH, input_shape={"input_ids": ids, "decoder_input_ids": ids})
    both = 2 * 2 * 2 * BATCH * LENGTH * HEADS * 16  # keys and values of two layers, own and of the encoder
    assert kept_outputs.cache_bytes(graph, liveness.plan(graph)) == 4 * both


def test_logits_are_alive_in_both_widths_where_they_are_cast() -> None:
    graph = _graph(_module())
    assert kept_outputs.float_logits_bytes(graph, "float32") == 0
    for kind in ("float16", "bfloat16"):
        assert kept_outputs.float_logits_bytes(graph, kind) == 4 * LOGITS
        plan = liveness.plan(graph, kind)
        kept = kept_outputs.with_float_logits(graph, plan, kind)
        assert kept.peak_activation_bytes == plan.live_bytes[-1] + 4 * LOGITS
        assert sum(kept.peak_bytes) + 4 * LOGITS == kept.peak_activation_bytes


def test_models_that_never_cast_their_logits_keep_one_copy() -> None:
    config = transformers.GPT2Config(n_layer=1, n_embd=WIDTH, n_head=HEADS, vocab_size=VOCABULARY, n_positions=LENGTH)
    with torch.device("meta"):
        graph = _graph(transformers.GPT2LMHeadModel(config))
    assert kept_outputs.float_logits_bytes(graph, "float16") == 0
    assert kept_outputs.cache_bytes(graph, liveness.plan(graph)) > 0


def test_reserved_memory_holds_the_copy() -> None:
    graph = _graph(_module(vocab_size=65_536))
    reserved = kept_outputs.reserved_with_float_logits(graph, "float16", 1)
    plan = kept_outputs.with_float_logits(graph, liveness.plan(graph, "float16"), "float16")
    assert plan.weight_bytes + plan.peak_activation_bytes <= reserved
    assert reserved < 1.5 * (plan.weight_bytes + plan.peak_activation_bytes)


def test_prediction_names_the_cache_and_search_agrees() -> None:
    module, shape = _module(), {"input_ids": ((LENGTH,), "int64")}
    found = perfpass.predict(module, "a100-80gb", batch=BATCH, precision="fp16", input_shape=shape)
    parts = found.breakdown["memory_bytes"]
    assert parts["cache"] == 2 * CACHE_ELEMENTS
    assert sum(parts.values()) == pytest.approx(found.peak_memory_bytes.median, rel=1e-9)
    scores = Scorer("a100-80gb", precision="fp16").score([module], batch=BATCH, input_shape=shape)
    assert scores.peak_memory_bytes.median[0] == pytest.approx(found.peak_memory_bytes.median, rel=1e-12)


def test_networks_without_a_cache_have_no_such_part() -> None:
    found = perfpass.predict("torchvision:resnet18", "a100-80gb", batch=1)
    assert "cache" not in found.breakdown["memory_bytes"]
