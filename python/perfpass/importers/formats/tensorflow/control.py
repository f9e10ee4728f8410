"""Calls, branches and loops of TensorFlow graphs, and the lists that loops carry.

A loop's body is recorded once and repeated as often as its condition says: a counter that starts at a known number and
is compared with one. Where that is not known the body counts once, and a note says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfpass.errors import FormatError
from perfpass.importers.formats.channels_last import Node, Tensor
from perfpass.importers.formats.tensorflow.compute import tensors
from perfpass.importers.formats.tensorflow.graph_def import Function, NodeDef
from perfpass.importers.formats.tensorflow.run import Operator, Run, TensorList, Value
from perfpass.text import shown_value

_MOST_STEPS = 1 << 20
_PASSED_ON = ("Identity", "StopGradient", "LoopCond", "Enter", "Snapshot", "Squeeze", "ReadVariableOp", "Merge")


def call(run: Run, node: NodeDef, inputs: list[Value]) -> Sequence[Value]:
    """PartitionedCall, StatefulPartitionedCall and other calls of one function."""
    return run.call(node.attributes.function("f") or node.attributes.function("function"), inputs)


def branches(run: Run, node: NodeDef, inputs: list[Value]) -> Sequence[Value]:
    """If and Case: the branch that is taken where that is known, else the one that writes most."""
    names = node.attributes.functions("branches") or [
        node.attributes.function("else_branch"),
        node.attributes.function("then_branch"),
    ]
    chosen = run.known.get(inputs[0]) if isinstance(inputs[0], Tensor) else None
    if chosen is not None and chosen.size == 1:
        return run.call(names[min(max(int(chosen.reshape(-1)[0]), 0), len(names) - 1)], inputs[1:])
    results, parts = [], []
    for name in names:
        begin = len(run.program.nodes)
        results.append(run.call(name, inputs[1:]))
        parts.append(run.program.nodes[begin:])
    heaviest = max(range(len(parts)), key=lambda i: sum(_written(n) for n in parts[i]))
    for number, part in enumerate(parts):
        if number != heaviest:
            for own in part:
                own.repeat = 0.0
    if len(parts) > 1:
        run.program.notes[
            "a branch whose condition only a run knows: the one that writes most is counted, the others count 0 times"
        ] = False
    return results[heaviest]


def _written(node: Node) -> float:
    return node.repeat * sum(math.prod(t.shape) for t in node.outputs)


def loop(run: Run, node: NodeDef, inputs: list[Value]) -> Sequence[Value]:
    """While and StatelessWhile."""
    body = run.graph.function(node.attributes.function("body"))
    condition = run.graph.function(node.attributes.function("cond"))
    steps = _steps(run, condition, body, inputs)
    if steps is None:
        run.program.notes["a loop whose length only a run knows: its body counts once"] = True
    carried = []
    for name, result, value in zip(body.arguments, body.results, inputs, strict=False):
        kept = _source(body, result)[0] == name
        carried.append(
            value if kept or not isinstance(value, Tensor) or value not in run.known else _unknown(run, value)
        )
    with run.program.repeated(1 if steps is None else steps):
        made = run.inline(body, carried)
    found: list[Value] = []
    for name, result, before, after in zip(body.arguments, body.results, inputs, made, strict=False):
        if isinstance(after, TensorList) and isinstance(before, TensorList) and after.length is None:
            after.length = before.length if before.length is not None else steps
        found.append(before if _source(body, result)[0] == name else after)
    return found


def _unknown(run: Run, value: Tensor) -> Tensor:
    return run.program.tensor(value.shape, value.dtype, "literal")


def _source(function: Function, reference: str) -> tuple[str, NodeDef | None]:
    """The argument or the node that a reference stands for, behind what only passes it on."""
    for _ in range(len(function.nodes) + 1):
        name = reference.partition(":")[0]
        node = function.nodes.get(name)
        if node is None or node.op not in _PASSED_ON or not node.inputs:
            return name, node
        reference = node.inputs[0]
    return "", None


def _steps(run: Run, condition: Function, body: Function, inputs: list[Value]) -> int | None:
    """How often a loop runs: the fewest steps after which a comparison in its condition fails."""
    if not condition.results:
        return None
    waiting, found = [condition.results[0]], []
    for _ in range(64):
        if not waiting:
            break
        _, node = _source(condition, waiting.pop())
        if node is None:
            continue
        if node.op == "LogicalAnd":
            waiting += node.inputs
        elif node.op in ("Less", "LessEqual", "Greater", "GreaterEqual") and len(node.inputs) == 2:
            sides = node.inputs if node.op.startswith("Less") else node.inputs[::-1]
            steps = _counted(run, condition, body, inputs, sides[0], sides[1])
            if steps is not None:
                found.append(steps + node.op.endswith("Equal"))
    counts = [steps for steps in found if 0 <= steps <= _MOST_STEPS]
    return min(counts) if counts else None


def _counted(
    run: Run, condition: Function, body: Function, inputs: list[Value], counter: str, limit: str
) -> int | None:
    start, end = (_number(run, condition, inputs, reference) for reference in (counter, limit))
    name, _ = _source(condition, counter)
    if start is None or end is None or name not in condition.arguments:
        return None
    number = condition.arguments.index(name)
    step = 1
    if number < len(body.results) and number < len(body.arguments):
        _, made = _source(body, body.results[number])
        if made is not None and made.op in ("Add", "AddV2"):
            others = [r for r in made.inputs if _source(body, r)[0] != body.arguments[number]]
            found = _number(run, body, inputs, others[0]) if len(others) == 1 else None
            step = found or 1
    return -(-(end - start) // step) if step > 0 else None


def _number(run: Run, function: Function, inputs: list[Value], reference: str) -> int | None:
    """The whole number that a reference stands for: an argument's first value, or a constant."""
    name, node = _source(function, reference)
    if name in function.arguments:
        at = function.arguments.index(name)
        value = inputs[at] if at < len(inputs) else None
        known = run.known.get(value) if isinstance(value, Tensor) else None
    else:
        known = node.attributes.constant("value").known if node is not None and node.op == "Const" else None
    return int(known.reshape(-1)[0]) if known is not None and known.size == 1 else None


