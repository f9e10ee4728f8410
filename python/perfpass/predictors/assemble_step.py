"""From a forward graph to the Prediction of a training step: derive, estimate, and put the answer together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass import _core, backward
from perfpass.graph import DTYPES, OPERATOR_CLASSES, OPERATORS, OpGraph
from perfpass.prediction import Interval, Prediction, Support, SupportLevel
from perfpass.predictors.estimate import Estimate
from perfpass.predictors.memory import MemoryPredictor
from perfpass.predictors.memory_model import MemoryModel
from perfpass.predictors.power import PowerModel
from perfpass.predictors.roofline import Workload
from perfpass.predictors.steps import StepPredictor, state_bytes

if TYPE_CHECKING:
    from perfpass.backward import StepTable
    from perfpass.devices import Device
    from perfpass.predictors.estimate import Inputs

# Planned memory of a step against what a run may keep: in backward, gradients of activations live beside what was saved
# (the two largest tensors), and freed blocks of other sizes stay with the allocator.
_GRADIENT_TENSORS = 2
_MEMORY_LOW, _MEMORY_HIGH = 0.8, 1.3
_ALIGNMENT_BYTES = 512
# A network exported for inference has its batch normalizations folded into convolutions. Trained, each saves its input
# beside the convolution's (twice the activations), and its passes take up to a third of a convolutional network's step.
_FOLDED_MEMORY, _FOLDED_TIME = 2.0, 1.5
_FOLDED = (
    "no normalization among the convolutions: exported for inference, where they are folded away; a step of the "
    "network with them takes more time and memory (the upper bounds allow for it)"
)


def derive(inputs: Inputs, optimizer: str) -> StepTable:
    """The step of a counted forward graph, as present PyTorch runs it."""
    graph = inputs.graph
    elements = sum(float(np.prod(graph.shape(int(t)), dtype=np.float64)) for t in graph.graph_inputs[:1])
    options = StepPredictor.options(inputs.device, inputs.precision, optimizer)
    return backward.derive(inputs.table, options, input_elements=elements, width=_width(inputs))


def _width(inputs: Inputs) -> float:
    bits: int = _core.DTYPE_BITS[DTYPES.index(inputs.float_as or "float32")]
    return bits / 8


def estimate(inputs: Inputs, step: StepTable, optimizer: str) -> Estimate:
    """All metrics of one step."""
    predictor = StepPredictor.load()
    workload = Workload(inputs.batch, inputs.precision, inputs.runtime, inputs.layout)
    found = predictor.predict(step, inputs.table, inputs.device, workload)
    power = PowerModel.from_dict(predictor.manifest["power"])
    memory = MemoryModel.from_dict(predictor.manifest["memory"])
    parts = _memory_parts(inputs, step, optimizer, memory)
    planned = parts["weights"] + parts["gradients"] + parts["optimizer"] + parts["activations"]
    median, runtime = sum(parts.values()), parts["runtime"]
    held = planned - parts["activations"]
    folded = _folded(inputs)
    more_memory, more_time = (_FOLDED_MEMORY, _FOLDED_TIME) if folded else (1.0, 1.0)
    high = held + parts["activations"] * _MEMORY_HIGH * more_memory + 4.0 * parts["workspace"]
    high += max(memory.runtime_high_bytes[inputs.device.kind], 1.1 * runtime)
    low = held + parts["activations"] * _MEMORY_LOW + 0.7 * runtime
    corpus = predictor.manifest["corpus"]
    return Estimate(
        latency_ms=Interval(found.median_s * 1e3, found.low_s * 1e3, found.high_s * 1e3 * more_time, "ms"),
        power_w=power.predict(inputs.device, found.compute_use, found.memory_use),
        peak_memory_bytes=Interval(median, min(low, median), max(high, median), "byte"),
        row_ms=found.row_s * 1e3,
        memory_bytes=parts,
        support=_noted(found.support, _FOLDED) if folded else found.support,
        provenance={
            "predictor": "steps",
            "artefact_schema": predictor.manifest["schema_version"],
            "corpus": corpus["name"],
            "corpus_rows": corpus["rows"],
            "ensemble": found.ensemble,
            "nearest_network_distance": found.distance,
            "optimizer": optimizer,
            "step": "derived from the forward graph",
            "power": predictor.manifest["power"]["source"],
            "memory": "planned: what autograd saves of the forward graph, gradients and states",
        },
    )


def _folded(inputs: Inputs) -> bool:
    """Whether a network of convolutions has no normalization at all."""
    operators = np.asarray(inputs.table.op)
    classes = np.asarray(inputs.table.op_class)
    normalized = (classes == OPERATOR_CLASSES.index("normalization")).any()
    return bool((operators == OPERATORS.index("conv")).any() and not normalized)


def _noted(support: Support, reason: str) -> Support:
    level: SupportLevel = "near" if support.level == "in range" else support.level
    return Support(level, (*support.reasons, reason))


def _memory_parts(inputs: Inputs, step: StepTable, optimizer: str, memory: MemoryModel) -> dict[str, float]:
    device, precision = inputs.device, inputs.precision
    saved = backward.saved_activations(inputs.graph, inputs.float_as, _ALIGNMENT_BYTES)
    width = _width(inputs)
    amp = precision.startswith("amp")
    # Autocast keeps weights, gradients and states in fp32 and caches 16-bit copies of the weights.
    held = 4.0 if amp else width
    weights = float(inputs.plan.weight_bytes) / width * (held + (width if amp else 0.0))
    gradients = step.parameters * held
    return {
        "weights": weights,
        "gradients": gradients,
        "optimizer": (state_bytes(optimizer, step.parameters) - 4.0 * step.parameters) * held / 4.0,
        "activations": float(saved.saved + _GRADIENT_TENSORS * saved.largest),
        "workspace": memory.workspace_bytes[device.kind],
        "runtime": memory.runtime_bytes["cpu"]
        if device.kind == "cpu"
        else MemoryPredictor.load().runtime_bytes(device),
    }


def with_recorded_memory(found: Prediction, module: Any, input_shape: Any, device: Device) -> Prediction:
    """``found`` with the memory of the module's own step, recorded and simulated, where that is possible."""
    from perfpass.deploy.mig import hint
    from perfpass.predictors import step_memory

    w = found.workload
    how = {"batch": w["batch"], "precision": w["precision"], "optimizer": w["optimizer"]}
    peak = step_memory.recorded(module, input_shape, device, **how)
    if peak is None:
        return found
    return replace(
        found,
        peak_memory_bytes=peak.peak,
        mig=hint(peak.peak.high, device),
        support=Support(found.support.level, (*found.support.reasons, *peak.support.reasons)),
        breakdown={**found.breakdown, "memory_bytes": peak.parts},
        provenance={**found.provenance, "memory": "two recorded steps through the simulated caching allocator"},
    )


