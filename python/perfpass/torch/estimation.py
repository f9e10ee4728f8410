"""`perfpass.torch.estimate`: a training step of a module as it stands, before it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from perfpass.decision import CONFIDENCE, fits
from perfpass.deploy import money
from perfpass.deploy.train_cost import TrainCost, train_cost
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError, DeviceError
from perfpass.importers import load
from perfpass.prediction import Interval, MemoryFigures, Prediction
from perfpass.predictors import predict_graph
from perfpass.predictors.assemble import run_of
from perfpass.predictors.calibration import steps
from perfpass.predictors.roofline import RATES
from perfpass.predictors.training_step import assemble as step_memory
from perfpass.predictors.training_step.predictor import StepPredictor
from perfpass.text import columns, interval, paragraph, size
from perfpass.torch.inspected import (
    Inspected,
    inspected,
    optimizer_name,
    optimizer_of_a_graph,
    precision_of,
    shapes_of,
)

if TYPE_CHECKING:
    from perfpass.devices import Device

# What `perfpass.train_cost` calls a precision: autocast keeps weights in 32 bits, "bf16_true" everything in 16.
_OF_LANGUAGE = {
    "fp32": "fp32",
    "tf32": "fp32",
    "amp": "amp",
    "amp_bf16": "amp",
    "bf16": "bf16_true",
    "fp16": "bf16_true",
}
_SHOWN = {"moments": "optimizer", "working": "loss, layer", "master": "master copy"}


@dataclass(frozen=True)
class RunCost:
    """Of so many steps on all devices: hours, joules, and dollars where a price of the device is known."""

    hours: Interval
    energy_j: Interval
    usd: Interval | None
    price: str


@dataclass(frozen=True)
class Estimate:
    """A training step, predicted. ``print(estimate)`` gives a table, ``to_dict()`` strict JSON.

    ``predictor`` is training_step or llm_training. A step is ``samples`` samples on ``devices`` devices:
    ``accumulation`` passes and one update. ``memory_bytes``: of the fullest device, as it shows it; ``alive_bytes``:
    what is alive at the peak, by what holds it, before what the allocator and the context add. ``power_w`` of one
    device, ``energy_j`` of a step on all. ``step_shares``: where the step's time goes. ``mfu``: the products' FLOP/s
    over the peak of their precision. ``read``: what was read of the module. ``uncorrected``: medians before what
    `perfpass calibrate` has learned of own steps; ``operator_shares``: of the time, what it learns from.
    """

    model: str
    device: str
    devices: int
    predictor: str
    samples: int
    accumulation: int
    precision: str
    optimizer: str
    step_s: Interval
    memory_bytes: Interval
    device_memory_bytes: int
    fits_probability: float
    alive_bytes: Mapping[str, float]
    step_shares: Mapping[str, float]
    power_w: Interval
    energy_j: Interval
    mfu: float
    uncorrected: Mapping[str, float]
    operator_shares: Mapping[str, float]
    read: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether it fits with nine chances in ten or more."""
        return self.fits_probability >= CONFIDENCE

    @property
    def samples_per_s(self) -> Interval:
        """Over all devices."""
        return self.step_s.inverse(self.samples, "samples/s")

    def run(self, steps: int) -> RunCost:
        """What so many steps take. Raises ArgumentError for fewer than one."""
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise ArgumentError(f"steps must be a whole number of at least 1, got {steps!r}")
        hours = self.step_s.scaled(steps / 3600, "h")
        try:
            paid = money.price(self.device)
        except DeviceError as error:
            return RunCost(hours, self.energy_j.scaled(steps, "J"), None, str(error))
        usd = hours.scaled(self.devices * paid.usd_per_hour, "USD")
        return RunCost(hours, self.energy_j.scaled(steps, "J"), usd, str(paid))

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        found = asdict(self)
        for name in ("step_s", "memory_bytes", "power_w", "energy_j"):
            found[name] = getattr(self, name).to_dict()
        return {"schema": 1, **found}

    def headline(self) -> str:
        """One line: whether it fits, and what a step takes."""
        needed, has = size(self.memory_bytes.median), size(self.device_memory_bytes)
        sure = f"P(fits) {self.fits_probability:.2f}"
        words = {"yes": "fits", "perhaps": "MAY NOT FIT", "no": "WILL NOT FIT"}
        word = words[fits(self.memory_bytes, self.device_memory_bytes)]
        median, unit, bounds = interval(self.step_s.median, self.step_s.low, self.step_s.high, "s")
        return (
            f"{self.model} on {self.devices} x {self.device}: {word}, {needed} of {has}, {sure}; "
            f"a step {median} {unit} ({bounds}), {self.energy_j.median:.3g} J"
        )

    def __str__(self) -> str:
        cells = [
            (label, *interval(value.median, value.low, value.high, value.unit))
            for label, value in (
                ("step", self.step_s),
                ("samples", self.samples_per_s),
                ("memory each", self.memory_bytes),
                ("power each", self.power_w),
                ("energy", self.energy_j),
            )
        ]
        parts = sorted(self.alive_bytes.items(), key=lambda part: -part[1])
        spent = sorted(self.step_shares.items(), key=lambda part: -part[1])
        times = f" x {self.accumulation} passes" if self.accumulation > 1 else ""
        lines = [
            f"{self.model} on {self.devices} x {self.device}",
            f"{self.samples} samples a step{times}, {self.precision}, {self.optimizer}, by {self.predictor}",
            "",
            columns([("", "median", "", "90% interval"), *cells], right=(1,)),
            "",
            paragraph("fits", f"P = {self.fits_probability:.2f} in {size(self.device_memory_bytes)}"),
            paragraph("alive", ", ".join(f"{_SHOWN.get(name, name)} {size(value)}" for name, value in parts if value)),
            paragraph("step", ", ".join(f"{name} {100 * share:.0f} %" for name, share in spent if share >= 0.005)),
            paragraph("MFU", f"{100 * self.mfu:.0f} % of the peak"),
            paragraph("read", "; ".join(self.read)),
            *(paragraph("note", note) for note in self.notes),
        ]
        return "\n".join(lines)


