"""What a tuned workload is as an operator: a MetaSchedule workload by its loops, an autotvm task by its arguments.

A product multiplies and accumulates. Which of its axes index both factors, one of them or a sum of two axes says what
it is: a batch, rows, columns, a window. Blocked layouts (NCHW16c) index one axis twice and need no rule of their own.
Works on the TIR of TVM 0.19 and of 0.27, whose classes have other names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from perfpass import _core
from perfpass.errors import PerfPassError
from perfpass.graph import OpGraph

_REDUCED = 2  # IterVar.CommReduce
_BLOCKS = ("Block", "SBlock")
_LOADS = ("BufferLoad", "TensorLoad")
_EXPONENTIALS = ("tir.exp", "tirx.exp")


@dataclass(frozen=True)
class _Axis:
    """An axis of a block: its variable, extent, whether it is reduced, and where the factors have it.

    ``stride``: of an axis of a window (reduced or not), else 0. ``shared``: how many of it read the same inputs.
    """

    variable: Any
    extent: int
    reduced: bool
    first: bool = False
    second: bool = False
    stride: int = 0
    shared: int = 1

    @property
    def window(self) -> bool:
        return self.stride > 0


def of_loops(function: Any) -> OpGraph | None:
    """The heaviest operator of a TIR function as a graph of one node; None where its sizes are not set."""
    try:
        blocks = [b for b in _statements(function.body) if type(b).__name__ in _BLOCKS and len(b.iter_vars)]
        products = [(b, factors) for b in blocks if (factors := _factors(b))]
        if products:
            block, factors = max(products, key=lambda found: prod(_extent(a) for a in found[0].iter_vars))
            return _product(_axes(block, factors))
        return _rest(function, blocks)
    except (TypeError, ValueError, PerfPassError):  # a symbolic extent, or sizes that are no operator's
        return None


def of_task(name: str, args: Sequence[Any]) -> OpGraph | None:
    """An autotvm task of TOPI ("conv2d_NCHWc.x86", "dense_pack.x86", ...) as a graph of one node; None for others."""
    kind = name.partition(".")[0].lower()
    shapes = [[int(size) for size in a[1]] for a in args if _is_tensor(a)]
    try:
        if kind.startswith(("conv2d", "conv1d", "conv3d", "depthwise_conv2d", "group_conv2d")) and len(shapes) > 1:
            return _convolution(kind, shapes[0], shapes[1], args)
        if kind.startswith("dense") and len(shapes) > 1:
            (m, k), n = shapes[0], shapes[1][0] * (shapes[1][2] if len(shapes[1]) == 3 else 1)
            return _one("dense", {}, [(m, k), (n, k), (m, n)], ("input", "weight"))
        if kind.startswith("batch_matmul") and len(shapes) > 1:
            (b, m, k), (_, n, _) = shapes[0], shapes[1]
            return _one("matmul", {"transpose_b": 1}, [(b, m, k), (b, n, k), (b, m, n)], ("input", "input"))
    except (IndexError, TypeError, ValueError, PerfPassError):
        return None
    return None


def _is_tensor(argument: Any) -> bool:
    return isinstance(argument, list | tuple) and len(argument) > 1 and argument[0] == "TENSOR"


def _convolution(kind: str, data: list[int], weight: list[int], args: Sequence[Any]) -> OpGraph | None:
    """From the arguments of a task: data, weight, strides, padding, dilation, and groups or layouts."""
    rank = len(data) - 2
    if "nhwc" in kind or len(weight) != rank + 2 or rank not in (1, 2, 3):
        return None
    stride, padding, dilation = (_each(a, rank) for a in args[2:5])
    kernel = weight[2:]
    before, after = padding[:rank], padding[rank:] or padding[:rank]
    groups = data[1] // weight[1] if not kind.startswith("depthwise") else data[1]
    channels = weight[0] if not kind.startswith("depthwise") else weight[0] * weight[1]
    out = [
        (size + b + a - d * (k - 1) - 1) // s + 1
        for size, b, a, d, k, s in zip(data[2:], before, after, dilation, kernel, stride, strict=True)
    ]
    return _conv(data, [channels, data[1] // groups, *kernel], [data[0], channels, *out], groups, stride[0])


def _each(value: Any, rank: int) -> list[int]:
    found = [int(v) for v in value] if isinstance(value, list | tuple) else [int(value)] * rank
    return found * rank if len(found) == 1 else found


def _product(axes: list[_Axis]) -> OpGraph:
    """A convolution where the first factor slides, else a matrix product."""

    def sizes(first: bool, second: bool, reduced: bool) -> int:
        return prod(a.extent for a in axes if (a.first, a.second, a.reduced) == (first, second, reduced))

    window = [a for a in axes if a.reduced and a.window]
    both, rows, columns = sizes(True, True, False), sizes(True, False, False), sizes(False, True, False)
    inner = prod(a.extent for a in axes if a.reduced and not a.window)
    if window:
        spatial = [a for a in axes if a.window and not a.reduced]
        out = [a.extent for a in spatial]
        kernel = [a.extent for a in window]
        rank = min(len(kernel), len(out), 3)
        batch = prod(a.extent for a in axes if a.first and not a.second and not a.reduced and not a.window)
        channels = both * columns
        groups = max(both // max(a.shared for a in axes), 1)
        stride = max(a.stride for a in spatial)
        data = [batch, groups * inner, *(size * stride for size in out[:rank])]
        return _conv(data, [channels, inner, *kernel[:rank]], [batch, channels, *out[:rank]], groups, stride)
    if both > 1:
        return _one("matmul", {}, [(both, rows, inner), (both, inner, columns), (both, rows, columns)], ("input",) * 2)
    return _one("dense", {}, [(rows, inner), (columns, inner), (rows, columns)], ("input", "weight"))


def _conv(data: Sequence[int], weight: Sequence[int], out: Sequence[int], groups: int, stride: int) -> OpGraph:
    kernel = {f"kernel_{i}": size for i, size in enumerate(weight[2:])}
    attributes = {"spatial_rank": len(data) - 2, "groups": groups, "stride_0": stride} | kernel
    return _one("conv", attributes, [data, weight, out], ("input", "weight"))


def _rest(function: Any, blocks: list[Any]) -> OpGraph | None:
    """What multiplies no two tensors: a softmax, a reduction, a sum of two tensors, or one that moves."""
    written = [b for b in blocks if hasattr(b.body, "value")]
    if not written:
        return None
    inputs = max(([_extent(a) for a in b.iter_vars] for b in written), key=prod)
    last = written[-1].body
    shape = tuple(int(size) for size in last.buffer.shape)
    reduced = any(_is_reduced(a) for b in written for a in b.iter_vars)
    if reduced and any(_calls(b.body.value, _EXPONENTIALS) for b in written):
        return _one("softmax", {}, [shape, shape], ("input",))
    if reduced:
        return _one("reduce_sum", {}, [tuple(inputs), shape], ("input",))
    plain = all(type(b.body.value).__name__ in _LOADS for b in written)
    return _one("transpose" if plain else "mul", {}, [shape, shape], ("input",))


def _one(op: str, attributes: dict[str, int], shapes: Sequence[Sequence[int]], roles: Sequence[str]) -> OpGraph:
    builder = _core.GraphBuilder()
    for i, (shape, role) in enumerate(zip(shapes, (*roles, "activation"), strict=True)):
        builder.add_tensor(f"t{i}", "float32", [int(size) for size in shape], role)
    last = len(shapes) - 1
    builder.add_node(op, op, "", attributes, list(range(last)), [last], 1.0)
    return OpGraph(builder.finish([i for i, role in enumerate(roles) if role == "input"], [last]))


def _axes(block: Any, factors: tuple[Any, Any]) -> list[_Axis]:
    """The axes of a product; the first of ``factors`` is the one that a window slides over, if any."""
    found = [_Axis(a.var, _extent(a), _is_reduced(a)) for a in block.iter_vars]
    slides = [_slid(factor, found) for factor in factors]
    first, second = factors if not any(slides[1]) or any(slides[0]) else factors[::-1]
    strides = slides[0] if first is factors[0] else slides[1]
    return [
        _Axis(
            axis.variable,
            axis.extent,
            axis.reduced,
            _has(first, axis.variable),
            _has(second, axis.variable),
            stride,
            max((_divided(index, axis.variable) for index in first.indices), default=1) if not axis.reduced else 1,
        )
        for axis, stride in zip(found, strides, strict=True)
    ]


def _slid(load: Any, axes: list[_Axis]) -> list[int]:
    """Of each axis, the stride of the window that the load moves with it, or 0.

    A window is a sum of a reduced and another axis; the channels of a group are one too, but divide what they add to.
    """
    slid = [0] * len(axes)
    for index in load.indices:
        inside = [i for i, axis in enumerate(axes) if _uses(index, axis.variable)]
        divided = any(_divided(index, axes[i].variable) > 1 for i in inside)
        if type(index).__name__ in ("Add", "Sub") and len({axes[i].reduced for i in inside}) == 2 and not divided:
            stride = max(_factor(index, axes[i].variable) for i in inside if not axes[i].reduced)
            for i in inside:
                slid[i] = stride
    return slid


def _divided(expression: Any, variable: Any) -> int:
    """What an index divides an axis by before anything else; 1 where it does not."""
    return _constant_beside(expression, variable, "FloorDiv")


def _factor(expression: Any, variable: Any) -> int:
    """What an index multiplies an axis by; 1 where it does not."""
    return _constant_beside(expression, variable, "Mul")


def _constant_beside(expression: Any, variable: Any, operation: str) -> int:
    stack = [expression]
    while stack:
        node = stack.pop()
        parts = [getattr(node, name) for name in ("a", "b") if hasattr(node, name)]
        if type(node).__name__ == operation and _uses(node.a, variable) and hasattr(node.b, "value"):
            return max(int(node.b.value), 1)
        stack.extend(parts)
    return 1


def _has(load: Any, variable: Any) -> bool:
    return any(_uses(index, variable) for index in load.indices)


def _uses(expression: Any, variable: Any) -> bool:
    stack = [expression]
    while stack:
        node = stack.pop()
        if type(node).__name__ == "Var":
            if node.same_as(variable):
                return True
            continue
        stack.extend(getattr(node, name) for name in ("a", "b", "value") if hasattr(node, name))
    return False


def _extent(axis: Any) -> int:
    return int(axis.dom.extent)


def _is_reduced(axis: Any) -> bool:
    return int(axis.iter_type) == _REDUCED


def _factors(block: Any) -> tuple[Any, Any] | None:
    """The loads of the two tensors whose product a block accumulates."""
    value = getattr(block.body, "value", None)
    if value is None or type(value).__name__ != "Add" or not any(_is_reduced(a) for a in block.iter_vars):
        return None
    product = value.b if type(value.b).__name__ == "Mul" else value.a
    if type(product).__name__ != "Mul":
        return None
    loads = [next(_loaded(side), None) for side in (product.a, product.b)]
    if loads[0] is None or loads[1] is None or _same_tensor(*loads):  # a norm accumulates squares
        return None
    return loads[0], loads[1]


def _same_tensor(one: Any, other: Any) -> bool:
    tensors = [getattr(load, "buffer", None) or load.source for load in (one, other)]
    return bool(tensors[0].same_as(tensors[1]))


def _loaded(expression: Any) -> Iterator[Any]:
    """The loads of an expression, the first one first."""
    stack = [expression]
    while stack:
        node = stack.pop()
        if type(node).__name__ in _LOADS:
            yield node
            continue
        parts = [getattr(node, n) for n in ("a", "b", "value", "true_value", "false_value") if hasattr(node, n)]
        parts += list(node.args) if type(node).__name__ == "Call" else []
        stack.extend(reversed(parts))


def _calls(expression: Any, names: tuple[str, ...]) -> bool:
    stack = [expression]
    while stack:
        node = stack.pop()
        if type(node).__name__ == "Call":
            if str(getattr(node.op, "name", "")) in names:
                return True
            stack.extend(node.args)
        stack.extend(getattr(node, n) for n in ("a", "b", "value", "true_value", "false_value") if hasattr(node, n))
    return False


def _statements(root: Any) -> Iterator[Any]:
    """Blocks below a statement, in order."""
    stack = [root]
    while stack:
        node = stack.pop()
        kind = type(node).__name__
        if kind == "SeqStmt":
            stack.extend(reversed(list(node.seq)))
        elif kind in ("BlockRealize", "SBlockRealize"):
            stack.append(node.block)
        elif kind in _BLOCKS:
            yield node
            stack.append(node.body)
        elif kind == "IfThenElse":
            stack.extend(case for case in (node.else_case, node.then_case) if case is not None)
        elif hasattr(node, "body"):
            stack.append(node.body)
