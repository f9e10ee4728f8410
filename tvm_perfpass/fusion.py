"""The graph as kernels: every fused function as one operator; what stays inside of it costs no memory traffic."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from perfpass import _core
from perfpass.graph import ATTRIBUTES, DTYPES, OPERATOR_CLASS_OF, OPERATOR_CLASSES, OPERATORS, ROLES, OpGraph
from tvm_perfpass.walked import Walk

# A fused kernel is timed as its heaviest member. TVM's FuseOps puts at most one of the first four into a kernel
# (src/relay/transforms/fuse_ops.cc: kOutEWiseFusable), so the order among those decides nothing.
_HEAVY = ("convolution", "matmul", "attention", "recurrent", "sort", "normalization", "softmax", "reduction", "pooling")
_WEIGHT = {OPERATOR_CLASSES.index(name): len(_HEAVY) - i for i, name in enumerate(_HEAVY)}
_VIEW = ATTRIBUTES.index("view")


def fused(walk: Walk) -> OpGraph:
    """One node per kernel group of the walk; nodes outside of any group stay as they are.

    A kernel carries the canonical operator and attributes of its heaviest member, reads what the group reads from
    outside and writes what others read of it. MACs and parameters are those of the unfused graph; the arithmetic of
    members that ride along (bias, activation) is not counted.
    """
    if not len(walk.kernel_group) or walk.kernel_group.max() < 0:
        return walk.graph
    return _Fusion(walk).build()


class _Fusion:
    def __init__(self, walk: Walk) -> None:
        self.graph = walk.graph
        self.group = walk.kernel_group
        self.builder = _core.GraphBuilder()
        self.ids: dict[int, int] = {}  # old tensor to new
        graph = self.graph
        self.read_outside = {int(t) for t in graph.graph_outputs}
        for tensor, consumer in zip(graph.edge_tensor.tolist(), graph.edge_consumer.tolist(), strict=True):
            producer = int(graph.producer[tensor])
            if self.group[producer] == -1 or self.group[producer] != self.group[consumer]:
                self.read_outside.add(tensor)

    def build(self) -> OpGraph:
        members: dict[int, list[int]] = {}
        order: list[list[int]] = []
        for node, group in enumerate(self.group.tolist()):
            if group == -1 or group not in members:
                order.append([])
                if group != -1:
                    members[group] = order[-1]
            (members[group] if group != -1 else order[-1]).append(node)
        for tensor in (int(t) for t in self.graph.graph_inputs):
            self.tensor(tensor)
        for nodes in order:
            self.kernel(nodes)
        self.builder.add_notes(self.graph.core)
        inputs = [self.tensor(int(t)) for t in self.graph.graph_inputs]
        return OpGraph(self.builder.finish(inputs, [self.tensor(int(t)) for t in self.graph.graph_outputs]))

    def tensor(self, old: int) -> int:
        if old < 0:
            return -1
        if old not in self.ids:
            graph = self.graph
            self.ids[old] = self.builder.add_tensor(
                graph.string(int(graph.tensor_name[old])),
                DTYPES[graph.tensor_dtype[old]],
                list(graph.shape(old)),
                ROLES[graph.tensor_role[old]],
            )
        return self.ids[old]

    def weight(self, node: int) -> tuple[int, int, int]:
        """What makes a member the heaviest: its class, then not being a view, then coming last."""
        graph = self.graph
        return _WEIGHT.get(int(OPERATOR_CLASS_OF[graph.op[node]]), 0), 1 - int(graph.attributes[node, _VIEW]), node

    def kernel(self, nodes: list[int]) -> None:
        graph = self.graph
        main = max(nodes, key=self.weight)
        inside = set(nodes)
        outside = _unique(int(t) for n in nodes for t in graph.node_inputs(n) if graph.producer[t] not in inside)
        first = [int(t) for t in graph.node_inputs(main)]
        largest = max(outside, key=lambda t: int(np.prod(graph.shape(t), dtype=np.int64)), default=-1)
        # The operands of the heaviest member keep their places; one made inside the kernel is stood for by the largest
        # tensor that the kernel reads.
        inputs = [t if t in outside else largest for t in first]
        inputs += [t for t in outside if t not in inputs]
        written = _unique(int(t) for n in nodes for t in graph.node_outputs(n) if int(t) in self.read_outside)
        own = int(graph.node_outputs(main)[0])
        outputs, aliased = written, -1
        if own not in written and written:
            last = written[0]
            same = graph.shape(own) == graph.shape(last) and graph.tensor_dtype[own] == graph.tensor_dtype[last]
            if not same:
                outputs, aliased = [own, *written[1:]], last
        attributes = dict(zip(ATTRIBUTES, graph.attributes[main].tolist(), strict=True))
        name = graph.source_op_name(main) if len(nodes) == 1 else self.name(nodes)
        repeat = float(graph.repeat[main])
        self.builder.add_node(
            OPERATORS[graph.op[main]],
            name,
            "",
            attributes,
            [self.tensor(t) for t in inputs],
            [self.tensor(t) for t in outputs],
            repeat,
        )
        if aliased >= 0:
            # The kernel writes its result in another shape; the sizes of the heaviest member must stay readable.
            self.builder.add_node(
                "reshape", "reshape", "", {"view": 1}, [self.tensor(own)], [self.tensor(aliased)], repeat
            )

    def name(self, nodes: list[int]) -> str:
        """As TVM names fused kernels: fused_nn.conv2d_add_nn.relu."""
        return "_".join(["fused", *(self.graph.source_op_name(node) for node in nodes)])[:200]


def _unique(values: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(value for value in values if value >= 0))