def estimate(
    module: torch.nn.Module,
    example_inputs: Any = None,
    *,
    device: str | Device | None = None,
    optimizer: Any = "adamw",
    precision: str | None = None,
    input_shape: Any = None,
    batch: int | None = None,
    accumulation: int = 1,
    devices: int = 1,
    sharding: str | None = None,
    attention: str | None = None,
    loss: str = "eager",
    equal_lengths: bool = False,
    calibration: bool = True,
) -> Estimate:
    """What a training step of ``module`` takes, as the module stands: on any device, compiled, wrapped, frozen in part.

    ``example_inputs``: a tensor, a tuple or a mapping of them by keyword, of which the shapes are read alone (meta
    tensors will do); or ``input_shape`` without the batch, as for `perfpass.predict`, with ``batch``. ``device``: a
    name, else the device that torch has here. ``optimizer``: the object, or a name. ``precision``: fp32, tf32, fp16,
    bf16, amp, amp_bf16 or a word of Lightning's or Accelerate's ("bf16-mixed"); else that of the parameters.
    ``accumulation``: passes of the batch before an update. ``devices``: replicas, of which ``sharding`` (zero1, zero2,
    zero3) splits the states of decoders; ``attention``, ``loss`` and ``equal_lengths`` (every batch is packed or padded
    to one length) are those of `perfpass.train_cost`.
    ``calibration``: whether what `perfpass calibrate` has learned of own steps is used.

    Read from the module: what requires a gradient, types, LoRA layers, checkpointing, eager attention. A decoder of
    transformers on a GPU, trained whole or by LoRA, is asked of `perfpass.train_cost`; everything else is traced on the
    meta device.
    Raises ArgumentError, DeviceError, UnsupportedError (a forward pass that depends on values), ShapeError.
    """
    found = inspected(module)
    board = find_device(device if device is not None else here())
    name = optimizer_name(optimizer)
    if example_inputs is not None:
        if input_shape is not None or batch is not None:
            raise ArgumentError("give example_inputs, or input_shape and batch, not both")
        input_shape, batch = shapes_of(example_inputs)
    if input_shape is None:
        raise ArgumentError(
            "estimate needs example_inputs or input_shape (without the batch): it runs nothing to learn it"
        )
    for what, value in (("accumulation", accumulation), ("devices", devices)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ArgumentError(f"{what} must be a whole number of at least 1, got {value!r}")
    word = precision_of(found, precision)
    asked = _Asked(found, board, name, word, input_shape, batch or 1, accumulation, devices, calibration)
    if found.language is not None and board.is_gpu and asked.tokens:
        answer = _of_language(
            asked,
            sharding=sharding or "none",
            attention=attention or found.attention,
            loss=loss,
            equal_lengths=equal_lengths,
        )
        if answer is not None:
            return answer
    return _of_graph(asked)


def here() -> str:
    """The device that torch has here: a CUDA device by its name, or "cpu"."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True, eq=False)
class _Asked:
    found: Inspected
    board: Device
    optimizer: str
    precision: str
    input_shape: Any
    batch: int
    accumulation: int
    devices: int
    calibration: bool

    @property
    def tokens(self) -> int:
        """Of one sequence; 0 where the inputs are no tokens."""
        shape = self.input_shape
        if isinstance(shape, Mapping):
            shape = shape.get("input_ids", next(iter(shape.values())))
        while isinstance(shape, tuple | list) and shape and isinstance(shape[0], tuple | list):
            shape = shape[0]
        return int(shape[0]) if isinstance(shape, tuple | list) and len(shape) == 1 else 0

    def answered(
        self,
        predictor: str,
        *,
        step_s: Interval,
        memory_bytes: Interval,
        power_w: Interval,
        fits_probability: float,
        alive_bytes: Mapping[str, float],
        operator_shares: Mapping[str, float],
        mfu: float,
        notes: Sequence[str],
        **more: Any,
    ) -> Estimate:
        """With what is stored of the device's own steps."""
        raw = {"step_s": step_s, "memory_bytes": memory_bytes, "power_w": power_w}
        shares = dict.fromkeys(raw, operator_shares) | {"memory_bytes": steps.shares_of(alive_bytes)}
        learned = steps.found_for(self.board, predictor, self.calibration)
        found, factors = dict(raw), dict.fromkeys(raw, 1.0)
        if isinstance(learned, steps.StepCalibration):
            for name, value in raw.items():
                found[name], factors[name] = learned.corrected(predictor, name, value, self.found.name, shares[name])
            told = ", ".join(f"{name.rpartition('_')[0]} x {factor:.2f}" for name, factor in factors.items())
            notes = (f"corrected by own steps on {self.board.name}: {told}", *notes)
        elif learned is not None:
            notes = (learned, *notes)
        if factors["memory_bytes"] != 1.0:
            fits_probability = MemoryFigures(found["memory_bytes"]).probability_fits(self.board.usable_bytes)
        return Estimate(
            predictor=predictor,
            step_s=found["step_s"],
            memory_bytes=found["memory_bytes"],
            power_w=found["power_w"],
            energy_j=_product(found["power_w"], found["step_s"], self.devices),
            fits_probability=fits_probability,
            alive_bytes=alive_bytes,
            operator_shares=operator_shares,
            mfu=mfu / factors["step_s"],
            uncorrected={name: value.median for name, value in raw.items()},
            notes=tuple(notes),
            model=self.found.name,
            device=self.board.id,
            devices=self.devices,
            samples=self.batch * self.accumulation * self.devices,
            accumulation=self.accumulation,
            precision=self.precision,
            optimizer=self.optimizer,
            device_memory_bytes=self.board.usable_bytes,
            read=self.found.lines(),
            **more,
        )


def _of_language(asked: _Asked, **how: Any) -> Estimate | None:
    """None where the host sets the pace: a decoder's own operators then tell more than layers that are alike.

    ``how``: of `perfpass.train_cost`.
    """
    found, adapter = asked.found, asked.found.adapter
    notes = []
    if found.compiled:
        notes.append("torch.compile is not in it: eager layers are what is counted and timed")
    adapted: dict[str, Any] = {}
    if adapter is not None:
        adapted = {"lora_rank": adapter.rank, "lora_targets": adapter.targets, "frozen": adapter.frozen}
        adapted["dora"] = adapter.decomposed
    cost: TrainCost = train_cost(
        found.language,
        asked.board,
        gpus=asked.devices,
        sequence=asked.tokens,
        micro_batch=asked.batch,
        global_batch=asked.batch * asked.accumulation * asked.devices,
        precision=_OF_LANGUAGE[asked.precision],
        optimizer=asked.optimizer,
        recompute="full" if found.checkpointed else "none",
        framework="torch",
        calibration=False,
        **adapted,
        **how,
    )
    run = cost.predicted
    if "issue" in run.why:
        return None
    stage = asdict(run.memory.stages[run.memory.fullest])
    parts = {name: float(value) for name, value in asdict(run.parts_s).items()}
    shares = {name: value / run.step_s.median for name, value in parts.items() if value}
    return asked.answered(
        "llm_training",
        step_s=run.step_s,
        memory_bytes=run.in_use,
        power_w=run.power_w,
        fits_probability=run.fits_probability,
        alive_bytes={name: float(value) for name, value in stage.items() if value},
        step_shares=shares,
        operator_shares=shares,
        mfu=run.mfu,
        notes=(*notes, *cost.notes),
    )


def _of_graph(asked: _Asked) -> Estimate:
    found, board = asked.found, asked.board
    optimizer, said = optimizer_of_a_graph(asked.optimizer)
    how: dict[str, Any] = {
        "batch": asked.batch,
        "precision": asked.precision,
        "optimizer": optimizer,
        "mode": "training",
        "runtime": "torch.compile" if found.compiled else "torch",
    }
    graph = load(found.module, batch=asked.batch, input_shape=asked.input_shape)
    step = predict_graph(graph, board, calibration=False, **how)
    if not found.compiled:
        step = step_memory.with_recorded_memory(step, found.module, asked.input_shape, board, graph)
    _, rows = StepPredictor.load().estimate(run_of(graph, board, **how))
    flops = 2.0 * float(np.asarray(rows.macs, dtype=np.float64) @ np.asarray(rows.count, dtype=np.float64))
    seconds, shares, notes = _seconds(asked, step)
    notes += [said] if said else []
    if asked.devices > 1:
        notes.append(f"one of {asked.devices} replicas: the exchange of their gradients is not in it")
    if found.checkpointed and "recorded" not in str(step.provenance["memory"]):
        notes.append("memory is planned without checkpointing, which holds less")
    return asked.answered(
        "training_step",
        step_s=seconds,
        memory_bytes=step.memory.in_use,
        power_w=step.power_w,
        fits_probability=step.memory.probability_fits(board.usable_bytes),
        alive_bytes={name: float(v) for name, v in step.breakdown["memory_bytes"].items()},
        step_shares=shares,
        operator_shares=steps.shares_of(step.breakdown["latency_ms"]),
        mfu=flops * asked.accumulation / seconds.median / board.peak(_rate(board, asked.precision)),
        notes=(*notes, *step.support.reasons),
    )


def _seconds(asked: _Asked, step: Prediction) -> tuple[Interval, dict[str, float], list[str]]:
    """Of a step with its accumulated passes and what checkpointing computes again; shares by phase; what is said."""
    one, notes = step.latency_ms.scaled(1e-3, "s"), []
    phases = step.breakdown["phase_ms"]
    total = sum(phases.values()) or 1.0
    parts = {name: one.median * ms / total for name, ms in phases.items()}
    update = parts.get("optimizer", 0.0)
    if asked.found.checkpointed:
        parts["recomputation"] = parts.get("forward", 0.0)
        notes.append("checkpointing is taken to compute the forward pass once more; no such step was measured")
    passes = {name: value * (1 if name == "optimizer" else asked.accumulation) for name, value in parts.items()}
    if asked.accumulation > 1:
        notes.append(f"{asked.accumulation} passes to one update of {update / sum(passes.values()):.0%} of the step")
    longer = sum(passes.values()) / one.median
    seconds = one.scaled(longer, "s")
    if asked.found.checkpointed:  # no less than without, no more than half as much again
        seconds = replace(seconds, low=min(seconds.low, one.low * asked.accumulation))
    return seconds, {name: value / seconds.median for name, value in passes.items()}, notes


def _product(power: Interval, seconds: Interval, devices: int) -> Interval:
    """Joules on all devices."""
    low, median, high = (devices * getattr(power, end) * getattr(seconds, end) for end in ("low", "median", "high"))
    return Interval(median, low, high, "J")


def _rate(board: Device, precision: str) -> str:
    rate = RATES[precision]
    return rate if rate in board.peak_flops else "fp32"