def switch(run: Run, node: NodeDef, inputs: list[Value]) -> Sequence[Value]:
    """Switch of TensorFlow 1: both ways."""
    return [inputs[0], inputs[0]]


def merge(run: Run, node: NodeDef, inputs: list[Value]) -> Sequence[Value]:
    """Merge of TensorFlow 1: what enters a loop, or the last of a condition's ways."""
    if len(inputs) < len(node.inputs):
        run.program.notes["a loop of TensorFlow 1: what it repeats counts once"] = True
        value = inputs[0]
        if isinstance(value, Tensor) and value in run.known:
            value = _unknown(run, value)
        return [value, None]
    return [inputs[-1], None]


# -- lists of tensors --------------------------------------------------------------------------------------------------


def list_made(run: Run, node: NodeDef, inputs: list[Value]) -> Sequence[Value]:
    """TensorListReserve, EmptyTensorList and TensorArrayV3."""
    size = inputs[-1] if node.op == "TensorListReserve" else inputs[0] if node.op.startswith("TensorArray") else None
    known = run.known.get(size) if isinstance(size, Tensor) else None
    made = TensorList(None, int(known.reshape(-1)[0]) if known is not None and known.size == 1 else None)
    return [made, made]


def list_from_tensor(run: Run, node: NodeDef, inputs: list[Value]) -> Sequence[Value]:
    """TensorListFromTensor and TensorArrayScatterV3: the parts of a tensor along its first axis."""
    x = tensors(node, inputs[2:3] if node.op.startswith("TensorArray") else inputs[:1])[0]
    return [TensorList(run.program.tensor(x.shape[1:], x.dtype, "literal"), x.shape[0], x)]