def breakdown(graph: OpGraph, inputs: Inputs, step: StepTable, found: Estimate, top: int) -> dict[str, Any]:
    """Time by class of operator and by phase, the costliest rows, memory by what holds it."""
    classes, phase = np.asarray(step.op_class), step.phase
    per_class = np.bincount(classes, weights=found.row_ms, minlength=len(OPERATOR_CLASSES))
    per_phase = np.bincount(phase, weights=found.row_ms, minlength=len(backward.PHASES))
    order = [int(c) for c in np.argsort(-per_class, kind="stable") if per_class[c] > 0]
    rows = np.argsort(-found.row_ms, kind="stable")[:top]
    return {
        "latency_ms": {OPERATOR_CLASSES[c]: float(per_class[c]) for c in order},
        "phase_ms": dict(zip(backward.PHASES, map(float, per_phase), strict=True)),
        "memory_bytes": {key: float(value) for key, value in found.memory_bytes.items()},
        "operators": [_operator(graph, inputs, step, int(row), float(found.row_ms[row])) for row in rows],
        "peak": _peak(graph, inputs, top),
    }


def _peak(graph: OpGraph, inputs: Inputs, top: int) -> dict[str, Any]:
    """What autograd holds when the backward pass begins."""
    saved = backward.saved_activations(graph, inputs.float_as, _ALIGNMENT_BYTES)
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


def _operator(graph: OpGraph, inputs: Inputs, step: StepTable, row: int, milliseconds: float) -> dict[str, Any]:
    """One row of the step, named after the first node of its forward operator."""
    source = int(step.source[row])
    node = int(inputs.table.first_node[source]) if source >= 0 else -1
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
