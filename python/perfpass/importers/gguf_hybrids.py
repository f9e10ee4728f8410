"""Architectures of GGUF files whose layers are not alike: attention among states or short convolutions.

Which layer is which stands in the key-value heads of each (0 where none attends, as llama.cpp's converter writes them),
or in the names of its tensors. Names of keys: gguf-py's constants (0.19).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perfpass.errors import UnsupportedError

Shapes = Mapping[str, tuple[int, ...]]


class _Keys:
    """The keys of one architecture, and the tensors."""

    def __init__(self, kind: str, keys: Mapping[str, Any], shapes: Shapes, where: str) -> None:
        self._kind, self._keys, self.shapes, self.where = kind, keys, shapes, where

    def find(self, key: str) -> Any:
        return self._keys.get(f"{self._kind}.{key}")

    def size(self, key: str) -> int:
        """A whole number above 0. Raises UnsupportedError."""
        value = self.find(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UnsupportedError(f"{self.where}: has no {self._kind}.{key}, without which its layers are not counted")
        return value

    def most(self, key: str) -> int:
        """The largest of a number for each layer, or the one for all; 0 where there is none."""
        value = self.find(key)
        found = value if isinstance(value, list) else [value]
        return max((one for one in found if isinstance(one, int)), default=0)

    def has(self, layer: int, *names: str) -> bool:
        return any(f"blk.{layer}.{name}.weight" in self.shapes for name in names)

    def attends(self, layers: int) -> list[bool]:
        """Of each layer whether it attends."""
        value = self.find("attention.head_count_kv")
        if isinstance(value, list) and len(value) == layers:
            return [bool(one) for one in value]
        return [self.has(i, "attn_q", "attn_qkv") for i in range(layers)]


def _layer_types(keys: _Keys, layers: int, other: str) -> list[str]:
    return ["full_attention" if attend else other for attend in keys.attends(layers)]


def _mamba2(keys: _Keys) -> dict[str, Any]:
    """Heads, groups, states and window of Mamba-2, in the words of most hybrids."""
    return {
        "mamba_n_heads": keys.size("ssm.time_step_rank"),
        "mamba_d_state": keys.size("ssm.state_size"),
        "mamba_n_groups": keys.size("ssm.group_count"),
        "mamba_d_conv": keys.size("ssm.conv_kernel"),
    }


def _lfm2(keys: _Keys, found: Mapping[str, Any], layers: int) -> dict[str, Any]:
    kinds = _layer_types(keys, layers, "conv")
    return {"layer_types": kinds, "conv_L_cache": keys.size("shortconv.l_cache"), "block_auto_adjust_ff_dim": False}


def _lfm2_moe(keys: _Keys, found: Mapping[str, Any], layers: int) -> dict[str, Any]:
    return {
        "layer_types": _layer_types(keys, layers, "conv"),
        "conv_L_cache": keys.size("shortconv.l_cache"),
        "num_dense_layers": keys.most("leading_dense_block_count"),
        "use_expert_bias": any(".exp_probs_b" in name for name in keys.shapes),
    }


def _granite(keys: _Keys, found: Mapping[str, Any], layers: int) -> dict[str, Any]:
    experts = keys.most("expert_count")
    return {
        **_mamba2(keys),
        "layer_types": _layer_types(keys, layers, "mamba"),
        "mamba_expand": keys.size("ssm.inner_size") // found["hidden_size"],
        "num_local_experts": experts,
        "shared_intermediate_size": keys.most("expert_shared_feed_forward_length")
        or (0 if experts else keys.most("feed_forward_length")),
    }


def _falcon_h1(keys: _Keys, found: Mapping[str, Any], layers: int) -> dict[str, Any]:
    normed = keys.has(0, "ssm_norm")
    return {**_mamba2(keys), "mamba_d_ssm": keys.size("ssm.inner_size"), "mamba_rms_norm": normed}


def _mamba2_alone(keys: _Keys, found: Mapping[str, Any], layers: int) -> dict[str, Any]:
    inner, heads = keys.size("ssm.inner_size"), keys.size("ssm.time_step_rank")
    return {
        "num_heads": heads,
        "head_dim": inner // heads,
        "expand": inner // found["hidden_size"],
        "state_size": keys.size("ssm.state_size"),
        "n_groups": keys.size("ssm.group_count"),
        "conv_kernel": keys.size("ssm.conv_kernel"),
    }


def _jamba(keys: _Keys, found: Mapping[str, Any], layers: int) -> dict[str, Any]:
    attends = [i for i, attend in enumerate(keys.attends(layers)) if attend]
    mixed = [i for i in range(layers) if keys.has(i, "ffn_gate_inp")]

    def spaced(places: list[int], what: str) -> tuple[int, int]:
        every = places[1] - places[0] if len(places) > 1 else layers
        if places != list(range(places[0], layers, every)):
            raise UnsupportedError(f"{keys.where}: its {what} do not stand evenly apart, which is not counted here")
        return every, places[0]

    every, first = spaced(attends, "layers of attention") if attends else (layers + 1, layers)
    sparse_every, sparse_first = spaced(mixed, "layers of experts") if mixed else (layers + 1, layers)
    return {
        "attn_layer_period": every,
        "attn_layer_offset": first,
        "expert_layer_period": sparse_every,
        "expert_layer_offset": sparse_first,
        "num_experts": keys.most("expert_count") or 1,
        "num_experts_per_tok": keys.most("expert_used_count") or 1,
        "mamba_expand": keys.size("ssm.inner_size") // found["hidden_size"],
        "mamba_d_state": keys.size("ssm.state_size"),
        "mamba_d_conv": keys.size("ssm.conv_kernel"),
        "mamba_dt_rank": keys.size("ssm.time_step_rank"),
    }


def _nemotron(keys: _Keys, found: Mapping[str, Any], layers: int) -> dict[str, Any]:
    def letter(i: int) -> str:
        if keys.has(i, "ssm_in"):
            return "M"
        if keys.has(i, "attn_q", "attn_qkv"):
            return "*"
        return "E" if keys.has(i, "ffn_gate_inp") else "-"

    heads = keys.size("ssm.time_step_rank")
    out: dict[str, Any] = {
        "hybrid_override_pattern": "".join(letter(i) for i in range(layers)),
        "mamba_num_heads": heads,
        "mamba_head_dim": keys.size("ssm.inner_size") // heads,
        "ssm_state_size": keys.size("ssm.state_size"),
        "n_groups": keys.size("ssm.group_count"),
        "conv_kernel": keys.size("ssm.conv_kernel"),
    }
    if "E" in out["hybrid_override_pattern"]:
        first = out["hybrid_override_pattern"].index("E")
        wide = keys.shapes.get(f"blk.{first}.ffn_up_exps.weight", (0,))[0]
        out |= {
            "n_routed_experts": keys.size("expert_count"),
            "moe_shared_expert_intermediate_size": keys.most("expert_shared_feed_forward_length"),
            "n_shared_experts": 1,  # the width is that of all
            "moe_latent_size": wide if wide != found["hidden_size"] else 0,
        }
    return out


# Architecture in the file: model_type of a config.json, and what is said in other words.
_ADAPTED: dict[str, tuple[str, Callable[[_Keys, Mapping[str, Any], int], dict[str, Any]]]] = {
    "lfm2": ("lfm2", _lfm2),
    "lfm2moe": ("lfm2_moe", _lfm2_moe),
    "granitehybrid": ("granitemoehybrid", _granite),
    "falcon-h1": ("falcon_h1", _falcon_h1),
    "mamba2": ("mamba2", _mamba2_alone),
    "jamba": ("jamba", _jamba),
    "nemotron_h": ("nemotron_h", _nemotron),
    "nemotron_h_moe": ("nemotron_h", _nemotron),
}
TYPES: dict[str, str] = {kind: model_type for kind, (model_type, _) in _ADAPTED.items()}
# Fields that are a number for each layer there, of which the largest is that of all layers that have one.
BY_LAYER = ("attention.head_count_kv", "attention.head_count", "feed_forward_length")


def adapted(kind: str, found: Mapping[str, Any], keys: Mapping[str, Any], shapes: Shapes, where: str) -> dict[str, Any]:
    """``found``, the fields of a config.json that all architectures share, with those of a hybrid's layers.

    Raises UnsupportedError for layers that a configuration does not describe, or that the header is silent of.
    """
    layers = found.get("num_hidden_layers")
    own = _Keys(kind, keys, shapes, where)
    if not isinstance(layers, int) or not 0 < layers <= _MOST_LAYERS or not found.get("hidden_size"):
        raise UnsupportedError(f"{where}: says nothing of its layers (block_count) or their width (embedding_length)")
    return {**found, **_ADAPTED[kind][1](own, found, layers)}


_MOST_LAYERS = 4096
