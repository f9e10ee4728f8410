"""Attention written out in products, a soft-max and what stands between and around them."""

from __future__ import annotations

import math

import numpy as np

from twins.fusion.links import Fused, Links, joins_axes, operators

_MASKING = operators("add", "mul", "div", "where", "cast", "clip")


def attention(links: Links, fuses: bool, turns: bool) -> Fused:
    """softmax(scale * q k + mask) v; ``parts`` [steps, G] has the first product in row 0, -1 where a step is absent.

    ``turns``: with the transposes around it.
    """
    chains, anchors = [], []
    for softmax in links.of("softmax").tolist():
        found = _one(links, softmax, fuses)
        if found is not None:
            anchors.append(found[0])
            chains.append([n for n in found[1] if turns or n < 0 or not links.is_op(np.array([n]), "transpose")[0]])
    length = max((len(c) for c in chains), default=0)
    parts = np.array([c + [-1] * (length - len(c)) for c in chains], dtype=int).reshape(len(chains), length).T
    return Fused("attention", np.array(anchors, dtype=int), parts)


def _one(links: Links, softmax: int, fuses: bool) -> tuple[int, list[int]] | None:
    """The second product of an attention around a softmax, and its other nodes, the first product before all."""

    def after(node: int, *names: str) -> int:
        return int(links.after(np.array([node]), *names)[0])

    def maker(node: int, slot: int) -> int:
        return int(links.maker(np.array([node]), slot)[0])

    def holds(node: int, *names: str) -> bool:
        return node >= 0 and bool(operators(*names)[links.op[node]])

    def shown(node: int) -> tuple[int, list[int]]:
        """What is behind reshapes that show it to one node alone, and these."""
        around: list[int] = []
        while (fuses or joins) and holds(node, "reshape") and links.next[node] >= 0:
            around.append(node)
            node = maker(node, 0)
        return node, around

    traced = bool(links.traced[softmax])
    test, chosen = (int(n[0]) for n in _guards(links, np.array([softmax])))
    converted = after(chosen, "cast", "dropout", "identity")
    rows = converted if converted >= 0 else chosen
    joined = []
    while (node := after(rows, "reshape", "expand")) >= 0:
        joined.append(node)
        rows = node
    joins, product = bool(joined), after(rows, "matmul")
    if product < 0 or (traced and joins and not fuses):
        return None
    scores, between = shown(maker(softmax, 0))
    for _ in range(4):
        if not (scores >= 0 and _MASKING[links.op[scores]] and links.next[scores] >= 0):
            break
        between.append(scores)
        # The mask may stand first: follow the operand that is computed from data.
        ways = [shown(maker(scores, slot)) for slot in (0, 1)]
        first = holds(ways[0][0], "matmul", "add", "mul", "div", "where", "cast")
        first = first and bool(links.varies(links.tensor(np.array([scores]), 0))[0])
        scores, reshapes = ways[0 if first else 1]
        between += reshapes
    if not holds(scores, "matmul") or _last_axis(links, scores) != _last_axis(links, softmax):
        return None
    around, made = [], product
    for _ in range(2 if joins else 1):
        apart = after(made, "reshape")
        if apart < 0 or joins_axes(links, apart):
            break
        made = apart
    turned = after(made, "transpose")
    around.append(turned)
    if traced and turned >= 0:
        around.append(after(turned, "copy"))
    for node, slot, scales in ((scores, 0, True), (scores, 1, True), (product, 1, False)):
        of = np.array([node])
        if traced:
            around += _copies(links, maker(node, slot), scales)
        elif joins:
            around += [int(n[0]) for n in _views(links, of, slot, scales)]
        else:
            around += [int(_scaling(links, of, slot)[0])] if scales else []
            around.append(int(_transposed(links, of, slot)[0]))
    return product, [scores, softmax, test, chosen if test >= 0 else -1, converted, *joined, *between, *around]


def _copies(links: Links, node: int, scales: bool) -> list[int]:
    """What makes an operand of a product that PyTorch recorded: views, copies and one multiplication by a number."""
    found = []
    while node >= 0 and links.next[node] >= 0:
        one = np.array([node])
        scaled = scales and bool(links.is_op(one, "mul", "div")[0] and links.by_number(one)[0])
        if not scaled and not links.is_op(one, "reshape", "expand", "transpose", "copy")[0]:
            break
        scales = scales and not scaled
        found.append(node)
        node = int(links.producer_of(links.data(one) if scaled else links.tensor(one, 0))[0])
    return found


def _last_axis(links: Links, node: int) -> int:
    """Of what a node makes; 0 for a scalar."""
    made = links.whole.node_outputs(node)
    shape = links.whole.shape(int(made[0])) if len(made) and made[0] >= 0 else ()
    return shape[-1] if shape else 0


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
