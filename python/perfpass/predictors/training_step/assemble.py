"""From a forward graph to the Prediction of a training step: derive, estimate, and put the answer together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass import _core
from perfpass.graph import DTYPES, OPERATOR_CLASSES, OPERATORS, OpGraph
from perfpass.graph import step as backward
from perfpass.prediction import Prediction, Support
from perfpass.predictors.energy.power import PowerModel
from perfpass.predictors.estimate import Bounds, Columns, Estimate, Estimates, Inputs, Notes, Runs, Way, shares
from perfpass.predictors.memory import allocation, process
from perfpass.predictors.roofline import Workload
from perfpass.predictors.training_step.latency import StepPredictor, state_bytes
from perfpass.predictors.workload import DEFAULT_OPTIMIZER, PRECISIONS

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.features import Tables
    from perfpass.graph.step import Steps, StepTable

# A network exported for inference has its batch normalizations folded into convolutions. Trained, their passes take up
# to a third of a convolutional network's step (what they save: `perfpass.predictors.memory.process`).
_FOLDED_TIME = 1.5
_FOLDED = (
    "no normalization among the convolutions: exported for inference, where they are folded away; a step of the "
    "network with them takes more time and memory (the upper bounds allow for it)"
)


def derive(runs: Runs, way: Way, float_as: str) -> Steps:
    """The steps of N counted forward graphs, as present PyTorch runs them."""
    options = StepPredictor.options(way.device, way.precision, _optimizer(way))
    return backward.derive_many(
        runs.tables, options, input_elements=runs.first_input_elements, width=_width(float_as)
    )  # fmt: skip


def _optimizer(way: Way) -> str:
    return way.optimizer or DEFAULT_OPTIMIZER


def _width(float_as: str) -> float:
    bits: int = _core.DTYPE_BITS[DTYPES.index(float_as)]
    return bits / 8


class StepsPredictor:
    """All metrics of training steps: time by `StepPredictor`, memory by what autograd keeps of the forward graph."""

    name = "training_step"

    def columns(self, runs: Runs, way: Way, threads: int = 1) -> tuple[Columns, Notes]:
        """What is known of N steps before they are scored, and how far measurements stand behind them."""
        return self._columns(runs, way, threads)[:2]

    def _columns(
        self, runs: Runs, way: Way, threads: int = 1
    ) -> tuple[dict[str, np.ndarray], Notes, np.ndarray, Steps]:
        """The columns, the notes, [R] parts of the time's base per row, and the steps."""
        steps = derive(runs, way, PRECISIONS[way.precision][0])
        found, notes, row_s = StepPredictor.load().columns(
            steps, runs.tables, runs.batch, way.device, _workload(way), threads
        )
        folded = _folded(runs.tables)
        notes.add(1, folded, _FOLDED, vouched=True)
        found |= {
            "level": notes.level,
            "parameters": steps.parameters,
            "weight_bytes": runs.weight_bytes,
            "saved_bytes": runs.saved_bytes,
            "largest_bytes": runs.largest_bytes,
            "folded": folded.astype(np.float64),
        }
        return found, notes, row_s, steps

    def estimates(self, columns: Columns, way: Way, threads: int = 1) -> Estimates:
        """The metrics of N steps."""
        predictor, device = StepPredictor.load(), way.device
        seconds = predictor.latency_s(columns, device, _workload(way), threads)
        power = PowerModel.from_dict(predictor.manifest["power"])
        parameters = columns["parameters"]
        states = state_bytes(_optimizer(way), parameters) - 4.0 * parameters
        parts, peak = process.step(columns, way, states, _width(PRECISIONS[way.precision][0]))
        more_time = np.where(columns["folded"] > 0, _FOLDED_TIME, 1.0)
        uses = (np.minimum(columns[part] / seconds.median, 1.0) for part in ("compute_s", "memory_s"))
        return Estimates(
            latency_ms=Bounds(seconds.median * 1e3, seconds.low * 1e3, seconds.high * 1e3 * more_time),
            power_w=power.predict(device, *uses),
            peak_memory_bytes=peak,
            memory_bytes=parts,
            level=columns["level"].astype(np.int8),
        )

    def estimate(self, inputs: Inputs, optimizer: str) -> tuple[Estimate, StepTable]:
        """All metrics of one step, and the step."""
        way = replace(Way.of(inputs), optimizer=optimizer)
        columns, notes, row_s, steps = self._columns(allocation.runs_of(inputs, training=True), way)
        found = self.estimates(columns, way)
        predictor = StepPredictor.load()
        corpus = predictor.manifest["corpus"]
        estimate = Estimate.first(
            found,
            columns,
            shares(row_s) * float(found.latency_ms.median[0]),
            notes.reasons(0),
            {
                "predictor": self.name,
                "artefact_schema": predictor.manifest["schema_version"],
                "corpus": corpus["name"],
                "corpus_rows": corpus["rows"],
                "ensemble": predictor.ensemble(way.device, _workload(way)),
                "nearest_network_distance": float(columns["distance"][0]),
                "optimizer": optimizer,
                "step": "derived from the forward graph",
                "power": predictor.manifest["power"]["source"],
                "memory": "planned: what autograd saves of the forward graph, gradients and states",
            },
        )
        return estimate, steps.first()


def _workload(way: Way) -> Workload:
    """How steps are made; their batch stands beside it."""
    return Workload(1, way.precision, way.runtime, way.layout)


def _folded(tables: Tables) -> np.ndarray:
    """[N] whether a network of convolutions has no normalization at all."""
    normalization = np.asarray(tables.table.op_class) == OPERATOR_CLASSES.index("normalization")
    return tables.any(np.asarray(tables.table.op) == OPERATORS.index("conv")) & ~tables.any(normalization)


def with_recorded_memory(found: Prediction, module: Any, input_shape: Any, device: Device) -> Prediction:
    """``found`` with the memory of the module's own step, recorded and simulated, where that is possible."""
    from perfpass.predictors.memory import recorded as step_memory
    from perfpass.predictors.mig.profile import hint

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
    saved = backward.saved_activations(graph, inputs.float_as, allocation.BLOCK_BYTES)
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
