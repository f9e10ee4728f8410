"""OpGraph: an operator graph as NumPy arrays, and what can be counted on it.

Every importer (ONNX, torch, Relay) ends here and everything else (costs, features, memory, prediction) starts here.
The arrays are read-only views on the compiled core; nothing is copied.
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass import _core
from perfpass.errors import needs
from perfpass.late import dataclass

if TYPE_CHECKING:
    import networkx

    from perfpass.graph.assumed import Assumed

OPERATORS: tuple[str, ...] = _core.OPERATORS
OPERATOR_CLASSES: tuple[str, ...] = _core.OPERATOR_CLASSES
OPERATOR_CLASS_OF: np.ndarray = np.asarray(_core.OPERATOR_CLASS_OF, dtype=np.uint8)
ATTRIBUTES: tuple[str, ...] = _core.ATTRIBUTES
DTYPES: tuple[str, ...] = _core.DTYPES
ROLES: tuple[str, ...] = ("activation", "input", "weight", "literal")


@dataclass(frozen=True, eq=False)
class OpGraph:
    """An immutable operator graph: N nodes in execution order, T tensors, E data-flow edges.

    Per node: ``op`` [N] (index into ``OPERATORS``), ``attributes`` [N, 32] (columns ``ATTRIBUTES``), ``repeat`` [N]
    (executions per run). Per tensor: ``tensor_dtype`` [T] (index into ``DTYPES``), ``tensor_role`` [T] (index into
    ``ROLES``), ``producer`` [T]. Edges: ``edge_index`` [2, E], ``edge_tensor`` [E]. ``notes``: what its reader has to
    say; ``counted_once``: those of bodies that run as often as only a run knows, whose figures are of one pass, and of
    layers that a run has other kernels for.
    ``frozen``: the weights, as tensor ids, that training leaves as they are. ``assumed``: what values would decide
    (`perfpass.graph.assumed`). ``unasked``: sizes of its inputs, by their names in ``dims``, that were taken since
    nobody asked for others.
    ``single``: tensor ids of what stays in single precision where a run is in fp16 (`perfpass.graph.single`).
    ``unread``: parameters of the model that this pass does not meet, where they are many (towers of pictures or sound).
    ``by_description``: made from a configuration, so that the program that runs it may compute it in other operators.
    """

    core: _core.Graph
    frozen: frozenset[int] = field(default=frozenset(), kw_only=True)
    assumed: tuple[Assumed, ...] = field(default=(), kw_only=True)
    unasked: tuple[str, ...] = field(default=(), kw_only=True)
    single: frozenset[int] = field(default=frozenset(), kw_only=True)
    unread: int = field(default=0, kw_only=True)
    by_description: bool = field(default=False, kw_only=True)

    def __getattr__(self, name: str) -> Any:
        # The arrays and counts of the core object, by their own names (op, dims, node_count, ...).
        if name[:1] == "_":  # no call: a prediction comes here dozens of times
            raise AttributeError(name)
        return getattr(self.core, name)

    def __repr__(self) -> str:
        return f"OpGraph({self.node_count} nodes, {self.edge_count} edges, {self.tensor_count} tensors)"

    @cached_property
    def edge_index(self) -> np.ndarray:
        """[2, E] int32: producer node, consumer node."""
        return np.stack([self.core.edge_producer, self.core.edge_consumer])

    def shape(self, tensor: int) -> tuple[int, ...]:
        """The shape of one tensor; none for one that is absent (-1)."""
        if tensor < 0:
            return ()
        found: tuple[int, ...] = self.core.shape(tensor)
        return found

    def node_inputs(self, node: int) -> np.ndarray:
        """Tensor ids of a node's inputs; -1 where an optional one is absent."""
        offset = self.core.input_offset
        return self.core.inputs[offset[node] : offset[node + 1]]

    def node_outputs(self, node: int) -> np.ndarray:
        """Tensor ids of a node's outputs; -1 where an optional one is absent."""
        offset = self.core.output_offset
        return self.core.outputs[offset[node] : offset[node + 1]]

    def op_name(self, node: int) -> str:
        """Canonical operator of a node."""
        return OPERATORS[self.core.op[node]]

    def source_op_name(self, node: int) -> str:
        """The operator's name in the graph's source ("Conv", "nn.conv2d", "aten.convolution")."""
        found: str = self.core.source_op_name(node)
        return found

    def label(self, node: int) -> str:
        """The node's name in its source, or operator and index where it has none."""
        found: str = self.core.name_of(node)
        return found or f"{self.source_op_name(node)}_{node}"

    @property
    def unknown_operators(self) -> dict[str, int]:
        """Source names of operators that have no canonical counterpart, with their number."""
        names: dict[str, int] = {}
        for node in (self.core.op == 0).nonzero()[0]:
            name = self.source_op_name(int(node))
            names[name] = names.get(name, 0) + 1
        return names

    @property
    def stated_operators(self) -> dict[str, int]:
        """Source names of operators whose costs a user states (`perfpass.importers.operators`), with their number."""
        names: dict[str, int] = {}
        for node in self.core.stated:
            name = self.source_op_name(node)
            names[name] = names.get(name, 0) + 1
        return names

    def to_networkx(self) -> networkx.MultiDiGraph:
        """A networkx MultiDiGraph: node data ``op``, ``source_op``, ``name``; edge data ``tensor``, ``shape``."""
        with needs("graphs", "OpGraph.to_networkx"):
            import networkx

        graph = networkx.MultiDiGraph()
        for node in range(self.node_count):
            graph.add_node(node, op=self.op_name(node), source_op=self.source_op_name(node), name=self.label(node))
        for producer, consumer, tensor in zip(*self.edge_index.tolist(), self.core.edge_tensor.tolist(), strict=True):
            graph.add_edge(producer, consumer, tensor=tensor, shape=self.shape(tensor))
        return graph


def at_batch(first: OpGraph, second: OpGraph, batches: tuple[int, int], batch: int) -> OpGraph:
    """The graph at ``batch``, from the same model traced at two batch sizes.

    Every dimension is affine in the batch size (windows, heads and tokens folded into it included), so two traces give
    all. Raises ArgumentError where the two traces differ in more than sizes.
    """
    from perfpass.errors import ArgumentError

    low, high = batches
    a, b = first.core.dims, second.core.dims
    same = a.shape == b.shape and first.node_count == second.node_count and np.array_equal(first.op, second.op)
    if not same or low == high:
        raise ArgumentError(f"traces at batch {low} and {high} differ in structure; trace at batch {batch} instead")
    slope, remainder = np.divmod(b - a, high - low)
    if remainder.any():
        raise ArgumentError(f"a dimension is not affine in the batch size between {low} and {high}")
    return replace(first, core=first.core.with_dims(np.ascontiguousarray(a + slope * (batch - low))))
