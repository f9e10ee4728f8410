"""What a decoder layer keeps between its forward and its backward pass, in bytes of a token.

Terms as in Korthikanti et al. (arXiv:2205.05198, section 4.1, table 2), written for any heads, widths and gates: with
h hidden, a heads of h / a, 4h wide, dropout and 16 bits their sum is 34 h + 5 a s, of which tensor parallelism leaves
10 h whole unless norms and residuals are split as well. Experts keep what their tokens pass (MegaBlocks,
arXiv:2211.15841); latent attention its latents and what they are projected to (arXiv:2405.04434, section 2.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfpass.llm.recipe import PRECISIONS

if TYPE_CHECKING:
    from perfpass.llm.architecture import Attention, Experts, Layer
    from perfpass.llm.recipe import Layout, Recipe

_SINGLE = 4.0
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
        """What is left where nothing, attention alone ("selective") or the whole layer is computed anew."""
        if recompute in ("full", "offloaded"):
            return self.stream
        return self.stream + self.rest + (0.0 if recompute == "selective" else self.inner)


def saved_by_layer(layer: Layer, hidden: int, layout: Layout, recipe: Recipe) -> Saved:
    """What ``layer`` keeps of a token."""
    kernels, states = recipe.kernels, PRECISIONS[recipe.precision]
    activation, stream = states.activation, states.residual
    row = hidden / (layout.tensor if layout.sequence_parallel else 1)
    mask = row if kernels.dropout else 0.0
    rest, passing = 0.0, 2 * activation * row
    if layer.attention:
        a = layer.attention
        rest += _norm(row, recipe) - stream * row + mask
        made = {"query": a.heads * a.head_dim, "key": a.kv_heads * a.head_dim, "value": a.kv_heads * a.value_dim}
        rest += _inputs(row, recipe, {name: wide / layout.tensor for name, wide in made.items()})
        out = a.heads * a.value_dim / layout.tensor
        rest += _projected(a, layout.tensor, activation)
        rest += _inputs(out, recipe, {"output": row}, activation if kernels.attention == "flash" else 0.0)
        passing = max(passing, activation * (row + _projected(a, layout.tensor, 1.0)))
        if layer.dense or layer.experts:
            rest += _norm(row, recipe)
    if layer.dense:
        d = layer.dense
        width = d.width / layout.tensor
        rest += _inputs(row, recipe, {"gate": width, "up": width} if d.matrices == 3 else {"up": width}) + mask
        rest += activation * (d.matrices - 1) * width + _inputs(width, recipe, {"down": row})
        if d.matrices == 3 and not kernels.fused_gates:
            rest += activation * width
        passing = max(passing, activation * (d.matrices * width + row))
    if layer.experts:
        kept, wide = _routed(layer.experts, hidden, layout, activation, states.saved_input)
        rest += kept + mask
        passing = max(passing, wide)
    inner = _inner(layer.attention, recipe, layout) if layer.attention else 0.0
    return Saved(stream * row, inner, rest, passing)


def saved_by_head(hidden: int, layout: Layout, recipe: Recipe) -> float:
    """What the last norm and the head keep of a token, beside the logits."""
    row = hidden / (layout.tensor if layout.sequence_parallel else 1)
    return _norm(row, recipe) + (0.0 if recipe.adapter else PRECISIONS[recipe.precision].activation * row)


def _norm(row: float, recipe: Recipe) -> float:
    """Of a norm: its input; composed of operators, in single precision, with what comes out of it before its weight."""
    stream = PRECISIONS[recipe.precision].residual
    if recipe.kernels.fused_norms:
        return stream * row
    return _SINGLE * row + (0.0 if recipe.adapter else stream * row) + _STATISTIC_BYTES


def _inputs(width: float, recipe: Recipe, readers: dict[str, float], kept: float = 0.0) -> float:
    """Of an input ``width`` wide that products read: ``readers``, by target of an adapter the width of what they make.
    ``kept``: bytes of an element that another operator keeps of it.

    Autocast casts an input of the residual stream for every product. Frozen products keep nothing; adapters in single
    precision or with dropout keep their own copies. DoRA keeps what it scales, of either side.
    """
    states, taught, narrow = PRECISIONS[recipe.precision], recipe.adapter, PRECISIONS[recipe.precision].activation
    adapted = [name for name in readers if not taught or name in taught.targets]
    casts = 1.0
    if states.stream and not kept:
        # Where norms are kernels, queries, keys and values are one product as well (GPT-2, NeoX, BLOOM, MPT).
        casts = 1.0 if recipe.kernels.fused_norms else float(len(adapted))
    if not taught:
        return max(kept, casts * (narrow if states.stream else states.saved_input)) * width
    single = taught.single and not states.stream and narrow < _SINGLE
    ranks = _SINGLE if single else narrow
    own = max(kept, narrow if taught.inputs_kept or taught.frozen == "int8" else 0.0)
    own += narrow * max(taught.inputs_kept - 1, 0)
    if adapted and (single or taught.dropout):
        own += len(adapted) * (ranks + taught.dropout)  # with a byte of the mask
    elif adapted:
        own = max(own, casts * narrow)
    beside = sum(taught.rank * ranks + taught.decomposed * (narrow + ranks) * readers[name] for name in adapted)
    return own * width + beside


def _projected(a: Attention, tensor: int, activation: float) -> float:
    """Queries, keys and values, and latents before they are projected up, with their norms."""
    if a.is_latent:
        whole = 2 * (a.q_rank + a.kv_rank) + a.rope_dim
        return activation * (whole + a.heads * (2 * a.head_dim + a.value_dim) / tensor)
    return activation * (a.heads * a.head_dim + a.kv_heads * (a.head_dim + a.value_dim)) / tensor


def _inner(a: Attention, recipe: Recipe, layout: Layout) -> float:
    heads, kernels = a.heads / layout.tensor, recipe.kernels
    if kernels.attention == "flash":
        return _STATISTIC_BYTES * heads
    keys = min(recipe.sequence, a.window or recipe.sequence)
    activation = PRECISIONS[recipe.precision].activation
    if kernels.fused_norms:  # probabilities; with dropout its mask and what it leaves
        return heads * keys * (2 * activation + 1 if kernels.dropout else activation)
    # transformers': softmax in single precision, its result cast back, keys and values repeated for all heads.
    repeated = activation * (a.heads - a.kv_heads) * (a.head_dim + a.value_dim) / layout.tensor
    return heads * keys * (_SINGLE + (activation if activation < _SINGLE else 0.0)) + repeated


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
