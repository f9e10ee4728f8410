"""Hybrids, one reader each: layers of attention among, or beside, layers whose state is of fixed size.

Conventions are those of the classes in transformers, as in `perfpass.llm.families`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from perfpass.declared import shown_value
from perfpass.errors import FormatError
from perfpass.importers.configuration_ranges import RANGES
from perfpass.llm.architecture import Attention, Experts, Layer, Mlp, Recurrence
from perfpass.llm.families import (
    Body,
    Plain,
    attention_of,
    experts_of,
    head_width,
    hidden_of,
    latent_attention,
    layers_of,
)
from perfpass.llm.families_recurrent import mamba, mamba2
from perfpass.llm.fields import Fields

# How transformers 5 and the repositories name the two kinds of layers of a hybrid.
_ATTENDS, _RECURS = ("full_attention", "attention"), ("linear_attention", "mamba", "conv")


def _attends(f: Fields, layers: int) -> list[bool] | None:
    """Of each layer whether it attends to all; None where the configuration does not say."""
    kinds = f.texts("layer_types", layers, (*_ATTENDS, *_RECURS))
    return None if kinds is None else [kind in _ATTENDS for kind in kinds]


def _mixed(attends: list[bool], attention: Attention, recurrence: Recurrence, **beside: Any) -> list[Layer]:
    """Layers in order, of one attention or one recurrence each and alike in what else they have."""
    layers = {True: Layer(attention=attention, **beside), False: Layer(recurrence=recurrence, **beside)}
    return [layers[attend] for attend in attends]


def _delta_net(f: Fields, hidden: int) -> Recurrence:
    """A gated delta net (arXiv:2412.06464)."""
    keys = f.size("linear_num_key_heads") * f.size("linear_key_head_dim")
    value_heads, value_dim = f.size("linear_num_value_heads"), f.size("linear_value_head_dim")
    values, kernel = value_heads * value_dim, f.size("linear_conv_kernel_dim")
    mixed = 2 * keys + values
    return Recurrence(
        kind="gated delta net",
        projections=hidden * (mixed + values + 2 * value_heads) + values * hidden,
        state=value_heads * value_dim * f.size("linear_key_head_dim"),
        convolution=mixed * kernel,
        heads=value_heads,
        extra=mixed * kernel + 2 * value_heads + value_dim,
    )


def _qwen_hybrid(f: Fields) -> Body:
    """Qwen3-Next and Qwen3.5: three gated delta nets to one gated attention."""
    hidden, layers = hidden_of(f), layers_of(f)
    every = f.size("full_attention_interval", default=4)
    attends = _attends(f, layers) or [(i + 1) % every == 0 for i in range(layers)]
    recurrence = _delta_net(f, hidden)
    attention = replace(attention_of(f, Plain(head_norms="head")), gated=True)
    norms = 2 * hidden
    sparse = f.count("num_experts", default=0) > 0
    experts, mlp = None, None
    if sparse:
        shared = f.count("shared_expert_intermediate_size", default=0)
        experts = experts_of(f, width=f.size("moe_intermediate_size"), shared=shared, extra=hidden if shared else 0)
    else:
        mlp = Mlp(f.size("intermediate_size"))
    found = _mixed(attends, attention, recurrence, experts=experts, dense=mlp, norms=norms)
    return Body(hidden, found, f.flag("tie_word_embeddings"), hidden)


# How transformers 5 names the blocks of `hybrid_override_pattern`.
_BLOCK_TYPES = {
    **dict.fromkeys(("mamba", "linear_attention"), "M"),
    **dict.fromkeys(("attention", "full_attention"), "*"),
    "mlp": "-",
    "moe": "E",
}


def _blocks_of(f: Fields) -> str | None:
    """The pattern that ``layers_block_type`` spells out."""
    named = f.find("layers_block_type")
    if not isinstance(named, list) or not all(isinstance(one, str) and one in _BLOCK_TYPES for one in named):
        return None
    return "".join(_BLOCK_TYPES[one] for one in named)


def _nemotron_hybrid(f: Fields) -> Body:
    """Nemotron-H: each block is one of Mamba-2 (M), attention (*), feed-forward (-) or experts (E)."""
    hidden = hidden_of(f)
    pattern = f.find("hybrid_override_pattern") or _blocks_of(f)
    most = RANGES["num_hidden_layers"][1]
    if not isinstance(pattern, str) or not 0 < len(pattern) <= most or not set(pattern) <= set("M*-E"):
        raise FormatError(
            f"{f.name}: hybrid_override_pattern must be made of 1 to {most} of M, *, - and E; got "
            f"{shown_value(pattern)}"
        )
    if f.size("num_hidden_layers", default=len(pattern)) != len(pattern):
        raise FormatError(
            f"{f.name}: num_hidden_layers is {f.find('num_hidden_layers')}, but hybrid_override_pattern has "
            f"{len(pattern)} blocks"
        )
    heads = f.size("mamba_num_heads")
    recurrence = mamba2(
        hidden,
        heads * f.size("mamba_head_dim"),
        heads=heads,
        groups=f.size("n_groups"),
        state=f.size("ssm_state_size"),
        kernel=f.size("conv_kernel"),
        convolution_bias=f.flag("use_conv_bias", True),
    )
    blocks = {"M": Layer(recurrence=recurrence, norms=hidden)}
    if "*" in pattern:
        blocks["*"] = Layer(attention=attention_of(f, Plain()), norms=hidden)
    if "-" in pattern:
        blocks["-"] = Layer(dense=Mlp(f.size("intermediate_size"), matrices=2), norms=hidden)
    if "E" in pattern:
        latent = f.count("moe_latent_size", default=0)
        experts = experts_of(
            f,
            width=f.size("moe_intermediate_size"),
            shared=f.count("moe_shared_expert_intermediate_size", default=0) * f.count("n_shared_experts", default=1),
            matrices=2,
            extra=f.size("n_routed_experts"),
        )
        if latent:
            experts = replace(experts, model_width=latent, latent_projection=2 * latent * hidden)
        blocks["E"] = Layer(experts=experts, norms=hidden)
    return Body(hidden, [blocks[letter] for letter in pattern], f.flag("tie_word_embeddings"), hidden)


def _mamba2_of(f: Fields, hidden: int, inner: int, *, normed: bool = True) -> Recurrence:
    """A Mamba-2 layer by the fields that start with mamba_."""
    heads = f.size("mamba_n_heads")
    dim = f.find("mamba_d_head")
    if inner % heads or dim not in (None, "auto", inner // heads):
        raise FormatError(
            f"{f.name}: {heads} heads (mamba_n_heads) of {shown_value(dim)} (mamba_d_head) are not the {inner} "
            "channels of its Mamba layers"
        )
    return mamba2(
        hidden,
        inner,
        heads=heads,
        groups=f.size("mamba_n_groups", default=1),
        state=f.size("mamba_d_state"),
        kernel=f.size("mamba_d_conv", default=4),
        convolution_bias=f.flag("mamba_conv_bias", True),
        normed=normed,
        bias=(f.flag("mamba_proj_bias"), f.flag("projectors_bias", f.flag("mamba_proj_bias"))),
    )


def _falcon_h1(f: Fields) -> Body:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    hidden, layers = hidden_of(f), layers_of(f)
    inner = f.size("mamba_d_ssm", default=f.size("mamba_expand", default=2) * hidden)
    layer = Layer(
        attention=attention_of(f, Plain()),
        recurrence=_mamba2_of(f, hidden, inner, normed=f.flag("mamba_rms_norm")),
        dense=_gated(f, hidden, f.size("intermediate_size")),
        norms=2 * hidden,
    )
    return Body(hidden, [layer] * layers, f.flag("tie_word_embeddings"), hidden)


def _gated(f: Fields, hidden: int, width: int) -> Mlp:
    return Mlp(width, extra=2 * width + hidden if f.flag("mlp_bias") else 0)


def _granite(f: Fields) -> Body:
    """Granite 4: Mamba-2 or attention, and behind either a gated block with experts beside it where there are any."""
    hidden, layers = hidden_of(f), layers_of(f)
    attends = _attends(f, layers) or [f.find("model_type") == "granitemoeshared"] * layers
    shared = f.count("shared_intermediate_size", default=0)
    experts: Experts | None = None
    dense: Mlp | None = None
    if f.count("num_local_experts", default=0):
        experts = experts_of(f, width=f.size("intermediate_size"), shared=shared)
    else:
        dense = Mlp(shared)
    found = _hybrid(
        attends,
        lambda: Layer(attention=attention_of(f, Plain()), dense=dense, experts=experts, norms=2 * hidden),
        lambda: Layer(
            recurrence=_mamba2_of(f, hidden, f.size("mamba_expand", default=2) * hidden),
            dense=dense,
            experts=experts,
            norms=2 * hidden,
        ),
    )
    return Body(hidden, found, f.flag("tie_word_embeddings"), hidden)


def _hybrid(attends: list[bool], attention: Callable[[], Layer], recurrence: Callable[[], Layer]) -> list[Layer]:
    """Layers in order; a kind that none is of is not asked for its fields."""
    made = {kind: (attention if kind else recurrence)() for kind in set(attends)}
    return [made[kind] for kind in attends]


def _bamba(f: Fields) -> Body:
    """Bamba: Mamba-2 but for a few layers of attention."""
    hidden, layers = hidden_of(f), layers_of(f)
    indices = f.wholes("attn_layer_indices")
    mlp = _gated(f, hidden, f.size("intermediate_size"))
    inner = f.size("mamba_expand", default=2) * hidden
    found = _hybrid(
        [i in indices for i in range(layers)],
        lambda: Layer(attention=attention_of(f, Plain()), dense=mlp, norms=2 * hidden),
        lambda: Layer(recurrence=_mamba2_of(f, hidden, inner), dense=mlp, norms=2 * hidden),
    )
    return Body(hidden, found, f.flag("tie_word_embeddings"), hidden)


def _jamba(f: Fields) -> Body:
    """Jamba: Mamba with an attention every so many layers, experts every other one (arXiv:2403.19887)."""
    hidden, layers = hidden_of(f), layers_of(f)
    attention, width = attention_of(f, Plain()), f.size("intermediate_size")
    rank = f.find("mamba_dt_rank")
    recurrence = mamba(
        hidden,
        f.size("mamba_expand", default=2) * hidden,
        state=f.size("mamba_d_state", default=16),
        kernel=f.size("mamba_d_conv", default=4),
        rank=-(-hidden // 16) if rank in (None, "auto") else f.size("mamba_dt_rank"),
        convolution_bias=f.flag("mamba_conv_bias", True),
        bias=f.flag("mamba_proj_bias"),
        normed=True,
    )
    experts, mlp = experts_of(f, width=width), Mlp(width)
    every, first = f.size("attn_layer_period", default=8), f.count("attn_layer_offset", default=4)
    sparse_every, sparse_first = f.size("expert_layer_period", default=2), f.count("expert_layer_offset", default=1)
    found = []
    for i in range(layers):
        mixer: dict[str, Any] = {"attention": attention} if i % every == first else {"recurrence": recurrence}
        sparse = experts.count > 1 and i % sparse_every == sparse_first
        found.append(
            Layer(**mixer, dense=None if sparse else mlp, experts=experts if sparse else None, norms=2 * hidden)
        )
    return Body(hidden, found, f.flag("tie_word_embeddings"), hidden)


def _lfm2(f: Fields) -> Body:
    """LFM2: short gated convolutions, whose window is all they keep, and a few layers of attention."""
    hidden, layers = hidden_of(f), layers_of(f)
    indices = f.wholes("full_attn_idxs") or list(range(layers))
    attends = _attends(f, layers) or [i in indices for i in range(layers)]
    kernel, bias = f.size("conv_L_cache", default=3), f.flag("conv_bias")
    convolution = Recurrence(
        kind="short convolution",
        projections=4 * hidden * hidden,
        state=0,
        convolution=hidden * kernel,
        heads=1,
        extra=hidden * kernel + (5 * hidden if bias else 0),
    )
    attention = attention_of(f, Plain(head_norms="head"))
    experts: Experts | None = None
    first = layers
    if f.find("model_type") == "lfm2_moe":
        width, first = f.size("intermediate_size"), f.count("num_dense_layers", default=2)
        correction = f.size("num_experts") if f.flag("use_expert_bias", True) else 0
        experts = experts_of(f, width=f.size("moe_intermediate_size"), extra=correction)
    else:
        width = _lfm2_width(f)
    found = []
    for i, attend in enumerate(attends):
        mixer: dict[str, Any] = {"attention": attention} if attend else {"recurrence": convolution}
        part: dict[str, Any] = {"dense": Mlp(width)} if i < first else {"experts": experts}
        found.append(Layer(**mixer, **part, norms=2 * hidden))
    return Body(hidden, found, f.flag("tie_embedding", f.flag("tie_word_embeddings", True)), hidden)


def _lfm2_width(f: Fields) -> int:
    """Of the feed-forward block: as stated, or two thirds of it, rounded up."""
    width = f.size("block_ff_dim", default=f.count("intermediate_size", default=0) or None)
    if not f.flag("block_auto_adjust_ff_dim", True):
        return width
    multiple = f.size("block_multiple_of", default=256)
    width = int(f.number("block_ffn_dim_multiplier", default=1.0) * int(2 * width / 3))
    return (width + multiple - 1) // multiple * multiple


def _kimi_linear(f: Fields) -> Body:
    """Kimi Linear: three delta nets with a gate for every channel to one attention over latents (arXiv:2510.26692)."""
    inner = f.find("linear_attn_config")
    own = Fields(inner if isinstance(inner, dict) else {}, f.name)
    hidden, layers = hidden_of(f), layers_of(f)
    attends = _attends(f, layers)
    if attends is None:
        full = own.wholes("full_attn_layers")  # counted from one
        attends = [i + 1 in full if full else i > 0 and i % 4 == 0 for i in range(layers)]
    heads = own.size("num_heads", default=f.size("linear_num_heads", default=32))
    dim = own.size("head_dim", default=f.size("linear_head_dim", default=128))
    kernel = own.size("short_conv_kernel_size", default=f.size("linear_conv_kernel_dim", default=4))
    wide = heads * dim
    delta = Recurrence(
        kind="Kimi delta attention",
        # Queries, keys, values, the output; two gates of a rank as wide as a head; one number a head.
        projections=4 * hidden * wide + 2 * (hidden * dim + dim * wide) + hidden * heads,
        state=heads * dim * dim,
        convolution=3 * wide * kernel,
        heads=heads,
        extra=3 * wide * kernel + wide + heads + dim,
    )
    latent = latent_attention(f)
    width = f.size("moe_intermediate_size")
    shared = f.count("n_shared_experts", "num_shared_experts", default=0)
    experts = experts_of(f, width=width, shared=shared * width, extra=f.size("num_experts", "num_local_experts"))
    kinds = f.texts("mlp_layer_types", layers, ("dense", "sparse"))
    first = f.count("first_k_dense_replace", default=1)
    sparse = [kind == "sparse" for kind in kinds] if kinds else [i >= first for i in range(layers)]
    found = []
    for attend, mixed in zip(attends, sparse, strict=True):
        mixer: dict[str, Any] = {"attention": latent} if attend else {"recurrence": delta}
        part: dict[str, Any] = {"experts": experts} if mixed else {"dense": Mlp(f.size("intermediate_size"))}
        found.append(Layer(**mixer, **part, norms=2 * hidden))
    return Body(hidden, found, f.flag("tie_word_embeddings"), hidden)


def _minimax(f: Fields) -> Body:
    """MiniMax-Text-01 and M1: seven lightning attentions to one softmax attention, experts everywhere."""
    hidden, layers = hidden_of(f), layers_of(f)
    codes = f.wholes("attn_type_list")
    attends = _attends(f, layers) or [code == 1 for code in codes]
    if len(attends) != layers:
        raise FormatError(
            f"{f.name}: layer_types or attn_type_list must say of each of its {layers} layers how it attends"
        )
    attention = attention_of(f, Plain())
    inner = attention.heads * attention.head_dim
    lightning = Recurrence(
        kind="lightning attention",
        # Queries, keys and values of every head, the output and its gate.
        projections=5 * hidden * inner,
        state=inner * attention.head_dim,
        convolution=0,
        heads=attention.heads,
        extra=inner,
        exact=False,
    )
    experts = experts_of(f, width=f.size("intermediate_size"), shared=f.count("shared_intermediate_size", default=0))
    found = _mixed(attends, attention, lightning, experts=experts, norms=2 * hidden)
    return Body(hidden, found, f.flag("tie_word_embeddings"), hidden)


def _recurrent_gemma(f: Fields) -> Body:
    """RecurrentGemma: two gated linear recurrences to one attention within a window (arXiv:2402.19427)."""
    hidden, layers = hidden_of(f), layers_of(f)
    kinds = f.find("block_types") or ["recurrent", "recurrent", "attention"]
    if not isinstance(kinds, (list, tuple)) or not set(map(str, kinds)) <= {"recurrent", "attention"}:
        raise FormatError(f"{f.name}: block_types must be made of recurrent and attention; got {shown_value(kinds)}")
    wide, heads = f.size("lru_width", default=hidden), f.size("num_attention_heads")
    kernel, share = f.size("conv1d_width", default=4), head_width(f, wide, heads)
    recurrence = Recurrence(
        kind="RG-LRU",
        projections=3 * hidden * wide + 2 * heads * share * share,
        state=wide,
        convolution=wide * (kernel - 1),
        heads=heads,
        # The convolution, the recurrent parameter and biases of the gates and the projections.
        extra=wide * (kernel + 1) + wide + 2 * wide + 2 * wide + hidden,
    )
    attention = attention_of(f, Plain(), f.size("attention_window_size", "sliding_window"))
    if not f.flag("attention_bias"):
        attention = replace(attention, extra=hidden)  # the output has one in any case
    width = f.size("intermediate_size") // 2
    mlp = Mlp(width, extra=2 * width + hidden)
    attends = [kinds[i % len(kinds)] == "attention" for i in range(layers)]
    found = _mixed(attends, attention, recurrence, dense=mlp, norms=2 * hidden)
    return Body(hidden, found, f.flag("tie_word_embeddings", True), hidden)


def _olmo_hybrid(f: Fields) -> Body:
    """OLMo Hybrid: three gated delta nets to one attention."""
    hidden, layers = hidden_of(f), layers_of(f)
    attends = _attends(f, layers) or [i % 4 == 3 for i in range(layers)]
    attention, mlp = attention_of(f, Plain(head_norms="all")), Mlp(f.size("intermediate_size"))
    recurrence = _delta_net(f, hidden)
    found = _mixed(attends, attention, recurrence, dense=mlp, norms=2 * hidden)
    return Body(hidden, found, f.flag("tie_word_embeddings"), hidden)


def _zaya(f: Fields) -> Body:
    """ZAYA1: attention whose queries and keys pass two short convolutions, half of the values being those of the token
    before (arXiv:2510.04476); a small network routes each token to one expert, or to none.
    """
    hidden, layers = hidden_of(f), layers_of(f)
    heads, kv, dim = f.size("num_attention_heads"), f.size("num_key_value_heads"), f.size("head_dim", default=128)
    mixed, first, second = (heads + kv) * dim, f.size("cca_time0", default=2), f.size("cca_time1", default=2)
    kinds = f.texts("layer_types", layers, ("hybrid", "hybrid_sliding"))
    window = f.count("sliding_window", default=0) or None
    bias = mixed + kv * dim + hidden if f.flag("attention_bias") else 0
    attention = Attention(heads, kv, dim, dim, extra=kv + bias)
    convolutions = Recurrence(
        kind="compressed convolutional attention",
        projections=mixed * dim * second,
        state=0,
        convolution=mixed * (first + second - 2) + kv * dim // 2,
        heads=heads,
        extra=mixed * first + 2 * mixed,
    )
    count, rank = f.size("num_experts"), f.size("router_hidden_size", default=256)
    # Beside the plain router's `count` x hidden: one more choice (none), a way down, two layers and a norm, biases that
    # balance, and from the second layer on a scale of what the layer before thought.
    router = rank * hidden + 2 * rank * rank + (count + 1) * rank + 4 * rank + (count + 1) - count * hidden
    experts = experts_of(f, width=f.size("moe_intermediate_size"), extra=router)
    found = []
    for i in range(layers):
        near = window if kinds and kinds[i] == "hybrid_sliding" else None
        own = replace(experts, extra=router + (rank if i else 0))
        found.append(
            Layer(attention=replace(attention, window=near), recurrence=convolutions, experts=own, norms=10 * hidden)
        )
    around = 3 * hidden + (f.size("vocab_size") if f.flag("lm_head_bias") else 0)
    return Body(hidden, found, f.flag("tie_word_embeddings", True), around)


READERS: dict[str, Callable[[Fields], Body]] = {
    **dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), _qwen_hybrid),
    "nemotron_h": _nemotron_hybrid,
    "falcon_h1": _falcon_h1,
    **dict.fromkeys(("granitemoehybrid", "granitemoeshared"), _granite),
    "bamba": _bamba,
    "jamba": _jamba,
    **dict.fromkeys(("lfm2", "lfm2_moe"), _lfm2),
    "kimi_linear": _kimi_linear,
    **dict.fromkeys(("minimax", "minimax_text_01", "minimax_m1"), _minimax),
    "recurrent_gemma": _recurrent_gemma,
    "olmo_hybrid": _olmo_hybrid,
    "zaya": _zaya,
}
