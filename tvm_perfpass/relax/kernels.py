"""What a lowered function (a PrimFunc that relax.call_tir runs) is as an operator.

relax.transform.LegalizeOps names each function after its operator and FuseTIR joins the names, so the name says what
it is. Where a function multiplies and accumulates, its loops say how much: the extents of the reduced axes, and from
which of its tensors the two factors come.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import ir, s_tir, tirx

from tvm_perfpass.relax.operators import RULES

_REDUCED = 2  # tirx.IterVar.CommReduce
# The last part of an operator's name is that of its function, with these exceptions (tvm.relax.transform.legalize_ops).
_NAMES = {name.rsplit(".", 1)[1]: rule for name, rule in RULES.items() if rule.op != "unknown"}
_NAMES |= {
    new: RULES[f"relax.{old}"]
    for new, old in {
        "transpose": "permute_dims",
        "concatenate": "concat",
        "cast": "astype",
        "pad": "nn.pad",
        "leaky_relu": "nn.leakyrelu",
        "dynamic_strided_slice": "dynamic_strided_slice",
        "group_conv2d": "nn.conv2d",
        "depthwise_conv2d": "nn.conv2d",
    }.items()
}
# A kernel of several operators is timed as its heaviest.
_HEAVY: tuple[str, ...] = (
    "conv",
    "conv_transpose",
    "matmul",
    "attention",
    "einsum",
    "top_k",
    "sort",
    "batch_norm",
    "layer_norm",
)
_HEAVY += ("rms_norm", "group_norm", "instance_norm", "softmax", "log_softmax", "reduce_sum", "reduce_mean")
_HEAVY += ("reduce_max", "reduce_min", "reduce_variance", "arg_reduce", "max_pool", "avg_pool", "gather")
_PRODUCTS = ("conv", "matmul", "einsum")


@dataclass(frozen=True)
class Kernel:
    """One lowered function as an operator.

    ``order``: its arguments that come first, as the operator wants them. ``shapes``: of its tensors, arguments before
    results, as arrays of TVM with symbolic sizes. ``extents``: of the axes that a product reduces; empty for what is
    no product.
    """

    name: str
    op: str
    order: tuple[int, ...]
    shapes: tuple[Any, ...]
    extents: tuple[Any, ...]


def kernel(name: str, function: Any) -> Kernel:
    """What a PrimFunc is as an operator."""
    tensors = [p for p in function.params if isinstance(p.ty, tirx.BufferType)]
    shapes = tuple(p.ty.shape for p in tensors)
    op = _op_of_name(name)
    # A norm accumulates squares, which makes it no matrix product: the name comes first, and loops say how much.
    products = [b for b in _blocks(function.body) if _factors(b)] if op in (*_PRODUCTS, "unknown") else []
    if not products:
        return Kernel(name, op if op not in _PRODUCTS else "unknown", (), shapes, ())
    block = max(products, key=_static_work)
    sources = _sources(function.body)
    indices = {_address(p): i for i, p in enumerate(tensors)}
    order = tuple(_origin(factor, sources, indices) for factor in _factors(block))
    extents = tuple(axis.dom.extent for axis in block.iter_vars if axis.iter_type == _REDUCED)
    if -1 in order:
        order = ()
    return Kernel(name, "conv" if op == "conv" else "matmul", order, shapes, extents)


def kernel_attributes(op: str, shapes: list[tuple[int, ...]], contraction: int) -> tuple[str, dict[str, int]]:
    """The canonical operator of a kernel and its attributes, from the shapes of its tensors in canonical order.

    A product is shown as a convolution where the sizes are those of one in NCHW, as a matrix product where an operand
    has the reduced axis, as an einsum of two tensors otherwise, and as unknown where it has more.
    """
    if op == "attention":
        heads = [shape[2] if len(shape) == 4 else 0 for shape in shapes[:2]]
        return op, dict(zip(("num_heads", "num_kv_heads"), heads, strict=False))
    if op not in _PRODUCTS:
        return op, {"view": 1} if op == "reshape" else {}
    if len(shapes) < 2:
        return "unknown", {}
    a, b = shapes[:2]
    rank = len(a)
    if op == "conv" and rank == len(b) > 2 and contraction * b[0] == _product(b) and b[1] > 0 and a[1] % b[1] == 0:
        spatial = min(rank - 2, 3)
        sizes = {f"kernel_{i}": b[2 + i] for i in range(spatial)}
        return "conv", sizes | {"spatial_rank": spatial, "groups": a[1] // b[1]}
    transpose_b = int(len(b) > 1 and b[-1] == contraction and b[-2] != contraction)
    if rank and a[-1] == contraction and contraction in b[-2:]:
        return "matmul", {"transpose_b": transpose_b}
    if rank > 1 and a[-2] == contraction and contraction in b[-2:]:
        return "matmul", {"transpose_a": 1, "transpose_b": transpose_b}
    return ("einsum", {"contraction": contraction}) if len(shapes) == 2 else ("unknown", {})


def _product(sizes: tuple[int, ...]) -> int:
    out = 1
    for size in sizes:
        out *= size
    return out


def _op_of_name(name: str) -> str:
    """The heaviest of the operators in a name like fused_conv2d1_add2_relu."""
    words = re.sub(r"\d+(?=_|$)", "", name.removeprefix("fused_")) if name not in _NAMES else name
    # Digits end words (add2) or belong to them (conv2d): what is left of conv2d1 is conv2d.
    parts = words.split("_")
    found = []
    at = 0
    while at < len(parts):
        for end in range(len(parts), at, -1):
            word = "_".join(parts[at:end])
            rule = _NAMES.get(word) or _NAMES.get(word.removeprefix("tir_"))
            if rule:
                found.append(rule.op)
                at = end
                break
        else:
            at += 1

    def weight(op: str) -> int:
        return _HEAVY.index(op) if op in _HEAVY else len(_HEAVY) + (op == "reshape")

    return min(found, key=weight) if found else "unknown"


def _statements(root: Any) -> Iterator[Any]:
    """Blocks and stores below a statement, in order."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, tirx.SeqStmt):
            stack.extend(reversed(list(node.seq)))
        elif isinstance(node, s_tir.SBlockRealize):
            stack.append(node.block)
        elif isinstance(node, s_tir.SBlock):
            yield node
            stack.append(node.body)
        elif isinstance(node, tirx.BufferStore):
            yield node
        elif isinstance(node, tirx.IfThenElse):
            stack.extend(case for case in (node.else_case, node.then_case) if case is not None)
        elif hasattr(node, "body"):
            stack.append(node.body)


