"""How each model type builds its layers: one reader per family of implementations.

Conventions are those of the model's class in transformers, or of the repository that the configuration names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from perfpass.declared import shown_value
from perfpass.errors import FormatError
from perfpass.importers.configuration_ranges import RANGES
from perfpass.llm.architecture import Attention, Experts, Layer, Mlp, Recurrence
from perfpass.llm.fields import Fields


@dataclass(frozen=True)
class Body:
    """What a reader returns: layers in order, and what stands around them."""

    hidden: int
    layers: list[Layer]
    tied: bool
    embedding_extra: int


@dataclass(frozen=True)
class Plain:
    """Conventions of a model type whose layers are alike.

    ``norm``: parameters per hidden element of a norm (1 RMS, 2 with bias, 0 without parameters); ``norms`` per layer;
    ``qkv_bias``, ``out_bias``, ``mlp_bias``, ``head_bias``: defaults where the configuration has no field for it;
    ``head_norms``: "head" (queries and keys, per head width), "all" (per whole width), "chameleon" or "" for none;
    ``matrices`` of the feed-forward block; ``widening``: its width over the hidden size where no field states it;
    ``positions``: learned positions, plus this many; None for none. ``final_norm``: behind the last layer.
    """

    norm: int = 1
    norms: int = 2
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    head_norms: str = ""
    matrices: int = 3
    widening: int = 0
    positions: int | None = None
    embedding_norm: bool = False
    final_norm: bool = True
    tied: bool = False
    one_kv_head: bool = False


_GPT2 = Plain(norm=2, qkv_bias=True, out_bias=True, mlp_bias=True, matrices=2, widening=4, positions=0, tied=True)
_NEOX = Plain(norm=2, qkv_bias=True, out_bias=True, mlp_bias=True, matrices=2)
PLAIN: dict[str, Plain] = {
    **dict.fromkeys(
        ("llama", "mistral", "ministral", "mixtral", "phi3", "granite", "internlm3", "stablelm_epoch", "aquila", "yi"),
        Plain(),
    ),
    **dict.fromkeys(("smollm3", "granitemoe", "ernie4_5", "helium", "baichuan", "internlm2", "exaone"), Plain()),
    **dict.fromkeys(("deepseek", "ministral3"), Plain()),
    "internlm": Plain(qkv_bias=True, out_bias=True),
    "jais": Plain(norm=2, qkv_bias=True, out_bias=True, mlp_bias=True, tied=True),
    "openai-gpt": Plain(
        norm=2,
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        matrices=2,
        widening=4,
        positions=0,
        tied=True,
        final_norm=False,
    ),
    "gpt_neo": Plain(norm=2, out_bias=True, mlp_bias=True, matrices=2, widening=4, positions=0, tied=True),
    **dict.fromkeys(("seed_oss", "glm"), Plain(qkv_bias=True)),
    "glm4": Plain(norms=4, qkv_bias=True),
    "olmo": Plain(norm=0),
    "olmo3": Plain(head_norms="all"),
    "exaone4": Plain(head_norms="head"),
    "arcee": Plain(matrices=2),
    "nemotron": Plain(norm=2, matrices=2),
    "cohere2": Plain(norms=1, tied=True),
    **dict.fromkeys(("stablelm", "phimoe"), Plain(norm=2)),
    "codegen": replace(_NEOX, norms=1, qkv_bias=False, out_bias=False, head_bias=True, widening=4),
    **dict.fromkeys(("qwen2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"), Plain(qkv_bias=True)),
    "qwen2_moe": Plain(qkv_bias=True),
    **dict.fromkeys(("qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text"), Plain(head_norms="head")),
    "gemma": Plain(tied=True),
    "gemma2": Plain(norms=4, tied=True),
    **dict.fromkeys(("gemma3", "gemma3_text"), Plain(norms=4, head_norms="head", tied=True)),
    "olmo2": Plain(head_norms="all"),
    "olmoe": Plain(head_norms="all"),
    "cohere": Plain(norms=1, tied=True),
    "phi": replace(_NEOX, norms=1, head_bias=True),
    "phi3small": Plain(norm=2, qkv_bias=True, out_bias=True, mlp_bias=True, tied=True),
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "gptj": replace(_NEOX, norms=1, qkv_bias=False, out_bias=False, head_bias=True, widening=4),
    "gpt_neox": _NEOX,
    "opt": replace(_NEOX, positions=2, tied=True),
    "bloom": replace(_NEOX, widening=4, embedding_norm=True, tied=True),
    "mpt": Plain(matrices=2, widening=4, tied=True),
    "starcoder2": replace(_NEOX, tied=True),
    "chameleon": Plain(head_norms="chameleon"),
    "gpt_oss": Plain(qkv_bias=True, out_bias=True),
    "minimax_m2": Plain(head_norms="all"),
    "glm4_moe": Plain(),
    **dict.fromkeys(("hunyuan_v1_dense", "hunyuan_v1_moe"), Plain(head_norms="head")),
}


# Of the types that `PLAIN` lacks, or whose LayerNorm has no bias.
_LAYER_NORMS = ("mpt", "dbrx", "falcon")


def composes_norms(model_type: str) -> bool:
    """Whether transformers composes its norms of operators, as it does RMS norms, or has one kernel (LayerNorm)."""
    rule = PLAIN.get(model_type)
    return model_type not in _LAYER_NORMS and (rule is None or rule.norm == 1)


def _hidden(f: Fields) -> int:
    return f.size("hidden_size", "n_embd", "d_model")


def _layers(f: Fields) -> int:
    return f.size("num_hidden_layers", "n_layer", "n_layers", "num_layers")


def _share(f: Fields, hidden: int, heads: int) -> int:
    """The width of a head that no field states."""
    if hidden % heads:
        raise FormatError(
            f"{f.name}: a hidden size of {hidden} does not divide into {heads} attention heads; head_dim is needed"
        )
    return hidden // heads


def _attention(f: Fields, rule: Plain, window: int | None = None) -> Attention:
    hidden, heads = _hidden(f), f.size("num_attention_heads", "n_head", "n_heads")
    shared = 1 if f.flag("multi_query", rule.one_kv_head) else heads
    kv = f.size("num_key_value_heads", default=shared)
    dim = f.size("head_dim", "attention_head_dim", default=0) or _share(f, hidden, heads)
    if heads % kv:
        raise FormatError(f"{f.name}: {heads} attention heads cannot share {kv} key-value heads")
    inner, cached = heads * dim, kv * dim
    stated = f.flag("bias", f.flag("use_qkv_bias", rule.qkv_bias))
    bias = f.flag("attention_bias", f.flag("enable_bias", f.flag("use_bias", stated)))
    # Qwen2-like models have biases on queries, keys and values alone; Llama's attention_bias covers the output too.
    out = rule.out_bias if rule.qkv_bias else bias and f.find("model_type") not in ("glm4_moe", "stablelm", "glm4")
    extra = (inner + 2 * cached if bias else 0) + (hidden if out and bias else 0)
    if rule.head_norms == "head" or (f.find("model_type") == "glm4_moe" and f.flag("use_qk_norm")):
        extra += 2 * dim
    elif rule.head_norms == "all" or (f.find("model_type") == "cohere" and f.flag("use_qk_norm")):
        extra += inner + cached
    elif rule.head_norms == "chameleon":
        extra += 2 * (inner + cached)
    if f.find("model_type") == "gpt_oss":
        extra += heads
    return Attention(heads=heads, kv_heads=kv, head_dim=dim, value_dim=dim, window=window, extra=extra)


# Model types of which every so many-th layer attends to all, the others within a window.
_WINDOWED = ("sliding_attention", "chunked_attention")
_FULL_EVERY = {"gemma3": 6, "gemma3_text": 6, "cohere2": 4, "olmo3": 4}


def _windows(f: Fields, layers: int) -> list[int | None]:
    """Per layer the window of its attention."""
    width = f.count("sliding_window", default=0) or f.count("attention_chunk_size", default=0)
    kinds = f.texts("layer_types", layers, ("full_attention", *_WINDOWED))
    if not width:
        if windowed := next((kind for kind in kinds or () if kind in _WINDOWED), None):
            raise FormatError(
                f"{f.name}: layer_types has {windowed}, but there is no sliding_window or attention_chunk_size"
            )
        return [None] * layers
    if kinds is not None:
        return [width if kind in _WINDOWED else None for kind in kinds]
    kind = f.find("model_type")
    if kind == "gemma2":  # every other layer, the first one included
        return [width if i % 2 == 0 else None for i in range(layers)]
    if kind in _FULL_EVERY:
        every = f.size("sliding_window_pattern", default=_FULL_EVERY[str(kind)])
        return [None if (i + 1) % every == 0 else width for i in range(layers)]
    if kind == "gpt_oss":
        return [width if i % 2 == 0 else None for i in range(layers)]
    if str(kind).startswith("qwen"):
        first = f.count("max_window_layers", default=layers)
        return [width if f.flag("use_sliding_window") and i >= first else None for i in range(layers)]
    return [width] * layers


def _dense(f: Fields, rule: Plain, width: int) -> Mlp:
    bias = f.flag("mlp_bias", f.flag("enable_bias", f.flag("use_bias", rule.mlp_bias)))
    extra = (rule.matrices - 1) * width + _hidden(f) if bias else 0
    return Mlp(width, rule.matrices, extra)


def _experts(f: Fields, *, width: int, shared: int = 0, matrices: int = 3, extra: int = 0, biases: int = 0) -> Experts:
    count = f.size("num_experts", "num_local_experts", "n_routed_experts")
    active = f.size("num_experts_per_tok", "experts_per_token", "top_k_experts", "moe_topk")
    if active > count:
        raise FormatError(f"{f.name}: {active} experts per token of {count}")
    return Experts(count, active, width, _hidden(f), matrices, shared_width=shared, expert_extra=biases, extra=extra)


def _sparse_layers(f: Fields, layers: int) -> list[bool]:
    """Which layers have experts."""
    only_dense = f.wholes("mlp_only_layers")
    step = f.size("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step", default=1)
    first = f.count("first_k_dense_replace", default=0)
    offset = 1 if f.find("decoder_sparse_step", "interleave_moe_layer_step") is not None else 0
    return [i not in only_dense and i >= first and (i + offset) % step == 0 for i in range(layers)]


def plain_body(f: Fields) -> Body:
    """A model type of PLAIN: every layer has one attention, and one feed-forward block or experts."""
    kind = str(f.find("model_type"))
    rule, hidden, layers = PLAIN[kind], _hidden(f), _layers(f)
    width = f.size(
        "intermediate_size",
        "n_inner",
        "ffn_dim",
        "ffn_hidden_size",
        "ff_intermediate_size",
        default=rule.widening * hidden or None,
    )
    mlp = _dense(f, rule, width)
    routed = f.count("num_experts", "num_local_experts", "n_routed_experts", default=0)
    experts: Experts | None = None
    if routed:
        own = f.size("moe_intermediate_size", default=width)
        shared = f.count("shared_expert_intermediate_size", default=f.count("n_shared_experts", default=0) * own)
        extra = 0
        if kind == "qwen2_moe":
            extra = hidden  # the shared expert's gate
        if kind in ("glm4_moe", "minimax_m2"):
            extra = routed  # correction bias of the router
        biases = 0
        if kind == "gpt_oss":
            extra, biases = routed, 2 * own + hidden
        experts = _experts(f, width=own, shared=shared, extra=extra, biases=biases)
    sparse = _sparse_layers(f, layers) if experts else [False] * layers
    windows = _windows(f, layers)
    found = [
        Layer(
            attention=_attention(f, rule, windows[i]),
            dense=None if sparse[i] else mlp,
            experts=experts if sparse[i] else None,
            norms=rule.norms * rule.norm * hidden,
        )
        for i in range(layers)
    ]
    around = rule.norm * hidden * (rule.embedding_norm + rule.final_norm)
    if (narrow := f.size("word_embed_proj_dim", default=hidden)) != hidden:
        # OPT-350M: a table narrower than the layers with a projection at either end, and no norm behind the last one.
        around = (narrow - hidden) * f.size("vocab_size") + 2 * narrow * hidden
    if rule.positions is not None:
        around += (f.size("max_position_embeddings", "n_positions") + rule.positions) * hidden
    if f.flag("lm_head_bias", rule.head_bias):
        around += f.size("vocab_size")
    return Body(hidden, found, f.flag("tie_word_embeddings", rule.tied), around)


def _hunyuan(f: Fields) -> Body:
    """Hunyuan: its own words for the experts, as numbers or one per layer, and shared ones beside them."""
    if f.flag("use_cla"):
        raise FormatError(f"{f.name}: caches that layers share (use_cla) are not counted here")
    content = dict(f.content)
    for key in ("moe_topk", "num_shared_expert", "moe_intermediate_size"):
        value = f.find(key)
        if isinstance(value, list):
            if not value or any(each != value[0] for each in value):
                raise FormatError(f"{f.name}: {key} differs from layer to layer, which is not counted here")
            content[key] = value[0]
    alike = Fields(content, f.name)
    if alike.count("num_experts", default=1) > 1:
        own = alike.size("moe_intermediate_size", default=alike.size("intermediate_size"))
        content["shared_expert_intermediate_size"] = alike.count("num_shared_expert", default=1) * own
    else:
        content["num_experts"] = None
    return plain_body(alike)


def _falcon(f: Fields) -> Body:
    """Falcon: one key-value head or (from 40B on) groups; attention and feed-forward block side by side or in turn."""
    hidden, layers = _hidden(f), _layers(f)
    heads = f.size("num_attention_heads", "n_head")
    grouped, parallel = f.flag("new_decoder_architecture"), f.flag("parallel_attn", True)
    kv = f.size("num_kv_heads", "n_head_kv", default=heads) if grouped else 1 if f.flag("multi_query", True) else heads
    dim = _share(f, hidden, heads)
    width, bias = f.size("ffn_hidden_size", default=4 * hidden), f.flag("bias")
    attention = Attention(heads, kv, dim, dim, extra=(heads + 2 * kv) * dim + hidden if bias else 0)
    mlp = Mlp(width, matrices=2, extra=width + hidden if bias else 0)
    norms = f.count("num_ln_in_parallel_attn", default=2 if grouped else 1) if parallel else 2
    layer = Layer(attention=attention, dense=mlp, norms=2 * norms * hidden)
    return Body(hidden, [layer] * layers, f.flag("tie_word_embeddings", True), 2 * hidden)


def _latent(f: Fields) -> Body:
    """DeepSeek-V2 and V3 and their kin: latent attention, dense layers first, then experts."""
    hidden, layers = _hidden(f), _layers(f)
    rope, nope = f.size("qk_rope_head_dim"), f.size("qk_nope_head_dim")
    q_rank, kv_rank = f.count("q_lora_rank", default=0), f.size("kv_lora_rank")
    index = f.count("index_topk", default=0)
    heads, index_dim = f.size("num_attention_heads"), f.count("index_head_dim", default=0)
    attention = Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=nope + rope,
        value_dim=f.size("v_head_dim"),
        q_rank=q_rank,
        kv_rank=kv_rank,
        rope_dim=rope,
        top_k=index,
        index_heads=f.size("index_n_heads") if index else 0,
        index_dim=index_dim if index else 0,
        extra=q_rank + kv_rank + (2 * index_dim if index else 0),
    )
    own = f.size("moe_intermediate_size")
    # DeepSeek-V2 routes by plain scores; the later ones add a correction bias to each expert's score.
    corrected = f.find("model_type") != "deepseek_v2"
    experts = _experts(
        f,
        width=own,
        shared=f.count("n_shared_experts", default=0) * own,
        extra=f.size("n_routed_experts") if corrected else 0,
    )
    mlp, norms = Mlp(f.size("intermediate_size")), 2 * hidden
    found = [
        Layer(attention=attention, experts=experts, norms=norms)
        if sparse
        else Layer(attention=attention, dense=mlp, norms=norms)
        for sparse in _sparse_layers(f, layers)
    ]
    return Body(hidden, found, f.flag("tie_word_embeddings"), hidden)


def _qwen_hybrid(f: Fields) -> Body:
    """Qwen3-Next and Qwen3.5: three gated delta nets (arXiv:2412.06464) to one gated attention."""
    hidden, layers = _hidden(f), _layers(f)
    every = f.size("full_attention_interval", default=4)
    kinds = f.texts("layer_types", layers, ("full_attention", "linear_attention")) or [
        "full_attention" if (i + 1) % every == 0 else "linear_attention" for i in range(layers)
    ]
    keys = f.size("linear_num_key_heads") * f.size("linear_key_head_dim")
    value_heads, value_dim = f.size("linear_num_value_heads"), f.size("linear_value_head_dim")
    values, kernel = value_heads * value_dim, f.size("linear_conv_kernel_dim")
    mixed = 2 * keys + values
    recurrence = Recurrence(
        projections=hidden * (mixed + values + 2 * value_heads) + values * hidden,
        state=value_heads * value_dim * f.size("linear_key_head_dim"),
        convolution=mixed * kernel,
        heads=value_heads,
        extra=mixed * kernel + 2 * value_heads + value_dim,
    )
    attention = replace(_attention(f, Plain(head_norms="head")), gated=True)
    norms = 2 * hidden
    sparse = f.count("num_experts", default=0) > 0
    experts, mlp = None, None
    if sparse:
        shared = f.count("shared_expert_intermediate_size", default=0)
        experts = _experts(f, width=f.size("moe_intermediate_size"), shared=shared, extra=hidden if shared else 0)
    else:
        mlp = Mlp(f.size("intermediate_size"))
    found = [
        Layer(attention=attention, experts=experts, dense=mlp, norms=norms)
        if kind == "full_attention"
        else Layer(recurrence=recurrence, experts=experts, dense=mlp, norms=norms)
        for kind in kinds
    ]
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
    hidden = _hidden(f)
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
    heads, state = f.size("mamba_num_heads"), f.size("ssm_state_size")
    inner = heads * f.size("mamba_head_dim")
    mixed = inner + 2 * f.size("n_groups") * state
    kernel = f.size("conv_kernel")
    recurrence = Recurrence(
        projections=hidden * (inner + mixed + heads) + inner * hidden,
        state=inner * state,
        convolution=mixed * kernel,
        heads=heads,
        extra=mixed * (kernel + (1 if f.flag("use_conv_bias", True) else 0)) + 3 * heads + inner,
    )
    blocks = {"M": Layer(recurrence=recurrence, norms=hidden)}
    if "*" in pattern:
        blocks["*"] = Layer(attention=_attention(f, Plain()), norms=hidden)
    if "-" in pattern:
        blocks["-"] = Layer(dense=Mlp(f.size("intermediate_size"), matrices=2), norms=hidden)
    if "E" in pattern:
        latent = f.count("moe_latent_size", default=0)
        experts = _experts(
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


def _llama4(f: Fields) -> Body:
    hidden, layers = _hidden(f), _layers(f)
    # Three layers in four attend within a chunk (no_rope_layers are the others).
    chunk = f.size("attention_chunk_size")
    attention = _attention(f, Plain())
    width = f.size("intermediate_size")
    experts = _experts(f, width=width, shared=width)
    mlp = Mlp(f.size("intermediate_size_mlp"))
    found = []
    for i, sparse in enumerate(_sparse_layers(f, layers)):
        mixer = attention if (i + 1) % 4 == 0 else replace(attention, window=chunk)
        found.append(
            Layer(attention=mixer, experts=experts if sparse else None, dense=None if sparse else mlp, norms=2 * hidden)
        )
    return Body(hidden, found, f.flag("tie_word_embeddings"), hidden)


def _of_layer(f: Fields, kinds: list[str], kind: str) -> Fields:
    """What ``per_layer_config``, as transformers 5 writes it, says of the first layer of a kind."""
    every = f.find("per_layer_config")
    own = every.get(str(kinds.index(kind))) if isinstance(every, dict) and kind in kinds else None
    return Fields(own if isinstance(own, dict) else {}, f.name)


def _gemma4(f: Fields) -> Body:
    """Gemma 4: several windows to one full attention with wider heads and shared keys and values; experts beside.

    The last ``num_kv_shared_layers`` (of E2B and E4B) attend to the keys and values of an earlier layer, and every
    layer takes a row of a table of its own for each token.
    """
    hidden, layers = _hidden(f), _layers(f)
    kinds = f.texts("layer_types", layers, ("full_attention", "sliding_attention"))
    if kinds is None:
        raise FormatError(f"{f.name}: its configuration has no layer_types; it cannot be counted without")
    heads = f.size("num_attention_heads")
    dim = f.size("head_dim")
    wide = f.size("global_head_dim", default=_of_layer(f, kinds, "full_attention").size("head_dim", default=dim))
    near = Attention(heads, f.size("num_key_value_heads"), dim, dim, window=f.size("sliding_window"), extra=2 * dim)
    alike = f.flag("attention_k_eq_v")
    kv = f.size("num_global_key_value_heads", default=near.kv_heads) if alike else near.kv_heads
    far = Attention(heads, kv, wide, wide, keys_are_values=alike, extra=2 * wide)
    width, shared = f.size("intermediate_size"), f.count("num_kv_shared_layers", default=0)
    experts, norms = None, 4 * hidden
    if f.flag("enable_moe_block"):
        count = f.size("num_experts")
        experts = _experts(f, width=f.size("moe_intermediate_size"), extra=count + hidden)
        norms = 7 * hidden
    own = f.count("hidden_size_per_layer_input", default=0)
    tables = f.size("vocab_size_per_layer_input", default=f.size("vocab_size")) * layers * own
    if own:  # a gate, a projection and a norm a layer: 2 % of its products, counted as parameters alone
        norms += 2 * hidden * own + hidden
        tables += hidden * layers * own + own
    found = []
    for i, kind in enumerate(kinds):
        attention, mlp = near if kind == "sliding_attention" else far, Mlp(width)
        if i >= layers - shared:
            attention = replace(attention, borrows=True, extra=attention.extra // 2)
            mlp = Mlp(2 * width if f.flag("use_double_wide_mlp") else width)
        found.append(Layer(attention=attention, dense=mlp, experts=experts, norms=norms))
    return Body(hidden, found, f.flag("tie_word_embeddings", True), hidden + tables)


READERS: dict[str, Callable[[Fields], Body]] = {
    **dict.fromkeys(PLAIN, plain_body),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "glm4_moe_lite"), _latent),
    **dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), _qwen_hybrid),
    **dict.fromkeys(("hunyuan_v1_dense", "hunyuan_v1_moe"), _hunyuan),
    "nemotron_h": _nemotron_hybrid,
    **dict.fromkeys(("falcon", "RefinedWeb", "RefinedWebModel"), _falcon),
    **dict.fromkeys(("llama4", "llama4_text"), _llama4),
    **dict.fromkeys(("gemma4", "gemma4_text"), _gemma4),
}
