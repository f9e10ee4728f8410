"""The plain twin of the native Relay walk: the same graph, node by node, by TVM's Python interface alone.

Tests compare the two; it is also what runs where the native walk cannot read the loaded TVM. The order of nodes, the
roles of constants and the treatment of functions are those of ``tvm_perfpass/native/walk*.cpp``.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relay

from perfpass import _core, costs
from perfpass.errors import GraphError, LimitError, ShapeError, UnsupportedError
from perfpass.graph import DTYPES, OpGraph
from tvm_perfpass.operators import RULES, UNKNOWN, Rule

MAX_CALL_DEPTH = 128
MAX_INLINED = 1 << 20
PARAMETER_SLOTS = {
    "conv": (1,),
    "conv_transpose": (1,),
    "deform_conv": (1,),
    "dense": (1,),
    "prelu": (1,),
    "quantized_conv": (1,),
    "quantized_matmul": (1,),
    "batch_norm": (1, 2, 3, 4),
    "layer_norm": (1, 2),
    "instance_norm": (1, 2),
    "group_norm": (1, 2),
    "gather": (0,),
}


@dataclass
class Tensor:
    dtype: str
    shape: tuple[int, ...]
    role: str
    name: str = ""


@dataclass
class Node:
    op: str
    source: str
    attributes: dict[str, int]
    inputs: list[int]
    outputs: list[int]
    group: int


@dataclass
class Closure:
    function: relay.Function
    frame: Frame | None  # where its free variables are bound


@dataclass(eq=False)
class Frame:
    function: relay.Function
    lexical: Frame | None = None
    caller: Frame | None = None
    depth: int = 0
    group: int = -1
    values: dict[Any, Any] = field(default_factory=dict)  # expression to tensor id, list of values, or Closure


def walk_plain(mod: tvm.IRModule, params: list[str] | None) -> Any:
    """The Walk of a type-checked module; arguments and errors as in tvm_perfpass.walk.walk."""
    from tvm_perfpass.walk import Walk

    graph, groups = PlainWalker(mod, params).run()
    return Walk(graph, groups)


class PlainWalker:
    """One walk; see walk_plain."""

    def __init__(self, mod: tvm.IRModule, params: list[str] | None) -> None:
        self.mod = mod
        self.params = params
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []
        self.inputs: list[int] = []
        self.constants: dict[Any, Any] = {}
        self.groups = 0
        self.inlined = 0
        self.stack: list[tuple[Any, Frame, int | Frame]] = []
        self.marks: dict[tuple[Any, int], list[int]] = {}
        self.branches: list[tuple[int, ...]] = []

    def run(self) -> tuple[OpGraph, np.ndarray]:
        """The graph and the kernel group of each node."""
        main = self.mod["main"]
        root = Frame(main)
        for var in main.params:
            role = "weight" if self.params is not None and var.name_hint in self.params else "input"
            first = len(self.tensors)
            root.values[var] = self.fresh(_type(var, "an input"), role, f"input '{var.name_hint}'")
            for t in range(first, len(self.tensors)):
                self.tensors[t].name = var.name_hint
                if self.tensors[t].role == "input":
                    self.inputs.append(t)
        self.push(main.body, root)
        while self.stack:
            expression, frame, state = self.stack.pop()
            if state != 0 or expression not in frame.values:
                self.step(expression, frame, state)
        outputs: list[int] = []
        if not flatten(root.values[main.body], outputs):
            raise UnsupportedError("the main function returns a function; only tensors and tuples are counted")
        return self.build(outputs)

    def push(self, expression: Any, frame: Frame, state: int | Frame = 0) -> None:
        self.stack.append((expression, frame, state))

    def step(self, expression: Any, frame: Frame, state: int | Frame) -> None:
        """One visit of one expression: pushes what it needs, or leaves its value in the frame."""
        if isinstance(expression, relay.Call):
            self.visit_call(expression, frame, state)
        elif isinstance(expression, relay.Var):
            frame.values[expression] = self.variable(expression, frame)
        elif isinstance(expression, relay.Constant):
            if expression not in self.constants:
                self.constants[expression] = self.fresh(_type(expression, "a constant"), "weight", "a constant")
            frame.values[expression] = self.constants[expression]
        elif isinstance(expression, relay.Tuple):
            if state == 0:
                self.push(expression, frame, 1)
                for item in reversed(expression.fields):
                    self.push(item, frame)
            else:
                frame.values[expression] = [frame.values[item] for item in expression.fields]
        elif isinstance(expression, relay.TupleGetItem):
            if state == 0:
                self.push(expression, frame, 1)
                self.push(expression.tuple_value, frame)
            else:
                frame.values[expression] = frame.values[expression.tuple_value][expression.index]
        elif isinstance(expression, relay.Let):
            self.visit_let(expression, frame, state)
        elif isinstance(expression, relay.If):
            self.visit_if(expression, frame, state)
        elif isinstance(expression, relay.Function):
            frame.values[expression] = Closure(expression, frame)
        elif isinstance(expression, tvm.ir.GlobalVar):
            frame.values[expression] = Closure(self.mod[expression], None)
        else:
            raise UnsupportedError(
                f"the module contains a {type(expression).__name__}, which has no operator graph; references, pattern "
                "matches and data types cannot be counted"
            )

    def variable(self, var: relay.Var, frame: Frame) -> Any:
        scope: Frame | None = frame
        while scope is not None:
            if var in scope.values:
                return scope.values[var]
            scope = scope.lexical
        raise GraphError(f"variable '{var.name_hint}' is bound by no function or let")

    def visit_call(self, call: relay.Call, frame: Frame, state: int | Frame) -> None:
        direct = isinstance(call.op, tvm.ir.Op | relay.Function | tvm.ir.GlobalVar)
        if isinstance(state, Frame):
            frame.values[call] = state.values[state.function.body]
        elif state == 0:
            if isinstance(call.op, relay.adt.Constructor):
                raise UnsupportedError("the module builds an algebraic data type; only tensors and tuples are counted")
            self.push(call, frame, 1)
            for argument in reversed(call.args):
                self.push(argument, frame)
            if not direct:
                self.push(call.op, frame)
        elif isinstance(call.op, tvm.ir.Op):
            self.lower_call(call, frame)
        elif isinstance(call.op, relay.Function):
            self.enter(call, frame, Closure(call.op, frame), literal=True)
        elif isinstance(call.op, tvm.ir.GlobalVar):
            self.enter(call, frame, Closure(self.mod[call.op], None), literal=False)
        else:
            callee = frame.values[call.op]
            if not isinstance(callee, Closure):
                raise UnsupportedError(f"a call of something that is not a function: {type(call.op).__name__}")
            self.enter(call, frame, callee, literal=False)

    def enter(self, call: relay.Call, frame: Frame, callee: Closure, literal: bool) -> None:
        function = callee.function
        if not isinstance(function, relay.Function):
            raise UnsupportedError(
                f"a call of a {type(function).__name__}; predict for the module before it is lowered to TIR"
            )
        if frame.depth + 1 > MAX_CALL_DEPTH:
            raise LimitError(f"functions call one another more than {MAX_CALL_DEPTH} deep")
        scope: Frame | None = frame
        while scope is not None:
            if scope.function.same_as(function):
                raise UnsupportedError(
                    "a function calls itself; the number of runs depends on data, so its cost cannot be counted. "
                    "Unroll it, or predict for the body alone"
                )
            scope = scope.caller
        self.inlined += 1
        if self.inlined > MAX_INLINED:
            raise LimitError(
                f"functions are called more than {MAX_INLINED} times in all; each call is counted as if its function "
                "were inlined"
            )
        group = frame.group
        if literal and group == -1:
            group, self.groups = self.groups, self.groups + 1
        inner = Frame(function, callee.frame, frame, frame.depth + 1, group)
        for var, argument in zip(function.params, call.args, strict=True):
            inner.values[var] = frame.values[argument]
        self.push(call, frame, inner)
        self.push(function.body, inner)

    def visit_let(self, let: relay.Let, frame: Frame, state: int | Frame) -> None:
        if state == 0:
            self.push(let, frame, 1)
            self.push(let.value, frame)
        elif state == 1:
            frame.values[let.var] = frame.values[let.value]
            self.push(let, frame, 2)
            self.push(let.body, frame)
        else:
            frame.values[let] = frame.values[let.body]

    def visit_if(self, branch: relay.If, frame: Frame, state: int | Frame) -> None:
        marks = self.marks.setdefault((branch, id(frame)), [])
        if state == 0:
            self.push(branch, frame, 1)
            self.push(branch.cond, frame)
            return
        marks.append(len(self.nodes))
        if state == 1:
            self.push(branch, frame, 2)
            self.push(branch.true_branch, frame)
        elif state == 2:
            self.push(branch, frame, 3)
            self.push(branch.false_branch, frame)
        else:
            self.branches.append(tuple(marks))
            inputs: list[int] = []
            sizes = []
            for part in (branch.cond, branch.true_branch, branch.false_branch):
                if not flatten(frame.values[part], inputs):
                    raise UnsupportedError("an If whose branches do not both return the same tensors")
                sizes.append(len(inputs))
            if sizes[1] - sizes[0] != sizes[2] - sizes[1]:
                raise UnsupportedError("an If whose branches do not both return the same tensors")
            outputs: list[int] = []
            frame.values[branch] = self.fresh(_type(branch, "If"), "activation", "If")
            flatten(frame.values[branch], outputs)
            self.nodes.append(Node("conditional", "If", {"view": 1}, inputs, outputs, frame.group))

    def fresh(self, kind: tvm.ir.Type, role: str, whose: str) -> Any:
        """New tensors for a type: an id, or a list of them for a tuple."""
        if isinstance(kind, tvm.ir.TupleType):
            return [self.fresh(item, role, whose) for item in kind.fields]
        if not isinstance(kind, tvm.ir.TensorType):
            raise UnsupportedError(
                f"{whose}: a value of type {type(kind).__name__}; only tensors and tuples of tensors are counted"
            )
        for axis, size in enumerate(kind.shape):
            if not isinstance(size, tvm.tir.IntImm):
                what = "its result" if role == "activation" else "it"
                raise ShapeError(
                    f"{whose}: {what} has a dynamic size ({type(size).__name__}) at axis {axis}; give the module "
                    "static shapes, for example from_onnx(model, shape={...}, freeze_params=True) or "
                    "relay.transform.DynamicToStatic()"
                )
        shape = tuple(int(size) for size in kind.shape)
        dtype = _dtype(kind.dtype)
        if dtype == "undefined":
            raise UnsupportedError(
                f"{whose}: {'its result' if role == 'activation' else 'it'} has dtype {kind.dtype}, whose size and "
                "speed are unknown; allowed are floats, integers of 4 to 64 bits, and bool"
            )
        if role == "weight" and not is_parameter(dtype, shape):
            role = "literal"
        self.tensors.append(Tensor(dtype, shape, role))
        return len(self.tensors) - 1

    def lower_call(self, call: relay.Call, frame: Frame) -> None:
        name = call.op.name
        rule = RULES.get(name, UNKNOWN)
        if rule.form == "unsupported":
            raise UnsupportedError(
                f"operator {name} has no place in an inference graph; predict for the module before memory planning, "
                "lowering or differentiation"
            )
        values = [frame.values[argument] for argument in call.args]
        read = values if rule.inputs is None else [values[i] for i in rule.inputs if i < len(values)]
        inputs: list[int] = []
        if not all(flatten(value, inputs) for value in read):
            raise UnsupportedError(f"operator {name} takes a function as argument")
        if name == "nn.bias_add" and len(inputs) > 1:  # quantized networks have integer biases
            bias = self.tensors[inputs[1]]
            if bias.role == "literal" and len(bias.shape) == 1:
                bias.role = "weight"
        kind = _type(call, name)
        outputs: list[int] = []
        if rule.form == "first_output" and isinstance(kind, tvm.ir.TupleType):
            first = self.fresh(kind.fields[0], "activation", name)
            flatten(first, outputs)
            result: Any = [first] + [values[min(i + 2, len(values) - 1)] for i in range(1, len(kind.fields))]
        else:
            result = self.fresh(kind, "activation", name)
            flatten(result, outputs)
        lowering = Lowering(self.tensors, rule, call.attrs, inputs, outputs)
        self.nodes.append(Node(lowering.op, name, lowering.attributes, inputs, outputs, frame.group))
        frame.values[call] = result

    def build(self, outputs: list[int]) -> tuple[OpGraph, np.ndarray]:
        """The graph; a second time with the lighter branch of every If counted 0 times, if there is one."""
        notes = []
        if self.params is None and (found := self.weights_in_slots()):
            notes.append(f"{found} inputs stand in weight slots and are counted as weights; pass params= to name them")
        repeat = [1.0] * len(self.nodes)
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
        builder = _core.GraphBuilder()
        for tensor in self.tensors:
            builder.add_tensor(tensor.name, tensor.dtype, list(tensor.shape), tensor.role)
        for node, times in zip(self.nodes, repeat, strict=True):
            builder.add_node(node.op, node.source, "", node.attributes, node.inputs, node.outputs, times)
        for note in notes:
            builder.add_note(note)
        return OpGraph(builder.finish(self.inputs, outputs))

    def weights_in_slots(self) -> int:
        """Turns inputs that stand where an operator has its parameters into weights; returns how many."""
        found = 0
        for node in self.nodes:
            slots = (1,) if node.source == "nn.bias_add" else PARAMETER_SLOTS.get(node.op, ())
            if node.source == "qnn.batch_matmul" or (node.op == "gather" and not self.looks_up_table(node)):
                slots = ()
            for slot in slots:
                tensor = self.tensors[node.inputs[slot]] if slot < len(node.inputs) else None
                if tensor is not None and tensor.role == "input" and is_parameter(tensor.dtype, tensor.shape):
                    tensor.role = "weight"
                    found += 1
        self.inputs = [t for t in self.inputs if self.tensors[t].role == "input"]
        return found

    def looks_up_table(self, node: Node) -> bool:
        """An embedding: rows chosen by what the network is fed. Constant indices pick from the network's own input."""
        if node.source != "take" or len(node.inputs) < 2:
            return False
        return self.tensors[node.inputs[1]].role in ("input", "activation")


