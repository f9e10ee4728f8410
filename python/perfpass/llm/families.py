"""How each model type builds its layers: one reader per family of implementations.

Conventions are those of the model's class in transformers, or of the repository that the configuration names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from perfpass.errors import FormatError
from perfpass.llm.architecture import Attention, Experts, Layer, Mlp
from perfpass.llm.fields import Fields


@dataclass(frozen=True)
class Body:
    """What a reader returns: layers in order, and what stands around them, as `LanguageModel` has it."""

    hidden: int
    layers: list[Layer]
    tied: bool
    embedding_extra: int
    unmet: int = 0
    window: int = 0
    notes: tuple[str, ...] = ()


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
    **dict.fromkeys(("glm4", "glm4v", "glm4v_text"), Plain(norms=4, qkv_bias=True)),
    "olmo": Plain(norm=0),
    "olmo3": Plain(head_norms="all"),
    "exaone4": Plain(head_norms="head"),
    "arcee": Plain(matrices=2),
    "cwm": Plain(),
    "flex_olmo": Plain(head_norms="all"),
    "vaultgemma": Plain(tied=True),
    "jais2": Plain(norm=2, qkv_bias=True, out_bias=True, mlp_bias=True, matrices=2),
    "biogpt": replace(_NEOX, positions=2, tied=True),
    "dots1": Plain(head_norms="head"),
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
    **dict.fromkeys(("glm4_moe", "glm4v_moe_text"), Plain()),
    **dict.fromkeys(("hunyuan_v1_dense", "hunyuan_v1_moe"), Plain(head_norms="head")),
}


# Of the types that `PLAIN` lacks, or whose LayerNorm has no bias.
_LAYER_NORMS = ("mpt", "dbrx", "falcon")


# Decoders whose attention transformers 5.23 multiplies, masks and multiplies again where nobody asks for another one:
# their classes do not set `_supports_sdpa` (no kernel of PyTorch has soft caps or sinks; older ones never moved).
_NO_SDPA = (
    *("bloom", "codegen", "deepseek_v4", "gemma2", "gpt_neo", "gpt_oss", "gptj", "mimo_v2_flash", "mpt", "vaultgemma"),
    "xglm",
)


def attends_eagerly(model_type: str) -> bool:
    """Whether transformers keeps the probabilities of attention in training where nobody asks for a fused kernel."""
    return model_type in _NO_SDPA


def composes_norms(model_type: str) -> bool:
    """Whether transformers composes its norms of operators, as it does RMS norms, or has one kernel (LayerNorm)."""
    rule = PLAIN.get(model_type)
    return model_type not in _LAYER_NORMS and (rule is None or rule.norm == 1)


def hidden_of(f: Fields) -> int:
    return f.size("hidden_size", "n_embd", "d_model")


def layers_of(f: Fields) -> int:
    return f.size("num_hidden_layers", "n_layer", "n_layers", "num_layers")


def head_width(f: Fields, hidden: int, heads: int) -> int:
    """The width of a head that no field states."""
    if hidden % heads:
        raise FormatError(
            f"{f.name}: a hidden size of {hidden} does not divide into {heads} attention heads; head_dim is needed"
        )
    return hidden // heads


def attention_of(f: Fields, rule: Plain, window: int | None = None) -> Attention:
    hidden, heads = hidden_of(f), f.size("num_attention_heads", "n_head", "n_heads")
    shared = 1 if f.flag("multi_query", rule.one_kv_head) else heads
    kv = f.size("num_key_value_heads", default=shared)
    dim = f.size("head_dim", "attention_head_dim", default=0) or head_width(f, hidden, heads)
    if heads % kv:
        raise FormatError(f"{f.name}: {heads} attention heads cannot share {kv} key-value heads")
    inner, cached = heads * dim, kv * dim
    stated = f.flag("bias", f.flag("use_qkv_bias", rule.qkv_bias))
    bias = f.flag("attention_bias", f.flag("enable_bias", f.flag("use_bias", stated)))
    # Qwen2-like models have biases on queries, keys and values alone; Llama's attention_bias covers the output too.
    out = rule.out_bias if rule.qkv_bias else bias and f.find("model_type") not in _NO_OUTPUT_BIAS
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


_LATENT_DENSE = ("minicpm3", "youtu")
# Types whose attention_bias is that of queries, keys and values alone.
_NO_OUTPUT_BIAS = ("glm4_moe", "glm4v_moe_text", "stablelm", "glm4", "glm4v", "glm4v_text")
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
    if kind in ("gemma2", "vaultgemma"):  # every other layer, the first one included
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
    extra = (rule.matrices - 1) * width + hidden_of(f) if bias else 0
    return Mlp(width, rule.matrices, extra)


def experts_of(
    f: Fields, *, width: int, shared: int = 0, matrices: int = 3, extra: int = 0, biases: int = 0
) -> Experts:
    count = f.size("num_experts", "num_local_experts", "n_routed_experts")
    active = f.size("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts", "moe_topk")
    if active > count:
        raise FormatError(f"{f.name}: {active} experts per token of {count}")
    return Experts(count, active, width, hidden_of(f), matrices, shared_width=shared, expert_extra=biases, extra=extra)


def sparse_layers(f: Fields, layers: int) -> list[bool]:
    """Which layers have experts."""
    only_dense = f.wholes("mlp_only_layers")
    step = f.size("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step", default=1)
    first = f.count("first_k_dense_replace", default=0)
    offset = 1 if f.find("decoder_sparse_step", "interleave_moe_layer_step") is not None else 0
    return [i not in only_dense and i >= first and (i + offset) % step == 0 for i in range(layers)]


def plain_body(f: Fields) -> Body:
    """A model type of PLAIN: every layer has one attention, and one feed-forward block or experts."""
    kind = str(f.find("model_type"))
    rule, hidden, layers = PLAIN[kind], hidden_of(f), layers_of(f)
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
        if kind in ("glm4_moe", "glm4v_moe_text", "minimax_m2", "dots1"):
            extra = routed  # correction bias of the router
        biases = 0
        if kind == "gpt_oss":
            extra, biases = routed, 2 * own + hidden
        experts = experts_of(f, width=own, shared=shared, extra=extra, biases=biases)
    sparse = sparse_layers(f, layers) if experts else [False] * layers
    windows = _windows(f, layers)
    found = [
        Layer(
            attention=attention_of(f, rule, windows[i]),
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
    hidden, layers = hidden_of(f), layers_of(f)
    heads = f.size("num_attention_heads", "n_head")
    grouped, parallel = f.flag("new_decoder_architecture"), f.flag("parallel_attn", True)
    kv = f.size("num_kv_heads", "n_head_kv", default=heads) if grouped else 1 if f.flag("multi_query", True) else heads
    dim = head_width(f, hidden, heads)
    width, bias = f.size("ffn_hidden_size", default=4 * hidden), f.flag("bias")
    attention = Attention(heads, kv, dim, dim, extra=(heads + 2 * kv) * dim + hidden if bias else 0)
    mlp = Mlp(width, matrices=2, extra=width + hidden if bias else 0)
    norms = f.count("num_ln_in_parallel_attn", default=2 if grouped else 1) if parallel else 2
    layer = Layer(attention=attention, dense=mlp, norms=2 * norms * hidden)
    return Body(hidden, [layer] * layers, f.flag("tie_word_embeddings", True), 2 * hidden)


def latent_attention(f: Fields) -> Attention:
    """Attention over latents (DeepSeek-V2, arXiv:2405.04434), with an indexer where there is one."""
    heads = f.size("num_attention_heads")
    rope, nope = f.size("qk_rope_head_dim"), f.size("qk_nope_head_dim")
    q_rank, kv_rank = f.count("q_lora_rank", default=0), f.size("kv_lora_rank")
    index, index_dim = f.count("index_topk", default=0), f.count("index_head_dim", default=0)
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=nope + rope,
        value_dim=f.size("v_head_dim", default=hidden_of(f) // heads or None),
        q_rank=q_rank,
        kv_rank=kv_rank,
        rope_dim=rope,
        top_k=index,
        index_heads=f.size("index_n_heads") if index else 0,
        index_dim=index_dim if index else 0,
        extra=q_rank + kv_rank + (2 * index_dim if index else 0),
    )


def _latent(f: Fields) -> Body:
    """DeepSeek-V2 and V3 and their kin: latent attention, dense layers first, then experts where there are any."""
    hidden, layers = hidden_of(f), layers_of(f)
    attention, mlp, norms = latent_attention(f), Mlp(f.size("intermediate_size")), 2 * hidden
    dense = Layer(attention=attention, dense=mlp, norms=norms)
    if f.find("model_type") in _LATENT_DENSE:
        return Body(hidden, [dense] * layers, f.flag("tie_word_embeddings", True), hidden)
    own = f.size("moe_intermediate_size")
    # DeepSeek-V2 routes by plain scores; the later ones add a correction bias to each expert's score.
    corrected = f.find("model_type") != "deepseek_v2"
    experts = experts_of(
        f,
        width=own,
        shared=f.count("n_shared_experts", default=0) * own,
        extra=f.size("n_routed_experts") if corrected else 0,
    )
    mixed = Layer(attention=attention, experts=experts, norms=norms)
    found = [mixed if sparse else dense for sparse in sparse_layers(f, layers)]
    return Body(hidden, found, f.flag("tie_word_embeddings"), hidden)


def _llama4(f: Fields) -> Body:
    hidden, layers = hidden_of(f), layers_of(f)
    # Three layers in four attend within a chunk (no_rope_layers are the others).
    chunk = f.size("attention_chunk_size")
    attention = attention_of(f, Plain())
    width = f.size("intermediate_size")
    experts = experts_of(f, width=width, shared=width)
    mlp = Mlp(f.size("intermediate_size_mlp"))
    found = []
    for i, sparse in enumerate(sparse_layers(f, layers)):
        mixer = attention if (i + 1) % 4 == 0 else replace(attention, window=chunk)
        found.append(
            Layer(attention=mixer, experts=experts if sparse else None, dense=None if sparse else mlp, norms=2 * hidden)
        )
    return Body(hidden, found, f.flag("tie_word_embeddings"), hidden)


READERS: dict[str, Callable[[Fields], Body]] = {
    **dict.fromkeys(PLAIN, plain_body),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "glm4_moe_lite"), _latent),
    **dict.fromkeys(_LATENT_DENSE, _latent),
    **dict.fromkeys(("hunyuan_v1_dense", "hunyuan_v1_moe"), _hunyuan),
    **dict.fromkeys(("falcon", "RefinedWeb", "RefinedWebModel"), _falcon),
    **dict.fromkeys(("llama4", "llama4_text"), _llama4),
}
