"""`perfpass.train_network_cost`: what training any network takes, on one device or on several that share its states."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfpass.declared import Choice, Kind, Number, Text
from perfpass.deploy.train_network_memory import Held, held
from perfpass.deploy.training_run import RunCost, cells, energy_cells, run_cost, step_energy_j
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.graph.optimizers import OPTIMIZERS
from perfpass.prediction import Interval, MemoryFigures, Prediction
from perfpass.predictors import predict
from perfpass.predictors.llm_training.step import HOST_BYTES_S
from perfpass.predictors.roofline import sustained_bandwidth
from perfpass.predictors.training_step import replicas, sharing
from perfpass.predictors.training_step.sharded import OFFLOADS, SHARDINGS
from perfpass.predictors.workload import DEFAULT_OPTIMIZER
from perfpass.text import columns, interval, paragraph, size

if TYPE_CHECKING:
    from perfpass.devices import Device

_COUNT = Number(1, 2**31, whole=True)
_KINDS: dict[str, Kind] = {
    "gpus": Number(1, 100_000, whole=True),
    "micro_batch": _COUNT,
    "global_batch": _COUNT,
    "sharding": Choice(SHARDINGS),
    "recompute": Choice(("none", "full")),
    "offload": Choice(OFFLOADS),
    "fabric_gb_s": Number(0, 10_000, above=True, hint=" GB/s"),
    "host_gb_s": Number(0, 10_000, above=True, hint=" GB/s"),
    "samples": Number(0, 1e16, above=True),
    "region": Text(),
    "carbon_intensity": Number(0, 2000, hint=" gCO2e/kWh"),
    "pue": Number(1, 5, hint=", total over IT power"),
}


_HELD = (
    ("weights", "weights"),
    ("gradients", "gradients"),
    ("states", "optimizer"),
    ("gathered", "gathered"),
    ("under_way", "gradients under way"),
    ("buckets", "buckets"),
    ("host", "on the host"),
)


@dataclass(frozen=True)
class NetworkTrainCost:
    """A training run of one network: where, how, and what is predicted of it.

    ``sharding``, ``recompute``, ``offload``: as asked. ``step``: one device's step, of ``micro_batch`` samples.
    ``step_s``: of all ``devices``, ``micro_batches`` on each; ``parts_s``: of its median the steps of one device,
    blocks that run twice, what messages add, the host, and waiting for the slowest. ``rank_bytes``: what is counted of
    the fullest device beside its activations (`perfpass.predictors.training_step.sharded.Rank`).
    ``memory_in_use_bytes`` and ``power_w`` are of each device. ``cost``: of ``samples``, empty without.
    """

    model: str
    device: str
    devices: int
    micro_batch: int
    micro_batches: int
    sharding: str
    recompute: str
    offload: str
    step: Prediction
    step_s: Interval
    parts_s: dict[str, float]
    gradient_bytes: float
    rank_bytes: dict[str, float]
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
    def step_energy_j(self) -> Interval:
        """Of one step, over all devices."""
        return step_energy_j(self.step_s, self.power_w, self.devices)

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
            "step_energy_j": self.step_energy_j,
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
            "sharding": self.sharding,
            "recompute": self.recompute,
            "offload": self.offload,
            **{name: value.to_dict() for name, value in figures.items()},
            "step_parts_s": self.parts_s,
            "gradient_bytes": self.gradient_bytes,
            "rank_bytes": self.rank_bytes,
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
        how += f", {self.sharding}" if self.sharding != "none" else ""
        how += f", recompute {self.recompute}" if self.recompute != "none" else ""
        how += f", offload {self.offload}" if self.offload != "none" else ""
        head = f"{self.model} on {self.devices} x {self.device}, torch, {how}"
        batch = f"batch {self.global_batch:,}: {self.micro_batch} on each device"
        batch += f", {self.micro_batches} times" if self.micro_batches > 1 else ""
        step, memory = self.step_s, self.memory_in_use_bytes
        rows = [
            ("", "median", "", "90% interval"),
            ("step", *interval(step.median, step.low, step.high, "s")),
            ("samples", *cells(self.samples_per_s)),
            ("power each", *cells(self.power_w)),
            ("a step takes", *energy_cells(self.step_energy_j)),
            ("memory each", *interval(memory.median, memory.low, memory.high, "byte")),
            *self.cost.cells(),
        ]
        lines = [head, batch, "", columns(rows, right=(1,)), ""]
        lines.append(paragraph("fits", f"P = {self.fits_probability:.2f} in {size(self.memory_bytes)}"))
        whole = sum(self.parts_s.values())
        parts = ", ".join(f"{name} {100 * s / whole:.0f} %" for name, s in self.parts_s.items() if s >= 0.005 * whole)
        lines.append(paragraph("step", parts))
        if self.devices > 1:
            often = "once a step" if self.sharding in ("none", "zero1") else "for every micro-batch"
            lines.append(paragraph("gradients", f"{size(self.gradient_bytes)}, summed over devices {often}"))
        if self.sharding != "none" or self.offload != "none":
            kinds = [(label, self.rank_bytes[name]) for name, label in _HELD]
            counted = ", ".join(f"{label} {size(found)}" for label, found in kinds if found)
            lines.append(paragraph("holds", counted))
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
    sharding: str = "none",
    recompute: str = "none",
    offload: str = "none",
    fabric_gb_s: float | None = None,
    host_gb_s: float | None = None,
    samples: float | None = None,
    region: str | None = None,
    carbon_intensity: float | None = None,
    pue: float = 1.0,
    price_table: str | os.PathLike[str] | None = None,
    calibration: bool = True,
) -> NetworkTrainCost:
    """What training ``model`` takes in eager PyTorch on ``gpus`` devices, each with samples of its own.

    ``model``, ``precision``, ``optimizer``, ``layout``, ``input_shape``, ``dims``, ``frozen``: as for
    `perfpass.predict` with mode="training". ``micro_batch``: samples at once on each device (the model's own if None);
    ``global_batch``: samples of a step over all (one micro-batch each if None): more are accumulated. ``sharding``:
    none (DistributedDataParallel), zero1 (ZeroRedundancyOptimizer), zero2, zero3 (FSDP, blocks wrapped).
    ``recompute``: none, full (every block is checkpointed). ``offload``: none, optimizer (states and gradients),
    parameters (these, too, with zero3), which wait on the host. ``fabric_gb_s``: network between hosts, GB/s of one
    direction for a device; ``host_gb_s``: the host's memory, GB/s for a device. ``samples``: of the run, all epochs,
    for hours, energy, money and, with a region or intensity, carbon. ``calibration``: whether what `perfpass calibrate`
    has learned of the device is used. Tensor and pipeline ranks are of language models: `perfpass.train_cost`.

    Raises ArgumentError for what cannot be laid out, UnsupportedError for blocks that no names tell, DeviceError where
    the device has no link to a host that is to hold something, and what `perfpass.predict` raises.
    """
    check_arguments(locals())
    board = find_device(device)
    if gpus > 1 and (not board.is_gpu or board.mig_profile):
        what = "a slice, and NCCL joins none" if board.mig_profile else "no GPU"
        raise ArgumentError(f"{board.id} is {what}: replicas are predicted for whole GPUs; give gpus=1")
    check_layout(sharding, offload, board)
    step = predict(
        model, board, batch=micro_batch, precision=precision, optimizer=optimizer, layout=layout, mode="training",
        input_shape=input_shape, dims=dims, frozen=frozen, calibration=calibration,
    )  # fmt: skip
    return of_step(
        step, board, called=step.asked.model or type(model).__name__, gpus=gpus, global_batch=global_batch,
        precision=precision, sharding=sharding, recompute=recompute, offload=offload, fabric_gb_s=fabric_gb_s,
        host_gb_s=host_gb_s, samples=samples, region=region, carbon_intensity=carbon_intensity, pue=pue,
        price_table=price_table,
    )  # fmt: skip


def is_language_model(model: Any) -> bool:
    """Whether `perfpass.train_cost` reads it, which knows more layouts: decoders with attention alone. Others (Whisper,
    T5, Mamba) train as any network. Raises what reading the model raises.
    """
    from perfpass.llm.architecture import LanguageModel
    from perfpass.llm.configuration import language_model

    if isinstance(model, LanguageModel):  # which a framework's own file describes
        return True
    if not isinstance(model, (str, os.PathLike, Mapping)):  # a file's content, a graph, a module
        return False
    try:
        found = language_model(model)
    except UnsupportedError:
        return False
    return not (found.is_encoder_decoder or found.is_hybrid)


def check_arguments(asked: Mapping[str, Any]) -> None:
    """Raises ArgumentError for the first argument of a layout or run that is of another kind or out of its range."""
    for name, kind in _KINDS.items():
        if (value := asked.get(name)) is not None:
            kind.check(value, "", name, ArgumentError)


def check_layout(sharding: str, offload: str, board: Device) -> None:
    """Raises ArgumentError for what cannot wait on the host."""
    if offload == "parameters" and sharding != "zero3":
        raise ArgumentError(
            f"offload=parameters with sharding={sharding}: parameters wait on the host where they are sharded; give "
            "sharding=zero3, or offload=optimizer"
        )
    if offload != "none" and not board.is_gpu:
        raise ArgumentError(f"{board.id} is the host itself: nothing can wait elsewhere; leave offload out")


def of_step(
    step: Prediction,
    board: Device,
    *,
    called: str,
    gpus: int,
    global_batch: int | None,
    precision: str,
    sharding: str,
    recompute: str,
    offload: str,
    fabric_gb_s: float | None,
    host_gb_s: float | None,
    samples: float | None,
    region: str | None,
    carbon_intensity: float | None,
    pue: float,
    price_table: str | os.PathLike[str] | None,
) -> NetworkTrainCost:
    """The run whose step on one device is ``step``, of a network ``called`` so; the rest as of `train_network_cost`."""
    batch = int(step.workload["batch"])
    whole = global_batch or batch * gpus
    if whole % (batch * gpus):
        raise ArgumentError(
            f"a global batch of {whole} is no multiple of {gpus} devices' micro-batches of {batch}; change one of them"
        )
    times = whole // (batch * gpus)
    on_each = held(
        step, precision, gpus, sharding=sharding, recompute=recompute, offload=offload, micro_batches=times
    )  # fmt: skip
    found = _timed(
        step, board, on_each, gpus, times, sharding=sharding, offload=offload, fabric=1e9 * (fabric_gb_s or 0.0),
        host=HOST_BYTES_S if host_gb_s is None else 1e9 * host_gb_s,
    )  # fmt: skip
    busy = found.of_one.median / found.replicated.step_s.median
    power = _drawn(step.power_w, board, busy)
    cost = run_cost(
        found.replicated.step_s, power, None if samples is None else math.ceil(samples / whole), board, gpus,
        region=region, carbon_intensity=carbon_intensity, pue=pue, price_table=price_table,
    )  # fmt: skip
    return NetworkTrainCost(
        model=called,
        device=board.id,
        devices=gpus,
        micro_batch=batch,
        micro_batches=times,
        sharding=sharding,
        recompute=recompute,
        offload=offload,
        step=step,
        step_s=found.replicated.step_s,
        parts_s=found.parts_s,
        gradient_bytes=on_each.parameters.bytes,
        rank_bytes=on_each.rank.to_dict(),
        memory_in_use_bytes=on_each.memory,
        memory_bytes=board.usable_bytes,
        fits_probability=MemoryFigures(on_each.memory).probability_fits(board.usable_bytes),
        power_w=power,
        samples=samples,
        cost=cost,
        notes=(*_unmeasured(board, gpus), *found.replicated.reasons, *cost.notes),
    )


# What adding two tensors up reads and writes, of one's bytes.
_ADDED = 3.0


@dataclass(frozen=True)
class _Timed:
    of_one: Interval
    replicated: replicas.Replicated
    parts_s: dict[str, float]


def _timed(
    step: Prediction,
    board: Device,
    on_each: Held,
    gpus: int,
    times: int,
    *,
    sharding: str,
    offload: str,
    fabric: float,
    host: float,
) -> _Timed:
    """Seconds of the step of all devices, and what they are made of."""
    phases = step.breakdown["phase_ms"]
    updating, forward = (phases[name] / sum(phases.values()) for name in ("optimizer", "forward"))
    again = on_each.again * forward
    alone = step.latency_ms.scaled(1e-3 * (1 + again), "s")
    # Of all micro-batches but the last no optimizer runs; it steps what a rank owns, on the host what waits there.
    own = 0.0 if offload != "none" else on_each.rank.owned / on_each.parameters.bytes
    of_one = step.latency_ms.scaled(1e-3 * (times * (1 + again) - (times - own) * updating), "s")
    # Gradients of every micro-batch after the first are added to what is there.
    summed = (times - 1) * _ADDED * on_each.rank.gradients / sustained_bandwidth(board)
    of_one = of_one.scaled(1 + summed / of_one.median, "s")
    optimizer = OPTIMIZERS[step.workload["optimizer"] or DEFAULT_OPTIMIZER]
    link = sharing.host_time(board, on_each.rank, on_each.parameters, offload, optimizer, times, host)
    strange = offload != "none" or (sharding != "none" and gpus > 1)
    if strange:
        sent = sharing.messages(board, gpus, on_each.parameters, sharding, times, fabric)
        found = sharing.shared(of_one, alone, gpus, sent, link)
    else:
        found = replicas.replicated(
            of_one, alone, gpus, replicas.exchange(board, gpus, on_each.parameters.bytes, fabric)
        )  # fmt: skip
    recomputed = times * again / (1 + again) * alone.median
    waited = link.added_s(of_one.median) if strange else 0.0
    messages = "all-reduces" if sharding == "none" else "messages"
    parts = {
        "one device's step": of_one.median - recomputed,
        "recomputation": recomputed,
        messages: found.exchange_s,
        "the host": waited,
        "waiting for the slowest": found.straggling_s,
    }
    optional = ("recomputation", "the host")
    return _Timed(of_one, found, {name: s for name, s in parts.items() if s or name not in optional})


# Boards of the pairs that taught what replicas cost.
_MEASURED = ("v100", "a100")


def _unmeasured(board: Device, gpus: int) -> tuple[str, ...]:
    if gpus == 1:
        return ()
    notes = []
    if not board.id.startswith(_MEASURED) or gpus > 16:
        notes.append("steps on several devices were measured on 2 to 16 V100 and A100 joined by NVLink")
    return (*notes, "data loading is not counted: a loader that is slower than the devices makes the step")


def _drawn(power_w: Interval, board: Device, busy: float) -> Interval:
    """A device draws little more than idle while it waits; the upper bound lets it draw all the while."""
    idle = min(board.idle_power_w, power_w.low)
    return Interval(idle + (power_w.median - idle) * busy, idle + (power_w.low - idle) * busy, power_w.high, "W")
