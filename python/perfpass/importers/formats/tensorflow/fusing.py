"""What a runtime does with a recorded TensorFlow program before it runs: weights' arithmetic folded, biases joined.

Keras 3 writes a batch norm as a product and a sum with factors that it computes from four weights; both are one
batch norm again. What else is computed from weights alone is written out as it stands.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

from perfpass.importers.formats.channels_last import EACH, FOLDED, FREE, IMAGE, ROWS, Node, Tensor, needed
from perfpass.importers.formats.patterns import recognise
from perfpass.importers.formats.tensorflow.run import Run

_FACTORS = range(2, 5)  # mean and variance, with or without a scale and a shift
_PRODUCTS = ("conv", "conv_transpose", "dense")


def fused(run: Run, outputs: Sequence[Tensor]) -> None:
    """Rewrites the program's nodes in place."""
    program = run.program
    program.nodes = needed(program.nodes, outputs)
    _batch_norms(run, outputs)
    recognise(program, outputs, run.weight)
    _biases(run, outputs)
    nodes: list[Node] = []
    for node in program.nodes:
        for number, tensor in enumerate(node.inputs):
            if tensor is not None and tensor.role == FOLDED:
                program.nodes, kept = nodes, program.nodes
                node.inputs[number] = run.weight(tensor)
                nodes, program.nodes = program.nodes, kept
        nodes.append(node)
    program.nodes = nodes
    _count_once(run)


def _count_once(run: Run) -> None:
    """One weight counts once, in however many shapes it is read."""
    counted = {t for node in run.program.nodes for t in node.inputs if t is not None and t not in run.stood_in}
    for tensor, stand_in in run.stood_in.items():
        (leaf,) = tensor.leaves
        if leaf in counted:
            stand_in.role = "literal"
        counted.add(leaf)


def _readers(nodes: Sequence[Node], outputs: Sequence[Tensor]) -> Counter[Tensor | None]:
    return Counter([t for node in nodes for t in node.inputs] + list(outputs))


def _batch_norms(run: Run, outputs: Sequence[Tensor]) -> None:
    nodes = run.program.nodes
    readers = _readers(nodes, outputs)
    makers = {node.outputs[0]: node for node in nodes if node.outputs}
    gone: set[int] = set()
    for node in nodes:
        if node.kind not in ("add", "sub") or len(node.inputs) != 2:
            continue
        scaled, shift = node.inputs
        if node.kind == "add" and scaled is not None and scaled.role == FOLDED:
            scaled, shift = shift, scaled
        product = makers.get(scaled) if scaled is not None else None
        if product is None or product.kind != "mul" or readers[scaled] != 1 or shift is None or shift.role != FOLDED:
            continue
        factors = [t for t in product.inputs if t is not None and t.role == FOLDED]
        data = [t for t in product.inputs if t is not None and t.role != FOLDED]
        if len(factors) != 1 or len(data) != 1 or data[0].shape != node.outputs[0].shape:
            continue
        leaves = shift.leaves
        if not set(factors[0].leaves) <= set(leaves) or len(leaves) not in _FACTORS:
            continue
        channels = {math.prod(leaf.shape) for leaf in leaves}
        if len(channels) != 1 or math.prod(factors[0].shape) not in channels:
            continue
        last = data[0].shape[-1] in channels and factors[0].shape[-1] in channels
        node.kind, node.inputs, node.layout = "batch_norm", [data[0], *leaves], IMAGE if last else ROWS
        gone.add(id(product))
    run.program.nodes = [node for node in nodes if id(node) not in gone]


def _biases(run: Run, outputs: Sequence[Tensor]) -> None:
    nodes = run.program.nodes
    readers = _readers(nodes, outputs)
    makers = {tensor: node for node in nodes for tensor in node.outputs}
    renamed: dict[Tensor, Tensor] = {}
    kept = []
    for node in nodes:
        node.inputs = [renamed.get(t, t) if t is not None else None for t in node.inputs]
        target = _joined(run, node, makers, readers)
        if target is None:
            kept.append(node)
            continue
        product, bias, result = target
        product.inputs.append(bias)
        renamed[node.outputs[0]] = result
        readers[result] = readers[node.outputs[0]]
    run.program.nodes = kept
    for number, tensor in enumerate(outputs):
        if tensor in renamed:
            outputs[number] = renamed[tensor]  # type: ignore[index]


def _joined(
    run: Run, node: Node, makers: dict[Tensor, Node], readers: Counter[Tensor | None]
) -> tuple[Node, Tensor, Tensor] | None:
    """The product that a sum adds a bias to, the bias, and the sum's operand."""
    if node.kind != "add" or len(node.inputs) != 2:
        return None
    data, bias = node.inputs
    if data is not None and data not in makers:
        data, bias = bias, data
    if data is None or bias is None or data.shape != node.outputs[0].shape or readers[data] != 1:
        return None
    if bias.role != "weight" and not (bias.role == FOLDED and len(bias.leaves) == 1):
        return None
    product = makers.get(data)
    if product is not None and product.layout == FREE and product.kind == "reshape" and node.layout == EACH:
        before = product.inputs[0]
        if before is not None and readers[before] == 1:
            product = makers.get(before)
    if product is None or product.kind not in _PRODUCTS or len(product.inputs) != 2:
        return None
    first = product.layout == ROWS and product.kind != "dense"  # channels-first
    channels = product.outputs[0].shape[1 if first else -1]
    held = tuple(itertools.dropwhile(lambda size: size == 1, bias.shape))
    if math.prod(held) != channels or (not first and held != data.shape[len(data.shape) - len(held) :]):
        return None
    return product, run.weight(bias), data
