"""The operator table as a runtime runs it, with NumPy: every pattern as array operations over all nodes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import accumulate
from math import prod
from operator import mul
from typing import TYPE_CHECKING

import numpy as np

from perfpass.graph import ATTRIBUTES, DTYPES, OPERATOR_CLASS_OF, OPERATORS, ROLES
from twins import folding
from twins import table as table_twin
from twins.costs import Node, shown_weight

if TYPE_CHECKING:
    from perfpass.features import OperatorTable
    from perfpass.graph import OpGraph

MAX_RANK = 16  # of a tensor (cpp_kernels/include/perfpass/graph.hpp), so the most integers that a shape can have
_OP = {name: index for index, name in enumerate(OPERATORS)}
_INTEGER = np.array([name.startswith(("int", "uint", "bool")) for name in DTYPES])
_LITERAL, _WEIGHT = ROLES.index("literal"), ROLES.index("weight")


def _operators(*names: str) -> np.ndarray:
    """[operators] bool: whether an operator is one of ``names``."""
    chosen = np.zeros(len(OPERATORS), dtype=bool)
    chosen[[_OP[name] for name in names]] = True
    return chosen


_MASKING = _operators("add", "mul", "div", "where", "cast", "clip")
# What torch does by changing strides, and a file by an operator of its own.
_STRIDED = _operators("transpose", "split", "slice", "expand", "gather")
_NOTHING = _operators("identity", "dropout", "constant")


@dataclass(frozen=True)
class _Fused:
    """Nodes that become one: ``anchor`` [G] stays, as operator ``op`` where one is given; ``parts`` [P] vanish."""

    op: str | None
    anchor: np.ndarray
    parts: np.ndarray


def as_run(graph: OpGraph, costs: dict[str, list[int]], table: OperatorTable, runtime: str, kind: str) -> OperatorTable:
    """``table`` of the graph with written-out operators put together, without shape arithmetic and what does nothing.

    ``costs`` are those of the twin.
    """
    if not len(table):
        return table
    links = _Links(graph)
    rows = _row_of_nodes(graph, costs)
    folds = runtime not in ("torch", "torch.compile")
    free = links.fixed & folds
    if kind == "gpu" or not folds:
        free |= np.array([_by_strides(links, n) for n in range(len(rows))], dtype=bool)
    table, rows = _show(free, table, rows, np.asarray(graph.core.repeat))
    result = _Rows(table, rows, np.asarray(graph.core.repeat))
    fuses = kind == "gpu" and runtime in ("torch.compile", "onnxruntime", "tensorrt", "tvm", "relax")
    activations = (_gelus(links, fuses), _silus(links, fuses), *_hard_activations(links))
    patterns = (_layer_norms(links), *activations, _linears(links))
    for fused in (*patterns, _around_kernels(links)):
        result.merge(fused)
    attention = _attention(links)
    if len(attention.anchor):
        result.merge_attention(attention)
    result.drop(_is_shape_arithmetic(table) | _NOTHING[np.asarray(table.op)])
    return result.table()


def _is_shape_arithmetic(table: OperatorTable) -> np.ndarray:
    """[R] rows that compute shapes or scalars, which runtimes fold or leave to the host."""
    outputs = np.asarray(table.output_elements)
    few = (outputs <= 1) | (_INTEGER[np.asarray(table.dtype)] & (outputs <= MAX_RANK))
    return few & (np.asarray(table.macs) == 0)


class _Links:
    """Who makes what a node reads and who reads what it makes, as arrays over the nodes; -1 where there is none."""

    def __init__(self, graph: OpGraph) -> None:
        core = graph.core
        self.op = np.asarray(core.op)
        self.producer = np.asarray(core.producer)
        self.whole = graph
        self.role = np.asarray(core.tensor_role)
        self._inputs = np.append(np.asarray(core.inputs), -1)
        self._offset = np.asarray(core.input_offset)
        readers = np.bincount(np.asarray(core.edge_producer), minlength=len(self.op))
        self.next = np.full(len(self.op), -1)  # the one reader of a node's outputs
        single = readers[core.edge_producer] == 1
        self.next[core.edge_producer[single]] = core.edge_consumer[single]
        outputs = np.asarray(graph.graph_outputs)
        made = self.producer[outputs[outputs >= 0]]
        self.next[made[made >= 0]] = -1  # the caller reads it too
        self.readers = readers
        names = [graph.source_op_name(n) for n in range(graph.node_count)]
        self.traced = np.array([name.startswith("aten.") for name in names], dtype=bool)  # PyTorch ran it as it is
        self.fixed = folding.fixed(graph, on_load=True)

    def of(self, *names: str) -> np.ndarray:
        """The nodes of these operators."""
        return np.flatnonzero(_operators(*names)[self.op])

    def tensor(self, nodes: np.ndarray, slot: int) -> np.ndarray:
        """Input tensor ``slot`` of each node."""
        at = self._offset[nodes] + slot
        return np.where((nodes >= 0) & (at < self._offset[nodes + 1]), self._inputs[np.minimum(at, self._last)], -1)

    @property
    def _last(self) -> int:
        return len(self._inputs) - 1

    def data_slot(self, nodes: np.ndarray) -> np.ndarray:
        """The first of two inputs that is computed from data, else the first."""
        return (~self.varies(self.tensor(nodes, 0)) & self.varies(self.tensor(nodes, 1))).astype(int)

    def data(self, nodes: np.ndarray) -> np.ndarray:
        """The tensor in the slot of data."""
        return np.where(self.data_slot(nodes) == 1, self.tensor(nodes, 1), self.tensor(nodes, 0))

    def varies(self, tensors: np.ndarray) -> np.ndarray:
        """Whether tensors exist and are neither constants nor made of them and shapes alone."""
        constant = (self.role[tensors] == _LITERAL) | (self.role[tensors] == _WEIGHT)
        made = self.producer_of(tensors)
        return (tensors >= 0) & ~constant & ~((made >= 0) & self.fixed[made])

    def producer_of(self, tensors: np.ndarray) -> np.ndarray:
        """The node that makes each tensor, else -1."""
        return np.where(tensors >= 0, self.producer[tensors], -1)

    def maker(self, nodes: np.ndarray, slot: int) -> np.ndarray:
        """The node that makes input ``slot``."""
        tensor = self.tensor(nodes, slot)
        return np.where(tensor >= 0, self.producer[tensor], -1)

    def is_op(self, nodes: np.ndarray, *names: str) -> np.ndarray:
        """Whether each node exists and is one of the operators."""
        return (nodes >= 0) & _operators(*names)[self.op[nodes]]

    def has_constant(self, nodes: np.ndarray) -> np.ndarray:
        """Whether one of the first two inputs is a weight or a literal, or made of these and shapes alone."""
        constant = np.zeros(len(nodes), dtype=bool)
        for slot in (0, 1):
            tensor = self.tensor(nodes, slot)
            constant |= (tensor >= 0) & ((self.role[tensor] == _LITERAL) | (self.role[tensor] == _WEIGHT))
            made = self.maker(nodes, slot)
            constant |= (made >= 0) & self.fixed[made]
        return constant

    def by_number(self, nodes: np.ndarray) -> np.ndarray:
        """Whether each node takes one tensor of data beside a constant, or a number that is no input."""
        return self.has_constant(nodes) | (self.tensor(nodes, 1) < 0)

    def after(self, nodes: np.ndarray, *names: str, constant: bool = False, number: bool = False) -> np.ndarray:
        """The only reader of each node if it is one of the operators (with a constant operand), else -1.

        ``number``: with one, or with a number that is no input.
        """
        reader = np.where(nodes >= 0, self.next[nodes], -1)
        fits = self.is_op(reader, *names)
        if constant:
            fits &= self.by_number(reader) if number else self.has_constant(reader)
        return np.where(fits, reader, -1)


def _layer_norms(links: _Links) -> _Fused:
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
    quotients, sums = _keep_last("layer_norm", np.stack(chain)[:, whole]), _sums_of_layer_norms(links)
    parts = np.unique(np.concatenate([quotients.parts, sums.parts]))
    return _Fused("layer_norm", np.concatenate([quotients.anchor, sums.anchor]), parts)


def _sums_of_layer_norms(links: _Links) -> _Fused:
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
    return _keep_last("layer_norm", np.stack([*chain, total, scaled, shifted])[:, whole])


def _keep_last(op: str, chain: np.ndarray) -> _Fused:
    """The last node of each chain [length, G] that exists stays; the others are its parts."""
    if chain.shape[1] == 0:
        return _Fused(op, np.empty(0, dtype=int), np.empty(0, dtype=int))
    last = len(chain) - 1 - np.argmax(chain[::-1] >= 0, axis=0)
    anchor = chain[last, np.arange(chain.shape[1])]
    parts = chain[(chain >= 0) & (np.arange(len(chain))[:, None] != last)]
    return _Fused(op, anchor, np.unique(parts))


def _gelus(links: _Links, fuses: bool) -> _Fused:
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
    return _Fused("gelu", anchors, np.unique(np.concatenate([parts[parts >= 0], np.array(by_tanh[1], dtype=int)])))


def _gelus_by_tanh(links: _Links) -> tuple[list[int], list[int]]:
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


def _powers(links: _Links, tensor: int, x: int, nodes: list[int]) -> float:
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


def _silus(links: _Links, fuses: bool) -> _Fused:
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
    return _Fused("silu", sigmoid[whole | quick], np.unique(parts))


def _hard_activations(links: _Links) -> tuple[_Fused, _Fused]:
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
    swishes = _Fused("hard_swish", anchor, np.unique(np.concatenate([parts[parts >= 0], times[times >= 0]])))
    parts = np.stack([scaled, shifted, sixth])[:, gate]
    return swishes, _Fused("hard_sigmoid", clip[gate], np.unique(parts[parts >= 0]))


def _product_with(links: _Links, nodes: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The only reader of each node where it is a product with ``x``, else -1."""
    product = links.after(nodes, "mul")
    return np.where((links.tensor(product, 0) == x) | (links.tensor(product, 1) == x), product, -1)


