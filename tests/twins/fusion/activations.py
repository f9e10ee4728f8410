"""Activations written out in parts: GELU, SiLU, hard swish, hard sigmoid."""

from __future__ import annotations

import numpy as np

from perfpass.graph import OPERATORS
from twins.fusion.links import Fused, Links


def gelus(links: Links, fuses: bool) -> Fused:
    """GELU: x / sqrt(2) -> erf -> + 1 -> * x -> / 2, the halving before or after."""
    erf = links.of("erf")
    scaled = links.maker(erf, 0)
    scaled = np.where(links.is_op(scaled, "div", "mul") & (links.next[scaled] == erf), scaled, -1)
    plus_one = links.after(erf, "add", constant=True, number=fuses)
    times_x = links.after(plus_one, "mul")
    halved = links.after(times_x, "mul", "div", constant=True, number=fuses)
    whole = times_x >= 0
    # Half of x, made before: the other operand of the product.
    other = np.where(links.maker(times_x, 0) == plus_one, links.maker(times_x, 1), links.maker(times_x, 0))
    half = np.where(links.is_op(other, "mul", "div") & (links.next[other] == times_x) & (halved < 0), other, -1)
    parts = np.stack([scaled, plus_one, times_x, halved, half])[:, whole]
    by_tanh = _gelus_by_tanh(links) if fuses else ([], [])
    anchors = np.concatenate([erf[whole], np.array(by_tanh[0], dtype=int)])
    return Fused("gelu", anchors, np.unique(np.concatenate([parts[parts >= 0], np.array(by_tanh[1], dtype=int)])))


def _gelus_by_tanh(links: Links) -> tuple[list[int], list[int]]:
    """Anchors and parts of x / 2 * (1 + tanh(cubic of x)), one at a time."""
    anchors: list[int] = []
    parts: list[int] = []

    def after(node: int, *names: str, number: bool = False) -> int:
        return int(links.after(np.array([node]), *names, constant=number, number=number)[0])

    for tanh in links.of("tanh").tolist():
        plus_one = after(tanh, "add", number=True)
        half_sum = after(plus_one, "mul", "div", number=True)
        factor = half_sum if half_sum >= 0 else plus_one
        product = after(factor, "mul")
        if product < 0:
            continue
        read = [int(links.tensor(np.array([product]), slot)[0]) for slot in (0, 1)]
        x = read[1] if links.producer_of(np.array(read))[0] == factor else read[0]
        halved = after(product, "mul", "div", number=True)
        half = np.array([links.producer_of(np.array([x]))[0]])
        halves = bool((links.is_op(half, "mul", "div") & links.by_number(half) & (links.next[half] == product))[0])
        if half_sum >= 0:
            chain = [plus_one, half_sum, product]
        elif halves:
            chain, x = [plus_one, int(half[0]), product], int(links.data(half)[0])
        else:
            chain = [plus_one, product, halved]
        cubic: list[int] = []
        if min(chain) >= 0 and x >= 0 and _powers(links, int(links.tensor(np.array([tanh]), 0)[0]), x, cubic) == 3:
            anchors.append(tanh)
            parts += [*chain, *cubic]
    return anchors, parts


def _powers(links: Links, tensor: int, x: int, nodes: list[int]) -> float:
    """The highest power of ``x`` in a tensor made of at most eight nodes read once; NaN for what is no polynomial."""
    if tensor == x:
        return 1.0
    if tensor < 0 or not links.varies(np.array([tensor]))[0]:
        return 0.0
    node = int(links.producer_of(np.array([tensor]))[0])
    if node < 0 or links.next[node] < 0 or not links.is_op(np.array([node]), "add", "mul", "pow")[0] or len(nodes) == 8:
        return np.nan
    nodes.append(node)
    first, second = (_powers(links, int(links.tensor(np.array([node]), slot)[0]), x, nodes) for slot in (0, 1))
    name = OPERATORS[links.op[node]]
    if name == "pow":
        return 3.0 * first if second == 0 else np.nan
    return first + second if name == "mul" else max(first, second) if first == first and second == second else np.nan


def silus(links: Links, fuses: bool) -> Fused:
    """SiLU: x * sigmoid(x); also of a multiple of x."""
    sigmoid = links.of("sigmoid")
    product = links.after(sigmoid, "mul")
    x = links.tensor(sigmoid, 0)
    whole = (product >= 0) & ((links.tensor(product, 0) == x) | (links.tensor(product, 1) == x))
    scaled = links.maker(sigmoid, 0)
    x = links.data(scaled)
    quick = links.is_op(scaled, "mul") & links.by_number(scaled) & (links.next[scaled] == sigmoid) & (product >= 0)
    quick &= ~whole & ((links.tensor(product, 0) == x) | (links.tensor(product, 1) == x)) & fuses
    parts = np.concatenate([product[whole | quick], scaled[quick]])
    return Fused("silu", sigmoid[whole | quick], np.unique(parts))


def hard_activations(links: Links) -> tuple[Fused, Fused]:
    """Hard swish: x * clip(x + 3, 0, 6) / 6, the sixth before the addition or of the product too. Hard sigmoid:
    clip(a x + b, 0, 1) or clip(x + 3, 0, 6) / 6 that is no part of one.
    """
    clip = links.of("clip")
    shifted = links.maker(clip, 0)
    shifts = links.is_op(shifted, "add") & links.has_constant(shifted) & (links.next[shifted] == clip)
    scaled = np.where(shifts, links.producer_of(links.data(shifted)), -1)
    scales = links.is_op(scaled, "mul", "div") & links.has_constant(scaled) & (links.next[scaled] == shifted)
    scales &= ~links.is_op(scaled, "div") | (links.data(scaled) == links.tensor(scaled, 0))  # not a constant by x
    scaled = np.where(scales, scaled, -1)
    x = np.where(scales, links.data(scaled), links.data(shifted))
    before = links.after(clip, "mul", "div", constant=True)
    product = _product_with(links, np.where(before >= 0, before, clip), x)
    whole = shifts & (product >= 0)
    gate = shifts & (product < 0) & (scales | (before >= 0)) & ~links.traced[clip]
    sixth = np.where(scales, -1, before)
    behind = np.where(scales, -1, links.after(product, "mul", "div", constant=True))
    parts = np.stack([scaled, shifted, np.where(before >= 0, before, behind), product])[:, whole]
    sigmoid = links.of("hard_sigmoid")
    times = _product_with(links, sigmoid, links.tensor(sigmoid, 0))
    anchor = np.concatenate([clip[whole], sigmoid[times >= 0]])
    swishes = Fused("hard_swish", anchor, np.unique(np.concatenate([parts[parts >= 0], times[times >= 0]])))
    parts = np.stack([scaled, shifted, sixth])[:, gate]
    return swishes, Fused("hard_sigmoid", clip[gate], np.unique(parts[parts >= 0]))


def _product_with(links: Links, nodes: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The only reader of each node where it is a product with ``x``, else -1."""
    product = links.after(nodes, "mul")
    return np.where((links.tensor(product, 0) == x) | (links.tensor(product, 1) == x), product, -1)
