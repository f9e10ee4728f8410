"""Bytes of caches are those that transformers allocates, family by family, and llama.cpp's by its own arithmetic."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from perfpass.errors import ArgumentError
from perfpass.llm import cache, language_model

SEQUENCES, TOKENS, WRITTEN = 2, 40, 7
_BASE = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
}
_MLA = {
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
    "kv_lora_rank": 24,
    "q_lora_rank": 20,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "num_key_value_heads": 4,
}
_LINEAR = {
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
    "head_dim": 16,
}
_MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 2}
_MIXED = ["linear_attention", "full_attention", "linear_attention", "full_attention"]
_RANKS = ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "kv_lora_rank", "q_lora_rank")
_GPT = {"n_embd": 64, "n_layer": 4, "n_head": 4}
_SIDES = {
    "d_model": 64,
    "encoder_layers": 3,
    "decoder_layers": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "decoder_start_token_id": 0,
}
_ALL_HEADS = {"num_key_value_heads": None}
FAMILIES: dict[str, dict[str, Any]] = {
    # Grouped queries, one key-value head, all heads.
    "llama": {},
    "qwen3": {"head_dim": 24},
    "gemma": {"head_dim": 16, "num_key_value_heads": 1},
    "phi3": {},
    "olmo2": {},
    "glm4": {"head_dim": 16},
    "gpt_bigcode": {**_GPT, "multi_query": True},
    "falcon": {"multi_query": True},
    "gpt2": _GPT,
    "gpt_neox": _ALL_HEADS,
    "bloom": {**_ALL_HEADS, "n_layer": 4, "n_head": 4},
    "opt": {**_ALL_HEADS, "ffn_dim": 96, "word_embed_proj_dim": 64},
    "mixtral": {"num_local_experts": 4},
    # Windows: of every layer, of some, and one that transformers keeps whole.
    "mistral": {"sliding_window": 16},
    "gemma2": {"head_dim": 16, "sliding_window": 16},
    "gemma3_text": {"head_dim": 16, "sliding_window": 16, "num_hidden_layers": 7},
    "gemma4_text": {
        "head_dim": 16,
        "global_head_dim": 32,
        "sliding_window": 16,
        "num_hidden_layers": 6,
        "num_kv_shared_layers": 0,
        "vocab_size_per_layer_input": 128,
        "hidden_size_per_layer_input": 8,
    },
    "cohere2": {"sliding_window": 16},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16, "head_dim": 16},
    "llama4_text": {"num_local_experts": 2, "attention_chunk_size": 16, "intermediate_size_mlp": 96, "head_dim": 16},
    "gpt_neo": {
        **_ALL_HEADS,
        "num_layers": 4,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 2]],
        "window_size": 16,
    },
    # Latents, with an indexer and without.
    "deepseek_v2": _MLA,
    "deepseek_v3": _MLA,
    "deepseek_v32": {**_MLA, "index_topk": 8, "index_n_heads": 2, "index_head_dim": 16},
    # States, alone and beside attention.
    "mamba": {"state_size": 8},
    "rwkv": {"context_length": 256, "attention_hidden_size": 64},
    "qwen3_next": {
        **_LINEAR,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
    },
    "qwen3_5_text": _LINEAR,
    "nemotron_h": {
        "layers_block_type": ["linear_attention", "full_attention", "mlp", "linear_attention"],
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "ssm_state_size": 8,
        "n_groups": 2,
        "conv_kernel": 4,
        "head_dim": 16,
    },
    # Beside attention in the same layer.
    "falcon_h1": {"mamba_d_ssm": 64, **_MAMBA2},
    "zaya": {"num_experts": 4, "moe_intermediate_size": 32, "head_dim": 16, "router_hidden_size": 8},
    # Among layers of attention.
    "granitemoehybrid": {**_MAMBA2, "mamba_d_head": 16, "layer_types": _MIXED, "num_local_experts": 4},
    "bamba": {**_MAMBA2, "mamba_d_head": 16, "attn_layer_indices": [1, 3]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 4},
    "lfm2": {"layer_types": ["conv", "full_attention", "conv", "conv"]},
    "lfm2_moe": {
        "layer_types": ["conv", "full_attention", "conv", "conv"],
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "num_dense_layers": 1,
    },
    "kimi_linear": {
        **_MLA,
        "layer_types": _MIXED,
        "linear_head_dim": 8,
        "linear_num_heads": 4,
        "num_experts_per_token": 2,
        "num_experts": 4,
    },
    "minimax": {"layer_types": _MIXED, "num_local_experts": 4, "head_dim": 16},
    "olmo_hybrid": {**_LINEAR, "layer_types": _MIXED, "eos_token_id": 0},
    # States alone.
    "mamba2": {"num_heads": 8, "head_dim": 16, "state_size": 8, "n_groups": 2},
    "falcon_mamba": {"state_size": 8},
    "xlstm": {"num_heads": 2, "hidden_size": 128},
    # Further kinds of layers of attention.
    "gemma3n_text": {
        "head_dim": 16,
        "sliding_window": 16,
        "num_hidden_layers": 10,
        "num_kv_shared_layers": 5,
        "vocab_size_per_layer_input": 128,
        "hidden_size_per_layer_input": 8,
        "laurel_rank": 8,
        "activation_sparsity_pattern": [0.0] * 10,
    },
    "minicpm3": {name: _MLA[name] for name in _RANKS} | {"num_key_value_heads": 4},
    "mimo_v2_flash": {
        "sliding_window": 16,
        "head_dim": 24,
        "v_head_dim": 16,
        "num_key_value_heads": 1,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
    },
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 32, "moe_num_shared_experts": 1},
    "xglm": {"d_model": 64, "ffn_dim": 96, "num_layers": 4, "attention_heads": 4},
    "vaultgemma": {"head_dim": 16, "sliding_window": 16},
    # Attention across.
    "t5": {"d_model": 64, "d_kv": 16, "num_layers": 3, "num_decoder_layers": 4, "num_heads": 4, "d_ff": 96},
    "bart": _SIDES,
    "marian": _SIDES,
    # Across a window of sound, of as many positions as the prompts above have tokens.
    "whisper": {**_SIDES, "num_mel_bins": 16, "max_source_positions": TOKENS, "max_target_positions": 32},
}
_OWN_SIZES = ("n_embd", "d_model")


def configured(kind: str) -> Any:
    """The configuration of a family, small enough to run here."""
    import transformers

    more = FAMILIES[kind]
    kept = ("vocab_size", "pad_token_id", "max_position_embeddings")
    base = {k: v for k, v in _BASE.items() if k in kept} if any(key in more for key in _OWN_SIZES) else _BASE
    return transformers.CONFIG_MAPPING[kind](**{**base, **more})


def made_by(configuration: Any) -> Any:
    """The class that makes a family's model."""
    import transformers

    if configuration.model_type == "whisper":
        return transformers.AutoModelForSpeechSeq2Seq
    both = getattr(configuration, "is_encoder_decoder", False)
    return transformers.AutoModelForSeq2SeqLM if both else transformers.AutoModelForCausalLM


