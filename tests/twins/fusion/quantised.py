"""What a file computes between dequantized inputs and a quantized output: runtimes run it in 8 bits."""

from __future__ import annotations

import numpy as np

from twins.fusion.links import LITERAL, WEIGHT, Links

PRODUCTS = ("conv", "dense", "matmul")


def units(links: Links) -> tuple[list[int], dict[int, int]]:
    """The nodes in 8 bits, and those that vanish, each with the unit that it vanishes into."""
    found: list[int] = []
    parts: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    for node in range(len(links.op)):
        one = np.array([node])
        product = bool(links.is_op(one, *PRODUCTS)[0])
        if links.is_op(one, "quantize", "dequantize")[0] or not _widened(links, node, product):
            continue
        clipped = links.after(one, "relu", "clip") if product else np.array([-1])
        narrowed = int(links.after(np.where(clipped >= 0, clipped, one), "quantize")[0])
        if narrowed < 0 and not links.is_op(one, "dense", "matmul")[0]:
            continue
        found.append(node)
        if narrowed >= 0:
            parts |= {n: node for n in (int(clipped[0]), narrowed) if n >= 0}
        for tensor in links.whole.node_inputs(node):
            maker = int(links.producer_of(np.array([tensor]))[0])
            if maker >= 0 and links.is_op(np.array([maker]), "dequantize")[0]:
                readers.setdefault(maker, []).append(node)
    return found, parts | {n: read[-1] for n, read in readers.items() if len(read) >= links.readers[n]}


def stored_elements(links: Links, node: int) -> int:
    """Of the weight in 8 bits that a product reads widened, else 0."""
    one = np.array([node])
    maker = links.maker(one, 1)
    if not links.is_op(one, *PRODUCTS)[0] or not links.is_op(maker, "dequantize")[0]:
        return 0
    stored = int(links.tensor(maker, 0)[0])
    if stored < 0 or links.role[stored] not in (LITERAL, WEIGHT):
        return 0
    return int(np.prod(links.whole.shape(int(links.tensor(one, 1)[0])), dtype=np.int64))


def _widened(links: Links, node: int, product: bool) -> bool:
    """Whether a node reads dequantized operands alone: both of a product, of anything else beside constants."""
    tensors = list(links.whole.node_inputs(node))
    if product:
        tensors = [*tensors, -1, -1][:2]
    made = links.producer_of(np.array(tensors, dtype=int))
    dequantized = links.is_op(made, "dequantize")
    aside = ~links.varies(np.array(tensors, dtype=int))
    return bool(dequantized.any()) and bool((dequantized | (aside & (not product))).all())
