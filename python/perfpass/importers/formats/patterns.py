"""Functions that a program writes as several element-wise operators, as the one operator that they are.

Keras 3 exports a layer norm, a GELU or a SiLU to TensorFlow as its arithmetic; a ``.keras`` archive, ONNX exporters and
runtimes know them by name. A pattern is a set of operators with one tensor in and one out, whose results nothing else
reads; which function it is follows from its operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from perfpass.importers.formats.channels_last import AXIS, EACH, FOLDED, ROWS, Node, Program, Tensor

_LAST = ("mul", "add", "div")
_LARGEST = 14  # operators of a pattern: a layer norm has 10
_ARITHMETIC = {"mul", "add", "sub", "neg", "div", "pow"}
_INSIDE = _ARITHMETIC | {
    "erf", "sigmoid", "tanh", "softplus", "clip", "hard_sigmoid", "reduce_mean", "rsqrt", "sqrt", "cast"
}  # fmt: skip


def recognise(program: Program, outputs: Sequence[Tensor], parameter: Callable[[Tensor], Tensor] | None = None) -> None:
    """Rewrites the program's nodes in place. ``parameter``: what a folded constant is as a parameter."""
    nodes = program.nodes
    place = {id(node): number for number, node in enumerate(nodes)}
    makers = {node.outputs[0]: node for node in nodes if len(node.outputs) == 1}
    readers = Counter([t for node in nodes for t in node.inputs] + list(outputs))
    gone: set[int] = set()
    for node in nodes:
        if node.kind not in _LAST or id(node) in gone:
            continue
        found = _pattern(node, makers, readers, place)
        if found is None:
            continue
        kind, data, inside = found
        weights = [t for own in inside for t in own.inputs if t is not None and t.role in ("weight", FOLDED)]
        axis = next((own.attributes["axis"] for own in inside if own.kind == "reduce_mean"), None)
        for own in inside:
            for tensor in own.inputs:
                readers[tensor] -= 1
        gone.update(id(own) for own in inside if own is not node)
        norm = kind in ("layer_norm", "rms_norm")
        factors = [parameter(t) if parameter is not None else t for t in dict.fromkeys(weights)]
        node.kind, node.inputs, node.attributes = kind, [data, *factors], {}
        node.layout = ROWS if norm else EACH
        if norm and axis is not None:
            node.attributes["axis"] = axis
        readers.update(node.inputs)
    program.nodes = [node for node in nodes if id(node) not in gone]


def _pattern(
    last: Node, makers: dict[Tensor, Node], readers: Counter[Tensor | None], place: dict[int, int]
) -> tuple[str, Tensor, list[Node]] | None:
    """The function that ends at ``last``, its operand and its nodes."""
    inside = [last]
    reads: Counter[Tensor] = Counter()
    taken: Counter[Tensor] = Counter()
    open_: dict[Tensor, None] = {}

    def enter(node: Node) -> None:
        for tensor in node.inputs:
            if tensor is not None and not tensor.constant and tensor.role != FOLDED:
                reads[tensor] += 1
                open_[tensor] = None

    enter(last)
    while open_ and len(inside) <= _LARGEST:
        if len(open_) == 1:
            (data,) = open_
            closed = all(readers[t] == count for t, count in taken.items())
            kind = _function(last, inside, data) if closed and data.shape == last.outputs[0].shape else ""
            if kind:
                return kind, data, inside
        at = max(open_, key=lambda t: place[id(makers[t])] if t in makers else -1)
        maker = makers.get(at)
        if maker is None or maker.kind not in _INSIDE or maker.repeat != last.repeat:
            return None
        del open_[at]
        taken[at] = reads[at]
        inside.append(maker)
        enter(maker)
    return None


def _function(last: Node, inside: list[Node], data: Tensor) -> str:
    """The name of what these nodes compute of ``data``, "" where it is none that is known."""
    kinds = Counter(node.kind for node in inside)
    rest = set(kinds) - _ARITHMETIC
    ends = last.kind == "mul" and data in last.inputs
    if rest == {"sigmoid"} and kinds["sigmoid"] == 1 and set(kinds) <= {"mul", "sigmoid"} and ends:
        return "silu"
    if rest == {"erf"} and kinds["erf"] == 1 and last.kind == "mul":
        return "gelu"
    if rest == {"tanh"} and kinds["tanh"] == 1 and kinds["mul"] + kinds["pow"] >= 4 and last.kind == "mul":
        return "gelu"
    if rest == {"tanh", "softplus"} and kinds["mul"] == 1 and ends:
        return "mish"
    if rest == {"clip"} and kinds["clip"] == 1 and kinds["add"] == 1 and kinds["mul"] + kinds["div"] == 1 and not ends:
        return "hard_sigmoid"
    if rest == {"hard_sigmoid"} and len(inside) == 2 and ends:
        return "hard_swish"
    roots = kinds["rsqrt"] + kinds["sqrt"]
    if rest <= {"reduce_mean", "rsqrt", "sqrt", "cast"} and roots == 1 and kinds["reduce_mean"] in (1, 2):
        axes = {node.attributes.get("axis") for node in inside if node.kind == "reduce_mean"}
        rank = len(data.shape)
        squared = any(node.kind in ("mul", "pow") and set(node.inputs) == {data} for node in inside)
        if axes == {rank - 1} and all(node.layout in (EACH, AXIS) for node in inside):
            return "layer_norm" if kinds["reduce_mean"] == 2 else "rms_norm" if squared else ""
    return ""
