"""What share of the device's peak the products and the attention of a training step reach in measured kernels.

Of each matrix a pass forward, one for the gradient of its input and one for that of the weight, as the fastest of the
serving stacks runs a product of these sizes on the device (`perfpass.predictors.kernels`); attention as whole prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from perfpass.predictors.kernels import predictor as kernels

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perfpass.devices import Device
    from perfpass.llm.architecture import LanguageModel, Layer
    from perfpass.llm.recipe import Layout, Recipe

_STACKS = ("sglang", "trtllm", "vllm")
# Kernels' precisions by bits of the products, and the rate that a share is of.
_KERNELS = {16: (("bf16",), "bf16"), 8: (("fp8", "fp8_block"), "fp8"), 4: (("fp4",), "fp4")}
_PLAIN = 0.7  # of a device whose products no kernel is known of: the middle of those measured in 16 bits
Shapes = tuple[tuple[float, float, float, float], ...]  # (count, m, n, k)


@dataclass(frozen=True)
class Reach:
    """Shares of the device's peak: dense products, products of experts, the head's (in 16 bits), attention forward."""

    dense: float
    experts: float
    head: float
    attention: float


def reach(model: LanguageModel, device: Device, layout: Layout, recipe: Recipe, bits: int) -> Reach:
    """Of a micro-batch in ``layout``."""
    dense, experts, head = _shapes(model, layout, recipe)
    trained = recipe.adapter is None
    heads = [(layer.attention.heads, layer.attention.head_dim) for _, layer in model.layers if layer.attention]
    attention = 1.0
    if heads:
        wide, each = max(heads)
        attention = _attention(device, recipe.micro_batch, recipe.sequence, max(wide // layout.tensor, 1), each)
    return Reach(
        dense=_products(device, bits, dense, trained),
        experts=_products(device, bits, experts, trained),
        head=_products(device, 16, head, trained),
        attention=attention,
    )


def bytes_of_a_flop(model: LanguageModel, layout: Layout, recipe: Recipe) -> float:
    """Bytes that a product of a micro-batch reads and writes once in 16 bits, for each of its FLOPs; alike in a pass
    forward and in both backward.
    """
    _, m, n, k = shapes = np.array([shape for group in _shapes(model, layout, recipe) for shape in group]).T
    return float(shapes[0] @ (2 * (m * k + k * n + m * n)) / (shapes[0] @ (2 * m * n * k)))


def _shapes(model: LanguageModel, layout: Layout, recipe: Recipe) -> tuple[Shapes, Shapes, Shapes]:
    """Products forward of a micro-batch: dense ones, those of experts, the head's."""
    layers = [(count, layer) for count, layer in model.layers if count]
    tokens = recipe.micro_batch * recipe.sequence / layout.context
    return (
        _rounded(s for count, layer in layers for s in _dense(layer, model.hidden, layout.tensor, tokens, count)),
        _rounded(s for count, layer in layers for s in _experts(layer, layout, tokens, count)),
        _rounded([(1.0, tokens, model.vocabulary / layout.tensor, float(model.hidden))]),
    )


def _dense(layer: Layer, hidden: int, tensor: int, tokens: float, count: int) -> Iterable[tuple[float, ...]]:
    if a := layer.attention:
        keys = 0 if a.borrows else a.kv_rank + a.rope_dim if a.is_latent else 2 * a.kv_heads * a.head_dim / tensor
        yield count, tokens, (a.q_rank or a.heads * a.head_dim / tensor) + keys, hidden
        yield count, tokens, hidden, a.heads * a.value_dim / tensor
        if a.q_rank:
            yield count, tokens, a.heads * a.head_dim / tensor, a.q_rank
        if a.is_latent:
            yield count, tokens, a.heads * (a.head_dim - a.rope_dim + a.value_dim) / tensor, a.kv_rank
    blocks = [(layer.dense.matrices, layer.dense.width)] if layer.dense else []
    if e := layer.experts:
        blocks += [(e.matrices, e.shared_width)] if e.shared_width else []
    for matrices, width in blocks:
        yield count, tokens, (matrices - 1) * width / tensor, hidden
        yield count, tokens, hidden, width / tensor


def _experts(layer: Layer, layout: Layout, tokens: float, count: int) -> Iterable[tuple[float, ...]]:
    if e := layer.experts:
        # Kernels of groups fill the device with the tokens of all of its experts.
        each, split = tokens * e.active, layout.expert_tensor or layout.tensor
        yield count, each, (e.matrices - 1) * e.width / split, e.model_width
        yield count, each, e.model_width, e.width / split


def _rounded(shapes: Iterable[tuple[float, ...]]) -> Shapes:
    return tuple((float(c), *(max(round(x), 1) for x in sizes)) for c, *sizes in shapes)  # type: ignore[misc]


@lru_cache(maxsize=4096)
def _products(device: Device, bits: int, shapes: Shapes, trained: bool) -> float:
    """The share that products of ``shapes`` reach forward and backward; of frozen weights their inputs' alone."""
    if not shapes:
        return 1.0
    names, rate = _KERNELS[bits]
    rate = rate if rate in device.peak_flops else "fp16"
    count, m, n, k = (np.array(column) for column in zip(*shapes, strict=True))
    passes = [(m, n, k), (m, k, n)] + [(n, k, m)] * trained
    rows, wide, deep = (np.concatenate([one[i] for one in passes]) for i in range(3))
    times = np.tile(count, len(passes))
    found = [_fastest(device, rows, wide, deep, name) for name in names]
    seconds = np.min(
        [s for s in found if s is not None] or [2 * rows * wide * deep / device.peak(rate) / _PLAIN], axis=0
    )
    return float(times @ (2 * rows * wide * deep) / device.peak(rate) / (times @ seconds))


def _fastest(device: Device, m: np.ndarray, n: np.ndarray, k: np.ndarray, name: str) -> np.ndarray | None:
    predictor = kernels.load()
    known = {s.runtime for s in predictor.model("gemm").software if s.precision == name}
    of = [predictor.gemm(device, m, n, k, name, stack=s).seconds for s in _STACKS if s in known]
    return np.asarray(np.min(of, axis=0)) if of else None


@lru_cache(maxsize=4096)
def _attention(device: Device, batch: int, sequence: int, heads: int, head_dim: int) -> float:
    """The share that causal attention reaches forward."""
    predictor, rate = kernels.load(), "bf16" if "bf16" in device.peak_flops else "fp16"
    of = [
        predictor.attention_prefill(device, batch, sequence, heads, heads, head_dim, rate, stack=s).seconds[0]
        for s in _STACKS
    ]
    return float(2.0 * batch * heads * head_dim * sequence**2 / device.peak(rate) / min(of))