def _for_all_samples(graph: OpGraph, node: int, tensor: int) -> bool:
    """Whether a tensor is a weight matrix seen through views, the same one for every sample."""
    shape = graph.shape(int(tensor)) if tensor >= 0 else ()
    weight = shown_weight(Node(graph, int(node)), int(tensor)) if len(shape) > 1 else -1
    return weight >= 0 and prod(graph.shape(weight)) == shape[-2] * shape[-1]


def _linears(links: _Links) -> _Fused:
    """Products with a weight, and the addition of a constant right after: one kernel."""
    products = links.of("matmul")
    second = links.tensor(products, 1)
    shown = np.array([_for_all_samples(links.whole, n, t) for n, t in zip(products, second, strict=True)], dtype=bool)
    linear = products[(second >= 0) & ((links.role[second] == _WEIGHT) | shown)]
    added = links.after(linear, "add", constant=True)
    return _Fused("dense", linear, added[added >= 0])


def _around_kernels(links: _Links) -> _Fused:
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
    return _Fused(None, node[fits | padded], parts[parts >= 0])


def _attention(links: _Links) -> _Fused:
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
        apart = np.array([-1 if n >= 0 and _joins_axes(links, n) else n for n in apart], dtype=int)
        made = np.where(apart >= 0, apart, made)
    around.append(links.after(made, "transpose"))
    guard = np.where(test >= 0, chosen, -1)
    chain = np.stack([scores, softmax, test, guard, converted, split, joined, *between, *around])[:, whole]
    return _Fused("attention", product[whole], chain)


