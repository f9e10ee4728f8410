"""The plain twin of ``native/shared/assemble.cpp``: from what a walk has collected to the graph."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from perfpass import _core
from perfpass.graph import OpGraph, costs
from tvm_perfpass.lowering import Tensor

PARAMETER_SLOTS = {
    "conv": (1,),
    "conv_transpose": (1,),
    "deform_conv": (1,),
    "dense": (1,),
    "prelu": (1,),
    "rms_norm": (1,),
    "quantized_conv": (1,),
    "quantized_matmul": (1,),
    "batch_norm": (1, 2, 3, 4),
    "layer_norm": (1, 2),
    "instance_norm": (1, 2),
    "group_norm": (1, 2),
    "gather": (0,),
}


@dataclass
class Node:
    """One operator that a walk has met, with its tensors by index."""

    op: str
    source: str
    attributes: dict[str, int]
    inputs: list[int]
    outputs: list[int]
    group: int


@dataclass
class Records:
    """What a walk collects; ``branches`` are the (begin, middle, end) of every If, inner ones first."""

    tensors: list[Tensor] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    branches: list[tuple[int, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def transposing(self) -> dict[int, Node]:
        """By the tensor they write: the nodes that transpose a matrix."""
        found = {}
        for node in self.nodes:
            if node.op == "transpose" and len(node.inputs) == len(node.outputs) == 1:
                before, after = (self.tensors[t].shape for t in (node.inputs[0], node.outputs[0]))
                if len(before) == len(after) == 2 and before == after[::-1]:
                    found[node.outputs[0]] = node
        return found

    def weights_in_slots(self) -> None:
        """Turns inputs that stand where an operator has its parameters into weights; a note says how many."""
        transposing = self.transposing()
        found = 0
        for node in self.nodes:
            for slot in self.parameter_slots(node):
                if slot >= len(node.inputs):
                    continue
                index = node.inputs[slot]
                if node.op == "matmul" and index in transposing:
                    index = transposing[index].inputs[0]
                tensor = self.tensors[index]
                if node.op == "matmul" and len(tensor.shape) != 2:
                    continue
                if tensor.role == "input" and is_parameter(tensor.dtype, tensor.shape):
                    tensor.role = "weight"
                    found += 1
        self.inputs = [t for t in self.inputs if self.tensors[t].role == "input"]
        if found:
            self.notes.append(
                f"{found} inputs stand in weight slots and are counted as weights; pass params= to name them"
            )

    def parameter_slots(self, node: Node) -> tuple[int, ...]:
        """The operands of a node that may be parameters."""
        if node.source == "nn.bias_add" or (
            node.op == "matmul" and node.source not in ("nn.matmul", "nn.batch_matmul")
        ):
            return (1,)  # Relay has nn.dense for products by weights
        if node.source == "qnn.batch_matmul" or (node.op == "gather" and not self.looks_up_table(node)):
            return ()
        return PARAMETER_SLOTS.get(node.op, ())

    def looks_up_table(self, node: Node) -> bool:
        """An embedding: rows chosen by what the network is fed. Constant indices pick from the network's own input."""
        if node.source not in ("take", "relax.take") or len(node.inputs) < 2:
            return False
        return self.tensors[node.inputs[1]].role in ("input", "activation")

    def fold_transposed_weights(self, outputs: list[int]) -> None:
        """Products by a transposed constant matrix read the constant itself, as a compiler folds it."""
        transposing = self.transposing()
        readers = dict.fromkeys(transposing, 0)
        for tensor in [*(t for node in self.nodes for t in node.inputs), *outputs]:
            if tensor in readers:
                readers[tensor] += 1
        gone = set()
        for node in self.nodes:
            if node.op != "matmul" or len(node.inputs) < 2 or node.inputs[1] not in transposing:
                continue
            right = node.inputs[1]
            whole = transposing[right].inputs[0]
            if self.tensors[whole].role != "weight" or not self.tensors[whole].constant:
                continue
            node.inputs[1] = whole
            node.attributes["transpose_b"] = 1 - node.attributes.get("transpose_b", 0)
            readers[right] -= 1
            if readers[right] == 0:
                gone.add(id(transposing[right]))
        place = [0]
        for node in self.nodes:
            place.append(place[-1] + (id(node) not in gone))
        self.nodes = [node for node in self.nodes if id(node) not in gone]
        self.branches = [tuple(place[n] for n in branch) for branch in self.branches]

    def assemble(self, outputs: list[int]) -> tuple[OpGraph, np.ndarray]:
        """The graph and the kernel group of each node; the lighter branch of every If counts 0 times."""
        repeat = [1.0] * len(self.nodes)
        notes = list(self.notes)
        graph = self.emit(outputs, notes, repeat)
        if self.branches:
            counted = costs.count(graph)
            for begin, middle, end in self.branches:
                work = [
                    (
                        sum(int(counted.macs[n]) * repeat[n] for n in part),
                        sum(int(counted.bytes_written[n]) * repeat[n] for n in part),
                    )
                    for part in (range(begin, middle), range(middle, end))
                ]
                then_counts = work[0] >= work[1]
                for n in range(middle, end) if then_counts else range(begin, middle):
                    repeat[n] = 0.0
                notes.append(
                    f"an If: the {'then' if then_counts else 'else'} branch is counted, the other has less to do and "
                    "counts 0 times"
                )
            graph = self.emit(outputs, notes, repeat)
        return graph, np.array([node.group for node in self.nodes], dtype=np.int32)

    def emit(self, outputs: list[int], notes: list[str], repeat: list[float]) -> OpGraph:
        """The graph with the given number of runs for each node."""
        builder = _core.GraphBuilder()
        for tensor in self.tensors:
            builder.add_tensor(tensor.name, tensor.dtype, list(tensor.shape), tensor.role)
        for node, times in zip(self.nodes, repeat, strict=True):
            builder.add_node(node.op, node.source, "", node.attributes, node.inputs, node.outputs, times)
        for note in notes:
            builder.add_note(note)
        return OpGraph(builder.finish(self.inputs, outputs))


def is_parameter(dtype: str, shape: tuple[int, ...]) -> bool:
    """Whether a constant counts as parameters: floating and no scalar, or bytes of two and more dimensions."""
    if dtype.startswith(("float", "bfloat")):
        return len(shape) >= 1
    return dtype in ("int8", "uint8", "int4", "uint4") and len(shape) >= 2
