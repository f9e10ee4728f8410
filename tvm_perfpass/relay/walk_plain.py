"""The plain twin of the native Relay walk: the same graph, node by node, by TVM's Python interface alone.

Tests compare the two; it is also what runs where the native walk cannot read the loaded TVM. The order of nodes, the
roles of constants and the treatment of functions are those of ``tvm_perfpass/native/walk*.cpp``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relay

from perfpass.errors import GraphError, LimitError, ShapeError, UnsupportedError
from perfpass.graph import DTYPES, OpGraph
from tvm_perfpass.assembly import Node, Records, is_parameter
from tvm_perfpass.lowering import Lowering, Tensor
from tvm_perfpass.relay.operators import RULES
from tvm_perfpass.rules import UNKNOWN
from tvm_perfpass.walked import Walk

MAX_CALL_DEPTH = 128
MAX_INLINED = 1 << 20


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


def walk_plain(mod: tvm.IRModule, params: list[str] | None) -> Walk:
    """The Walk of a type-checked module; arguments and errors as in tvm_perfpass.relay.module_walk.walk."""
    graph, groups = PlainWalker(mod, params).run()
    return Walk(graph, groups)


class PlainWalker:
    """One walk; see walk_plain."""

    def __init__(self, mod: tvm.IRModule, params: list[str] | None) -> None:
        self.mod = mod
        self.params = params
        self.records = Records()
        self.tensors = self.records.tensors
        self.nodes = self.records.nodes
        self.constants: dict[Any, Any] = {}
        self.groups = 0
        self.inlined = 0
        self.stack: list[tuple[Any, Frame, int | Frame]] = []
        self.marks: dict[tuple[Any, int], list[int]] = {}

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
                    self.records.inputs.append(t)
        self.push(main.body, root)
        while self.stack:
            expression, frame, state = self.stack.pop()
            if state != 0 or expression not in frame.values:
                self.step(expression, frame, state)
        outputs: list[int] = []
        if not flatten(root.values[main.body], outputs):
            raise UnsupportedError("the main function returns a function; only tensors and tuples are counted")
        if self.params is None:
            self.records.weights_in_slots()
        return self.records.assemble(outputs)

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
            self.records.branches.append(tuple(marks))
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
        lowering = Lowering(
            self.tensors, rule, None if call.attrs is None else RelayAttributes(call.attrs), inputs, outputs
        )
        self.nodes.append(Node(lowering.op, name, lowering.attributes, inputs, outputs, frame.group))
        frame.values[call] = result


class RelayAttributes:
    """The attributes of a Relay call, for the lowering."""

    def __init__(self, attrs: Any) -> None:
        self.attrs = attrs

    def integers(self, name: str) -> list[int]:
        """See AttributeReader."""
        return integers(self.attrs[name])

    def text(self, name: str) -> str:
        """See AttributeReader."""
        return str(self.attrs[name])


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