def _blocks(root: Any) -> list[Any]:
    return [node for node in _statements(root) if isinstance(node, s_tir.SBlock)]


def _factors(block: Any) -> list[Any]:
    """The tensors whose product a block accumulates; empty for what is no product."""
    store = block.body
    if not isinstance(store, tirx.BufferStore) or not any(axis.iter_type == _REDUCED for axis in block.iter_vars):
        return []
    value = store.value
    if not isinstance(value, ir.prim.Add) or not isinstance(value.b, ir.prim.Mul):
        return []
    factors = [next(iter(_loads(side)), None) for side in (value.b.a, value.b.b)]
    return [] if None in factors else factors


def _static_work(block: Any) -> int:
    extents = [axis.dom.extent for axis in block.iter_vars]
    return _product(tuple(int(e.value) for e in extents if isinstance(e, tirx.IntImm)))


def _loads(expression: Any) -> list[Any]:
    """The tensors that an expression reads."""
    found, stack = [], [expression]
    while stack:
        node = stack.pop()
        if isinstance(node, ir.TensorLoad):
            found.append(node.source)
            continue
        parts = [
            getattr(node, name) for name in ("a", "b", "value", "true_value", "false_value") if hasattr(node, name)
        ]
        if isinstance(node, ir.Call):
            parts += list(node.args)
        stack.extend(part for part in reversed(parts) if isinstance(part, ir.Expr))
    return found


def _sources(root: Any) -> dict[int, list[Any]]:
    """By the tensor that is written: the tensors it is made from."""
    made: dict[int, list[Any]] = {}
    for node in _statements(root):
        if isinstance(node, tirx.BufferStore):
            made.setdefault(_address(node.buffer), []).extend(_loads(node.value))
    return made


def _origin(tensor: Any, sources: dict[int, list[Any]], indices: dict[int, int]) -> int:
    """The argument that a tensor within the function comes from, through padding, casts and the like; -1 if none."""
    seen = set()
    stack = [tensor]
    while stack:
        at = _address(stack.pop())
        if at in indices:
            return indices[at]
        if at not in seen:
            seen.add(at)
            stack.extend(reversed(sources.get(at, [])))
    return -1


def _address(node: Any) -> int:
    return node.__chandle__()
