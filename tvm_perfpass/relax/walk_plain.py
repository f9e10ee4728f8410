"""The plain twin of the native Relax walk: the same graph, node by node, by TVM's Python interface alone.

Tests compare the two; it is also what runs where the native walk cannot read the loaded TVM. The order of nodes, the
roles of constants and the treatment of functions are those of ``tvm_perfpass/native/relax/walk*.cpp``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import ir, relax, tirx

from perfpass.errors import GraphError, LimitError, ShapeError, UnsupportedError
from perfpass.graph import DTYPES, OpGraph
from tvm_perfpass.assembly import Node, Records, is_parameter
from tvm_perfpass.lowering import Lowering, Tensor
from tvm_perfpass.relax.kernels import Kernel, kernel_attributes
from tvm_perfpass.relax.operators import RULES
from tvm_perfpass.rules import UNKNOWN

MAX_CALL_DEPTH = 128
MAX_INLINED = 1 << 20
MAX_NESTING = 16  # of tuples, and of the arithmetic of one size
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "prim.Add": lambda a, b: a + b,
    "prim.Sub": lambda a, b: a - b,
    "prim.Mul": lambda a, b: a * b,
    "prim.FloorDiv": lambda a, b: a // b,
    "prim.FloorMod": lambda a, b: a % b,
    "prim.Div": lambda a, b: int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b)),
    "prim.Mod": lambda a, b: int(math.fmod(a, b)),
    "prim.Min": min,
    "prim.Max": max,
}


@dataclass
class Closure:
    """A function as a value; ``frame``: where its free variables are bound."""

    function: Any
    frame: Frame | None


@dataclass(eq=False)
class Frame:
    """One run of a function: the values of its variables and symbolic sizes, by the address of the variable."""

    function: Any
    lexical: Frame | None = None
    caller: Frame | None = None
    depth: int = 0
    group: int = -1
    values: dict[int, Any] = field(default_factory=dict)  # tensor id, list of values, Closure, or None for no tensor
    sizes: dict[int, int] = field(default_factory=dict)


@dataclass
class Level:
    """A sequence of bindings under way, and what its value is for: ``target`` in the frame ``outer``."""

    body: Any
    frame: Frame
    use: str  # main, call, then, else
    target: Any = None
    outer: Frame | None = None
    branch: Any = None  # the If
    marks: list[int] = field(default_factory=list)  # numbers of nodes: before the then branch, and before the else
    then_value: Any = None
    bindings: Any = None

    def __post_init__(self) -> None:
        blocks = self.body.blocks if isinstance(self.body, relax.SeqExpr) else ()
        self.bindings = (binding for block in blocks for binding in block.bindings)


class RelaxAttributes:
    """The attributes of a Relax call, for the lowering."""

    def __init__(self, attrs: Any) -> None:
        self.attrs = attrs

    def integers(self, name: str) -> list[int]:
        """See AttributeReader."""
        value = getattr(self.attrs, name)
        if isinstance(value, int):
            return [int(value)]
        if isinstance(value, tirx.IntImm):
            return [int(value.value)]
        if value is None or isinstance(value, str) or not hasattr(value, "__len__"):
            return []
        numbers = [int(v.value) if isinstance(v, tirx.IntImm) else v for v in value]
        return [int(v) for v in numbers] if all(isinstance(v, int) for v in numbers) else []

    def text(self, name: str) -> str:
        """See AttributeReader."""
        value = getattr(self.attrs, name)
        return str(value) if isinstance(value, str) else ""


class PlainWalker:
    """One walk: ``run`` gives the graph and the kernel group of each node.

    ``functions``: by the address of a global variable; ``kernels``: the lowered functions among them; ``sizes``: of
    symbolic variables of main, by address.
    """

    def __init__(
        self,
        main: relax.Function,
        functions: Mapping[int, Any],
        kernels: Mapping[int, Kernel],
        params: list[str] | None,
        sizes: Mapping[int, int],
    ) -> None:
        self.main = main
        self.functions = functions
        self.kernels = kernels
        self.params = params
        self.sizes = sizes
        self.records = Records()
        self.tensors = self.records.tensors
        self.constants: dict[int, Any] = {}
        self.groups = 0
        self.inlined = 0
        self.levels: list[Level] = []

    def run(self) -> tuple[OpGraph, np.ndarray]:
        """The graph and the kernel group of each node."""
        root = Frame(self.main, sizes=dict(self.sizes))
        for var in self.main.params:
            role = "weight" if self.params is not None and var.name in self.params else "input"
            first = len(self.tensors)
            root.values[address(var)] = self.fresh(var.ty, root, role, f"input '{var.name}'")
            for t in range(first, len(self.tensors)):
                self.tensors[t].name = var.name
                if self.tensors[t].role == "input":
                    self.records.inputs.append(t)
        self.levels.append(Level(self.main.body, root, "main"))
        result: Any = None
        while self.levels:
            level = self.levels[-1]
            binding = next(level.bindings, None)
            if binding is not None:
                self.bind(binding, level.frame)
                continue
            self.levels.pop()
            last = level.body.body if isinstance(level.body, relax.SeqExpr) else level.body
            result = self.leave(level, self.value(last, level.frame))
        outputs: list[int] = []
        if not flatten(result, outputs):
            raise UnsupportedError("the main function returns a function; only tensors and tuples are counted")
        if self.params is None:
            self.records.weights_in_slots()
        self.records.fold_transposed_weights(outputs)
        return self.records.assemble(outputs)

    def leave(self, level: Level, value: Any) -> Any:
        """Hands the value of a finished sequence to whoever waits for it."""
        if level.use == "main":
            return value
        assert level.outer is not None
        if level.use == "call":
            level.outer.values[address(level.target)] = value
            return None
        level.marks.append(len(self.records.nodes))
        if level.use == "then":
            other = Level(level.branch.false_branch, level.outer, "else", level.target, level.outer, level.branch)
            other.marks, other.then_value = level.marks, value
            self.levels.append(other)
            return None
        self.records.branches.append(tuple(level.marks))
        inputs: list[int] = []
        sizes = []
        for part in (self.value(level.branch.cond, level.outer), level.then_value, value):
            if not flatten(part, inputs):
                raise UnsupportedError("an If whose branches do not both return the same tensors")
            sizes.append(len(inputs))
        if sizes[1] - sizes[0] != sizes[2] - sizes[1]:
            raise UnsupportedError("an If whose branches do not both return the same tensors")
        outputs: list[int] = []
        merged = self.fresh(level.branch.ty, level.outer, "activation", "If")
        flatten(merged, outputs)
        self.records.nodes.append(Node("conditional", "If", {"view": 1}, inputs, outputs, level.outer.group))
        level.outer.values[address(level.target)] = merged
        return None

    def bind(self, binding: Any, frame: Frame) -> None:
        value, target = binding.value, binding.var
        if isinstance(binding, relax.MatchCast):
            known = self.value(value, frame)
            self.match(binding.ty, known, frame)
            frame.values[address(target)] = known
        elif isinstance(value, ir.Call):
            self.call(value, target, frame)
        elif isinstance(value, relax.If):
            level = Level(value.true_branch, frame, "then", target, frame, value)
            level.marks.append(len(self.records.nodes))
            self.levels.append(level)
        else:
            frame.values[address(target)] = self.value(value, frame)

    def value(self, expression: Any, frame: Frame, depth: int = 0) -> Any:
        """What a leaf, a tuple of leaves or a field of a tuple stands for; None for what is no tensor."""
        if isinstance(expression, relax.Var):
            return self.variable(expression, frame)
        if isinstance(expression, ir.GenericConst):
            at = address(expression)
            if at not in self.constants:
                first = len(self.tensors)
                self.constants[at] = self.fresh(expression.ty, frame, "weight", "a constant")
                for tensor in self.tensors[first:]:
                    tensor.constant = True
            return self.constants[at]
        if isinstance(expression, relax.Function):
            return Closure(expression, frame)
        if isinstance(expression, ir.GlobalVar):
            return Closure(self.function(expression), None)
        if isinstance(expression, relax.ExternFunc):
            return Closure(expression, None)
        if depth > MAX_NESTING:
            raise LimitError(f"tuples are nested more than {MAX_NESTING} deep")
        if isinstance(expression, relax.Tuple):
            return [self.value(item, frame, depth + 1) for item in expression.fields]
        if isinstance(expression, relax.TupleGetItem):
            whole, index = self.value(expression.tuple_value, frame, depth + 1), int(expression.index)
            if not isinstance(whole, list) or not 0 <= index < len(whole):
                raise GraphError(f"field {index} is taken of a value that does not have it")
            return whole[index]
        if isinstance(expression, ir.Call | relax.If | relax.SeqExpr):
            raise UnsupportedError(
                f"a {key(expression)} inside of an expression; bind it to a variable first: relax.transform.Normalize()"
            )
        return None  # shapes, numbers, text

    def variable(self, var: Any, frame: Frame) -> Any:
        at = address(var)
        scope: Frame | None = frame
        while scope is not None:
            if at in scope.values:
                return scope.values[at]
            if at in scope.sizes:
                return None
            scope = scope.lexical
        if isinstance(var.ty, ir.PrimType):
            return None
        raise GraphError(f"variable '{var.name}' is bound by nothing")

    def function(self, var: Any) -> Any:
        if address(var) not in self.functions:
            raise GraphError("a call of a global function that the module does not have")
        return self.functions[address(var)]

    def call(self, call: Any, target: Any, frame: Frame) -> None:
        if isinstance(call.op, ir.Op):
            self.lower_call(call, target, frame)
            return
        callee = self.value(call.op, frame)
        if not isinstance(callee, Closure):
            raise UnsupportedError(f"a call of something that is not a function: {key(call.op)}")
        if isinstance(callee.function, relax.ExternFunc):
            self.packed(call, callee.function, list(call.args), target, frame)
            return
        self.enter(call, callee, target, frame)

    def enter(self, call: Any, callee: Closure, target: Any, frame: Frame) -> None:
        function = callee.function
        if not isinstance(function, relax.Function):
            raise UnsupportedError(f"a call of a {key(function)}; lowered functions are called by relax.call_tir")
        if frame.depth + 1 > MAX_CALL_DEPTH:
            raise LimitError(f"functions call one another more than {MAX_CALL_DEPTH} deep")
        scope: Frame | None = frame
        while scope is not None:
            if address(scope.function) == address(function):
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
        attrs = function.attrs
        if group == -1 and attrs is not None and ("Primitive" in attrs or "Composite" in attrs):
            group, self.groups = self.groups, self.groups + 1
        inner = Frame(function, callee.frame, frame, frame.depth + 1, group)
        if len(function.params) != len(call.args):
            raise GraphError(f"a function of {len(function.params)} parameters is called with {len(call.args)}")
        for var, argument in zip(function.params, call.args, strict=True):
            inner.values[address(var)] = known = self.value(argument, frame)
            self.match(var.ty, known, inner)
        self.levels.append(Level(function.body, inner, "call", target, frame))

    def match(self, kind: Any, value: Any, frame: Frame) -> None:
        """Binds the symbolic sizes that a type names to those of the value."""
        if isinstance(kind, ir.TupleType) and isinstance(value, list):
            for part, item in zip(kind.fields, value, strict=False):
                self.match(part, item, frame)
        elif isinstance(kind, relax.TensorType) and isinstance(value, int) and isinstance(kind.shape, relax.ShapeExpr):
            self.match_sizes(kind.shape.values, self.tensors[value].shape, frame)

    def match_sizes(self, names: Any, shape: tuple[int, ...], frame: Frame) -> None:
        if len(names) != len(shape):
            return
        for name, size in zip(names, shape, strict=True):
            if isinstance(name, tirx.Var):
                known = self.size_of(name, frame)
                if known is None:
                    frame.sizes[address(name)] = size
                elif known != size:
                    raise ShapeError(f"symbolic size {name.name} is {known} and {size} at once")

    def size_of(self, var: Any, frame: Frame) -> int | None:
        scope: Frame | None = frame
        while scope is not None:
            if address(var) in scope.sizes:
                return scope.sizes[address(var)]
            scope = scope.lexical
        return None

    def evaluate(self, expression: Any, frame: Frame, unknown: list[str], depth: int = 0) -> int:
        """A size; 0 and a name in ``unknown`` where it depends on a variable without a value."""
        if isinstance(expression, tirx.IntImm):
            return int(expression.value)
        if isinstance(expression, tirx.Var):
            found = self.size_of(expression, frame)
            if found is None:
                unknown.append(expression.name)
            return found or 0
        if depth > MAX_NESTING:
            raise LimitError(f"the arithmetic of a size is nested more than {MAX_NESTING} deep")
        name = key(expression)
        if name == "prim.Cast":
            return self.evaluate(expression.value, frame, unknown, depth + 1)
        if name not in _ARITHMETIC:
            unknown.append(name)
            return 0
        a, b = (self.evaluate(part, frame, unknown, depth + 1) for part in (expression.a, expression.b))
        if unknown:
            return 0
        if b == 0 and name in ("prim.FloorDiv", "prim.FloorMod", "prim.Div", "prim.Mod"):
            raise ShapeError("a symbolic size divides by 0")
        return _ARITHMETIC[name](a, b)

    def fresh(self, kind: Any, frame: Frame, role: str, whose: str, depth: int = 0) -> Any:
        """New tensors for a type: an id, a list of them for a tuple, or None for what is no tensor."""
        if isinstance(kind, ir.TupleType):
            if depth > MAX_NESTING:
                raise LimitError(f"tuples are nested more than {MAX_NESTING} deep")
            return [self.fresh(item, frame, role, whose, depth + 1) for item in kind.fields]
        if not isinstance(kind, relax.TensorType):
            if kind is None:
                raise GraphError(f"{whose}: the expression has no type; run relax.transform.Normalize() first")
            return None
        what = "its result" if role == "activation" else "it"
        if not isinstance(kind.shape, relax.ShapeExpr):
            raise ShapeError(
                f"{whose}: {what} has a shape that depends on data (rank {kind.ndim}), so its cost cannot be counted; "
                "predict for the parts of the model before and after it"
            )
        shape = []
        for axis, size in enumerate(kind.shape.values):
            unknown: list[str] = []
            shape.append(self.evaluate(size, frame, unknown))
            if unknown:
                raise ShapeError(
                    f"{whose}: {what} has the symbolic size {unknown[0]} at axis {axis}, which has no value"
                )
        dtype = _dtype(str(kind.dtype))
        if dtype == "undefined":
            raise UnsupportedError(
                f"{whose}: {what} has dtype {kind.dtype or 'unknown'}, whose size and speed are unknown; allowed are "
                "floats, integers of 4 to 64 bits, and bool"
            )
        if role == "weight" and not is_parameter(dtype, tuple(shape)):
            role = "literal"
        self.tensors.append(Tensor(dtype, tuple(shape), role))
        return len(self.tensors) - 1

    def lower_call(self, call: Any, target: Any, frame: Frame) -> None:
        name = call.op.name
        rule = RULES.get(name, UNKNOWN)
        if rule.form == "unsupported":
            raise UnsupportedError(
                f"operator {name} has no place in an inference graph; predict for the module before memory planning, "
                "lowering or differentiation"
            )
        if rule.form == "no_node":
            frame.values[address(target)] = None
            return
        if rule.form == "call_tir":
            self.lowered(call, target, frame)
            return
        if rule.form == "packed":
            self.packed(call, call.args[0], list(call.args[1:]), target, frame)
            return
        values = [self.value(argument, frame) for argument in call.args]
        read = values if rule.inputs is None else [values[i] for i in rule.inputs if i < len(values)]
        inputs: list[int] = []
        if not all(flatten(value, inputs) for value in read):
            raise UnsupportedError(f"operator {name} takes a function as argument")
        kind = call.ty
        outputs: list[int] = []
        if rule.form == "first_output" and isinstance(kind, ir.TupleType):
            first = self.fresh(kind.fields[0], frame, "activation", name)
            flatten(first, outputs)
            result: Any = [first] + [values[min(i + 2, len(values) - 1)] for i in range(1, len(kind.fields))]
        else:
            result = self.fresh(kind, frame, "activation", name)
            flatten(result, outputs)
        attrs = None if call.attrs is None else RelaxAttributes(call.attrs)
        lowering = Lowering(self.tensors, rule, attrs, inputs, outputs)
        self.node(lowering.op, name, lowering.attributes, inputs, outputs, frame)
        frame.values[address(target)] = result

    def node(
        self, op: str, source: str, attributes: dict[str, int], inputs: list[int], outputs: list[int], frame: Frame
    ) -> None:
        self.records.nodes.append(Node(op, source, attributes, inputs, outputs, frame.group))

    def lowered(self, call: Any, target: Any, frame: Frame) -> None:
        """relax.call_tir: the kernel, its tensors, and sizes that are left."""
        if not isinstance(call.args[0], ir.GlobalVar):
            raise UnsupportedError(f"relax.call_tir of a {key(call.args[0])}; a function of the module is needed")
        kernel = self.kernels.get(address(call.args[0]))
        if kernel is None:
            raise GraphError(
                f"relax.call_tir of '{call.args[0].name_hint}', which is no lowered function of the module"
            )
        arguments: list[int] = []
        if not flatten(self.value(call.args[1], frame), arguments):
            raise UnsupportedError(f"kernel {kernel.name} takes a function as argument")
        outputs: list[int] = []
        result = self.fresh(call.ty, frame, "activation", kernel.name)
        flatten(result, outputs)
        sizes = Frame(None)
        for shape, tensor in zip(kernel.shapes, [*arguments, *outputs], strict=False):
            self.match_sizes(shape, self.tensors[tensor].shape, sizes)
        contraction = 1
        for extent in kernel.extents:
            unknown: list[str] = []
            contraction *= self.evaluate(extent, sizes, unknown)
            if unknown:
                raise ShapeError(
                    f"kernel {kernel.name}: it loops over the symbolic size {unknown[0]}, which has no value"
                )
        first = [arguments[i] for i in kernel.order if i < len(arguments)]
        inputs = first + [t for i, t in enumerate(arguments) if i not in kernel.order]
        shapes = [self.tensors[t].shape for t in inputs]
        op, attributes = kernel_attributes(kernel.op, shapes, contraction)
        self.node(op, kernel.name, attributes, inputs, outputs, frame)
        frame.values[address(target)] = result

    def packed(self, call: Any, function: Any, arguments: list[Any], target: Any, frame: Frame) -> None:
        """A function outside of the module: its tensors are known, its arithmetic is not."""
        name = str(function.global_symbol) if isinstance(function, relax.ExternFunc) else call.op.name
        inputs: list[int] = []
        for argument in arguments:
            flatten(self.value(argument, frame), inputs)
        outputs: list[int] = []
        result = self.fresh(call.ty, frame, "activation", name)
        flatten(result, outputs)
        if outputs:
            self.node("unknown", name, {}, inputs, outputs, frame)
        frame.values[address(target)] = result


def address(node: Any) -> int:
    """Where an object of TVM lies: what identifies it."""
    return node.__chandle__()


def key(node: Any) -> str:
    """TVM's name of a class, such as relax.expr.If."""
    return type(node).__tvm_ffi_type_info__.type_key


def flatten(value: Any, out: list[int]) -> bool:
    """Appends the tensor ids of a value; False if it holds a function."""
    if isinstance(value, Closure):
        return False
    if isinstance(value, list):
        return all(flatten(item, out) for item in value)
    if value is not None:
        out.append(value)
    return True


def _dtype(name: str) -> str:
    if name.startswith("float8"):
        return "float8"
    if name.startswith("float4"):
        return "float4"
    return name if name in DTYPES else "undefined"
