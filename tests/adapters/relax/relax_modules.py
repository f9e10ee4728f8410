"""Relax modules for the tests, and the comparison of the two walks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from random import Random

import numpy as np
import tvm
from tvm import relax, tirx

from perfpass import _core
from tvm_perfpass.relax.walk import walk, walk_plain
from tvm_perfpass.walked import Walk

ARRAYS = [name for name in dir(_core.Graph) if isinstance(getattr(_core.Graph, name), property)]
ARRAYS = [name for name in ARRAYS if name not in ("notes", "string_count", "node_name", "tensor_name")]


def tensor(shape, dtype: str = "float32") -> relax.TensorType:
    return relax.TensorType(shape, dtype)


def module(inputs: list[relax.Var], body: Callable[..., relax.Expr], name: str = "main") -> tvm.IRModule:
    """A module whose ``main`` emits what ``body(builder, *inputs)`` makes and returns its last expression."""
    builder = relax.BlockBuilder()
    with builder.function(name, inputs):
        with builder.dataflow():
            out = builder.emit_output(body(builder, *inputs))
        builder.emit_func_output(out)
    return builder.get()


def both(mod: tvm.IRModule, bindings=None, params=None) -> Walk:
    """The native walk, after checking it node by node against the plain one."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # that the native walk is not used
        native = walk(mod, bindings, params)
    plain = walk_plain(mod, bindings, params)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(native.graph, name), getattr(plain.graph, name), err_msg=name)
    assert sources(native) == sources(plain)
    for t in range(native.graph.tensor_count):
        names = [w.graph.string(int(w.graph.tensor_name[t])) for w in (native, plain)]
        assert names[0] == names[1]
    np.testing.assert_array_equal(native.kernel_group, plain.kernel_group)
    assert native.graph.notes == plain.graph.notes
    return native


def sources(walked: Walk) -> list[str]:
    return [walked.graph.source_op_name(node) for node in range(walked.graph.node_count)]


