"""What a prediction of inference is made of: time by operators, memory by what holds it, tensors at the peak."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.graph import DTYPES, OPERATOR_CLASSES, OPERATORS
from perfpass.graph.assumed import STEPS

if TYPE_CHECKING:
    from perfpass.features import OperatorTable
    from perfpass.graph import OpGraph
    from perfpass.graph.liveness import MemoryPlan
    from perfpass.predictors.estimate import Estimate, Run

TOP_OPERATORS = 10
TOP_TENSORS = 10


def breakdown(run: Run, estimate: Estimate) -> dict[str, Any]:
    """Time by class of operator, memory by what holds it, the costliest rows, and what is alive at the peak."""
    graph, table = run.graph, run.table
    classes = np.asarray(table.op_class)
    per_class = np.bincount(classes, weights=estimate.row_ms, minlength=len(OPERATOR_CLASSES))
    order = [int(c) for c in np.argsort(-per_class, kind="stable") if per_class[c] > 0]
    rows = np.argsort(-estimate.row_ms, kind="stable")[:TOP_OPERATORS]
    return {
        "latency_ms": {OPERATOR_CLASSES[c]: float(per_class[c]) for c in order},
        **_of_networks(run, estimate),
        "memory_bytes": _memory(run, estimate),
        "operators": _operators(graph, table, rows, estimate.row_ms),
        "peak": _peak(graph, run.plan),
    }


def _of_networks(run: Run, estimate: Estimate) -> dict[str, Any]:
    """The time of each network of a pipeline; of a single network nothing."""
    if not any(one.name == STEPS for one in run.graph.assumed):
        return {}
    from perfpass.predictors.by_node import component_ms

    return {"component_ms": component_ms(run, estimate.row_ms)}


def _memory(run: Run, estimate: Estimate) -> dict[str, float]:
    """Bytes by what holds them; a language model's cache, which is among the planned activations, by itself."""
    from perfpass.graph import kept_outputs

    parts = {key: float(value) for key, value in estimate.memory_bytes.items()}
    cache = min(float(kept_outputs.cache_bytes(run.graph, run.plan)), parts.get("activations", 0.0))
    if not cache:
        return parts
    parts["activations"] -= cache
    return {**parts, "cache": cache}


def _operators(graph: OpGraph, table: OperatorTable, rows: np.ndarray, row_ms: np.ndarray) -> list[dict[str, Any]]:
    """Some rows of the operator table, each named after its first node."""
    core, nodes = graph.core, table.first_node[rows]
    first, last = (core.output_offset[at].tolist() for at in (nodes, nodes + 1))
    outputs = core.outputs
    columns = (table.op, table.count, table.macs, row_ms)
    shown = zip(nodes.tolist(), first, last, *(column[rows].tolist() for column in columns), strict=True)
    found = []
    for node, begin, end, op, count, macs, milliseconds in shown:
        written = [t for t in outputs[begin:end].tolist() if t >= 0]
        found.append(
            {
                "operator": OPERATORS[op],
                "source_operator": core.source_op_name(node),
                "example": graph.label(node),
                "output_shape": list(core.shape(written[0])) if written else [],
                "count": float(count),
                "macs": macs,
                "ms": milliseconds,
            }
        )
    return found


def _peak(graph: OpGraph, plan: MemoryPlan) -> dict[str, Any]:
    """The operator during which memory peaks and the largest tensors alive then."""
    core, node, tensors = graph.core, int(plan.peak_node), plan.peak_tensors[:TOP_TENSORS]
    columns = (core.tensor_name, core.tensor_dtype, core.producer)
    shown = zip(tensors.tolist(), *(column[tensors].tolist() for column in columns), strict=True)
    return {
        "operator": graph.label(node) if node >= 0 else None,
        "live_tensors": len(plan.peak_tensors),
        "largest": [
            {
                "tensor": core.string(name),
                "shape": list(core.shape(tensor)),
                "dtype": DTYPES[dtype],
                "producer": graph.label(producer) if producer >= 0 else "input",
            }
            for tensor, name, dtype, producer in shown
        ],
    }
