"""Model types without attention, one reader each: RWKV (arXiv:2305.13048) and Mamba (arXiv:2312.00752).

Conventions are those of the classes in transformers, as in `perfpass.llm.families`.
"""

from __future__ import annotations

from collections.abc import Callable

from perfpass.llm.architecture import Layer, Mlp, Recurrence
from perfpass.llm.families import Body
from perfpass.llm.fields import Fields


def _rwkv(f: Fields) -> Body:
    """RWKV-4: time mixing of four matrices, channel mixing of two and a gate; three
    vectors a layer are its state, and the last token's inputs to both.
    """
    hidden, layers = f.size("hidden_size"), f.size("num_hidden_layers")
    inner = f.size("attention_hidden_size", default=hidden)
    width = f.size("intermediate_size", default=4 * hidden)
    mixing = Recurrence(
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
    """Mamba and Falcon-Mamba: one selective state space a layer."""
    hidden, layers = f.size("hidden_size", "d_model"), f.size("num_hidden_layers", "n_layer")
    inner = f.size("intermediate_size", default=f.size("expand", default=2) * hidden)
    state, kernel = f.size("state_size", default=16), f.size("conv_kernel", default=4)
    rank = f.size("time_step_rank", default=-(-hidden // 16))
    convolution = inner * (kernel + (1 if f.flag("use_conv_bias", True) else 0))
    mixing = Recurrence(
        projections=3 * hidden * inner + inner * (rank + 2 * state) + rank * inner,
        state=inner * state,
        convolution=inner * kernel,
        heads=1,
        # The convolution, the step's bias, A and D, and the biases of both projections where there are any.
        extra=convolution + inner * (2 + state) + (2 * inner + hidden if f.flag("use_bias") else 0),
    )
    layer = Layer(recurrence=mixing, norms=hidden)
    return Body(hidden, [layer] * layers, f.flag("tie_word_embeddings", True), hidden)


READERS: dict[str, Callable[[Fields], Body]] = {
    "rwkv": _rwkv,
    "mamba": _mamba,
    "falcon_mamba": _mamba,
}