def ran(configuration: Any, **given: Any) -> Any:
    """The cache after one pass, in bf16."""
    import torch

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        model = made_by(configuration).from_config(configuration).to(torch.bfloat16).eval()
        if configuration.model_type == "whisper":  # two frames of sound a position
            frames = (SEQUENCES, configuration.num_mel_bins, 2 * TOKENS)
            given["input_features"] = torch.ones(frames, dtype=torch.bfloat16)
        else:
            given["input_ids"] = torch.ones((SEQUENCES, TOKENS), dtype=torch.long)
        if getattr(configuration, "is_encoder_decoder", False):
            given["decoder_input_ids"] = torch.ones((SEQUENCES, WRITTEN), dtype=torch.long)
        out = model(use_cache=True, **given)
    names = ("past_key_values", "cache_params", "state")
    return next(found for name in names if (found := getattr(out, name, None)) is not None)


def held_bytes(kept: Any) -> int:
    """Bytes of all tensors in a cache, each once; counters of one element are none of it."""
    import torch

    found: dict[int, Any] = {}

    def walk(value: Any, depth: int) -> None:
        if isinstance(value, torch.Tensor):
            found[id(value)] = value
        elif isinstance(value, dict):
            for one in value.values():
                walk(one, depth + 1)
        elif isinstance(value, list | tuple):
            for one in value:
                walk(one, depth + 1)
        elif hasattr(value, "__dict__") and depth < 6:
            walk(vars(value), depth + 1)

    walk(kept, 0)
    return sum(t.numel() * t.element_size() for t in found.values() if t.numel() > 1)


@pytest.fixture(scope="module", autouse=True)
def torchvision_without_its_library():
    from perfpass.importers import torchvision_schemas

    torchvision_schemas.define()