class Maker:
    """Grows a random module binding by binding; every method emits calls whose shapes are consistent."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.builder = relax.BlockBuilder()
        self.size = tirx.Var("n", "int64")
        self.vars: list[tuple[relax.Expr, tuple]] = []  # rank 2, the first size maybe symbolic
        self.inputs: list[relax.Var] = []

    def input(self, shape: tuple, dtype: str = "float32") -> relax.Var:
        self.inputs.append(relax.Var(f"x{len(self.inputs)}", tensor(shape, dtype)))
        return self.inputs[-1]

    def pick(self) -> tuple[relax.Expr, tuple]:
        return self.random.choice(self.vars)

    def emit(self, expression: relax.Expr, shape: tuple) -> relax.Expr:
        var = self.builder.emit(expression)
        self.vars.append((var, shape))
        return var

    def elementwise(self) -> None:
        x, shape = self.pick()
        ops = [relax.op.exp, relax.op.nn.relu, relax.op.nn.gelu, relax.op.sigmoid, relax.op.nn.silu, relax.op.square]
        self.emit(self.random.choice(ops)(x), shape)

    def binary(self) -> None:
        x, shape = self.pick()
        y = self.random.choice([v for v, s in self.vars if s is shape or tuple(s) == tuple(shape)])
        self.emit(self.random.choice([relax.op.add, relax.op.multiply, relax.op.maximum])(x, y), shape)

    def product(self) -> None:
        x, (rows, columns) = self.pick()
        out = self.random.choice((3, 4, 5))
        weight: relax.Expr = relax.const(np.zeros((out, columns), "float32"))
        if self.random.random() < 0.4:
            weight = self.input((out, columns))
        turned = self.builder.emit(relax.op.permute_dims(weight))
        self.emit(relax.op.matmul(x, turned), (rows, out))
        if self.random.random() < 0.2:
            self.emit(relax.op.add(turned, turned), (columns, out))

    def normalized(self) -> None:
        x, (rows, columns) = self.pick()
        ones = relax.const(np.ones((columns,), "float32"))
        choice = self.random.randrange(3)
        if choice == 0:
            self.emit(relax.op.nn.layer_norm(x, ones, ones, axes=[-1]), (rows, columns))
        elif choice == 1:
            self.emit(relax.op.nn.softmax(x, axis=self.random.choice((0, 1, -1))), (rows, columns))
        else:
            self.emit(relax.op.sum(x, axis=[1], keepdims=True), (rows, 1))

    def moved(self) -> None:
        x, (rows, columns) = self.pick()
        choice = self.random.randrange(4)
        if choice == 0:
            self.emit(relax.op.reshape(relax.op.reshape(x, (rows, 1, columns)), (rows, columns)), (rows, columns))
        elif choice == 1:
            self.emit(relax.op.concat([x, x], axis=1), (rows, 2 * columns))
        elif choice == 2:
            parts = self.builder.emit(relax.op.split(relax.op.concat([x, x], axis=1), 2, axis=1))
            self.emit(relax.TupleGetItem(parts, self.random.randrange(2)), (rows, columns))
        else:
            self.emit(relax.op.strided_slice(x, [1], [0], [1]), (rows, 1))

    def looked_up(self) -> None:
        x, (rows, _) = self.pick()
        indices = relax.const(np.zeros((3,), "int64"))
        self.emit(relax.op.take(x, indices, axis=1), (rows, 3))

    def outside(self) -> None:
        x, (rows, columns) = self.pick()
        self.emit(relax.op.call_dps_packed("outside", (x,), tensor((rows, columns))), (rows, columns))

    def grow(self, steps: int) -> tvm.IRModule:
        """Functions that main calls, a dataflow block, an If, and a tuple as result."""
        rows = self.random.choice((self.size, 6))
        self.vars.append((self.input((rows, 4)), (rows, 4)))
        flag = self.input((), "bool")
        callee = None
        if self.random.random() < 0.5:
            m = tirx.Var("m", "int64")
            argument = relax.Var("a", tensor((m, 4)))
            attrs = {"Primitive": True} if self.random.random() < 0.5 else None
            with self.builder.function("inner", [argument], attrs=attrs):
                inside = self.builder.emit(relax.op.nn.relu(relax.op.add(argument, argument)))
                self.builder.emit_func_output(inside)
            callee = self.builder.get().get_global_var("inner")
        makers = [
            self.elementwise,
            self.binary,
            self.product,
            self.normalized,
            self.moved,
            self.looked_up,
            self.outside,
        ]
        # The inputs of a function are known before its body; a first growth finds them.
        state = self.random.getstate()
        scratch = self.builder
        self.builder = relax.BlockBuilder()
        first = list(self.vars)
        with self.builder.function("scratch", list(self.inputs)):
            for _ in range(steps):
                self.random.choice(makers)()
            self.builder.emit_func_output(self.vars[-1][0])
        self.builder, self.vars = scratch, first
        known, self.inputs = list(self.inputs), self.inputs[:2]
        replay = iter(known[2:])
        self.input = lambda shape, dtype="float32": next(replay)  # type: ignore[method-assign]
        self.random.setstate(state)
        with self.builder.function("main", known):
            with self.builder.dataflow():
                for _ in range(steps):
                    self.random.choice(makers)()
                if callee is not None:
                    called = self.builder.emit(relax.Call(callee, [known[0]]))
                    self.vars.append((called, (rows, 4)))
                outputs = [self.builder.emit_output(v) for v, _ in self.vars[-2:]]
            if self.random.random() < 0.5:
                x = outputs[-1]
                branch = relax.If(flag, relax.op.exp(x), relax.op.tanh(relax.op.negative(x)))
                outputs[-1] = self.builder.emit(branch)
            self.builder.emit_func_output(relax.Tuple(outputs))
        return self.builder.get()
