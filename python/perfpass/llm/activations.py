"""What a decoder layer keeps between its forward and its backward pass, in bytes of a token.

Terms as in Korthikanti et al. (arXiv:2205.05198, section 4.1, table 2), written for any heads, widths and gates: with
h hidden, a heads of h / a, 4h wide, dropout and 16 bits their sum is 34 h + 5 a s, of which tensor parallelism leaves
10 h whole unless norms and residuals are split as well. Experts keep what their tokens pass (MegaBlocks,
arXiv:2211.15841); latent attention its latents and what they are projected to (arXiv:2405.04434, section 2.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfpass.llm.architecture import Attention, Experts, Layer
    from perfpass.llm.recipe import Layout, Recipe

_STATISTIC_BYTES = 4.0  # of a query and head: FlashAttention's log-sum-exp (arXiv:2307.08691, section 3.1)


@dataclass(frozen=True)
class Saved:
    """Bytes of a token that a layer keeps: ``stream`` (its input), ``inner`` of attention itself, ``rest``.

    ``passing``: the widest gradient on its way beside them.
    """

    stream: float
    inner: float
    rest: float
    passing: float

    @property
    def whole(self) -> float:
        """All of it."""
        return self.stream + self.inner + self.rest

    def kept(self, recompute: str) -> float:
        """What is left where nothing, attention alone ("selective") or the whole layer ("full") is computed anew."""
        if recompute == "full":
            return self.stream
        return self.stream + self.rest + (0.0 if recompute == "selective" else self.inner)


def saved_by_layer(
    layer: Layer, hidden: int, layout: Layout, recipe: Recipe, activation: float, saved_input: float
) -> Saved:
    """What ``layer`` keeps of a token; ``activation``: bytes of an element, ``saved_input``: of a product's input."""
    kernels, taught = recipe.kernels, recipe.adapter
    split = layout.tensor if layout.sequence_parallel else 1
    row = hidden / split
    copies = 0.0 if kernels.fused_norms else 6.0 * row
    mask = row if kernels.dropout else 0.0

    def read(width: float, *names: str) -> float:
        """What products keep of an input: nothing where all that read it are frozen (bitsandbytes' keep theirs)."""
        needed = not taught or taught.frozen != "none" or any(name in taught.targets for name in names)
        return saved_input * width if needed else 0.0

    inner, rest, passing = 0.0, copies, 2 * activation * row
    if layer.attention:
        a = layer.attention
        rest += read(row, "query", "key", "value") + mask
        rest += _projected(a, layout.tensor, activation)
        out = a.heads * a.value_dim / layout.tensor
        rest += activation * out if kernels.attention == "flash" else read(out, "output")
        inner += _inner(a, recipe, layout)
        passing = max(passing, activation * (row + _projected(a, layout.tensor, 1.0)))
        if layer.dense or layer.experts:
            rest += activation * row + copies  # the second norm's input; the first one's is the stream
    if layer.dense:
        d = layer.dense
        width = d.width / layout.tensor
        rest += read(row, "gate", "up") + mask + activation * (d.matrices - 1) * width + read(width, "down")
        if d.matrices == 3 and not kernels.fused_gates:
            rest += activation * width
        passing = max(passing, activation * (d.matrices * width + row))
    if layer.experts:
        kept, wide = _routed(layer.experts, hidden, layout, activation, saved_input)
        rest += kept + mask
        passing = max(passing, wide)
    return Saved(activation * row, inner, rest, passing)


def _projected(a: Attention, tensor: int, activation: float) -> float:
    """Queries, keys and values, and latents before they are projected up, with their norms."""
    if a.is_latent:
        whole = 2 * (a.q_rank + a.kv_rank) + a.rope_dim
        return activation * (whole + a.heads * (2 * a.head_dim + a.value_dim) / tensor)
    return activation * (a.heads * a.head_dim + a.kv_heads * (a.head_dim + a.value_dim)) / tensor


def _inner(a: Attention, recipe: Recipe, layout: Layout) -> float:
    heads = a.heads / layout.tensor
    if recipe.kernels.attention == "flash":
        return _STATISTIC_BYTES * heads
    keys = min(recipe.sequence, a.window or recipe.sequence)
    # Probabilities in 16 bits; with dropout its mask and what it leaves.
    return heads * keys * (5.0 if recipe.kernels.dropout else 2.0)


def _routed(e: Experts, hidden: int, layout: Layout, activation: float, saved_input: float) -> tuple[float, float]:
    """What a layer of experts keeps of a token where they are evenly used, and its widest gradient."""
    shared = layout.experts_share
    # Ranks that split a sequence send their own tokens; those that share an expert gather them.
    copies = e.active * shared / (layout.tensor if layout.tensor > 1 else 1)
    wide = e.width / shared
    gates = (e.matrices - 1) * wide
    routed = copies * (saved_input * (e.model_width + wide) + activation * (gates + e.model_width))
    scores = 8.0 * e.count / (layout.tensor if layout.sequence_parallel else 1)
    row = hidden / (layout.tensor if layout.sequence_parallel else 1)
    total = routed + scores + saved_input * row
    if e.shared_width:
        total += (activation * (e.matrices - 1) + saved_input) * e.shared_width / layout.tensor
    return total, activation * copies * (e.matrices * wide + e.model_width)
