"""Model types that say in words of their own what another type has: their fields are translated, and read as that type.

Conventions are those of the code that each type's repositories carry, as in `perfpass.llm.families`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from perfpass.errors import FormatError
from perfpass.llm.architecture import Attention, Layer, Mlp
from perfpass.llm.families import Body, experts_of, plain_body
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


def _ernie(f: Fields) -> Body:
    """ERNIE 4.5 with experts: on the layers between two, every so many, with others beside that every token passes.

    One that reads images has as many experts again for their tokens, narrower ones; no token of text meets them.
    """
    first, every = f.count("moe_layer_start_index", default=1), f.size("moe_layer_interval", default=1)
    own, counts = (_of_text(f, key) for key in ("moe_intermediate_size", "moe_num_experts"))
    kinds = f.texts("mlp_layer_types", f.size("num_hidden_layers"), ("dense", "sparse"))
    shared = f.count("moe_num_shared_experts", default=0) * own[0]
    body = _as(
        f,
        model_type="mixtral",
        num_local_experts=counts[0],
        num_experts_per_tok=f.size("moe_k"),
        moe_intermediate_size=own[0],
        shared_expert_intermediate_size=shared,
        decoder_sparse_step=None,
    )
    last = f.count("moe_layer_end_index", default=len(body.layers) - 1)
    dense = plain_body(Fields({**f.content, "model_type": "ernie4_5"}, f.name)).layers[0]
    layers, unmet = [], 0
    for i, layer in enumerate(body.layers):
        assert layer.experts is not None
        sparse = kinds[i] == "sparse" if kinds else first <= i <= last and (i + 1) % every == 0
        experts = replace(layer.experts, extra=counts[0])  # biases that balance
        layers.append(replace(layer, experts=experts) if sparse else dense)
        if sparse and len(own) > 1:
            unmet += counts[1] * (3 * body.hidden * own[1] + body.hidden + 1)
    return replace(body, layers=layers, tied=f.flag("tie_word_embeddings", True), unmet=unmet)


def _of_text(f: Fields, key: str) -> list[int]:
    """A field that is one number, or one for tokens of text and one for those of images."""
    if not isinstance(f.find(key), list):
        return [f.size(key)] * (2 if f.find("model_type") == "ernie4_5_vl_moe_text" else 1)
    found = f.wholes(key)
    if len(found) != 2 or not all(found):
        raise FormatError(f"{f.name}: {key} must be a number, or one for text and one for images")
    return found


def _xglm(f: Fields) -> Body:
    """XGLM: OPT's layers under the words of BART; positions are computed."""
    return _as(
        f,
        model_type="starcoder2",
        hidden_size=f.size("d_model"),
        num_attention_heads=f.size("attention_heads"),
        intermediate_size=f.size("ffn_dim"),
        num_hidden_layers=f.size("num_layers"),
        sliding_window=None,
    )


def _persimmon(f: Fields) -> Body:
    """Persimmon, and the part of Fuyu that reads text: GPT-NeoX's layers with norms of the heads."""
    body = _as(f, model_type="gpt_neox")
    if not f.flag("qk_layernorm", True):
        return body
    return replace(body, layers=[_with_extra(layer, 4 * _head_dim(layer)) for layer in body.layers])


def _head_dim(layer: Layer) -> int:
    assert layer.attention is not None
    return layer.attention.head_dim


def _with_extra(layer: Layer, more: int) -> Layer:
    """A layer whose attention has ``more`` parameters beside its matrices."""
    assert layer.attention is not None
    return replace(layer, attention=replace(layer.attention, extra=layer.attention.extra + more))


def _apertus(f: Fields) -> Body:
    """Apertus: Llama's layers with norms of the heads, no gate, and an activation with two parameters (xIELU)."""
    body = _as(f, model_type="qwen3")
    width = f.size("intermediate_size")
    layers = [replace(layer, dense=Mlp(width, matrices=2, extra=2)) for layer in body.layers]
    return replace(body, layers=layers)


def _mimo(f: Fields) -> Body:
    """MiMo-V2-Flash: five windows, with more key-value heads and sinks, to one full attention; experts behind all but
    the first.
    """
    count = f.size("num_hidden_layers")
    kinds = f.texts("layer_types", count, ("full_attention", "sliding_attention"))
    pattern, frequency = f.wholes("hybrid_layer_pattern"), f.find("moe_layer_freq")
    near = [kind == "sliding_attention" for kind in kinds] if kinds else [code == 1 for code in pattern]
    mixed = f.texts("mlp_layer_types", count, ("dense", "sparse"))
    sparse = [kind == "sparse" for kind in mixed] if mixed else [i > 0 for i in range(count)]
    if mixed is None and isinstance(frequency, list):
        sparse = [code == 1 for code in f.wholes("moe_layer_freq")]
    if len(near) != count or len(sparse) != count:
        raise FormatError(f"{f.name}: layer_types must say of each of its {count} layers how it attends")
    heads, dim, value = f.size("num_attention_heads"), f.size("head_dim"), f.size("v_head_dim")
    far = Attention(heads, f.size("num_key_value_heads"), dim, value)
    window = f.size("sliding_window", default=f.count("sliding_window_size", default=127) + 1)
    many = f.size("swa_num_key_value_heads", default=2 * far.kv_heads)
    close = replace(far, kv_heads=many, window=window, extra=heads)
    hidden, own = f.size("hidden_size"), f.size("moe_intermediate_size")
    experts = experts_of(f, width=own, extra=f.size("n_routed_experts"))
    mlp = Mlp(f.size("intermediate_size"))
    layers = [
        Layer(
            attention=close if near[i] else far,
            dense=None if sparse[i] else mlp,
            experts=experts if sparse[i] else None,
            norms=2 * hidden,
        )
        for i in range(count)
    ]
    return Body(hidden, layers, f.flag("tie_word_embeddings"), hidden)


def _bitnet(f: Fields) -> Body:
    """BitNet b1.58: Llama's layers with a norm more inside attention and inside the feed-forward block."""
    body = _as(f, model_type="llama")
    inner = body.hidden + f.size("intermediate_size")
    layers = [replace(layer, norms=layer.norms + inner) for layer in body.layers]
    return replace(body, layers=layers, tied=f.flag("tie_word_embeddings", True))


READERS: dict[str, Callable[[Fields], Body]] = {
    "qwen": _qwen,
    "chatglm": _chatglm,
    "dbrx": _dbrx,
    "gpt_neo": _gpt_neo,
    "mllama_text_model": _mllama,
    **dict.fromkeys(("ernie4_5_moe", "ernie4_5_vl_moe_text"), _ernie),
    "xglm": _xglm,
    **dict.fromkeys(("persimmon", "fuyu"), _persimmon),
    "apertus": _apertus,
    "mimo_v2_flash": _mimo,
    "bitnet": _bitnet,
}
