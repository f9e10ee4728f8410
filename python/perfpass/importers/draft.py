"""A graph while it is read or traced: tensors and nodes as lists, joined where runtimes always join them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from perfpass import _core
from perfpass.errors import LimitError
from perfpass.graph import OpGraph, costs

Shape = tuple[int, ...]
MOST_NODES = 1_000_000
_BIASED = ("conv", "conv_transpose", "dense")


@dataclass(slots=True)
class Tensor:
    """``role``: activation, input, weight or literal."""

    dtype: str
    shape: Shape
    role: str = "activation"
    name: str = ""


@dataclass(slots=True)
class Node:
    """One operator; tensors by their number, -1 for an input that is left out. ``repeat``: executions a run."""

    kind: str
    source: str
    name: str
    attributes: dict[str, int]
    inputs: list[int]
    outputs: list[int]
    repeat: float = 1.0


@dataclass
class Draft:
    """What a reader or a tracer has collected. Nodes may stand in any order.

    ``branches``: the nodes of either branch of every If, inner ones first. ``notes``: what is to be said, in order,
    each once, and whether it is of a body that runs as often as only a run knows (`OpGraph.counted_once`).
    """

    tensors: list[Tensor] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    notes: dict[str, bool] = field(default_factory=dict)
    branches: list[tuple[list[Node], list[Node]]] = field(default_factory=list)

    def tensor(self, dtype: str, shape: Iterable[int], role: str = "activation", name: str = "") -> int:
        """The number of a new tensor."""
        self.tensors.append(Tensor(dtype, tuple(shape), role, name))
        return len(self.tensors) - 1

    def constant(self, dtype: str, shape: Iterable[int], name: str = "") -> int:
        """A constant: parameters where it is floating and more than one number."""
        sizes = tuple(shape)
        parameters = dtype.startswith(("float", "bfloat")) and math.prod(sizes) > 1
        return self.tensor(dtype, sizes, "weight" if parameters else "literal", name)

    def node(
        self,
        kind: str,
        source: str,
        name: str,
        attributes: dict[str, int],
        inputs: list[int],
        outputs: list[int],
        repeat: float = 1.0,
    ) -> Node:
        """Adds an operator. Raises LimitError over a million."""
        if len(self.nodes) >= MOST_NODES:
            raise LimitError(f"more than {MOST_NODES:,} operators, bodies of loops included; no more are read")
        self.nodes.append(Node(kind, source, name, attributes, inputs, outputs, repeat))
        return self.nodes[-1]

    def is_constant(self, tensor: int) -> bool:
        return tensor >= 0 and self.tensors[tensor].role in ("weight", "literal")

    def fold(self) -> None:
        """Joins what stands apart in a file and is one operator to every runtime, in three patterns:

        one number a channel added behind a convolution or a product with weights is its bias; gamma and beta behind a
        normalisation are its own; a product and a sum of one number a channel each are a batch normalisation.
        """
        readers = self._readers()
        makers = {t: node for node in self.nodes for t in node.outputs}
        gone: set[int] = set()
        for node in self.nodes:
            if node.kind not in ("mul", "add") or len(node.inputs) != 2:
                continue
            for made, given in (node.inputs, node.inputs[::-1]):
                maker = makers.get(made)
                if maker is None or readers[made] != 1 or not self.is_constant(given):
                    continue
                if not self._joined(maker, node, given):
                    continue
                if readers[given] == 1:
                    shape = self.tensors[given].shape
                    self.tensors[given].shape = tuple(n for n in shape if n != 1) or (1,)
                maker.inputs.append(given)
                maker.outputs = node.outputs
                makers[node.outputs[0]] = maker
                gone.add(id(node))
                break
        self.nodes = [node for node in self.nodes if id(node) not in gone]

    def _joined(self, maker: Node, node: Node, given: int) -> bool:
        """Whether ``node``, which adds or multiplies ``given``, becomes part of ``maker``."""
        if self.tensors[maker.outputs[0]].shape != self.tensors[node.outputs[0]].shape:
            return False
        if maker.kind in _BIASED:
            axis = len(self.tensors[node.outputs[0]].shape) - 1 if maker.kind == "dense" else 1
            return node.kind == "add" and len(maker.inputs) == 2 and self._is_along(node, given, axis)
        if maker.kind == "layer_norm":
            return len(maker.inputs) == (1 if node.kind == "mul" else 2) and self._is_trailing(maker, given)
        if maker.kind != "mul" or node.kind != "add" or len(maker.inputs) != 2:
            return False
        scale = next((t for t in maker.inputs if self.is_constant(t)), -1)
        if scale < 0 or not self._is_along(node, given, 1) or not self._is_along(node, scale, 1):
            return False
        maker.kind = "batch_norm"
        maker.inputs = [t for t in maker.inputs if t != scale] + [scale]
        return True

    def graph(self) -> OpGraph:
        """What stands here; of every If the branch with less to do counts 0 times. Raises GraphError."""
        found = self._built()
        if not self.branches:
            return found
        counted = costs.count(found)
        work = {
            id(node): (float(macs), float(written))
            for node, macs, written in zip(self.nodes, counted.macs, counted.bytes_written, strict=True)
        }
        for branches in self.branches:
            done = [
                [sum(work[id(node)][i] * node.repeat for node in branch if id(node) in work) for i in range(2)]
                for branch in branches
            ]
            then_counts = done[0] >= done[1]
            for node in branches[int(then_counts)]:
                node.repeat = 0.0
            which = "then" if then_counts else "else"
            self.notes[f"an If: the {which} branch is counted, the other has less to do and counts 0 times"] = False
        return self._built()

    def _built(self) -> OpGraph:
        builder = _core.GraphBuilder()
        number = builder.add_draft(self.tensors, self.nodes, [*self.inputs, *self.outputs])
        for note, counted_once in self.notes.items():
            builder.add_note(note, counted_once)
        inputs, outputs = ([number[t] if t >= 0 else -1 for t in ends] for ends in (self.inputs, self.outputs))
        return OpGraph(builder.finish(inputs, outputs))

    def _readers(self) -> list[int]:
        count = [0] * len(self.tensors)
        for node in self.nodes:
            for t in node.inputs:
                if t >= 0:
                    count[t] += 1
        for t in self.outputs:
            count[t] += 1
        return count

    def _is_along(self, node: Node, given: int, axis: int) -> bool:
        """Whether a constant has one number for every place of an axis of what ``node`` writes, and more than one."""
        shape, sizes = self.tensors[node.outputs[0]].shape, self.tensors[given].shape
        if len(sizes) > len(shape) or axis >= len(shape) or math.prod(sizes) < 2:
            return False
        padded = (1,) * (len(shape) - len(sizes)) + sizes
        return all(size == (shape[i] if i == axis else 1) for i, size in enumerate(padded))

    def _is_trailing(self, maker: Node, given: int) -> bool:
        """Whether a constant has the sizes of the axes that ``maker`` normalises, which it tells where it is first."""
        shape, sizes = self.tensors[maker.inputs[0]].shape, self.tensors[given].shape
        while sizes and sizes[0] == 1:
            sizes = sizes[1:]
        axis = len(shape) - len(sizes)
        if not sizes or axis < 1 or shape[axis:] != sizes:
            return False
        return len(maker.inputs) == 1 or self.tensors[maker.inputs[1]].shape[-len(sizes) :] == sizes