def read(configuration: Any) -> Any:
    return language_model({k: v for k, v in configuration.to_dict().items() if v is not None})


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_familys_cache_is_what_transformers_allocates(kind):
    configuration = configured(kind)
    model = read(configuration)
    tokens = WRITTEN if model.is_encoder_decoder else TOKENS
    counted = cache.in_transformers(model, tokens, SEQUENCES, prompt=TOKENS)
    assert cache.total(counted) == held_bytes(ran(configuration))


# Of the others some fields above say nothing (Bloom), or positions are computed and stored (Marian).
COUNTED = [kind for kind in FAMILIES if kind not in ("bloom", "marian")]


@pytest.mark.parametrize("kind", COUNTED)
def test_a_familys_parameters_are_those_of_its_module(kind):
    import torch

    configuration = configured(kind)
    with torch.device("meta"):
        module = made_by(configuration).from_config(configuration)
    # Biases of routers are buffers there.
    routers = ("e_score_correction_bias", "balancing_biases", "expert_bias")
    buffers = sum(b.numel() for name, b in module.named_buffers() if name.endswith(routers))
    assert read(configuration).parameters == sum(p.numel() for p in module.parameters()) + buffers


def test_a_linear_recurrence_of_recurrent_gemma_keeps_what_its_layers_hold():
    """Its states are the modules' own, in no cache that a pass returns."""
    import torch
    import transformers

    configuration = transformers.CONFIG_MAPPING["recurrent_gemma"](
        **{**_BASE, "attention_window_size": 16, "num_key_value_heads": 1}
    )
    with torch.no_grad():
        module = transformers.AutoModelForCausalLM.from_config(configuration).to(torch.bfloat16).eval()
        module(input_ids=torch.ones((SEQUENCES, TOKENS), dtype=torch.long), use_cache=True)
    held = [layer.temporal_block for layer in module.model.layers if hasattr(layer.temporal_block, "rg_lru")]
    model = read(configuration)
    counted = cache.in_transformers(model, TOKENS, SEQUENCES)
    assert model.parameters == sum(p.numel() for p in module.parameters())
    assert counted["recurrent states"] == sum(held_bytes(block.rg_lru.recurrent_states) for block in held)
    assert counted["convolution states"] == sum(held_bytes(block.conv1d_state) for block in held)


@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma2"])
def test_a_static_cache_is_allocated_at_once(kind):
    from transformers import StaticCache

    configuration = configured(kind)
    static = StaticCache(config=configuration, max_cache_len=64)
    counted = cache.in_transformers(read(configuration), 64, SEQUENCES, static=True)
    assert cache.total(counted) == held_bytes(ran(configuration, past_key_values=static))


def test_kinds_are_told_apart():
    kinds = set(cache.in_transformers(language_model("gemma-3-27b"), 4096))
    assert kinds == {"keys and values", "keys and values in windows"}
    assert set(cache.in_transformers(language_model("deepseek-v3.2"), 4096)) == {"latents", "indexer keys"}


def test_llama_cpp_rounds_up_its_context_and_packs_in_blocks():
    model = language_model("llama-3.1-8b")  # 32 layers, 8 heads of 128
    row = 8 * 128
    assert cache.total(cache.in_llama_cpp(model, 4000)) == 4096 * 32 * 2 * row * 2
    packed = cache.total(cache.in_llama_cpp(model, 4096, types=("q8_0", "q4_0")))
    assert packed == 4096 * 32 * (row // 32 * 34 + row // 32 * 18)
    assert cache.total(cache.in_llama_cpp(model, 2048, 4)) == cache.total(cache.in_llama_cpp(model, 8192))


def test_llama_cpp_keeps_a_window_and_a_step_of_windowed_layers():
    model = language_model("gemma-3-27b")
    short, whole = (cache.in_llama_cpp(model, 32768, swa_full=full) for full in (False, True))
    name = "keys and values in windows"
    assert short[name] * 32768 == whole[name] * (1024 + 512)
    assert short["keys and values"] == whole["keys and values"]


def test_latents_are_kept_once_in_llama_cpp():
    model = language_model("deepseek-v3")
    assert cache.total(cache.in_llama_cpp(model, 4096)) == 4096 * 61 * (512 + 64) * 2


def test_types_that_a_runtime_lacks_or_that_do_not_divide_are_refused():
    with pytest.raises(ArgumentError, match="unknown cache type of vllm 'q8_0'"):
        cache.type_bytes("q8_0", "vllm")
    odd = language_model({**_BASE, "model_type": "llama", "head_dim": 20})
    with pytest.raises(ArgumentError, match=r"q8_0 packs 32 numbers, and a layer of .* keeps 40"):
        cache.in_llama_cpp(odd, 64, types=("q8_0", "q8_0"))
