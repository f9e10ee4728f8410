"""The kernels that a runtime makes of a graph: what it puts together, folds and leaves out, node by node.

Two steps. The first is the one that every prediction takes (cpp_kernels/src/features/fusion.cpp): what exporters write
out in parts becomes one operator, shape arithmetic goes, and views move nothing. The second are a runtime's own
rewrites (`REWRITES`): which operators it folds into weights and writes with the product before them. Predictors have
these as shares of what is launched and of what moves (`perfpass.predictors.inference.operators`, `engines`), fitted on
whole networks; the groups here say which operators those shares stand for, and are tested against what runtimes make
of real files (tests/predictors/test_as_run.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass import _core
from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.graph import ATTRIBUTES, OPERATOR_CLASS_OF, OPERATOR_CLASSES, OPERATORS
from perfpass.predictors.inference.engines import ENGINES, EngineTimes, ran_as
from perfpass.predictors.inference.fusion import folds, fuses, strided
from perfpass.predictors.inference.operators import work
from perfpass.predictors.way import STANDING_IN
from perfpass.text import unknown

if TYPE_CHECKING:
    from perfpass.graph import OpGraph
    from perfpass.predictors.estimate import Run

_POINTWISE = ("activation", "elementwise", "quantization")
_REDUCTIONS = ("normalization", "softmax", "reduction")
_PRODUCTS = ("matmul", "attention", "recurrent")


def _of(*classes: str) -> frozenset[str]:
    return frozenset(n for i, n in enumerate(OPERATORS) if OPERATOR_CLASSES[int(OPERATOR_CLASS_OF[i])] in classes)


@dataclass(frozen=True)
class Rewrites:
    """What a runtime puts together, each only where nothing else reads what stands between.

    ``folded``: operators that vanish into the weights of the convolution before them. ``after_convolution``,
    ``after_product``: operators written with it; ``sums``: also the sum with another tensor (residuals) of convolutions
    and of matrix products. ``chains``: operators that are one kernel where they follow one another. ``gates``:
    activations that are one with the product of them and their own input (a hard swish). ``pairs``: two that are one.
    """

    folded: frozenset[str] = frozenset()
    after_convolution: frozenset[str] = frozenset()
    after_product: frozenset[str] = frozenset()
    sums: tuple[bool, bool] = (False, False)
    chains: frozenset[str] = frozenset()
    gates: frozenset[str] = frozenset()
    pairs: frozenset[tuple[str, str]] = frozenset()


# ONNX Runtime, core/optimizer: conv_bn_fusion, conv_activation_fusion, conv_add_act_fusion, gemm_activation_fusion,
# skip_layer_norm_fusion. PyTorch 2.13, inductor: pointwise operators and reductions of one scheduler node; products are
# calls of libraries without epilogues. TensorRT 10, developer guide, "Layer fusion". TVM 0.19: SimplifyInference,
# FoldScaleAxis and FuseOps (kOutEWiseFusable takes element-wise and injective operators).
_OF_ORT = frozenset({"relu", "leaky_relu", "sigmoid", "tanh", "clip", "hard_sigmoid"})
_FREE = _of(*_POINTWISE) | {"batch_norm"}
_MOVES = _of("data_movement")
_TVM = Rewrites(frozenset({"batch_norm"}), _FREE | _MOVES, _FREE | _MOVES, (True, True), _FREE | _MOVES)
REWRITES: dict[str, Rewrites] = {
    "torch": Rewrites(),
    "torch.compile": Rewrites(chains=_FREE | _of(*_REDUCTIONS) | _MOVES),
    "onnxruntime": Rewrites(
        frozenset({"batch_norm"}),
        _OF_ORT | {"hard_swish"},
        _OF_ORT,
        (True, False),
        gates=frozenset({"hard_sigmoid"}),
        pairs=frozenset({("add", "layer_norm")}),
    ),
    "tensorrt": Rewrites(frozenset({"batch_norm"}), _FREE, _FREE, (True, True), _FREE | _of("normalization")),
    "tvm": _TVM,
    "relax": _TVM,
}


@dataclass(frozen=True)
class Kernel:
    """Operators that run as one: ``anchor``, the node it is named after, and all its ``nodes`` in order, the anchor
    among them. ``folded``: those that a rewrite took away for good. ``output``: the tensor that it writes.

    ``ms``: its part of the predicted time. ``row``: of the run's table.
    """

    operator: str
    anchor: int
    nodes: tuple[int, ...]
    folded: tuple[int, ...]
    output: int
    row: int
    ms: float


@dataclass(frozen=True)
class AsRun:
    """A graph as a runtime runs it. ``views``: nodes that move nothing; ``dropped``: those that never run.

    ``launches``: how many kernels the predictor counts, which takes a share of the operators of each family; None where
    it counts none (CPUs).
    """

    runtime: str
    precision: str
    kernels: tuple[Kernel, ...]
    views: tuple[int, ...]
    dropped: tuple[int, ...]
    launches: float | None

    def to_dict(self, graph: OpGraph) -> dict[str, Any]:
        """Strict JSON, nodes by their names."""
        return {
            "runtime": self.runtime,
            "precision": self.precision,
            "kernels": [
                {
                    "operator": k.operator,
                    "nodes": [graph.label(n) for n in k.nodes],
                    "source_operators": [graph.source_op_name(n) for n in k.nodes],
                    "folded": [graph.label(n) for n in k.folded],
                    "output": graph.string(int(graph.tensor_name[k.output])) if k.output >= 0 else "",
                    "ms": k.ms,
                }
                for k in self.kernels
            ],
            "views": [graph.label(n) for n in self.views],
            "dropped": [graph.label(n) for n in self.dropped],
            "launches": self.launches,
        }


@dataclass
class _Group:
    """Nodes on their way to a kernel."""

    operator: str
    anchor: int
    nodes: list[int]
    folded: list[int] = field(default_factory=list)
    last: int = -1  # the node whose output leaves the group
    row: int = -1


def check(runtime: str) -> None:
    """Raises UnsupportedError for a runtime whose kernels are not known, ArgumentError for a name that is none."""
    if runtime in STANDING_IN:
        raise UnsupportedError(
            f"which kernels {runtime} makes of a graph was not measured; known are those of {', '.join(REWRITES)}"
        )
    if runtime not in REWRITES:
        raise ArgumentError(unknown("runtime", runtime, tuple(REWRITES)))


def as_run(run: Run, ms: Sequence[float]) -> AsRun:
    """What `run`'s runtime makes of its graph; ``ms`` [N]: milliseconds by node (`perfpass.predictors.by_node`).

    Raises what `check` does.
    """
    graph, way = run.graph, run.way
    check(way.runtime)
    kind = way.device.kind
    how = strided(way.runtime, kind), folds(way.runtime), fuses(way.runtime, kind)
    row, into = (np.asarray(a) for a in _core.rows_as_run(graph.core, run.costs.core, *how))
    moved = (np.asarray(run.table.view) == 0)[row]
    if folds(way.runtime):  # they run operators of a file that PyTorch does by strides; their time is in others'
        moved |= graph.attributes[:, ATTRIBUTES.index("view")] == 0
    groups, views = _first(graph, row, into, moved, np.asarray(run.table.op))
    if folds(way.runtime):
        folded = set(np.flatnonzero(_core.folded_nodes(graph.core)).tolist())
        groups = {n: g for n, g in groups.items() if g.anchor not in folded}
        views = [n for n in views if n not in folded]
    for rule in _passes(REWRITES[way.runtime]):
        _put_together(graph, groups, rule)
    kernels = tuple(
        Kernel(
            g.operator,
            g.anchor,
            tuple(sorted(g.nodes)),
            tuple(sorted(g.folded)),
            next((t for t in graph.node_outputs(g.last).tolist() if t >= 0), -1),
            g.row,
            float(sum(ms[n] for n in g.nodes)),
        )
        for g in sorted({id(g): g for g in groups.values()}.values(), key=lambda g: g.last)
    )
    running = {n for k in kernels for n in k.nodes} | set(views)
    dropped = tuple(n for n in range(graph.node_count) if n not in running)
    return AsRun(way.runtime, way.precision, kernels, tuple(views), dropped, _launches(run))


def _launches(run: Run) -> float | None:
    way = run.way
    if way.device.kind != "gpu":
        return None
    done = work(run.table, ran_as(way) if way.runtime in ENGINES else way)
    share = EngineTimes.load().launched(way)[done.family] if way.runtime in ENGINES else 1.0
    return float(np.sum(done.issued * np.asarray(run.table.count) * share))


def _first(
    graph: OpGraph, row: np.ndarray, into: np.ndarray, moved: np.ndarray, operator: np.ndarray
) -> tuple[dict[int, _Group], list[int]]:
    """Groups by node as every prediction has them, and the nodes that are views."""
    groups: dict[int, _Group] = {}
    views: list[int] = []
    runs = [n for n in range(graph.node_count) if row[n] >= 0]
    for node in runs:
        if moved[node]:
            name = OPERATORS[int(operator[row[node]])]
            groups[node] = _Group(name, node, [node], last=node, row=int(row[node]))
        else:
            views.append(node)
    for node in np.flatnonzero(into >= 0).tolist():
        anchor = int(into[node])
        while into[anchor] >= 0:
            anchor = int(into[anchor])
        if anchor in groups:
            groups[node] = groups[anchor]
            groups[anchor].nodes.append(node)
            groups[anchor].last = max(groups[anchor].last, node)
    return groups, views


@dataclass(frozen=True)
class _Pass:
    """One rewrite over a whole graph: ``before`` takes ``after`` in; ``fold``: for good; ``gate``: where both read one
    tensor, and nothing else.
    """

    before: frozenset[str]
    after: frozenset[str]
    sums: bool = True
    fold: bool = False
    gate: bool = False


def _passes(rewrites: Rewrites) -> list[_Pass]:
    convolutions, products = _of("convolution"), _of(*_PRODUCTS)
    found = [
        _Pass(rewrites.gates, frozenset({"mul"}), gate=True),
        _Pass(convolutions, rewrites.folded, fold=True),
        _Pass(convolutions, rewrites.after_convolution | ({"add"} if rewrites.sums[0] else set()), rewrites.sums[0]),
        _Pass(products, rewrites.after_product | ({"add"} if rewrites.sums[1] else set()), rewrites.sums[1]),
        _Pass(rewrites.chains, rewrites.chains),
        *(_Pass(frozenset({a}), frozenset({b})) for a, b in sorted(rewrites.pairs)),
    ]
    return [one for one in found if one.before and one.after]


def _put_together(graph: OpGraph, groups: dict[int, _Group], rule: _Pass) -> None:
    """Groups become one where ``rule`` says so and nothing else reads what stands between."""
    outputs = set(graph.graph_outputs.tolist())
    readers: dict[int, set[int]] = {}
    for producer, consumer in zip(graph.edge_producer.tolist(), graph.edge_consumer.tolist(), strict=True):
        readers.setdefault(producer, set()).add(consumer)
    for node in sorted({id(g): g.anchor for g in groups.values()}.values()):
        group = groups[node]
        if group.anchor != node or group.operator not in rule.after:
            continue
        found = [before for before in _before(graph, groups, group) if before.operator in rule.before]
        found = [before for before in found if _alone(graph, groups, before, group, readers, outputs)]
        if rule.gate:
            found = [before for before in found if set(_data(graph, group)) <= _around(graph, before)]
        if not found or (not rule.sums and len(_data(graph, group)) > 1):
            continue
        before = max(found, key=lambda g: g.last)
        before.nodes += group.nodes
        before.folded += group.nodes if rule.fold else group.folded
        before.last = group.last
        for member in group.nodes:
            groups[member] = before


def _data(graph: OpGraph, group: _Group) -> list[int]:
    """Tensors that a group reads and no constant gives, each once."""
    own = {t for n in group.nodes for t in graph.node_outputs(n).tolist()}
    read = {t for n in group.nodes for t in graph.node_inputs(n).tolist() if t >= 0}
    return [t for t in read - own if graph.tensor_role[t] < 2]


def _around(graph: OpGraph, group: _Group) -> set[int]:
    """Tensors that a group reads and writes."""
    return {*_data(graph, group), *(t for n in group.nodes for t in graph.node_outputs(n).tolist())}


def _before(graph: OpGraph, groups: dict[int, _Group], group: _Group) -> list[_Group]:
    """The groups whose results a group reads, through nothing."""
    made = (int(graph.producer[t]) for t in _data(graph, group))
    found = {id(groups[n]): groups[n] for n in made if n in groups and groups[n] is not group}
    return list(found.values())


def _alone(
    graph: OpGraph,
    groups: dict[int, _Group],
    before: _Group,
    group: _Group,
    readers: dict[int, set[int]],
    outputs: set[int],
) -> bool:
    """Whether ``group`` alone reads what ``before`` writes, which its last node does."""
    if outputs & set(graph.node_outputs(before.last).tolist()):
        return False
    return all(groups.get(n) in (before, group) for m in before.nodes for n in readers.get(m, ()))
