"""Configurations of models: counted (`predict_llm`), built (`predict`), and their quantizations."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import perfpass
from perfpass.errors import PerfPassError
from perfpass.importers.configuration_ranges import RANGES
from perfpass.importers.model_sources import CONFIGURATIONS, read_configuration
from perfpass.llm import families
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import ELEMENT_BYTES
from perfpass.llm.stored import METHODS

from .documents import Json
from .mutations import as_json
from .oracle import Violation, figures, naming
from .target import Target, file

_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
# Fields that count wherever they are stated: twice the value is another model, or none.
_COUNTED = (*_LAYERS, "vocab_size", "hidden_size", "n_embd", "d_model", "num_key_value_heads", "moe_intermediate_size")
_KEYS = (
    *RANGES,
    *("torch_dtype", "dtype", "tie_word_embeddings", "quantization_config", "architectures", "auto_map"),
    *("model_type", "is_encoder_decoder", "layer_types", "mlp_only_layers", "decoder_sparse_step", "moe_layer_freq"),
    *("first_k_dense_replace", "num_experts_per_tok", "n_shared_experts", "shared_expert_intermediate_size"),
    *("multi_query", "attention_bias", "use_bias", "mlp_bias", "use_sliding_window", "max_window_layers"),
    *("sliding_window_pattern", "kv_lora_rank", "q_lora_rank", "index_topk", "qk_rope_head_dim", "v_head_dim"),
    *("hybrid_override_pattern", "mamba_num_heads", "ssm_state_size", "n_groups", "conv_kernel", "text_config"),
    *("image_size", "num_channels", "patch_size", "vision_config", "max_position_embeddings", "rope_scaling"),
    *("num_mel_bins", "max_source_positions", "conv_stride", "conv_dim", "conv_kernel", "hidden_act", "id2label"),
)
_QUANTIZATION_KEYS = (
    *("quant_method", "quant_algo", "bits", "w_bit", "num_bits", "nbits", "load_in_4bit", "load_in_8bit", "weights"),
    *("activations", "quant_type", "weight_block_size", "config_groups", "ignore", "quantization", "quant_config"),
    *("weight_quant_params", "num_codebooks", "nbits_per_codebook", "in_group_size", "out_group_size", "type"),
    *("global_quant_config", "weight", "dtype", "input_activations", "group_size", "default", "_type", "desc_act"),
)
_QUANTIZATIONS: tuple[dict[str, Any], ...] = (
    {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True},
    {"quant_method": "awq", "w_bit": 4, "q_group_size": 128},
    {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": "nf4"},
    {"load_in_8bit": True},
    {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"},
    {"quant_method": "fbgemm_fp8"},
    {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
    {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 3, "group_size": 64}}},
    {"quant_method": "aqlm", "in_group_size": 8, "num_codebooks": 1, "nbits_per_codebook": 16},
    {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "group_size": 128}}},
    {"quant_method": "quanto", "weights": "int8", "activations": None},
    {"quant_method": "bitnet"},
    {"quant_method": "compressed-tensors", "ignore": ["lm_head"],
     "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}}},
    {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}},
    {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}},
)  # fmt: skip
_LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 176,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-05, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
_LOAD = {"input_length": 64, "output_length": 16, "concurrency": 4}


@cache
def _shipped() -> tuple[bytes, ...]:
    """One shipped configuration of every model type that is counted."""
    found: dict[str, bytes] = {}
    for path in sorted(CONFIGURATIONS.glob("*.json")):
        content = json.loads(path.read_text())
        inner = next((content[k] for k in ("text_config", "llm_config") if k in content), content)
        kind = str(inner.get("model_type") or content.get("model_type"))
        if kind in families.READERS and kind not in found:
            found[kind] = as_json(content)
    return (as_json(_LLAMA), *found.values())


def _counted(data: bytes) -> None:
    """`predict_llm` of a config.json: figures, or an error that names the file."""
    path = file("config.json", data)
    with naming(path):
        model = language_model(path)
    if not (model.parameters > 0 and 0 < model.active_parameters <= 2 * model.parameters and model.layer_count > 0):
        raise Violation("a model without parameters", f"{model.parameters}, {model.active_parameters}")
    found = perfpass.predict_llm(model, "h100-sxm5-80gb", **_LOAD)  # type: ignore[arg-type]
    figures(found.to_dict())
    str(found)
    _every_field_counts(
        read_configuration(path, run_code=False), model.parameters, mixture=model.is_mixture, cached=model.kv_heads > 0
    )


def _every_field_counts(content: Mapping[str, Any], parameters: int, *, mixture: bool, cached: bool) -> None:
    """Raises Violation where a stated size may be doubled and nothing changes."""
    key = next((k for k in ("text_config", "llm_config", "language_config", "thinker_config")
                if isinstance(content.get(k), Mapping)), None)  # fmt: skip
    inner = content if key is None else content[key]
    kind = inner.get("model_type")
    for field in _COUNTED:
        # Latent attention has one cache for all heads, Falcon another name for them; a hybrid may have no attention; a
        # mixture whose every layer is dense has no experts to count.
        reader = families.READERS.get(str(kind))
        if field == "num_key_value_heads" and (not cached or reader in (families._latent, families._falcon)):
            continue
        if field == "moe_intermediate_size" and not mixture:
            continue
        if isinstance(inner.get(field), int) and not isinstance(inner[field], bool):
            changed = {**inner, field: 2 * inner[field]}
            try:
                other = language_model(changed if key is None else {**content, key: changed})
            except PerfPassError:
                continue
            if other.parameters == parameters:
                raise Violation(f"{field} does not count for {kind}", f"{inner[field]}")


def _stored(data: bytes) -> None:
    """A quantization_config: the precision of what it says, or an error; never 16 bits in silence."""
    try:
        quantization = json.loads(data)
    except (ValueError, RecursionError):
        return
    path = file("config.json", as_json({**_LLAMA, "quantization_config": quantization}))
    with naming(path):
        model = language_model(path)
    for part in (model.stored_as, model.experts_stored_as):
        if part not in ELEMENT_BYTES:
            raise Violation("a precision that is none", part)
    if quantization is None:
        return
    if (model.stored_as, model.experts_stored_as) == ("bf16", "bf16"):
        raise Violation("a quantization that is answered as 16 bits", str(quantization)[:200])
    for key in ("bits", "w_bit"):
        bits = quantization.get(key)
        method = str(quantization.get("quant_method")).lower()
        if method in ("gptq", "awq") and bits is not None and model.stored_as != f"int{bits}_wo":
            raise Violation("bits that do not count", f"{quantization} as {model.stored_as}")
    found = perfpass.predict_llm(model, "h100-sxm5-80gb", **_LOAD)  # type: ignore[arg-type]
    figures(found.to_dict())


_SMALL: tuple[dict[str, Any], ...] = (
    _LLAMA,
    {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 32, "num_hidden_layers": 1,
     "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 100, "max_position_embeddings": 160},
    {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 32, "n_layer": 1, "n_head": 2,
     "vocab_size": 100, "n_positions": 256},
    {"model_type": "vit", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
     "image_size": 32, "patch_size": 8, "num_channels": 3},
    {"model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4, "vocab_size": 100,
     "is_encoder_decoder": True, "decoder_start_token_id": 0},
    {"model_type": "whisper", "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
     "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 100,
     "num_mel_bins": 20, "max_source_positions": 50, "max_target_positions": 128, "pad_token_id": 0},
    {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 32, "intermediate_size": 64,
     "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4,
     "num_experts_per_tok": 2, "vocab_size": 100},
)  # fmt: skip


def _built(data: bytes) -> None:
    """`predict` of a config.json: the architecture is built from transformers and traced."""
    path = file("config.json", data)
    with naming(path):
        found = perfpass.predict(path, "h100-sxm5-80gb")
    figures({name: value for name, value in found.to_dict().items() if name != "breakdown"})
    str(found)


MODULES = tuple(
    str(Path("python/perfpass") / name)
    for name in ("llm/configuration.py", "llm/fields.py", "llm/families.py", "llm/stored.py")
)
TARGETS = (
    Target(
        "configuration",
        _counted,
        _shipped,
        Json(_KEYS, (*_QUANTIZATIONS, *families.READERS)),
        (*MODULES, "python/perfpass/importers/configuration_ranges.py", "python/perfpass/importers/model_sources.py"),
    ),
    Target(
        "quantization",
        _stored,
        lambda: [as_json(q) for q in _QUANTIZATIONS],
        Json(_QUANTIZATION_KEYS, (*copy.deepcopy(_QUANTIZATIONS), *METHODS, *ELEMENT_BYTES, 2, 3, 4, 8, 16)),
        ("python/perfpass/llm/stored.py",),
    ),
    Target(
        "built-configuration",
        _built,
        lambda: [as_json(content) for content in _SMALL],
        Json(_KEYS),
        ("python/perfpass/importers/huggingface.py", "python/perfpass/importers/model_sources.py"),
        seconds=60,  # a thousand layers are in the ranges, and take ten seconds
    ),
)
