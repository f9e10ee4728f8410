"""`perfpass.train_network_cost`: what training any network takes on one device, or on several in data parallel."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.declared import Kind, Number, Text
from perfpass.deploy.training_run import RunCost, cells, run_cost
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError
from perfpass.graph import frozen as frozen_parameters
from perfpass.prediction import Interval, MemoryFigures, Prediction
from perfpass.predictors import predict
from perfpass.predictors.training_step import replicas
from perfpass.text import columns, interval, paragraph, size

if TYPE_CHECKING:
    import os

    from perfpass.devices import Device

_COUNT = Number(1, 2**31, whole=True)
_KINDS: dict[str, Kind] = {
    "gpus": Number(1, 100_000, whole=True),
    "micro_batch": _COUNT,
    "global_batch": _COUNT,
    "fabric_gb_s": Number(0, 10_000, above=True, hint=" GB/s"),
    "samples": Number(0, 1e16, above=True),
    "region": Text(),
    "carbon_intensity": Number(0, 2000, hint=" gCO2e/kWh"),
    "pue": Number(1, 5, hint=", total over IT power"),
}
_GRADIENT_BITS = {"fp16": 16, "bf16": 16, "fp64": 64}  # an element; single precision under autocast


@dataclass(frozen=True)
class NetworkTrainCost:
    """A training run of one network: where, how, and what is predicted of it.

    ``step``: one device's step, of ``micro_batch`` samples. ``step_s``: of all ``devices``, ``micro_batches`` on each;
    ``parts_s``: of its median the steps of one device, what the all-reduces of gradients add, and waiting for the
    slowest. ``memory_in_use_bytes`` and ``power_w`` are of each device. ``cost``: of ``samples``, empty without.
    """

    model: str
    device: str
    devices: int
    micro_batch: int
    micro_batches: int
    step: Prediction
    step_s: Interval
    parts_s: dict[str, float]
    gradient_bytes: float
    memory_in_use_bytes: Interval
    memory_bytes: int
    fits_probability: float
    power_w: Interval
    samples: float | None
    cost: RunCost
    notes: tuple[str, ...]

    @property
    def global_batch(self) -> int:
        """Samples of a step."""
        return self.devices * self.micro_batch * self.micro_batches

    @property
    def samples_per_s(self) -> Interval:
        """Over all devices."""
        return self.step_s.inverse(self.global_batch, "samples/s")

    @property
    def fits(self) -> bool:
        """Whether it fits with nine chances in ten."""
        return self.fits_probability >= 0.9

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        figures = {
            "step_s": self.step_s,
            "samples_per_s": self.samples_per_s,
            "memory_in_use_bytes_of_a_device": self.memory_in_use_bytes,
            "power_w_of_a_device": self.power_w,
        }
        run = {name: getattr(self.cost, name) for name in ("hours", "energy_j", "usd", "carbon_g")}
        return {
            "schema": 1,
            "model": self.model,
            "device": self.device,
            "devices": self.devices,
            "micro_batch": self.micro_batch,
            "micro_batches": self.micro_batches,
            "global_batch": self.global_batch,
            **{name: value.to_dict() for name, value in figures.items()},
            "step_parts_s": self.parts_s,
            "gradient_bytes": self.gradient_bytes,
            "device_memory_bytes": self.memory_bytes,
            "fits_probability": self.fits_probability,
            "samples": self.samples,
            **{name: None if value is None else value.to_dict() for name, value in run.items()},
            "step_of_a_device": self.step.to_dict(),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        asked = self.step.workload
        how = f"{asked['precision']}, {asked['optimizer']}, {asked['layout']}"
        head = f"{self.model} on {self.devices} x {self.device}, torch, {how}"
        batch = f"batch {self.global_batch:,}: {self.micro_batch} on each device"
        batch += f", {self.micro_batches} times" if self.micro_batches > 1 else ""
        step, memory = self.step_s, self.memory_in_use_bytes
        rows = [
            ("", "median", "", "90% interval"),
            ("step", *interval(step.median, step.low, step.high, "s")),
            ("samples", *cells(self.samples_per_s)),
            ("power each", *cells(self.power_w)),
            ("memory each", *interval(memory.median, memory.low, memory.high, "byte")),
            *self.cost.cells(),
        ]
        lines = [head, batch, "", columns(rows, right=(1,)), ""]
        lines.append(paragraph("fits", f"P = {self.fits_probability:.2f} in {size(self.memory_bytes)}"))
        whole = sum(self.parts_s.values())
        parts = ", ".join(f"{name} {100 * s / whole:.0f} %" for name, s in self.parts_s.items() if s >= 0.005 * whole)
        lines.append(paragraph("step", parts))
        if self.devices > 1:
            lines.append(paragraph("gradients", f"{size(self.gradient_bytes)}, summed over devices once a step"))
        lines.append(paragraph("support", self.step.support.level))
        lines += [paragraph("", f"- {reason}") for reason in self.step.support.reasons]
        lines += [paragraph("note", note) for note in self.notes]
        return "\n".join(lines)


def train_network_cost(
    model: Any,
    device: str | Device,
    *,
    gpus: int = 1,
    micro_batch: int | None = None,
    global_batch: int | None = None,
    precision: str = "fp32",
    optimizer: str | None = None,
    layout: str = "nchw",
    input_shape: Any = None,
    dims: Any = None,
    frozen: Any = (),
    fabric_gb_s: float | None = None,
    samples: float | None = None,
    region: str | None = None,
    carbon_intensity: float | None = None,
    pue: float = 1.0,
    price_table: str | os.PathLike[str] | None = None,
    calibration: bool = True,
) -> NetworkTrainCost:
    """What training ``model`` takes in eager PyTorch on ``gpus`` devices, a replica on each (DistributedDataParallel).

    ``model``, ``precision``, ``optimizer``, ``layout``, ``input_shape``, ``dims``, ``frozen``: as for
    `perfpass.predict` with mode="training". ``micro_batch``: samples at once on each device (the model's own if None);
    ``global_batch``: samples of a step over all (one micro-batch each if None): more are accumulated. ``fabric_gb_s``:
    network between hosts, GB/s of one direction for a device. ``samples``: of the run, all epochs, for hours, energy,
    money and, with a region or intensity, carbon. ``calibration``: whether what `perfpass calibrate` has learned of the
    device is used. Models of language in other layouts: `perfpass.train_cost`.

    Raises ArgumentError for what cannot be laid out, and what `perfpass.predict` raises.
    """
    for name, kind in _KINDS.items():
        value = locals()[name]
        if value is not None:
            kind.check(value, "", name, ArgumentError)
    board = find_device(device)
    if gpus > 1 and (not board.is_gpu or board.mig_profile):
        what = "a slice, and NCCL joins none" if board.mig_profile else "no GPU"
        raise ArgumentError(f"{board.id} is {what}: replicas are predicted for whole GPUs; give gpus=1")
    step = predict(
        model, board, batch=micro_batch, precision=precision, optimizer=optimizer, layout=layout, mode="training",
        input_shape=input_shape, dims=dims, frozen=frozen, calibration=calibration,
    )  # fmt: skip
    batch = int(step.workload["batch"])
    whole = global_batch or batch * gpus
    if whole % (batch * gpus):
        raise ArgumentError(
            f"a global batch of {whole} is no multiple of {gpus} devices' micro-batches of {batch}; change one of them"
        )
    times = whole // (batch * gpus)
    gradients = _gradient_bytes(step, precision)
    alone = step.latency_ms.scaled(1e-3, "s")
    # Of all micro-batches but the last no optimizer runs.
    updating = step.breakdown["phase_ms"]["optimizer"] / sum(step.breakdown["phase_ms"].values())
    of_one = alone.scaled(times - (times - 1) * updating, "s")
    messages = replicas.exchange(board, gpus, gradients, 1e9 * (fabric_gb_s or 0.0))
    found = replicas.replicated(of_one, alone, gpus, messages)
    memory = _memory(step, gpus, gradients)
    busy = of_one.median / found.step_s.median
    power = _drawn(step.power_w, board, busy)
    cost = run_cost(
        found.step_s, power, None if samples is None else math.ceil(samples / whole), board, gpus,
        region=region, carbon_intensity=carbon_intensity, pue=pue, price_table=price_table,
    )  # fmt: skip
    return NetworkTrainCost(
        model=step.asked.model or type(model).__name__,
        device=board.id,
        devices=gpus,
        micro_batch=batch,
        micro_batches=times,
        step=step,
        step_s=found.step_s,
        parts_s={
            "one device's step": of_one.median,
            "all-reduces": found.exchange_s,
            "waiting for the slowest": found.straggling_s,
        },
        gradient_bytes=gradients,
        memory_in_use_bytes=memory,
        memory_bytes=board.memory_bytes,
        fits_probability=MemoryFigures(memory).probability_fits(board.memory_bytes),
        power_w=power,
        samples=samples,
        cost=cost,
        notes=(*_unmeasured(board, gpus), *found.reasons, *cost.notes),
    )


# Boards of the pairs that taught what replicas cost.
_MEASURED = ("v100", "a100")


def _unmeasured(board: Device, gpus: int) -> tuple[str, ...]:
    if gpus == 1:
        return ()
    notes = []
    if not board.id.startswith(_MEASURED) or gpus > 16:
        notes.append("steps on several devices were measured on 2 to 16 V100 and A100 joined by NVLink")
    return (*notes, "data loading is not counted: a loader that is slower than the devices makes the step")


def _gradient_bytes(step: Prediction, precision: str) -> float:
    graph = step.asked.run().graph
    learned = np.flatnonzero(frozen_parameters.trained(graph, graph.frozen))
    elements = sum(math.prod(graph.shape(int(tensor))) for tensor in learned)
    return elements * _GRADIENT_BITS.get(precision, 32) / 8


def _memory(step: Prediction, gpus: int, gradient_bytes: float) -> Interval:
    memory = step.memory.in_use
    if gpus == 1:
        return memory
    held = replicas.held_bytes(gradient_bytes)
    return replace(memory, **{name: getattr(memory, name) + held[name] for name in ("median", "low", "high")})


def _drawn(power_w: Interval, board: Device, busy: float) -> Interval:
    """A device draws little more than idle while it waits; the upper bound lets it draw all the while."""
    idle = min(board.idle_power_w, power_w.low)
    return Interval(idle + (power_w.median - idle) * busy, idle + (power_w.low - idle) * busy, power_w.high, "W")
