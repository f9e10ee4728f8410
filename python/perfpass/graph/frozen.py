"""Training with frozen parameters (LoRA, feature extractors, a new head): what of the backward pass is left.

A frozen weight has no gradient and no optimizer state, and its product has no weight gradient. Where neither a node nor
anything before it is trained, nothing runs backward at all and nothing is saved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from perfpass import _core
from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.graph.opgraph import ATTRIBUTES, DTYPES, OPERATOR_CLASS_OF, OPERATOR_CLASSES, OPERATORS, ROLES, OpGraph
from perfpass.graph.table import Tables
from perfpass.text import shown_value

if TYPE_CHECKING:
    from perfpass.graph.table import OperatorTable

# What `OperatorColumns.constant` says of a row beside its lowest bit: its weight is frozen, it has no backward pass, no
# gradient of its input is needed.
FROZEN, STILL, NO_DATA = 2, 4, 8
_WEIGHT = ROLES.index("weight")
_ACTIVATION = ROLES.index("activation")
_FLOATING = [i for i, name in enumerate(DTYPES) if name.startswith(("float", "bfloat"))]
_BATCH_NORM = OPERATORS.index("batch_norm")
_STATISTICS = (
    3  # a batch normalization's inputs from here on are running statistics: data, scale, shift, mean, variance
)
_VIEW = ATTRIBUTES.index("view")
_PRODUCTS = [OPERATOR_CLASSES.index(name) for name in ("convolution", "matmul")]


def matching(graph: OpGraph, patterns: Sequence[str]) -> frozenset[int]:
    """The weights of ``graph`` that ``patterns`` name, as tensor ids. Raises as `named` does."""
    weights = {int(t): graph.string(int(graph.tensor_name[t])) for t in np.flatnonzero(graph.tensor_role == _WEIGHT)}
    found = named(weights.values(), patterns)
    return frozenset(t for t, name in weights.items() if name in found)


def named(names: Iterable[str], patterns: Sequence[str]) -> frozenset[str]:
    """Those of ``names`` that ``patterns`` mean: a whole name, one with wildcards, or the module that holds it.

    Raises ArgumentError for a pattern that means none.
    """
    if isinstance(patterns, str) or not all(isinstance(p, str) and p for p in patterns):
        raise ArgumentError(f"frozen={shown_value(patterns)}; it is a list of names of parameters or modules")
    known, found = [name for name in names if name], set()
    for pattern in patterns:
        own = {name for name in known if _is_named(name, pattern)}
        if not own:
            some = ", ".join(known[:3])
            raise ArgumentError(f"frozen={shown_value(pattern)} names no parameter of the model; its first are {some}")
        found |= own
    return frozenset(found)


def _is_named(name: str, pattern: str) -> bool:
    return name == pattern or name.startswith(f"{pattern}.") or fnmatchcase(name, pattern)


def trained(graph: OpGraph, frozen: Collection[int]) -> np.ndarray:
    """[T] whether a tensor is a floating weight that is trained. Raises UnsupportedError where none is."""
    found = (graph.tensor_role == _WEIGHT) & np.isin(graph.tensor_dtype, _FLOATING)
    for node in np.flatnonzero(graph.op == _BATCH_NORM).tolist():
        found[[t for t in graph.node_inputs(node)[_STATISTICS:].tolist() if t >= 0]] = False
    if not found.any():
        raise UnsupportedError("the model has no floating parameter: there is nothing to train; give one that has")
    found[list(frozen)] = False
    if not found.any():
        raise UnsupportedError("every parameter is frozen: there is nothing to train; leave some of them trainable")
    return np.asarray(found)


def flags(graph: OpGraph, frozen: Collection[int]) -> np.ndarray:
    """[N] what the backward pass leaves out at each node: `FROZEN`, `STILL`, `NO_DATA`, or 0."""
    learns = trained(graph, frozen)
    elements = _elements(graph)
    source = np.arange(graph.tensor_count)
    flows = np.zeros(graph.tensor_count, dtype=bool)
    found = np.zeros(graph.node_count, dtype=np.int64)
    for node in range(graph.node_count):
        inputs = [int(t) for t in graph.node_inputs(node) if t >= 0]
        behind = [int(source[t]) for t in inputs]
        weights = [t for t in behind if graph.tensor_role[t] == _WEIGHT]
        passes = any(flows[t] for t in inputs)
        own = any(learns[t] for t in weights)
        largest = max(weights, key=lambda t: elements[t], default=-1)
        if not passes and not own:
            found[node] = STILL
        else:
            found[node] = FROZEN * (largest >= 0 and not learns[largest]) | NO_DATA * (not passes)
        view = bool(graph.attributes[node, _VIEW]) and len(behind) > 0
        for t in graph.node_outputs(node):
            if t < 0:
                continue
            # A view of a weight is that weight; only what is computed from it carries a gradient of its own.
            if view and graph.tensor_role[behind[0]] != _ACTIVATION:
                source[t] = behind[0]
            else:
                flows[t] = passes or own
    return found


def _elements(graph: OpGraph) -> np.ndarray:
    shapes = (graph.shape(t) for t in range(graph.tensor_count))
    return np.array([np.prod(shape, dtype=np.float64) for shape in shapes])


def table(graph: OpGraph, marks: np.ndarray, count: Callable[[OpGraph], OperatorTable]) -> OperatorTable:
    """The rows of ``graph`` by ``count``, nodes of other ``marks`` [N] apart, each with its mark in ``constant``."""
    parts = []
    for mark in np.unique(marks):
        part = count(rebuilt(graph, repeat=np.where(marks == mark, graph.repeat, 0.0)))
        columns = {f.name: np.asarray(getattr(part, f.name)) for f in fields(part)}
        parts.append({**columns, "constant": columns["constant"] | np.uint8(mark)})
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(joined["first_node"], kind="stable")  # rules read which product comes first, and last
    return type(part)(**{name: column[order] for name, column in joined.items()})


def rows(
    graph: OpGraph,
    marks: np.ndarray,
    count: Callable[[OpGraph], OperatorTable],
    place: Callable[[OpGraph], np.ndarray],
) -> np.ndarray:
    """[N] the row of `table` that each node is in, -1 for none; ``place`` gives that of the tables of ``count``."""
    found, firsts, before = np.full(graph.node_count, -1), [], 0
    for mark in np.unique(marks):
        part = rebuilt(graph, repeat=np.where(marks == mark, graph.repeat, 0.0))
        mine, first = place(part), np.asarray(count(part).first_node)
        found = np.where(mine >= 0, mine + before, found)
        firsts.append(first)
        before += len(first)
    order = np.argsort(np.concatenate(firsts), kind="stable")
    return np.where(found >= 0, np.argsort(order)[found], -1)


def whole_tables(tables: Tables) -> Tables | None:
    """``tables`` as if everything were trained; None where everything is."""
    marks = np.asarray(tables.table.constant)
    if not (marks > 1).any():
        return None
    return Tables(replace(tables.table, constant=marks & np.uint8(1)), tables.offset)


def backward_part(graph: OpGraph, marks: np.ndarray) -> OpGraph:
    """What autograd follows: without the nodes that have no backward pass, whose results are inputs.

    A product with a frozen weight needs nothing of its input, and stands as a copy.
    """
    kept = np.flatnonzero(marks != STILL)
    copies = ((marks & FROZEN) != 0) & np.isin(OPERATOR_CLASS_OF[graph.op], _PRODUCTS)
    return rebuilt(graph, nodes=kept, copies=copies)


def rebuilt(
    graph: OpGraph,
    *,
    nodes: np.ndarray | None = None,
    repeat: np.ndarray | None = None,
    copies: np.ndarray | None = None,
    results: Sequence[int] | None = None,
) -> OpGraph:
    """``graph`` with some of its nodes, other repetitions, nodes that only copy, or, in place of its results, a
    mean of each of ``results``, which hands a gradient back and takes no memory.
    """
    order = np.arange(graph.node_count) if nodes is None else nodes
    made = {int(t) for node in order for t in graph.node_outputs(node) if t >= 0}
    read = {int(t) for node in order for t in graph.node_inputs(node) if t >= 0}
    inputs = [int(t) for t in graph.graph_inputs if nodes is None or int(t) in read]
    outputs = [int(t) for t in graph.graph_outputs if int(t) in made | read and results is None]
    builder, number, stated = _core.GraphBuilder(), {-1: -1}, graph.stated
    for t in sorted(made | read | set(inputs) | set(outputs)):
        role = ROLES[int(graph.tensor_role[t])]
        if role == "activation" and t not in made:
            role = "input"
            inputs.append(t)
        name = graph.string(int(graph.tensor_name[t]))
        number[t] = builder.add_tensor(name, DTYPES[int(graph.tensor_dtype[t])], list(graph.shape(t)), role)
    for node in order.tolist():
        attributes = {name: int(v) for name, v in zip(ATTRIBUTES, graph.attributes[node], strict=True)}
        copy = copies is not None and bool(copies[node])
        added = builder.add_node(
            "copy" if copy else OPERATORS[int(graph.op[node])],
            graph.source_op_name(node),
            graph.string(int(graph.node_name[node])),
            attributes,
            [number[int(t)] for t in graph.node_inputs(node)],
            [number[int(t)] for t in graph.node_outputs(node)],
            float((graph.repeat if repeat is None else repeat)[node]),
        )
        if not copy and node in stated:
            builder.state(added, stated[node])
    builder.add_notes(graph.core)
    means = []
    for t in (t for t in results or () if graph.tensor_dtype[t] in _FLOATING):
        means.append(builder.add_tensor("", DTYPES[int(graph.tensor_dtype[t])], [1], "activation"))
        builder.add_node("reduce_mean", "mean", "", dict.fromkeys(ATTRIBUTES, 0), [number[t]], [means[-1]], 1.0)
    found = [*(number[t] for t in outputs), *means]
    return OpGraph(builder.finish([number[t] for t in inputs], found))
