"""Gemma 3n and Gemma 4, one reader each: windows among full attention, keys and values that layers borrow, and a row of
a further table for every layer of a token.

Conventions are those of the classes in transformers, as in `perfpass.llm.families`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from perfpass.errors import FormatError
from perfpass.llm.architecture import Attention, Layer, Mlp
from perfpass.llm.families import Body, experts_of, hidden_of, layers_of
from perfpass.llm.fields import Fields


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
    hidden, layers = hidden_of(f), layers_of(f)
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
        experts = experts_of(f, width=f.size("moe_intermediate_size"), extra=count + hidden)
        norms = 7 * hidden
    own = f.count("hidden_size_per_layer_input", default=0)
    around = hidden
    if own:  # a gate, a projection and a norm a layer: 2 % of its products, counted as parameters alone
        norms += 2 * hidden * own + hidden
        around += hidden * layers * own + own
    found = []
    for i, kind in enumerate(kinds):
        attention, mlp = near if kind == "sliding_attention" else far, Mlp(width)
        if i >= layers - shared:
            attention = replace(attention, borrows=True, extra=attention.extra // 2)
            mlp = Mlp(2 * width if f.flag("use_double_wide_mlp") else width)
        found.append(Layer(attention=attention, dense=mlp, experts=experts, norms=norms))
    return Body(hidden, found, f.flag("tie_word_embeddings", True), around, _tables(f, layers, own))


def _tables(f: Fields, layers: int, width: int) -> int:
    """Elements of the tables of which every layer takes a row for a token."""
    return f.size("vocab_size_per_layer_input", default=f.size("vocab_size")) * layers * width


def _gemma3n(f: Fields) -> Body:
    """Gemma 3n: several streams beside the one that the layers read (AltUp, arXiv:2301.13310), a narrow block beside
    attention (LAuReL, arXiv:2411.07501), borrowed keys and values and a table for every layer as in Gemma 4.

    What mixes the streams, the narrow block and the tables' projections are 2 % of its products, counted as parameters
    alone.
    """
    hidden, layers = hidden_of(f), layers_of(f)
    kinds = f.texts("layer_types", layers, ("full_attention", "sliding_attention")) or [
        "sliding_attention" if (i + 1) % 5 else "full_attention" for i in range(layers)
    ]
    dim = f.size("head_dim")
    far = Attention(f.size("num_attention_heads"), f.size("num_key_value_heads"), dim, dim, extra=2 * dim)
    near = replace(far, window=f.size("sliding_window"))
    each = isinstance(f.find("intermediate_size"), list)
    widths = f.wholes("intermediate_size") if each else [f.size("intermediate_size")] * layers
    if len(widths) != layers:
        raise FormatError(f"{f.name}: intermediate_size has {len(widths)} numbers, one for each of {layers} is needed")
    streams, rank = f.size("altup_num_inputs", default=4), f.size("laurel_rank", default=64)
    own, shared = f.size("hidden_size_per_layer_input", default=256), f.count("num_kv_shared_layers", default=15)
    mixing = streams**2 + streams**3 + streams * hidden + 2 * hidden
    norms = 4 * hidden + mixing + (2 * rank + 1) * hidden + (2 * own + 1) * hidden
    found = []
    for i, kind in enumerate(kinds):
        attention = near if kind == "sliding_attention" else far
        if i >= layers - shared:
            attention = replace(attention, borrows=True, extra=dim)
        found.append(Layer(attention=attention, dense=Mlp(widths[i]), norms=norms))
    around = hidden + hidden * layers * own + own + 2 * (streams - 1) * hidden * hidden
    return Body(hidden, found, f.flag("tie_word_embeddings", True), around, _tables(f, layers, own))


READERS: dict[str, Callable[[Fields], Body]] = {
    **dict.fromkeys(("gemma4", "gemma4_text"), _gemma4),
    **dict.fromkeys(("gemma3n", "gemma3n_text"), _gemma3n),
}
