"""Layer norms written out in parts."""

from __future__ import annotations

import numpy as np

from twins.fusion.links import Fused, Links, keep_last


def layer_norms(links: Links) -> Fused:
    """(x - mean) / sqrt(variance + eps) * weight + bias, by the root or its inverse, the variance in parts or one."""
    root = links.of("sqrt", "rsqrt")
    epsilon = links.maker(root, 0)
    traced = links.traced[root]

    def known(nodes: np.ndarray) -> np.ndarray:
        return links.is_op(nodes, "reduce_mean") | (links.is_op(nodes, "reduce_variance") & ~traced)

    variance = np.where(links.is_op(epsilon, "add"), links.maker(epsilon, 0), -1)
    variance = np.where(known(variance), variance, links.maker(epsilon, 1))
    divided = np.where(links.is_op(root, "rsqrt"), links.after(root, "mul"), links.after(root, "div"))
    inverts = links.is_op(divided, "div") & (links.data_slot(divided) == 1) & ~traced  # a constant by the root
    reciprocal = np.where(inverts, divided, -1)
    divided = np.where(inverts, links.after(divided, "mul"), divided)
    inverse = np.where(inverts, reciprocal, root)
    beside = np.where(links.maker(divided, 0) == inverse, links.maker(divided, 1), links.maker(divided, 0))
    in_parts = links.is_op(variance, "reduce_mean")
    square = np.where(in_parts, links.maker(variance, 0), -1)
    centred = np.where(in_parts, links.maker(square, 0), beside)
    mean = links.maker(centred, 1)
    whole = (
        links.is_op(epsilon, "add")
        & known(variance)
        & (links.is_op(root, "sqrt") | ~traced)
        & (divided >= 0)
        & (links.is_op(square, "pow", "mul") | ~in_parts)
        & links.is_op(centred, "sub")
        & (links.is_op(divided, "div") | (centred == beside))
        & links.is_op(mean, "reduce_mean")
        & (in_parts | (links.tensor(variance, 0) == links.tensor(centred, 0)))
    )
    scaled = links.after(divided, "mul", constant=True)
    shifted = links.after(scaled, "add", constant=True)
    chain = [mean, centred, square, variance, epsilon, root, reciprocal, divided, scaled, shifted]
    quotients, sums = keep_last("layer_norm", np.stack(chain)[:, whole]), _sums_of_layer_norms(links)
    parts = np.unique(np.concatenate([quotients.parts, sums.parts]))
    return Fused("layer_norm", np.concatenate([quotients.anchor, sums.anchor]), parts)


def _sums_of_layer_norms(links: Links) -> Fused:
    """Products and sums: x s + (bias - mean s) with s = weight / sqrt(variance + eps), reshapes between."""

    def shown(nodes: np.ndarray, slot: np.ndarray | int) -> np.ndarray:
        maker = np.where(np.asarray(slot) == 1, links.maker(nodes, 1), links.maker(nodes, 0))
        return np.where(links.is_op(maker, "reshape"), links.maker(maker, 0), maker)

    total = links.of("add")
    second = links.is_op(shown(total, 1), "sub").astype(int)
    difference, product = shown(total, second), shown(total, 1 - second)
    subtracted = shown(difference, 1)
    of_mean = 1 - links.is_op(shown(subtracted, 0), "reduce_mean").astype(int)
    mean, scale = shown(subtracted, of_mean), shown(subtracted, 1 - of_mean)
    of_scale = (shown(product, 0) != scale).astype(int)
    x = np.where(of_scale == 1, links.tensor(product, 0), links.tensor(product, 1))
    weighted = links.is_op(scale, "mul") & links.has_constant(scale)
    root = np.where(weighted, shown(scale, links.data_slot(scale)), scale)
    epsilon = links.maker(root, 0)
    variance = shown(epsilon, links.data_slot(epsilon))
    in_parts = links.is_op(variance, "reduce_mean")
    square = np.where(in_parts, links.maker(variance, 0), -1)
    centred = np.where(links.is_op(square, "pow", "mul"), links.maker(square, 0), square)
    whole = (
        ~links.traced[total]
        & links.is_op(difference, "sub")
        & links.is_op(product, "mul")
        & links.is_op(subtracted, "mul")
        & links.is_op(mean, "reduce_mean")
        & (shown(product, of_scale) == scale)
        & (links.tensor(mean, 0) == x)
        & links.is_op(root, "rsqrt")
        & links.is_op(epsilon, "add")
        & links.is_op(variance, "reduce_mean", "reduce_variance")
        & ((square < 0) | (links.is_op(centred, "sub") & (shown(centred, 1) == mean)))
    )
    scaled = np.where(weighted, -1, links.after(total, "mul", constant=True))
    shifted = links.after(scaled, "add", constant=True)
    chain = [mean, centred, square, variance, epsilon, root, scale, subtracted, difference, product]
    return keep_last("layer_norm", np.stack([*chain, total, scaled, shifted])[:, whole])
