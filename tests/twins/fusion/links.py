"""A graph's nodes as arrays: who makes what a node reads, who reads what it makes, and nodes that become one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import prod
from operator import mul
from typing import TYPE_CHECKING

import numpy as np

from perfpass.graph import OPERATORS, ROLES
from twins import folding

if TYPE_CHECKING:
    from perfpass.graph import OpGraph

_OP = {name: index for index, name in enumerate(OPERATORS)}
LITERAL, WEIGHT = ROLES.index("literal"), ROLES.index("weight")


def operators(*names: str) -> np.ndarray:
    """[operators] bool: whether an operator is one of ``names``."""
    chosen = np.zeros(len(OPERATORS), dtype=bool)
    chosen[[_OP[name] for name in names]] = True
    return chosen


@dataclass(frozen=True)
class Fused:
    """Nodes that become one: ``anchor`` [G] stays, as operator ``op`` where one is given; ``parts`` [P] vanish."""

    op: str | None
    anchor: np.ndarray
    parts: np.ndarray


class Links:
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
        return np.flatnonzero(operators(*names)[self.op])

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
        constant = (self.role[tensors] == LITERAL) | (self.role[tensors] == WEIGHT)
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
        return (nodes >= 0) & operators(*names)[self.op[nodes]]

    def has_constant(self, nodes: np.ndarray) -> np.ndarray:
        """Whether one of the first two inputs is a weight or a literal, or made of these and shapes alone."""
        constant = np.zeros(len(nodes), dtype=bool)
        for slot in (0, 1):
            tensor = self.tensor(nodes, slot)
            constant |= (tensor >= 0) & ((self.role[tensor] == LITERAL) | (self.role[tensor] == WEIGHT))
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


def keep_last(op: str, chain: np.ndarray) -> Fused:
    """The last node of each chain [length, G] that exists stays; the others are its parts."""
    if chain.shape[1] == 0:
        return Fused(op, np.empty(0, dtype=int), np.empty(0, dtype=int))
    last = len(chain) - 1 - np.argmax(chain[::-1] >= 0, axis=0)
    anchor = chain[last, np.arange(chain.shape[1])]
    parts = chain[(chain >= 0) & (np.arange(len(chain))[:, None] != last)]
    return Fused(op, anchor, np.unique(parts))


def joins_axes(links: Links, node: int) -> bool:
    """Whether a reshape makes one axis of several: some axis of the result ends inside none of what it reads."""
    read, made = links.whole.node_inputs(node), links.whole.node_outputs(node)
    if not len(read) or read[0] < 0 or not len(made) or made[0] < 0:
        return True
    before, after = (list(links.whole.shape(int(t))) for t in (read[0], made[0]))
    ends = [set(accumulate([1, *shape], mul)) for shape in (before, after)]
    return 0 in ends[0] | ends[1] or not ends[0] <= ends[1] or prod(before) != prod(after)
