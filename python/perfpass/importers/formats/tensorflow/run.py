"""Walking a TensorFlow graph from its results: calls inlined, small constants followed, every operator recorded.

Nothing is computed but shapes and the small whole numbers that decide them (`folding`). Variables and constants are
tensors without data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from perfpass.errors import FormatError, GraphError, LimitError, ShapeError, UnsupportedError
from perfpass.importers.formats.channels_last import FOLDED, Node, Program, Tensor
from perfpass.importers.formats.shapes import Followed
from perfpass.importers.formats.tensorflow import folding
from perfpass.importers.formats.tensorflow.graph_def import MOST_FLOATING, Function, Graph, NodeDef, Nodes, Shape
from perfpass.text import shown_value

_DEEPEST = 60
_MOST_CALLS = 5_000

# Results by name, for operators with several (in functions a result is node:name:number).
_RESULTS = {
    "FusedBatchNorm": ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2", "reserve_space_3"),
    "TopK": ("values", "indices"),
    "MaxPoolWithArgmax": ("output", "argmax"),
    "Unique": ("y", "idx", "count"),
    "Switch": ("output_false", "output_true"),
    "Merge": ("output", "value_index"),
    "NonMaxSuppressionV4": ("selected_indices", "valid_outputs"),
    "NonMaxSuppressionV5": ("selected_indices", "selected_scores", "valid_outputs"),
    "CombinedNonMaxSuppression": ("nmsed_boxes", "nmsed_scores", "nmsed_classes", "valid_detections"),
    "TensorListPopBack": ("output_handle", "tensor"),
    "TensorListConcat": ("tensor", "lengths"),
    "TensorArray": ("handle", "flow"),
    "QuantizeV2": ("output", "output_min", "output_max"),
    "LSTMBlockCell": ("i", "cs", "f", "o", "ci", "co", "h"),
    "BlockLSTM": ("i", "cs", "f", "o", "ci", "co", "h"),
    "CudnnRNN": ("output", "output_h", "output_c", "reserve_space", "host_reserved"),
}
_VERSIONS = ("V2", "V3", "V4", "V5")


@dataclass(eq=False, slots=True)
class Resource:
    """A variable: what reads it shares one tensor."""

    name: str
    shape: Shape
    dtype: str
    tensor: Tensor | None = None


@dataclass(eq=False, slots=True)
class TensorList:
    """A list of tensors of one shape: ``element`` is one of them, ``whole`` the tensor whose parts they are."""

    element: Tensor | None = None
    length: int | None = None  # where it is known
    whole: Tensor | None = None


Value = Tensor | Resource | TensorList | None
Operator = Callable[["Run", NodeDef, list[Value]], Sequence[Value]]


@dataclass(eq=False)
class Run:
    """One walk. ``known``: the values of small tensors."""

    graph: Graph
    program: Program
    operators: Mapping[str, Operator]
    batch: int = 1
    known: dict[Tensor, np.ndarray] = field(default_factory=dict)
    resources: dict[str, Resource] = field(default_factory=dict)
    deferred: dict[Tensor, tuple[str, str, list[Tensor]]] = field(default_factory=dict)
    stood_in: dict[Tensor, Tensor] = field(default_factory=dict)
    followed: Followed = field(default_factory=Followed)
    calls: int = 0
    depth: int = 0

    # -- walking ---------------------------------------------------------------------------------------------------

    def results(self, nodes: Nodes, made: dict[str, Sequence[Value]], wanted: Sequence[str]) -> list[Value]:
        """The values of references ``wanted``; ``made`` has what is given and takes what is made, by node."""
        for reference in wanted:
            self._make(nodes, made, reference.partition(":")[0])
        return [self._value(nodes, made, reference) for reference in wanted]

    def _make(self, nodes: Nodes, made: dict[str, Sequence[Value]], target: str) -> None:
        waiting = [target]
        entered: set[str] = set()
        while waiting:
            name = waiting[-1]
            if name in made:
                waiting.pop()
                continue
            node = nodes.get(name)
            if node is None:
                raise FormatError(f"a node reads {shown_value(name)}, which the file does not have")
            read = self._read(node, nodes)
            missing = [other for r in read if (other := r.partition(":")[0]) not in made]
            if missing:
                if name in entered:
                    raise GraphError(f"node {shown_value(name)} waits for itself; the graph has a cycle")
                entered.add(name)
                waiting += dict.fromkeys(missing)
                continue
            made[name] = self.apply(node, [self._value(nodes, made, r) for r in read])
            waiting.pop()

    @staticmethod
    def _read(node: NodeDef, nodes: Nodes) -> list[str]:
        """What a node reads; of a merge not what comes round a loop."""
        if node.op not in ("Merge", "RefMerge"):
            return node.inputs
        sources = ((r, nodes.get(r.partition(":")[0])) for r in node.inputs)
        return [r for r, source in sources if source is None or source.op not in ("NextIteration", "RefNextIteration")]

    @staticmethod
    def _value(nodes: Nodes, made: Mapping[str, Sequence[Value]], reference: str) -> Value:
        name, _, place = reference.partition(":")
        found = made[name]
        number = 0
        if place:
            result, _, last = place.partition(":")
            if not last:
                number = int(result) if result.isdigit() else 0
            elif last.isdigit():
                number = int(last)
                op = nodes.op(name)
                names = _RESULTS.get(op) or _RESULTS.get(op[:-2] if op.endswith(_VERSIONS) else op)
                if names is not None and result in names:
                    number += names.index(result)
        if number >= len(found):
            raise UnsupportedError(
                f"node {shown_value(name)} ({nodes.op(name) or 'an argument'}) has "
                f"{len(found)} results here, and {shown_value(reference)} is read"
            )
        return found[number]

    def call(self, name: str, arguments: Sequence[Value]) -> list[Value]:
        """The results of a function of the library, its body recorded here. Raises FormatError and LimitError."""
        return self.inline(self.graph.function(name), arguments)

    def inline(self, function: Function, arguments: Sequence[Value]) -> list[Value]:
        """As `call`, of a function that was read."""
        self.calls += 1
        if self.depth >= _DEEPEST or self.calls > _MOST_CALLS:
            raise LimitError(
                f"functions that call one another more than {_DEEPEST} deep or {_MOST_CALLS} times are not read"
            )
        if len(arguments) < len(function.arguments):
            raise FormatError(
                f"function {shown_value(function.name)} of {len(function.arguments)} arguments gets {len(arguments)}"
            )
        made: dict[str, Sequence[Value]] = {
            name: [value] for name, value in zip(function.arguments, arguments, strict=False)
        }
        self.depth += 1
        try:
            return self.results(function.nodes, made, function.results)
        finally:
            self.depth -= 1

    def apply(self, node: NodeDef, inputs: list[Value]) -> Sequence[Value]:
        """The results of one node. Raises UnsupportedError, ShapeError and FormatError, which name it."""
        folded = self._folded(node, inputs)
        if folded is not None:
            return folded
        operator = self.operators.get(node.op)
        with self.program.scope(node.name):
            try:
                return self.unknown(node, inputs) if operator is None else operator(self, node, inputs)
            except (
                IndexError,
                AttributeError,
                TypeError,
                ValueError,
                KeyError,
                ZeroDivisionError,
                OverflowError,
            ) as error:
                if isinstance(error, FormatError | ShapeError | LimitError | GraphError):
                    raise
                raise FormatError(
                    f"node {shown_value(node.name)} ({node.op}) has inputs or attributes that its operator does not "
                    f"take ({error}); the file is damaged, or of a later TensorFlow"
                ) from error

    # -- values ----------------------------------------------------------------------------------------------------

    def _folded(self, node: NodeDef, inputs: list[Value]) -> Sequence[Value] | None:
        """A node whose operands are known, computed; None where it cannot be."""
        if node.op not in folding.FOLDED or not inputs:
            return None
        values = []
        for value in inputs:
            own = self.known.get(value) if isinstance(value, Tensor) else None
            if own is None or (value.role == "weight" and own.size > MOST_FLOATING):  # type: ignore[union-attr]
                return None
            values.append(own)
        found = folding.fold(node, values)
        return None if found is None else [self.literal(value) for value in found]

    def literal(self, value: np.ndarray) -> Tensor:
        """A constant that is known."""
        made = self.program.tensor(value.shape, folding.dtype_of(value), "literal")
        self.follow(made, value)
        return made

    def follow(self, tensor: Tensor, value: np.ndarray) -> None:
        """Takes note of what a tensor holds. Raises LimitError over 4 million numbers in all."""
        self.followed.take(value.size)
        self.known[tensor] = value

    def integers(self, value: Value, what: str) -> list[int]:
        """The whole numbers that a tensor holds. Raises UnsupportedError where only a run knows them."""
        found = self.known.get(value) if isinstance(value, Tensor) else None
        if found is None:
            raise UnsupportedError(
                f"{what} depends on values that only a run knows; export the model with fixed sizes, or convert it to "
                "ONNX (tf2onnx) and pass that file"
            )
        return [int(v) for v in found.reshape(-1)]

    def integer(self, value: Value, what: str) -> int:
        """As `integers`, of one."""
        found = self.integers(value, what)
        if len(found) != 1:
            raise FormatError(f"{what} is {len(found)} numbers; the file is damaged")
        return found[0]

    def sized(self, shape: Shape) -> tuple[int, ...] | None:
        """A declared shape with the batch for a first axis that is open; None where another is."""
        if shape is None:
            return None
        sizes = tuple(self.batch if s < 0 and axis == 0 else s for axis, s in enumerate(shape))
        return None if any(s < 0 for s in sizes) else sizes

    def constant_expression(
        self, kind: str, source: str, inputs: Sequence[Tensor], shape: Sequence[int]
    ) -> Tensor | None:
        """What is computed from weights alone, not yet recorded; None where an operand is no constant."""
        if not all(t.constant or t.role == FOLDED for t in inputs) or all(t.role == "literal" for t in inputs):
            return None
        leaves = dict.fromkeys(leaf for t in inputs for leaf in (t.leaves or ((t,) if t.role == "weight" else ())))
        made = self.program.tensor(shape, inputs[0].dtype, FOLDED)
        made.leaves = tuple(leaves)
        self.deferred[made] = (kind, source, list(inputs))
        return made

    def weight(self, tensor: Tensor) -> Tensor:
        """An operand: what is computed from one weight alone is that weight in another shape."""
        if tensor.role != FOLDED:
            return tensor
        if tensor not in self.stood_in:
            leaf = tensor.leaves[0] if len(tensor.leaves) == 1 else None
            if leaf is None or math.prod(leaf.shape) != math.prod(tensor.shape):
                for made in self.written_out(tensor):
                    self.program.nodes.append(made)
                return tensor
            self.stood_in[tensor] = self.program.weight(leaf.name, tensor.shape, tensor.dtype)
        return self.stood_in[tensor]

    def written_out(self, tensor: Tensor) -> list[Node]:
        """The nodes that compute what was put off, in order; ``tensor`` becomes what they make."""
        found: list[Node] = []
        waiting = [tensor]
        while waiting:
            own = waiting[-1]
            if own.role != FOLDED:
                waiting.pop()
                continue
            kind, source, inputs = self.deferred[own]
            before = [t for t in inputs if t.role == FOLDED]
            if before:
                waiting += before
                continue
            own.role = "activation"
            layout = "free" if kind == "reshape" else "rows" if kind == "transpose" else "each"
            view = {"view": 1} if kind == "reshape" else {}
            found.append(Node(kind, source, "", layout, view, list(inputs), [own]))
            waiting.pop()
        return found

    def unknown(self, node: NodeDef, inputs: list[Value]) -> Sequence[Value]:
        """An operator that is not known here, with the shapes that the file declares. Raises UnsupportedError."""
        shapes = [self.sized(s) for s in node.attributes.shapes("_output_shapes")]
        if node.op == "NoOp":
            return [None]
        if not shapes or any(s is None for s in shapes):
            raise UnsupportedError(
                f"node {shown_value(node.name)} has the operator {shown_value(node.op)}, which is not known here, and "
                "the file does not say what shape it gives; convert the model to ONNX (tf2onnx) and pass that file"
            )
        tensors = [t for t in inputs if isinstance(t, Tensor)]
        dtypes = node.attributes.dtypes("Tout") or node.attributes.dtypes("output_types")
        kind = node.attributes.dtype("T", node.attributes.dtype("dtype"))
        self.program.notes[
            f"{shown_value(node.op)} is not known here: counted as an unknown operator by the shapes that the file "
            "declares"
        ] = False
        made = self.program.add("unknown", node.op, tensors, [s for s in shapes if s is not None], kind)
        for tensor, dtype in zip(made, dtypes, strict=False):
            tensor.dtype = dtype if dtype not in ("resource", "variant") else "undefined"
        return made
