"""Layers of a kind of which no run was learned from: named, and bounds the wider the more of a model they are.

What such layers do is counted as any others' (`perfpass.llm.costs`): their projections are products, whose kernels were
measured, but the kernels of their states or convolutions were not. How far these may be off, no record says; the widths
are by hand.
"""

from __future__ import annotations

import numpy as np

from perfpass.interval import Interval
from perfpass.llm.architecture import LanguageModel
from perfpass.predictors.estimate import Bounds

# Kinds of recurrent layers that any model of the records has (`perfpass.llm.architecture.Recurrence`).
LEARNED_FROM = frozenset({"gated delta net", "RWKV-4"})
# Log half-widths below and above where every layer is of such a kind. By hand: states and convolutions are up to half
# of what such a layer is counted to take, and may well take two to three times of that in kernels of their own.
_LOW, _HIGH = 0.3, 0.5


def unknown(model: LanguageModel) -> dict[str, float]:
    """The kinds that nothing was learned from, each with its share of the layers that mix tokens."""
    mixing = sum(count for count, layer in model.layers if layer.attention or layer.recurrence)
    found: dict[str, float] = {}
    for count, layer in model.layers:
        if layer.recurrence and layer.recurrence.kind not in LEARNED_FROM:
            found[layer.recurrence.kind] = found.get(layer.recurrence.kind, 0.0) + count / mixing
    return found


def reasons(model: LanguageModel) -> tuple[str, ...]:
    """What is said of them; empty where there are none."""
    return tuple(
        f"no run of a model with {kind} layers ({share:.0%} of those that mix tokens) to learn from: what they do is "
        "counted, their kernels are not known, and bounds are wider for it"
        for kind, share in unknown(model).items()
    )


def wider_bounds(found: Bounds, model: LanguageModel) -> Bounds:
    """Bounds [N] that allow for the unknown kernels of a model; squares of half-widths add, as in `learned.spread`."""
    share = sum(unknown(model).values())
    if not share:
        return found
    low, high = (
        np.sqrt(np.square(np.log(ratio)) + share * width**2)
        for ratio, width in ((found.median / found.low, _LOW), (found.high / found.median, _HIGH))
    )
    return Bounds(found.median, found.median * np.exp(-low), found.median * np.exp(high))


def wider(found: Interval, model: LanguageModel) -> Interval:
    """The same of one time, above 0."""
    bounds = wider_bounds(Bounds.of(found), model)
    return bounds.interval(0, found.unit)