def _views(links: _Links, products: np.ndarray, slot: int, scales: bool) -> list[np.ndarray]:
    """What makes an operand of products of three axes: transposes, a reshape and a multiplication by a constant."""
    maker, found = links.maker(products, slot), []
    for names in (("transpose",), ("reshape",), ("mul", "div") if scales else (), ("transpose",)):
        fits = links.is_op(maker, *names) & (links.next[maker] >= 0)
        fits &= links.has_constant(maker) if "mul" in names else True
        found.append(np.where(fits, maker, -1))
        data = links.producer_of(links.data(maker) if "mul" in names else links.tensor(maker, 0))
        maker = np.where(fits, data, maker)
    return found


def _guards(links: _Links, softmax: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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


def _scaling(links: _Links, products: np.ndarray, slot: int) -> np.ndarray:
    """The multiplication by a constant that makes an operand of each product (through a transpose), else -1."""
    maker = links.maker(products, slot)
    maker = np.where(links.is_op(maker, "transpose"), links.maker(maker, 0), maker)
    scales = links.is_op(maker, "mul", "div") & links.has_constant(maker) & (links.next[maker] >= 0)
    return np.where(scales, maker, -1)


def _transposed(links: _Links, products: np.ndarray, slot: int) -> np.ndarray:
    """The transpose that makes an operand of each product, else -1."""
    maker = links.maker(products, slot)
    return np.where(links.is_op(maker, "transpose") & (links.next[maker] >= 0), maker, -1)


def _joins_axes(links: _Links, node: int) -> bool:
    """Whether a reshape makes one axis of several: some axis of the result ends inside none of what it reads."""
    read, made = links.whole.node_inputs(node), links.whole.node_outputs(node)
    if not len(read) or read[0] < 0 or not len(made) or made[0] < 0:
        return True
    before, after = (list(links.whole.shape(int(t))) for t in (read[0], made[0]))
    ends = [set(accumulate([1, *shape], mul)) for shape in (before, after)]
    return 0 in ends[0] | ends[1] or not ends[0] <= ends[1] or prod(before) != prod(after)


def _by_strides(links: _Links, node: int) -> bool:
    """Whether a node shows what it reads by other strides; transposes whose axes are joined next are copied."""
    name = OPERATORS[links.op[node]]
    if name == "gather":
        index = links.tensor(np.array([node]), 1)[0]
        constant = index >= 0 and links.role[index] in (_LITERAL, _WEIGHT)
        if not links.traced[node]:
            constant = index >= 0 and not links.varies(np.array([index]))[0]
        return bool(constant and prod(links.whole.shape(int(index))) == 1)
    reshaped = links.after(np.array([node]), "reshape")[0] if name == "transpose" else -1
    return bool(_STRIDED[links.op[node]]) and (reshaped < 0 or not _joins_axes(links, reshaped))


def _show(
    shows: np.ndarray, table: OperatorTable, rows: np.ndarray, repeat: np.ndarray
) -> tuple[OperatorTable, np.ndarray]:
    """The nodes ``shows`` in rows that are views: their own, or one like it behind all others."""
    columns = {f.name: np.array(getattr(table, f.name)) for f in fields(table)}
    rows = rows.copy()
    for row in range(len(table)):
        of_row = rows == row
        shown = np.flatnonzero(of_row & shows)
        if columns["view"][row] or not len(shown):
            continue
        if len(shown) < of_row.sum():
            rows[shown] = len(columns["op"])
            columns = {name: np.append(column, column[row]) for name, column in columns.items()}
            columns["count"][-1] = sum(repeat[shown].tolist())
            columns["count"][row] -= columns["count"][-1]
            columns["view"][-1] = 1
        else:
            columns["view"][row] = 1
    return type(table)(**columns), rows


def _row_of_nodes(graph: OpGraph, costs: dict[str, list[int]]) -> np.ndarray:
    """[N] the table row of each node; -1 for nodes that never run."""
    keys = table_twin.keys(graph, costs)
    order = {key: row for row, key in enumerate(dict.fromkeys(k for k in keys if k is not None))}
    return np.array([-1 if key is None else order[key] for key in keys])


class _Rows:
    """A table being edited: counts go down where nodes are merged, and merged rows are appended."""

    def __init__(self, table: OperatorTable, row_of: np.ndarray, repeat: np.ndarray) -> None:
        self._source = table
        self._row_of = row_of
        self._repeat = repeat
        self._count = np.array(table.count, dtype=np.float64)
        self._added: list[dict[str, float]] = []

    def _remove(self, nodes: np.ndarray) -> bool:
        """Takes the executions of nodes from their rows; False, and nothing taken, if a row is not known."""
        rows = self._row_of[nodes]
        if (rows < 0).any():
            return False
        np.subtract.at(self._count, rows, self._repeat[nodes])
        return True

    def drop(self, rows: np.ndarray) -> None:
        """Takes every execution from the rows, given as a mask."""
        self._count[rows] = 0.0

    def merge(self, fused: _Fused) -> None:
        """Anchors change their operator, parts go."""
        if not self._remove(np.concatenate([fused.anchor, fused.parts])):
            return
        anchors, inverse = np.unique(self._row_of[fused.anchor], return_inverse=True)
        counts = np.bincount(inverse, weights=self._repeat[fused.anchor], minlength=len(anchors))
        for row, count in zip(anchors.tolist(), counts.tolist(), strict=True):
            self._append(row, fused.op or OPERATORS[self._source.op[row]], count)

    def merge_attention(self, fused: _Fused) -> None:
        """Both products in one row of the first one's sizes; the scores between them never leave the chip."""
        if not self._remove(np.concatenate([fused.anchor, fused.parts[fused.parts >= 0]])):
            return
        pairs = np.stack([self._row_of[fused.parts[0]], self._row_of[fused.anchor]])
        pairs, inverse = np.unique(pairs, axis=1, return_inverse=True)
        counts = np.bincount(inverse.ravel(), weights=self._repeat[fused.anchor], minlength=pairs.shape[1])
        t = self._source
        for (first, second), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
            row = self._append(first, "attention", count)
            row["macs"] = t.macs[first] + t.macs[second]
            row["flops"] = t.flops[first] + t.flops[second]
            row["bytes_read"] = max(t.bytes_read[first] + t.bytes_read[second] - t.bytes_written[first], 0)
            row["bytes_written"] = t.bytes_written[second]
            row["output_elements"] = t.output_elements[second]
            row["first_node"] = t.first_node[second]

    def _append(self, row: int, op: str, count: float) -> dict[str, float]:
        new = {f.name: getattr(self._source, f.name)[row] for f in fields(self._source)}
        new.update(op=_OP[op], op_class=int(OPERATOR_CLASS_OF[_OP[op]]), count=count)
        self._added.append(new)
        return new

    def table(self) -> OperatorTable:
        """The edited table, without rows that no longer run."""
        kept = self._count > 1e-9  # what is left of a sum and its parts after rounding
        columns = {}
        for f in fields(self._source):
            column = np.asarray(self._count if f.name == "count" else getattr(self._source, f.name))
            added = np.array([row[f.name] for row in self._added]).astype(column.dtype)
            columns[f.name] = np.concatenate([column[kept], added])
        return type(self._source)(**columns)
