"""Model types without attention, one reader each, and the recurrent layers that hybrids share with them.

RWKV (arXiv:2305.13048), Mamba (arXiv:2312.00752), Mamba-2 (arXiv:2405.21060), xLSTM (arXiv:2503.13427). Conventions
are those of the classes in transformers, as in `perfpass.llm.families`.
"""

from __future__ import annotations

from collections.abc import Callable

from perfpass.errors import FormatError
from perfpass.llm.architecture import Layer, Mlp, Recurrence
from perfpass.llm.families import Body
from perfpass.llm.fields import Fields


def mamba(
    hidden: int, inner: int, *, state: int, kernel: int, rank: int, convolution_bias: bool, bias: bool, normed: bool
) -> Recurrence:
    """Mamba: one selective state space a layer. ``rank``: of the step's projection; ``normed``: with norms of the step
    and of what enters and leaves the state (Jamba).
    """
    return Recurrence(
        kind="Mamba",
        projections=3 * hidden * inner + inner * (rank + 2 * state) + rank * inner,
        state=inner * state,
        convolution=inner * kernel,
        heads=1,
        # The convolution, the step's bias, A and D, and the biases of both projections where there are any.
        extra=inner * (kernel + convolution_bias)
        + inner * (2 + state)
        + (2 * inner + hidden if bias else 0)
        + (rank + 2 * state if normed else 0),
    )


def mamba2(
    hidden: int,
    inner: int,
    *,
    heads: int,
    groups: int,
    state: int,
    kernel: int,
    convolution_bias: bool,
    normed: bool = True,
    bias: tuple[bool, bool] = (False, False),
) -> Recurrence:
    """Mamba-2: ``heads`` share ``inner`` channels, ``groups`` of them what enters and leaves the state. ``normed``: a
    gated norm behind it; ``bias``: of the projections in and out.
    """
    mixed = inner + 2 * groups * state
    wide = inner + mixed + heads
    return Recurrence(
        kind="Mamba-2",
        projections=hidden * wide + inner * hidden,
        state=inner * state,
        convolution=mixed * kernel,
        heads=heads,
        extra=mixed * (kernel + convolution_bias)
        + 3 * heads
        + (inner if normed else 0)
        + wide * bias[0]
        + hidden * bias[1],
    )


def _rwkv(f: Fields) -> Body:
    """RWKV-4: time mixing of four matrices, channel mixing of two and a gate; three
    vectors a layer are its state, and the last token's inputs to both.
    """
    hidden, layers = f.size("hidden_size"), f.size("num_hidden_layers")
    inner = f.size("attention_hidden_size", default=hidden)
    width = f.size("intermediate_size", default=4 * hidden)
    mixing = Recurrence(
        kind="RWKV-4",
        # The gate of the channel mixing, as wide as the hidden size, is counted here: every token meets it as well.
        projections=4 * hidden * inner + hidden * hidden,
        state=3 * inner,
        convolution=2 * hidden,
        heads=1,
        extra=2 * inner + 5 * hidden,
    )
    layer = Layer(recurrence=mixing, dense=Mlp(width, matrices=2), norms=4 * hidden)
    # The norms after the embedding (of the first block) and at the end.
    return Body(hidden, [layer] * layers, f.flag("tie_word_embeddings"), 4 * hidden)


def _mamba(f: Fields) -> Body:
    """Mamba and Falcon-Mamba."""
    hidden, layers = f.size("hidden_size", "d_model"), f.size("num_hidden_layers", "n_layer")
    mixing = mamba(
        hidden,
        f.size("intermediate_size", default=f.size("expand", default=2) * hidden),
        state=f.size("state_size", default=16),
        kernel=f.size("conv_kernel", default=4),
        rank=f.size("time_step_rank", default=-(-hidden // 16)),
        convolution_bias=f.flag("use_conv_bias", True),
        bias=f.flag("use_bias"),
        normed=False,
    )
    layer = Layer(recurrence=mixing, norms=hidden)
    return Body(hidden, [layer] * layers, f.flag("tie_word_embeddings", True), hidden)


def _mamba2(f: Fields) -> Body:
    """Mamba-2 alone."""
    hidden, layers = f.size("hidden_size"), f.size("num_hidden_layers")
    heads, inner = f.size("num_heads"), f.size("expand", default=2) * hidden
    if heads * f.size("head_dim") != inner:
        raise FormatError(
            f"{f.name}: {heads} heads of {f.size('head_dim')} are not the {inner} channels that expand and "
            "hidden_size make"
        )
    mixing = mamba2(
        hidden,
        inner,
        heads=heads,
        groups=f.size("n_groups"),
        state=f.size("state_size"),
        kernel=f.size("conv_kernel", default=4),
        convolution_bias=f.flag("use_conv_bias", True),
        bias=(f.flag("use_bias"), f.flag("use_bias")),
    )
    return Body(hidden, [Layer(recurrence=mixing, norms=hidden)] * layers, f.flag("tie_word_embeddings"), hidden)


def _xlstm(f: Fields) -> Body:
    """xLSTM: an mLSTM with a matrix, a normaliser and a running maximum a head as its state, and a gated block."""
    hidden, layers = f.size("hidden_size", "embedding_dim"), f.size("num_hidden_layers", "num_blocks")
    heads, bias = f.size("num_heads"), f.flag("use_bias")

    def wide(share: str, default: float, multiple: int = 1) -> int:
        return (int(hidden * f.number(share, default=default)) + multiple - 1) // multiple * multiple

    keys, values = wide("qk_dim_factor", 0.5), wide("v_dim_factor", 1.0)
    width = wide("ffn_proj_factor", 2.667, f.size("ffn_round_up_to_multiple_of", default=64))
    mixing = Recurrence(
        kind="mLSTM",
        projections=hidden * (2 * keys + 2 * values + 2 * heads) + values * hidden,
        state=keys * values // heads + keys + heads,
        convolution=0,
        heads=heads,
        exact=False,
        # Biases of two gates a head, and a norm of the heads.
        extra=2 * heads + values + (2 * keys + 3 * values + hidden if bias else 0),
    )
    mlp = Mlp(width, extra=2 * width + hidden if bias else 0)
    layer = Layer(recurrence=mixing, dense=mlp, norms=(4 if bias else 2) * hidden)
    return Body(hidden, [layer] * layers, f.flag("tie_word_embeddings"), hidden)


READERS: dict[str, Callable[[Fields], Body]] = {
    "rwkv": _rwkv,
    "mamba": _mamba,
    "falcon_mamba": _mamba,
    "mamba2": _mamba2,
    "xlstm": _xlstm,
}
