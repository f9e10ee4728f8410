"""Kernels that take what stands before and after them: products with weights, convolutions, pools."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from perfpass.graph import ATTRIBUTES
from twins.costs import Node, shown_weight
from twins.fusion.links import WEIGHT, Fused, Links

if TYPE_CHECKING:
    from perfpass.graph import OpGraph


def _for_all_samples(graph: OpGraph, node: int, tensor: int) -> bool:
    """Whether a tensor is a weight matrix seen through views, the same one for every sample."""
    shape = graph.shape(int(tensor)) if tensor >= 0 else ()
    weight = shown_weight(Node(graph, int(node)), int(tensor)) if len(shape) > 1 else -1
    return weight >= 0 and prod(graph.shape(weight)) == shape[-2] * shape[-1]


def linears(links: Links) -> Fused:
    """Products with a weight, and the addition of a constant right after: one kernel."""
    products = links.of("matmul")
    second = links.tensor(products, 1)
    shown = np.array([_for_all_samples(links.whole, n, t) for n, t in zip(products, second, strict=True)], dtype=bool)
    linear = products[(second >= 0) & ((links.role[second] == WEIGHT) | shown)]
    added = links.after(linear, "add", constant=True)
    return Fused("dense", linear, added[added >= 0])


def around_kernels(links: Links) -> Fused:
    """Kernels with the padding of one number before them, and the addition of one constant a channel right after."""
    node = links.of("conv", "conv_transpose", "dense", "max_pool")
    before = links.maker(node, 0)
    zeros = np.array([links.whole.source_op_name(int(n)) in ("PAD", "PADV2") if n >= 0 else False for n in before])
    padded = links.is_op(before, "pad") & (links.next[before] == node) & zeros.astype(bool)
    padded &= ~links.is_op(node, "dense") & ~links.traced[node]
    dense = links.is_op(node, "dense")
    shown = np.where(dense, links.after(node, "reshape"), -1)
    added = links.next[np.where(shown >= 0, shown, node)]
    bias = np.where(links.data_slot(added) == 1, links.tensor(added, 0), links.tensor(added, 1))
    fits = links.is_op(added, "add") & links.has_constant(added) & (links.tensor(node, 2) < 0) & ~links.traced[node]
    fits &= ~links.is_op(node, "max_pool")
    for i in np.flatnonzero(fits):
        made = links.whole.node_outputs(int(node[i]))
        shape = links.whole.shape(int(made[0])) if len(made) and made[0] >= 0 else ()
        last = bool(dense[i]) or links.whole.attributes[node[i], ATTRIBUTES.index("channels_last")] != 0
        channels = 0 if len(shape) < 2 else shape[-1] if last else shape[1]
        added_shape = links.whole.shape(int(bias[i])) if bias[i] >= 0 else ()
        fits[i] = channels > 1 and prod(added_shape) == channels and (not last or added_shape[-1] == channels)
    parts = np.concatenate([before[padded], shown[fits], added[fits]])
    return Fused(None, node[fits | padded], parts[parts >= 0])


def rolls(links: Links) -> Fused:
    """Two slices of a tensor put together the other way round, along one axis after another."""
    turned: dict[int, tuple[int, list[int]]] = {}  # the tensor, and its two slices
    for node in links.of("concat").tolist():
        inputs = links.whole.node_inputs(node)
        slices = [int(links.producer_of(np.array([t]))[0]) for t in inputs]
        cut = all(n >= 0 and links.is_op(np.array([n]), "slice")[0] and links.next[n] == node for n in slices)
        if links.traced[node] or len(slices) != 2 or not cut:
            continue
        sources = {int(links.tensor(np.array([n]), 0)[0]) for n in slices}
        source, made = max(sources), int(links.whole.node_outputs(node)[0])
        if len(sources) == 1 and source >= 0 and links.whole.shape(made) == links.whole.shape(source):
            turned[node] = source, slices

    def before(node: int) -> int:
        maker = int(links.producer_of(np.array([turned[node][0]]))[0])
        return maker if maker in turned and links.readers[maker] == 2 else -1

    anchors = sorted(turned.keys() - {before(node) for node in turned})
    parts = []
    for anchor in anchors:
        node = anchor
        while node >= 0:
            parts += turned[node][1] + ([node] if node != anchor else [])
            node = before(node)
    return Fused("roll", np.array(anchors, dtype=int), np.array(parts, dtype=int))