class Lowering:
    """The canonical operator and the attributes of one call; may show blocked tensors by their logical shape."""

    def __init__(self, tensors: list[Tensor], rule: Rule, attrs: Any, inputs: list[int], outputs: list[int]) -> None:
        self.tensors = tensors
        self.attrs = attrs
        self.op = rule.op
        self.attributes: dict[str, int] = dict(rule.fixed)
        if attrs is None:
            return
        for name, how, column in rule.reads:
            if how != "pads":
                self.read(name, how, column)
        if rule.form in ("conv", "conv_transpose") and inputs and outputs:
            self.lower_conv(rule.form == "conv_transpose", inputs, outputs[0])
        elif rule.form in ("pool", "global_pool", "adaptive_pool") and inputs and outputs:
            self.lower_pool(rule.form == "adaptive_pool", inputs[0], outputs[0])
        elif rule.form == "dense_pack" and len(inputs) > 1:
            weight = tensors[inputs[1]]
            if len(weight.shape) == 3:
                weight.shape = (weight.shape[0] * weight.shape[2], weight.shape[1])
        elif rule.form == "einsum":
            self.attributes["contraction"] = contraction(str(attrs["equation"]), [tensors[t].shape for t in inputs])
        for name, how, column in rule.reads:
            if how == "pads":
                self.read(name, how, column)

    def read(self, name: str, how: str, column: str) -> None:
        values = integers(self.attrs[name])
        if any(abs(value) > 2**31 - 1 for value in values):
            raise LimitError(f"attribute {name} is {values}; it must fit in 32 bits")
        if how in ("int", "axis"):
            if len(values) == 1:
                self.attributes[column] = values[0]
        elif how == "ints":
            self.attributes |= {f"{column}_{i}": value for i, value in enumerate(values[:3])}
        else:
            rank = self.attributes.get("spatial_rank", 0) or 2
            if len(values) == 1:
                values = values * (2 * rank)
            elif len(values) == rank:
                values = values * 2
            if len(values) >= 2 * rank:
                for i in range(rank):
                    self.attributes[f"pad_begin_{i}"] = values[i]
                    self.attributes[f"pad_end_{i}"] = values[rank + i]

    def lower_conv(self, transposed: bool, inputs: list[int], output: int) -> None:
        data_layout = str(self.attrs["data_layout"])
        data, result = self.tensors[inputs[0]], self.tensors[output]
        letters = unblock(data, data_layout)
        out_letters = unblock(result, str(self.attrs["out_layout"]) or data_layout)
        self.set_layout(letters, len(data.shape))
        if len(inputs) < 2:
            return
        weight = self.tensors[inputs[1]]
        blocks, order = parse_layout(str(self.attrs["kernel_layout"]))
        logical = logical_shape(blocks, order, weight.shape)
        if not logical:
            return
        spatial = tuple(size for letter, size in zip(order, logical, strict=True) if letter not in "OI")
        for i, size in enumerate(spatial[:3]):
            self.attributes.setdefault(f"kernel_{i}", size)
        blocked = len(blocks) != len(order)
        if not blocked and order[:2] == ("IO" if transposed else "OI"):
            self.attributes["weight_layout"] = 2 if transposed else 0
            return
        if not blocked and not transposed and order[2:] and order[-2:] == "IO":
            self.attributes["weight_layout"] = 1
            return
        self.attributes["weight_layout"] = 2 if transposed else 0
        source, source_letters = (data, letters) if transposed else (result, out_letters)
        at = source_letters.find("C")
        channels = source.shape[at] if 0 <= at < len(source.shape) else 0
        known = channels * math.prod(spatial)
        shape = (channels, math.prod(logical) // known if known else 0, *spatial)
        if math.prod(shape) == math.prod(logical):
            weight.shape = shape

    def lower_pool(self, adaptive: bool, data_id: int, result_id: int) -> None:
        layout = str(self.attrs["layout"])
        data, result = self.tensors[data_id], self.tensors[result_id]
        letters = unblock(data, layout)
        unblock(result, layout)
        self.set_layout(letters, len(data.shape))
        if not adaptive or len(data.shape) != len(result.shape):
            return
        first = 1 if self.attributes["channels_last"] else 2
        rank = self.attributes["spatial_rank"]
        sizes = list(zip(data.shape[first : first + rank], result.shape[first : first + rank], strict=True))
        if all(out == 1 for _, out in sizes):
            self.op = "global_" + self.op
            return
        for i, (before, after) in enumerate(sizes):
            self.attributes[f"kernel_{i}"] = -(-before // max(after, 1))
            self.attributes[f"stride_{i}"] = max(before // max(after, 1), 1)

    def set_layout(self, letters: str, rank: int) -> None:
        self.attributes["channels_last"] = int(rank > 2 and letters.endswith("C"))
        self.attributes["spatial_rank"] = min(rank - 2, 3) if rank > 2 else 0


def parse_layout(text: str) -> tuple[str, str]:
    """(letter of every dimension, letters of the unblocked layout): NCHW8c is ("NCHWC", "NCHW")."""
    return "".join(c for c in text if c.isalpha()).upper(), "".join(c for c in text if c.isupper())


def logical_shape(blocks: str, order: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape by the letters of the unblocked layout; empty if the layout does not fit the rank."""
    if len(blocks) != len(shape):
        return ()
    sizes = dict.fromkeys(order, 1)
    for letter, size in zip(blocks, shape, strict=True):
        if letter not in sizes:
            return ()
        sizes[letter] *= size
    return tuple(sizes[letter] for letter in order)


def unblock(tensor: Tensor, layout: str) -> str:
    """Shows a tensor by its logical shape; returns the letters of the unblocked layout."""
    blocks, order = parse_layout(layout)
    if len(blocks) != len(order):
        tensor.shape = logical_shape(blocks, order, tensor.shape) or tensor.shape
    return order


def contraction(equation: str, shapes: list[tuple[int, ...]]) -> int:
    """Product of the sizes of the labels of an einsum that its result does not have."""
    left, arrow, kept = equation.partition("->")
    if not arrow:
        kept = "".join(c for c, n in Counter(left).items() if c.isalpha() and n == 1)
    sizes: dict[str, int] = {}
    for term, shape in zip(left.replace(" ", "").split(","), shapes, strict=False):
        before, _, after = term.partition("...")
        if len(before) + len(after) <= len(shape):
            sizes |= dict(zip(before, shape, strict=False))
            sizes |= dict(zip(after, shape[len(shape) - len(after) :], strict=True))
    return math.prod(size for label, size in sizes.items() if label not in kept)


def integers(value: Any) -> list[int]:
    """An attribute as a list of numbers; empty for None and for sizes that are not known."""
    if isinstance(value, tvm.ir.Array):
        numbers = [integers(item) for item in value]
        return [n[0] for n in numbers] if all(len(n) == 1 for n in numbers) else []
    if isinstance(value, tvm.tir.IntImm):
        return [int(value.value)]
    return [int(value)] if isinstance(value, int) else []


def flatten(value: Any, out: list[int]) -> bool:
    """Appends the tensor ids of a value; False if it holds a function."""
    if isinstance(value, Closure):
        return False
    if isinstance(value, list):
        return all(flatten(item, out) for item in value)
    out.append(value)
    return True


def is_parameter(dtype: str, shape: tuple[int, ...]) -> bool:
    """Whether a constant counts as parameters: floating and no scalar, or bytes of two and more dimensions."""
    if dtype.startswith(("float", "bfloat")):
        return len(shape) >= 1
    return dtype in ("int8", "uint8", "int4", "uint4") and len(shape) >= 2


def _type(expression: Any, whose: str) -> tvm.ir.Type:
    try:
        return expression.checked_type
    except ValueError as error:
        raise GraphError(
            f"{whose}: the expression has no checked type; run relay.transform.InferType() first"
        ) from error


def _dtype(name: str) -> str:
    if name.startswith(("e4m3", "e5m2")):
        return "float8"
    return name if name in DTYPES else "undefined"
