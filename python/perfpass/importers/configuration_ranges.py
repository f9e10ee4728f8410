"""The ranges of a config.json's fields: what no model has is refused before anything is counted or built from it.

One check for every reader of a configuration. The upper limits are an order of magnitude above the largest public
models; a configuration beyond them would take unbounded time to build.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfpass.declared import Number
from perfpass.errors import FormatError
from perfpass.text import shown_value

_LAYERS, _WIDTH, _VOCABULARY, _TOKENS, _SMALL = 1024, 2**22, 2**24, 2**30, 2**16
# Fields by their names in the model types' configurations: (least, most). Null counts as absent.
RANGES: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), (1, _LAYERS)),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), (0, _LAYERS)),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_key_value_heads", "num_kv_heads"), (1, _SMALL)),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "head_dim"), (1, _SMALL)),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model"), (1, _WIDTH)),
    **dict.fromkeys(
        ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "moe_intermediate_size"), (0, _WIDTH)
    ),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok"), (0, _SMALL)),
    **dict.fromkeys(("n_shared_experts", "experts_per_token", "top_k_experts", "moe_topk"), (0, _SMALL)),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "index_head_dim"), (0, _SMALL)),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "moe_latent_size", "intermediate_size_mlp"), (0, _WIDTH)),
    **dict.fromkeys(("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"), (0, _WIDTH)),
    **dict.fromkeys(
        ("linear_num_key_heads", "linear_num_value_heads", "mamba_num_heads", "index_n_heads"), (0, _SMALL)
    ),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "mamba_head_dim", "ssm_state_size"), (0, _SMALL)),
    **dict.fromkeys(
        ("linear_conv_kernel_dim", "n_groups", "global_head_dim", "num_global_key_value_heads"), (0, _SMALL)
    ),
    "num_blocks": (0, _LAYERS),
    **dict.fromkeys(
        ("shared_intermediate_size", "mamba_d_ssm", "lru_width", "block_ff_dim", "hidden_size_per_layer_input"),
        (0, _WIDTH),
    ),
    **dict.fromkeys(("mamba_n_heads", "mamba_d_state", "mamba_n_groups", "mamba_d_conv"), (0, _SMALL)),
    **dict.fromkeys(("moe_num_experts", "moe_k", "altup_num_inputs", "laurel_rank"), (0, _SMALL)),
    "num_ln_in_parallel_attn": (0, 8),
    "vocab_size": (1, _VOCABULARY),
    **dict.fromkeys(("sliding_window", "attention_chunk_size"), (0, _TOKENS)),  # 0: none
}
_DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "auto")


def check(content: Mapping[str, Any], where: str, prefix: str = "") -> None:
    """Raises FormatError that names the first field out of its range, in the configuration or one inside it.

    Lists, one value per layer or stage, are checked value by value.
    """
    for key, (least, most) in RANGES.items():
        value = content.get(key)
        for one in value if isinstance(value, list) else () if value is None else (value,):
            Number(least, most, whole=True).check(one, where, f"{prefix}{key}", FormatError)
    heads, shared = content.get("num_attention_heads"), content.get("num_key_value_heads")
    if isinstance(heads, int) and isinstance(shared, int) and heads % shared:
        raise FormatError(
            f"{where}: {heads} attention heads ({prefix}num_attention_heads) cannot share {shared} key-value heads "
            f"({prefix}num_key_value_heads)"
        )
    for key in ("torch_dtype", "dtype"):
        value = content.get(key)
        if value is not None and not (isinstance(value, str) and value.removeprefix("torch.") in _DTYPES):
            raise FormatError(f"{where}: {prefix}{key} {shown_value(value)}; allowed are {', '.join(_DTYPES)}")
    if not isinstance(content.get("text_config", {}), Mapping | type(None)):
        raise FormatError(f"{where}: {prefix}text_config {shown_value(content['text_config'])}; it is a table")
    for key, inner in content.items():
        if isinstance(inner, Mapping) and key.endswith("_config") and key != "quantization_config" and not prefix:
            check(inner, where, f"{key}.")
