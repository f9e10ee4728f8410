"""The training-step predictor: the step derived from the forward graph, its time by `RatioTrees`, memory by what
autograd keeps of the forward graph (docs/predictors/training_step.md).

The portable ensemble has learned from records of inference too, because what other devices are good at shows there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from perfpass import _core
from perfpass.graph import DTYPES, OPERATOR_CLASSES, OPERATORS
from perfpass.graph import step as backward
from perfpass.graph.frozen import whole_tables
from perfpass.graph.step import StepOptions, Steps, StepTable
from perfpass.graph.table import Tables
from perfpass.predictors.energy.power import PowerModel
from perfpass.predictors.estimate import Bounds, Columns, Estimate, Estimates, Notes, Run, Runs, shares
from perfpass.predictors.learned.intervals import EVIDENCE
from perfpass.predictors.learned.ratio_trees import (
    UNMEASURED,
    RatioTrees,
    Settings,
    TimePrediction,
)
from perfpass.predictors.memory import allocation, process
from perfpass.predictors.training_step.features import RATIOS, SCHEMA_VERSION, step_vectors
from perfpass.predictors.workload import DEFAULT_OPTIMIZER, PRECISIONS

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph.table import OperatorColumns
    from perfpass.predictors.learned.ratios import Vectors
    from perfpass.predictors.way import Way

# A precision without records of its own runs as another does.
_RUNS_AS = {"bf16": "fp16", "amp_bf16": "amp", "tf32": "fp32"}
# A network exported for inference has its batch normalizations folded into convolutions. Trained, their passes take up
# to a third of a convolutional network's step (what they save: `perfpass.predictors.memory.step`).
_FOLDED_TIME = 1.5
_FOLDED = (
    "no normalization among the convolutions: exported for inference, where they are folded away; a step of the "
    "network with them takes more time and memory (the upper bounds allow for it)"
)
_MEMORY = "planned: what the backward pass of the forward graph holds, a loss (cross entropy) over its results included"
_FROZEN = "a part of the parameters is frozen; only steps that train all of them were measured"


def options(device: Device, precision: str, optimizer: str) -> StepOptions:
    """How present PyTorch runs a step: lists of tensors on GPUs, fused attention, fresh gradients."""
    return StepOptions(optimizer=optimizer, foreach=device.kind == "gpu", autocast=precision.startswith("amp"))


@dataclass(frozen=True, eq=False)
class Derivation:
    """How the steps of N forward tables are derived: ``input_elements`` [N] of the first inputs, ``width`` in bytes."""

    options: StepOptions
    input_elements: np.ndarray
    width: float

    def steps(self, forward: Tables, grown: np.ndarray | float = 1.0) -> Steps:
        """The steps of N tables; ``grown`` [N] is their batch over that of the inputs."""
        return backward.derive_many(
            forward, self.options, input_elements=self.input_elements * grown, width=self.width
        )  # fmt: skip

    def each(self, times: int) -> Derivation:
        """The same, for every table ``times`` times."""
        return replace(self, input_elements=np.repeat(self.input_elements, times))


def derivation(runs: Runs, way: Way, float_as: str) -> Derivation:
    """As present PyTorch runs the steps of N counted forward graphs."""
    how = options(way.device, way.precision, _optimizer(way))
    return Derivation(how, runs.first_input_elements, _width(float_as))


def _optimizer(way: Way) -> str:
    return way.optimizer or DEFAULT_OPTIMIZER


def _width(float_as: str) -> float:
    bits: int = _core.DTYPE_BITS[DTYPES.index(float_as)]
    return bits / 8


class StepPredictor(RatioTrees):
    """Time, power and memory of a training step in PyTorch, from a trained artefact."""

    name = "training_step"
    settings: ClassVar[Settings] = Settings(
        area="training_step",
        ratios=RATIOS,
        feature_version=SCHEMA_VERSION,
        # As for inference. No CPU was measured in training.
        fade={"gpu": (0.35, 0.6)},
        known_rows=1,
        # The median of measured time over the base of steps whose host takes more than half of the device's time.
        host=(1e-9, 2.1),
        reference="rtx-3090",  # the one board of which a present release was measured
        trees_need_evidence=True,
        nothing="no training step was measured",
        where=" in training",
        network="network measured in training",
        networks="networks measured in training",
    )

    def evidence(self, way: Way) -> str:
        """By how many devices have records at the precision: several, one, or none."""
        if self.unseen(way.device) != (1, True):
            return UNMEASURED
        name = _RUNS_AS.get(way.precision, way.precision)
        known = {d for d, entries in self.manifest["measured"].items() for e in entries if e["precision"] == name}
        return EVIDENCE[0] if len(known) > 1 else EVIDENCE[1] if known else UNMEASURED

    def unseen(self, device: Device) -> tuple[int, bool]:
        """Our own records of a CPU lie within the width of what is unmeasured; nothing vouches for other vendors."""
        if device.kind == "cpu":
            return 2, True
        return (1, True) if device.vendor in self.manifest["support"]["vendors"] else (2, False)

    def columns(self, runs: Runs, way: Way, threads: int = 1) -> tuple[Columns, Notes]:
        """What is known of N steps before they are scored, and how far measurements stand behind them."""
        return self._columns(runs, way, threads)[:2]

    def columns_of(
        self, forward: Tables, batch: np.ndarray, way: Way, derived: Derivation, threads: int = 1,
        byte_scale: float = 1.0,
    ) -> tuple[dict[str, np.ndarray], Notes, np.ndarray, Steps]:  # fmt: skip
        """What is known of the time of N steps derived from the tables ``forward`` before they are scored.

        ``batch`` [N]; ``byte_scale`` corrects tables that were counted at another width. Also the notes, [R] parts of
        the base per row, and the steps.
        """
        way = self._released(way)

        def at(tables: Tables, sizes: np.ndarray, way: Way) -> Vectors:
            times = len(sizes) // len(batch)
            steps = derived.each(times).steps(tables, sizes / np.repeat(batch, times))
            efficiency = self._efficiency[self.ensemble(self.whole(way))]
            return step_vectors(steps, sizes, way, efficiency, byte_scale)

        found, notes, row_s = self._known(at, forward, batch, way, threads)
        return found, notes, row_s, derived.steps(forward)

    def predict(
        self, forward: OperatorColumns, batch: int, way: Way, derived: Derivation, byte_scale: float = 1.0
    ) -> TimePrediction:
        """Time of a step derived from the table ``forward``; ``byte_scale`` as in `columns_of`."""
        columns, notes, row_s, _ = self.columns_of(Tables.one(forward), np.array([batch]), way, derived, 1, byte_scale)
        return self._first(columns, notes, row_s, way)

    def _columns(
        self, runs: Runs, way: Way, threads: int = 1
    ) -> tuple[dict[str, np.ndarray], Notes, np.ndarray, Steps]:
        """The columns, the notes, [R] parts of the time's base per row, and the steps."""
        derived = derivation(runs, way, PRECISIONS[way.precision][0])
        found, notes, row_s, steps = self.columns_of(runs.tables, runs.batch, way, derived, threads)
        if (whole := whole_tables(runs.tables)) is not None:
            # Steps of whole networks were measured: with a part frozen, it is the share of the base that is left.
            left, kept = found, ("compute_s", "memory_s")
            found, notes, _, _ = self.columns_of(whole, runs.batch, way, derived, threads)
            found |= {name: left[name] for name in kept}
            found["left"] = np.minimum(1.0, left["base_s"] / found["base_s"])
            notes.add(1, True, _FROZEN)
        folded = _folded(runs.tables)
        notes.add(1, folded, _FOLDED, vouched=True)
        found |= {
            "level": notes.level,
            "parameters": steps.parameters,
            "weight_bytes": runs.weight_bytes,
            "backward_bytes": runs.backward_bytes,
            "gradient_bytes": runs.gradient_bytes,
            "folded": folded.astype(np.float64),
            "convolutional": _convolutional(runs.tables).astype(np.float64),
        }
        return found, notes, row_s, steps

    def estimates(self, columns: Columns, way: Way, threads: int = 1) -> Estimates:
        """The metrics of N steps."""
        device = way.device
        seconds = self.latency_s(columns)
        if "left" in columns:
            seconds = seconds.scaled(columns["left"])
        power = PowerModel.from_dict(self.manifest["power"])
        parts, memory = process.step(columns, way)
        more_time = np.where(columns["folded"] > 0, _FOLDED_TIME, 1.0)
        uses = (np.minimum(columns[part] / seconds.median, 1.0) for part in ("compute_s", "memory_s"))
        return Estimates(
            latency_ms=Bounds(seconds.median * 1e3, seconds.low * 1e3, seconds.high * 1e3 * more_time),
            power_w=power.predict(device, *uses),
            memory=memory,
            memory_bytes=parts,
            level=columns["level"].astype(np.int8),
        )

    def estimate(self, run: Run) -> tuple[Estimate, StepTable]:
        """All metrics of one step, and the step."""
        way = run.way
        columns, notes, row_s, steps = self._columns(allocation.runs_of(run, training=True), way)
        found = self.estimates(columns, way)
        corpus = self.manifest["corpus"]
        estimate = Estimate.first(
            found,
            columns,
            shares(row_s) * float(found.latency_ms.median[0]),
            notes.reasons(0),
            {
                "predictor": self.name,
                "artefact_schema": self.manifest["schema_version"],
                "corpus": corpus["name"],
                "corpus_rows": corpus["rows"],
                "ensemble": self.ensemble(way),
                "nearest_network_distance": float(columns["distance"][0]),
                "optimizer": _optimizer(way),
                "step": "derived from the forward graph",
                "power": self.manifest["power"]["source"],
                "memory": _MEMORY,
            },
        )
        return estimate, steps.first()

    def _support(self, tables: Tables, batch: np.ndarray, way: Way, distance: np.ndarray) -> Notes:
        """How far measurements stand behind each step."""
        notes = super()._support(tables, batch, way, distance)
        compiled = way.runtime == "torch.compile"
        notes.add(2, compiled, "no compiled training step was measured", first=True)
        newest = self.manifest["support"]["newest_torch"]
        older = f"learned from steps with torch {newest} and older; newer releases were not measured"
        notes.add(1, True, older, first=True)
        return notes


def _convolutional(tables: Tables) -> np.ndarray:
    """[N] whether a network has convolutions."""
    return tables.any(np.asarray(tables.table.op_class) == OPERATOR_CLASSES.index("convolution"))


def _folded(tables: Tables) -> np.ndarray:
    """[N] whether a network of convolutions has no normalization at all."""
    normalization = np.asarray(tables.table.op_class) == OPERATOR_CLASSES.index("normalization")
    return tables.any(np.asarray(tables.table.op) == OPERATORS.index("conv")) & ~tables.any(normalization)