def list_get(run: Run, node: NodeDef, inputs: list[Value]) -> Sequence[Value]:
    """TensorListGetItem and TensorArrayReadV3: one part, which is copied out."""
    items = next((value for value in inputs if isinstance(value, TensorList)), None)
    if items is None:
        raise FormatError(f"node {shown_value(node.name)} reads a list that is none; the file is damaged")
    if items.element is None:
        shape = run.known.get(inputs[2]) if len(inputs) > 2 and isinstance(inputs[2], Tensor) else None
        if shape is None or (shape < 0).any():
            return run.unknown(node, [])
        dtype = node.attributes.dtype("element_dtype")
        items.element = run.program.tensor([int(s) for s in shape.reshape(-1)], dtype, "literal")
    source = items.whole if items.whole is not None else items.element
    return [run.program.one("slice", node.op, [source], items.element.shape, items.element.dtype)]


def list_set(run: Run, node: NodeDef, inputs: list[Value]) -> Sequence[Value]:
    """TensorListSetItem, TensorListPushBack and TensorArrayWriteV3."""
    items = next((value for value in inputs if isinstance(value, TensorList)), TensorList())
    item = tensors(node, [value for value in inputs if isinstance(value, Tensor)])
    own = item[1] if node.op.startswith("TensorArray") else item[-1]
    items.element = own
    return [TensorList(own, items.length)]


def list_stack(run: Run, node: NodeDef, inputs: list[Value]) -> Sequence[Value]:
    """TensorListStack, TensorListConcat and TensorArrayGatherV3: the parts as one tensor."""
    items = next((value for value in inputs if isinstance(value, TensorList)), None)
    length = items.length if items is not None else None
    declared = node.attributes.integer("num_elements", -1)
    length = declared if declared >= 0 else length
    if items is None or items.element is None or length is None:
        return run.unknown(node, [])
    element = items.element
    parts = [] if element.role == "literal" else [element]
    shape = (length, *element.shape)
    if node.op.startswith("TensorListConcat"):
        shape = (length * element.shape[0], *element.shape[1:])
    return [run.program.one("concat", node.op, parts, shape, element.dtype, axis=0), None]


def list_length(run: Run, node: NodeDef, inputs: list[Value]) -> Sequence[Value]:
    """TensorListLength and TensorArraySizeV3."""
    items = inputs[0]
    if isinstance(items, TensorList) and items.length is not None:
        from perfpass.importers.formats.tensorflow.folding import whole

        return [run.literal(whole(items.length))]
    return [run.program.tensor((), "int32", "literal")]


CONTROL: dict[str, Operator] = {
    **dict.fromkeys(["PartitionedCall", "StatefulPartitionedCall", "RemoteCall", "XlaLaunch"], call),
    **dict.fromkeys(["If", "StatelessIf", "Case", "StatelessCase"], branches),
    **dict.fromkeys(["While", "StatelessWhile"], loop),
    **dict.fromkeys(["Switch", "RefSwitch"], switch),
    **dict.fromkeys(["Merge", "RefMerge"], merge),
    **dict.fromkeys(["TensorListReserve", "EmptyTensorList", "TensorArrayV3"], list_made),
    **dict.fromkeys(["TensorListFromTensor", "TensorArrayScatterV3"], list_from_tensor),
    **dict.fromkeys(["TensorListGetItem", "TensorArrayReadV3"], list_get),
    **dict.fromkeys(["TensorListSetItem", "TensorListPushBack", "TensorArrayWriteV3"], list_set),
    **dict.fromkeys(["TensorListStack", "TensorListConcat", "TensorListConcatV2", "TensorArrayGatherV3"], list_stack),
    **dict.fromkeys(["TensorListLength", "TensorArraySizeV3"], list_length),
}
