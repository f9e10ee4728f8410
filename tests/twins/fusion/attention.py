"""Attention written out in products, a soft-max and what stands between and around them."""

from __future__ import annotations

import math

import numpy as np

from twins.fusion.links import Fused, Links, joins_axes, operators

_MASKING = operators("add", "mul", "div", "where", "cast", "clip")


def attention(links: Links) -> Fused:
    """softmax(scale * q k + mask) v; ``parts`` [steps, G] has the first product in row 0, -1 where a step is absent."""
    softmax = links.of("softmax")
    test, chosen = _guards(links, softmax)
    converted = links.after(chosen, "cast", "dropout", "identity")
    probabilities = np.where(converted >= 0, converted, chosen)
    joined = np.where(links.traced[softmax], -1, links.after(probabilities, "reshape"))
    flat = joined >= 0  # products of three axes, between reshapes
    product = links.after(np.where(flat, joined, probabilities), "matmul")

    def maker(nodes: np.ndarray, slot: int) -> np.ndarray:
        made = links.maker(nodes, slot)
        behind = np.where(links.is_op(made, "reshape") & (links.next[made] >= 0), links.maker(made, 0), -1)
        return np.where(flat & links.is_op(behind, "matmul") & (links.next[behind] == made), behind, made)

    scores = maker(softmax, 0)
    between = [np.full(len(softmax), -1) for _ in range(4)]
    for step in between:
        masked = (scores >= 0) & _MASKING[links.op[scores]] & (links.next[scores] >= 0)
        step[:] = np.where(masked, scores, -1)
        upstream = maker(scores, 0)
        # The mask may stand first: follow the operand that is not made from nothing but constants.
        upstream = np.where(links.is_op(upstream, "matmul", "add", "mul", "div", "where", "cast"), upstream, -1)
        upstream = np.where(upstream >= 0, upstream, maker(scores, 1))
        scores = np.where(masked, upstream, scores)
    split = links.after(scores, "reshape")
    whole = links.is_op(scores, "matmul") & (product >= 0) & (flat | (split < 0))
    # Fused kernels read and write any order of heads and positions, so the transposes around them move nothing.
    around = [np.where(~flat, _scaling(links, scores, slot), -1) for slot in (0, 1)]
    around += [np.where(~flat, _transposed(links, *of), -1) for of in ((scores, 0), (scores, 1), (product, 1))]
    for nodes, slot, scales in ((scores, 0, True), (scores, 1, True), (product, 1, False)):
        around += _views(links, np.where(flat, nodes, -1), slot, scales)
    made = product
    for there in (np.full(len(flat), True), flat):  # behind one reshape, or two where products have three axes
        apart = np.where(there, links.after(made, "reshape"), -1)
        apart = np.array([-1 if n >= 0 and joins_axes(links, n) else n for n in apart], dtype=int)
        made = np.where(apart >= 0, apart, made)
    around.append(links.after(made, "transpose"))
    guard = np.where(test >= 0, chosen, -1)
    chain = np.stack([scores, softmax, test, guard, converted, split, joined, *between, *around])[:, whole]
    return Fused("attention", product[whole], chain)


def _views(links: Links, products: np.ndarray, slot: int, scales: bool) -> list[np.ndarray]:
    """What makes an operand of products of three axes: transposes, a reshape and a multiplication by a constant."""
    maker, found = links.maker(products, slot), []
    for names in (("transpose",), ("reshape",), ("mul", "div") if scales else (), ("transpose",)):
        fits = links.is_op(maker, *names) & (links.next[maker] >= 0)
        fits &= links.has_constant(maker) if "mul" in names else True
        found.append(np.where(fits, maker, -1))
        data = links.producer_of(links.data(maker) if "mul" in names else links.tensor(maker, 0))
        maker = np.where(fits, data, maker)
    if scales:  # or before the heads are split, by one number
        splits = links.is_op(maker, "reshape") & (links.next[maker] >= 0)
        scale = np.where(splits, links.maker(maker, 0), -1)
        fits = links.is_op(scale, "mul", "div") & (links.next[scale] >= 0) & links.has_constant(scale)
        found.append(np.where(fits & _by_one_number(links, scale), scale, -1))
    return found


def _by_one_number(links: Links, nodes: np.ndarray) -> np.ndarray:
    """Whether the operand of each node that is no data holds one number."""
    first, second = links.tensor(nodes, 0), links.tensor(nodes, 1)
    other = np.where(links.data(nodes) == first, second, first)
    return np.array([t >= 0 and math.prod(links.whole.shape(int(t))) == 1 for t in other], bool)


def _guards(links: Links, softmax: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The test for what is no number and the choice of zero there after each softmax: -1 and the softmax without."""
    test, chosen = np.full(len(softmax), -1), softmax.copy()
    for choice in links.of("where"):
        one = np.array([choice])
        tested = links.maker(one, 0)
        rows = links.maker(tested, 0)
        guards = links.is_op(tested, "is_special") & (links.next[tested] == choice) & links.is_op(rows, "softmax")
        guards &= (links.maker(one, 1) == rows) | (links.maker(one, 2) == rows)
        if guards[0] and links.readers[rows[0]] == 2:
            test[softmax == rows[0]], chosen[softmax == rows[0]] = tested[0], choice
    return test, chosen


def _scaling(links: Links, products: np.ndarray, slot: int) -> np.ndarray:
    """The multiplication by a constant that makes an operand of each product (through a transpose), else -1."""
    maker = links.maker(products, slot)
    maker = np.where(links.is_op(maker, "transpose"), links.maker(maker, 0), maker)
    scales = links.is_op(maker, "mul", "div") & links.has_constant(maker) & (links.next[maker] >= 0)
    return np.where(scales, maker, -1)


def _transposed(links: Links, products: np.ndarray, slot: int) -> np.ndarray:
    """The transpose that makes an operand of each product, else -1."""
    maker = links.maker(products, slot)
    return np.where(links.is_op(maker, "transpose") & (links.next[maker] >= 0), maker, -1)
