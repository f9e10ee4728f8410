"""The words of a training step's Prediction: where its time and memory go, and the memory of recorded steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.graph import DTYPES, OPERATOR_CLASSES, OPERATORS
from perfpass.graph import step as backward
from perfpass.graph.traced_step import PHASES
from perfpass.prediction import Prediction, Support
from perfpass.predictors.estimate import Estimate, Run
from perfpass.predictors.memory import allocation

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph import OpGraph
    from perfpass.graph.step import StepTable


def with_recorded_memory(
    found: Prediction, module: Any, input_shape: Any, device: Device, graph: OpGraph
) -> Prediction:
    """``found`` with the memory of the module's own step, recorded and simulated, where that is possible.

    ``graph``: of its forward pass, whose frozen weights are not trained.
    """
    from perfpass.predictors.memory import recorded as step_memory
    from perfpass.predictors.memory.allowance import in_a_slice
    from perfpass.predictors.mig.profile import hint

    w = found.workload
    names = frozenset(graph.string(int(graph.tensor_name[t])) for t in graph.frozen)
    how = {"batch": w["batch"], "precision": w["precision"], "optimizer": w["optimizer"], "frozen": names}
    peak = step_memory.recorded(module, input_shape, device, **how)
    if peak is None:
        return found
    return replace(
        found,
        memory=peak.figures,
        mig=hint(in_a_slice(peak.peak.high, device), device),
        support=Support(found.support.level, (*found.support.reasons, *peak.support.reasons)),
        breakdown={**found.breakdown, "memory_bytes": peak.parts},
        provenance={**found.provenance, "memory": "two recorded steps through the simulated caching allocator"},
    )


def breakdown(run: Run, step: StepTable, found: Estimate, top: int) -> dict[str, Any]:
    """Time by class of operator and by phase, the costliest rows, memory by what holds it."""
    classes, phase = np.asarray(step.op_class), step.phase
    per_class = np.bincount(classes, weights=found.row_ms, minlength=len(OPERATOR_CLASSES))
    per_phase = np.bincount(phase, weights=found.row_ms, minlength=len(PHASES))
    order = [int(c) for c in np.argsort(-per_class, kind="stable") if per_class[c] > 0]
    rows = np.argsort(-found.row_ms, kind="stable")[:top]
    return {
        "latency_ms": {OPERATOR_CLASSES[c]: float(per_class[c]) for c in order},
        "phase_ms": dict(zip(PHASES, map(float, per_phase), strict=True)),
        "memory_bytes": {key: float(value) for key, value in found.memory_bytes.items()},
        "operators": [_operator(run, step, int(row), float(found.row_ms[row])) for row in rows],
        "peak": _peak(run, top),
    }


def _peak(run: Run, top: int) -> dict[str, Any]:
    """What autograd holds when the backward pass begins."""
    graph = run.graph
    saved = allocation.saved(run)
    return {
        "operator": "the backward pass, at its start",
        "live_tensors": len(saved.tensors),
        "largest": [
            {
                "tensor": graph.string(int(graph.tensor_name[t])),
                "shape": list(graph.shape(int(t))),
                "dtype": DTYPES[int(graph.tensor_dtype[t])],
                "producer": graph.label(int(graph.producer[t])) if graph.producer[t] >= 0 else "input",
            }
            for t in saved.tensors[:top].tolist()
        ],
    }


def _operator(run: Run, step: StepTable, row: int, milliseconds: float) -> dict[str, Any]:
    """One row of the step, named after the first node of its forward operator."""
    graph, source = run.graph, int(step.source[row])
    node = int(run.table.first_node[source]) if source >= 0 else -1
    outputs = [int(t) for t in graph.node_outputs(node) if t >= 0] if node >= 0 else []
    part = backward.PARTS[int(step.part[row])]
    example = graph.label(node) if node >= 0 else part
    return {
        "operator": OPERATORS[int(step.op[row])],
        "source_operator": graph.source_op_name(node) if node >= 0 else part,
        "example": example if part == "forward" or node < 0 else f"{example}, gradient of {part}",
        "output_shape": list(graph.shape(outputs[0])) if outputs else [],
        "count": float(step.count[row]),
        "macs": int(step.macs[row]),
        "ms": milliseconds,
    }
