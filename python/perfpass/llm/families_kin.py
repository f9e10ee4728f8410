"""Model types that say in words of their own what another type has: their fields are translated, and read as that type.

Conventions are those of the code that each type's repositories carry, as in `perfpass.llm.families`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from perfpass.errors import FormatError
from perfpass.llm.architecture import Layer
from perfpass.llm.families import Body, plain_body
from perfpass.llm.fields import Fields


def _as(f: Fields, **content: Any) -> Body:
    return plain_body(Fields({**f.content, **content}, f.name))


def _qwen(f: Fields) -> Body:
    """The first Qwen: Qwen2's layers; its intermediate_size is that of gate and value together."""
    return _as(f, model_type="qwen2", intermediate_size=f.size("intermediate_size") // 2, use_sliding_window=False)


def _chatglm(f: Fields) -> Body:
    """ChatGLM2, 3 and GLM-4 of the same code: grouped keys and values, biases on the projections into attention."""
    heads = f.size("num_attention_heads")
    groups = f.size("multi_query_group_num") if f.flag("multi_query_attention") else heads
    return _as(
        f,
        model_type="glm",
        intermediate_size=f.size("ffn_hidden_size"),
        num_key_value_heads=groups,
        head_dim=f.size("kv_channels", default=f.size("hidden_size") // heads),
        attention_bias=f.flag("add_qkv_bias", f.flag("add_bias_linear")),
    )


def _inner(f: Fields, key: str) -> Mapping[str, Any]:
    found = f.find(key)
    if not isinstance(found, Mapping):
        raise FormatError(f"{f.name}: its configuration has no table {key}; it cannot be counted without")
    return found


def _dbrx(f: Fields) -> Body:
    """DBRX: norms without biases, of one parameter an element."""
    attention, experts = (Fields(_inner(f, key), f.name) for key in ("attn_config", "ffn_config"))
    width = experts.size("ffn_hidden_size")
    return _as(
        f,
        model_type="mixtral",
        num_key_value_heads=attention.size("kv_n_heads", default=1),
        intermediate_size=width,
        num_local_experts=experts.size("moe_num_experts"),
        num_experts_per_tok=experts.size("moe_top_k"),
    )


def _gpt_neo(f: Fields) -> Body:
    """GPT-Neo: every other layer (as attention_types says) attends within a window; no biases on what enters it."""
    body = plain_body(Fields({**f.content, "num_attention_heads": f.size("num_heads")}, f.name))
    hidden, window = body.hidden, f.size("window_size", default=256)
    kinds = _neo_kinds(f, len(body.layers))
    layers = []
    for layer, kind in zip(body.layers, kinds, strict=True):
        assert layer.attention is not None
        attention = replace(layer.attention, window=window if kind == "local" else None, extra=hidden)
        layers.append(replace(layer, attention=attention))
    return replace(body, layers=layers)


def _neo_kinds(f: Fields, layers: int) -> list[str]:
    found: list[str] = []
    for group in f.find("attention_types") or []:
        if not isinstance(group, list) or len(group) != 2 or not isinstance(group[0], list):
            raise FormatError(f"{f.name}: attention_types must be pairs of kinds and how often they recur")
        kinds, times = group
        if not isinstance(times, int) or not 0 < times <= layers or not set(map(str, kinds)) <= {"global", "local"}:
            raise FormatError(f"{f.name}: attention_types must have global and local, up to {layers} times")
        found += [str(kind) for kind in kinds] * times
        if len(found) > layers:
            break
    if found and len(found) != layers:
        raise FormatError(f"{f.name}: attention_types is of another number of layers than {layers}")
    return found or [("global", "local")[i % 2] for i in range(layers)]


def _mllama(f: Fields) -> Body:
    """Llama 3.2 Vision: Llama's layers; some attend to the image instead, with norms of the heads and two gates.

    Keys and values of the image are counted as long as the text's.
    """
    body = _as(f, model_type="llama", cross_attention_layers=None)
    across = set(f.wholes("cross_attention_layers"))
    layers = [_seeing(layer) if i in across else layer for i, layer in enumerate(body.layers)]
    # Eight more tokens in the embedding than in the head: that of the image among them.
    return replace(body, layers=layers, embedding_extra=body.embedding_extra + 8 * body.hidden)


def _seeing(layer: Layer) -> Layer:
    assert layer.attention is not None
    extra = 2 * layer.attention.head_dim
    return replace(layer, attention=replace(layer.attention, extra=extra), norms=layer.norms + 2)


READERS: dict[str, Callable[[Fields], Body]] = {
    "qwen": _qwen,
    "chatglm": _chatglm,
    "dbrx": _dbrx,
    "gpt_neo": _gpt_neo,
    "mllama_text_model": _mllama,
}
