"""The training-step predictor: the step derived from the forward graph, its time by the operators of the step and
`RatioTrees` on what is left, memory by what autograd keeps of the forward graph (docs/predictors/training_step.md).

The portable ensemble has learned from records of inference too, because what other devices are good at shows there.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from perfpass import _core
from perfpass.devices import device as find_device
from perfpass.graph import DTYPES, OPERATOR_CLASSES, OPERATORS
from perfpass.graph import step as backward
from perfpass.graph.frozen import whole_tables
from perfpass.graph.step import StepOptions, Steps, StepTable
from perfpass.graph.table import Tables
from perfpass.predictors.energy.power import PowerModel
from perfpass.predictors.estimate import Bounds, Columns, Estimate, Estimates, Notes, Run, Runs, shares
from perfpass.predictors.inference import cpu_halves
from perfpass.predictors.learned import time_lacks
from perfpass.predictors.learned.intervals import EVIDENCE
from perfpass.predictors.learned.ratio_trees import UNMEASURED, Kinds, RatioTrees, Settings, TimePrediction
from perfpass.predictors.learned.recorded import FASTER_FP32
from perfpass.predictors.memory import allocation, process
from perfpass.predictors.roofline import (
    RATES,
    UNITS_EVERYWHERE,
    fed_flops,
    has_units,
    issue_share,
    slower_host,
    sustained_flops,
)
from perfpass.predictors.training_step.features import RATIOS, SCHEMA_VERSION, step_vectors
from perfpass.predictors.training_step.operators import SMOOTHNESS, StepTimes
from perfpass.predictors.training_step.power import MEASURED_VENDOR, StepPower
from perfpass.predictors.workload import DEFAULT_OPTIMIZER, PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
_NOTED_SCORES = 0.1  # of what is kept: less widens no bound by much
_SCORES = (
    "attention is taken as one kernel that keeps no scores, which the model and the device do not say; a program that "
    "multiplies, drops and multiplies again keeps them (the upper bound of memory allows for it)"
)
_MEMORY = "planned: what the backward pass of the forward graph holds, a loss (cross entropy) over its results included"
# The host of a step (`training_step.operators`, forward 51 us an operator) over what the features count (20 us).
_HOST = 2.5
_POWER = "the root of what the step uses of the board, by four boards of Zeus in training"
_FROZEN = "a part of the parameters is frozen; only steps that train all of them were learned from"


def as_it_waits(lacks: Mapping[str, np.ndarray], issue: np.ndarray) -> dict[str, np.ndarray]:
    """`time_lacks.as_it_waits` of N steps on GPUs; ``issue`` [N]: the host's time over the device's in the features."""
    return time_lacks.as_it_waits(lacks, issue_share(_HOST * issue, SMOOTHNESS))


def options(device: Device, precision: str, optimizer: str) -> StepOptions:
    """How present PyTorch runs a step: lists of tensors on GPUs, fused attention, fresh gradients."""
    gpu = device.kind == "gpu"
    cache = 0.0 if gpu else float(device.l3_bytes or device.l2_bytes)
    return StepOptions(optimizer, foreach=gpu, cache_bytes=cache, autocast=precision.startswith("amp"))


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
        # The host is in the operators' time, with levels of its own.
        host=(1e-9, 1.0),
        reference="rtx-3090",  # the one board of which the newest release with records was measured
        trees_need_evidence=True,
        nothing="no training step",
        where=" in training",
        network="network learned from in training",
        networks="networks learned from in training",
    )

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        super().__init__(folder)
        self._times = StepTimes.from_dict(self.manifest["operators"])

    def priced(self, times: StepTimes) -> StepPredictor:
        """The same with other times of operators than those that ship."""
        other = copy(self)
        other._times = times
        return other

    def evidence(self, way: Way) -> str:
        """By how many devices with records at the precision, and with or without units for it as the board."""
        if self.unseen(way.device) != (1, True):
            return UNMEASURED
        name = _RUNS_AS.get(way.precision, way.precision)
        ran = {d for d, entries in self.manifest["measured"].items() for e in entries if e["precision"] == name}
        if RATES.get(name, name) not in UNITS_EVERYWHERE:
            own = has_units(way.device, name)
            ran = {d for d in ran if has_units(find_device(d), name) == own}
        return EVIDENCE[0] if len(ran) > 1 else EVIDENCE[1] if ran else UNMEASURED

    def unseen(self, device: Device) -> tuple[int, bool]:
        """Nothing vouches for GPUs of other vendors."""
        return (1, True) if self.knows_vendor(device) else (2, False)

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

        def at(tables: Tables, sizes: np.ndarray, on: Way) -> Vectors:
            times = len(sizes) // len(batch)
            steps = derived.each(times).steps(tables, sizes / np.repeat(batch, times))
            vectors = step_vectors(steps, sizes, on, self._efficiency[self.ensemble(self.whole(on))], byte_scale)
            if on is not way:  # seen on another board, where only its features count
                return vectors
            priced = self._times.seconds(steps, sizes, way, byte_scale)
            return replace(vectors, base_s=priced.total, row_s=priced.row)

        found, notes, row_s = self._known(at, forward, batch, way, threads)
        if way.device.kind == "cpu" and (further := cpu_halves.further(way)):
            below, above = (np.log(found[name] / found["median_s"]) for name in ("low_s", "high_s"))
            found["low_s"] = found["median_s"] * np.exp(-np.hypot(below, further))
            found["high_s"] = found["median_s"] * np.exp(np.hypot(above, further))
        return found, notes, row_s, derived.steps(forward)

    def _heard(self, way: Way, kinds: Kinds, distance: np.ndarray) -> np.ndarray:
        """Trees say nothing of networks of a kind that was not measured, nor of present releases on boards without
        records: theirs are of torch 1.12 and before, whose kernels newer boards do not run.
        """
        return super()._heard(way, kinds, distance) * (kinds.convolves & ~kinds.strange) * (not way.present)

    def _beyond_trees(
        self, seconds: np.ndarray, kinds: Kinds, networks: Tables, way: Way, distance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Steps are priced by their operators whatever the network: only the trees' correction is what one lacks."""
        lost = self._fade(way, distance) * (kinds.convolves & kinds.strange) * (not way.present)
        return seconds, np.broadcast_to(lost[:, None], seconds.shape)

    def _issue_without(
        self, issue: np.ndarray, beside: np.ndarray, way: Way, again: Callable[[], Vectors]
    ) -> np.ndarray:
        return self._issue(again().values).reshape(issue.shape) * np.exp(beside)

    def _waiting(self, lacks: dict[str, np.ndarray], issue: np.ndarray, way: Way) -> dict[str, np.ndarray]:
        if way.device.kind != "gpu":
            return super()._waiting(lacks, issue, way)
        return as_it_waits(lacks, issue * slower_host(way.device))

    def _lacks(
        self, tables: Tables, grown: np.ndarray, sizes: np.ndarray, kinds: Kinds, way: Way, distance: np.ndarray
    ) -> dict[str, np.ndarray]:
        found = super()._lacks(tables, grown, sizes, kinds, way, distance)
        if way.device.kind != "cpu":
            # Operators price a network whatever those learned from: its distance is what the trees' correction lacks.
            heard = self._heard(self.whole(way), kinds, np.zeros(len(distance))) > 0.0
            return found | {"network": found["network"] * np.repeat(heard, sizes.shape[1])}
        # Widths of CPUs are of networks left out, on the machines that were measured.
        one = np.ones(sizes.size)
        measured = way.on_measured_cpu(self.manifest["machines"])
        plain = way.precision == "fp32" and way.runtime == "torch"
        return found | {
            "device": one * (not measured), "vendor": 0.0 * one, "rare software": 0.0 * one,
            "unmeasured software": one * (not plain),
        }  # fmt: skip

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
        scores = allocation.score_bytes(runs.tables, way)
        if allocation.keeps_no_scores(way):
            scores = scores * runs.by_description
        notes.add(0, scores > _NOTED_SCORES * runs.backward_bytes, _SCORES, vouched=True)
        found |= {
            "level": notes.level,
            "parameters": steps.parameters,
            "weight_bytes": runs.weight_bytes,
            "backward_bytes": runs.backward_bytes,
            "gradient_bytes": runs.gradient_bytes,
            "folded": folded.astype(np.float64),
            "convolutional": allocation.convolutional(runs.tables),
            "score_bytes": scores,
        }
        return found, notes, row_s, steps

    def estimates(self, columns: Columns, way: Way, threads: int = 1) -> Estimates:
        """The metrics of N steps."""
        seconds = self.latency_s(columns)
        if "left" in columns:
            seconds = seconds.scaled(columns["left"])
        parts, memory = process.step(columns, way)
        more_time = np.where(columns["folded"] > 0, _FOLDED_TIME, 1.0)
        return Estimates(
            latency_ms=Bounds(seconds.median * 1e3, seconds.low * 1e3, seconds.high * 1e3 * more_time),
            power_w=self.power_w(columns, seconds, way),
            memory=memory,
            memory_bytes=parts,
            level=columns["level"].astype(np.int8),
        )

    def uses(self, columns: Columns, seconds: Bounds, way: Way) -> tuple[np.ndarray, np.ndarray]:
        """[N] shares of the board's peak and of its bandwidth (0 to 1 each) that N steps of ``seconds`` use.

        Where the power limit holds products below the rate of the roofline, they use so much more of the board: time
        and power follow from one rate.
        """
        rate = RATES[way.precision]
        held = max(1.0, sustained_flops(way.device, rate) / fed_flops(way.device, rate))
        compute, memory = (columns[part] / seconds.median for part in ("compute_s", "memory_s"))
        return np.minimum(compute * held, 1.0), np.minimum(memory, 1.0)

    def power_w(self, columns: Columns, seconds: Bounds, way: Way) -> Bounds:
        """[N] watts of N steps that take ``seconds``."""
        uses = self.uses(columns, seconds, way)
        if way.device.kind == "cpu":
            return PowerModel.from_dict(self.manifest["power"]).predict(way.device, *uses)
        return StepPower.from_dict(self.manifest["step_power"]).predict(way.device, *uses)

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
                "handed_over": float(columns["handed_over"][0]),
                "optimizer": _optimizer(way),
                "step": "derived from the forward graph",
                "power": _drawn(way.device) if way.device.kind == "gpu" else self.manifest["power"]["source"],
                "memory": _MEMORY,
            },
            partial(self.wide_by, columns, self.whole(way).device),
        )
        return estimate, steps.first()

    def _support(
        self, tables: Tables, batch: np.ndarray, way: Way, distance: np.ndarray, kinds: Kinds
    ) -> Notes:  # fmt: skip
        """How far measurements stand behind each step."""
        if way.device.kind == "cpu":
            notes, measured = Notes(len(batch)), way.device.name in self.manifest["machines"]
            rows = self.manifest["corpus"]["rows_on_cpus"]
            there = "one machine of 2 cores" + ("" if measured else ", another CPU")
            notes.add(1, True, f"time by its operators, as {rows} steps took on {there}", vouched=measured)
            notes.add(2, way.precision != "fp32", f"on CPUs there was no step in {way.precision} to learn from")
            if (said := cpu_halves.said(way)) is not None:
                notes.add(2, True, said)
        else:
            notes = super()._support(tables, batch, way, distance, kinds)
            newest = self.manifest["support"]["newest_torch"]
            older = f"learned from steps with torch {newest} and older, and from no newer release"
            notes.add(1, True, older, first=True)
            faster = "as in fp32, whose kernels TF32 allows, with its products faster"
            notes.add(1, way.precision == FASTER_FP32, faster, vouched=True)
        notes.add(2, way.runtime == "torch.compile", "no compiled training step to learn from", first=True)
        return notes


def _drawn(device: Device) -> str:
    """What the watts of a GPU's step are by."""
    return _POWER if device.vendor == MEASURED_VENDOR else f"{_POWER}, none of {device.vendor}: wider by hand"


def _folded(tables: Tables) -> np.ndarray:
    """[N] whether a network of convolutions has no normalization at all, nor one composed of a root's reciprocal."""
    normalization = np.asarray(tables.table.op_class) == OPERATOR_CLASSES.index("normalization")
    normalization |= np.asarray(tables.table.op) == OPERATORS.index("rsqrt")
    return tables.any(np.asarray(tables.table.op) == OPERATORS.index("conv")) & ~tables.any(normalization)
