"""What a training run costs in a layout: memory of every stage, time of a step, power; each with its interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from perfpass.decision import CONFIDENCE
from perfpass.errors import ArgumentError
from perfpass.llm.in_use import CONTEXT_BYTES, CONTEXT_SHARES
from perfpass.llm.training import TrainingMemory, training_memory
from perfpass.prediction import Interval, MemoryFigures
from perfpass.predictors.llm_training import constants
from perfpass.predictors.llm_training.in_use import PACKING, UNEQUAL_MORE
from perfpass.predictors.llm_training.reach import bytes_of_a_flop
from perfpass.predictors.llm_training.step import HOST_BYTES_S, StepTime, timed, work
from perfpass.predictors.memory.allowance import OTHER_SHARE, by_pytorchs_allocator
from perfpass.predictors.roofline import fed_flops, issue_share, sustained_flops
from perfpass.predictors.training_step.power import StepPower
from perfpass.predictors.training_step.predictor import StepPredictor
from perfpass.text import unknown

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.llm.architecture import LanguageModel
    from perfpass.llm.recipe import Layout, Recipe

_WAITS = 0.5  # share of a step that is its host's, from which on that is said


@dataclass(frozen=True)
class Run:
    """One layout: memory of the fullest device as counted and as the device shows it, seconds of a step by cause.

    ``kept_bytes`` of the upper bound are those that the allocator keeps of other lengths, where sequences may differ.
    ``mfu``: the model's FLOPs, none computed anew, over the device's 16-bit peak. ``why``: what the time's interval is
    wide of.
    """

    memory: TrainingMemory
    in_use: Interval
    fits_probability: float
    parts_s: StepTime
    step_s: Interval
    mfu: float
    power_w: Interval
    why: tuple[str, ...]
    kept_bytes: float = 0.0

    @property
    def fits(self) -> bool:
        """Whether it fits with nine chances in ten or more."""
        return self.fits_probability >= CONFIDENCE


def run(
    model: LanguageModel,
    device: Device,
    layout: Layout,
    recipe: Recipe,
    *,
    framework: str = "megatron",
    product_precision: str = "",
    fabric: float = 0.0,
    host_bytes_s: float = HOST_BYTES_S,
    unequal: bool = False,
) -> Run:
    """The prediction; ``host_bytes_s``: of a device's share of the host's memory, where an optimizer runs there.

    ``unequal``: sequences may differ in length, so that the allocator may keep more than a step needs (which it gives
    back before it fails: that fits no less).

    Raises ArgumentError for what cannot be laid out, DeviceError for a precision that is lacking.
    """
    if framework not in constants.FRAMEWORKS:
        raise ArgumentError(unknown("framework", framework, constants.FRAMEWORKS))
    if not device.is_gpu:
        raise ArgumentError(f"{device.id}: training of language models was measured on GPUs; choose one")
    memory = training_memory(model, layout, recipe)
    counted = memory.peak_bytes + constants.WORKSPACE_BYTES
    low, middle, high = (float(b) for b in constants.MEMORY[framework].of(counted))
    if layout.devices == 1:  # who was measured had communicators, and buckets for them
        low = min(low, counted)
    # A figure of the device is one with the context already; those of the allocator lack it.
    beside = (0.0, 0.0, 0.0) if framework == "deepspeed" else (CONTEXT_SHARES[0], 1.0, CONTEXT_SHARES[1])
    low, middle, high = (m + s * CONTEXT_BYTES for m, s in zip((low, middle, high), beside, strict=True))
    if not by_pytorchs_allocator(device):
        stage = memory.stages[memory.fullest]
        planned = stage.activations + stage.working
        low, high = (end + (share - 1.0) * planned for end, share in zip((low, high), OTHER_SHARE[::2], strict=True))
    found = work(
        model,
        device,
        layout,
        recipe,
        product_precision=product_precision,
        fabric=fabric,
        host_bytes_s=host_bytes_s,
        flash_2=framework in constants.FLASH_2,
    )
    parts = timed(found, constants.STEP)
    factor = constants.FRAMEWORKS[framework]
    parts = StepTime(**{f.name: float(getattr(parts, f.name)) * factor for f in fields(StepTime)})
    strange = {
        "framework": framework == "other",
        "host": recipe.offload != "none" or recipe.recompute == "offloaded",
        "schedule": layout.schedule != "1f1b" and layout.pipeline > 1,
    }
    lacks = {
        "layout": 1.0,
        "model": 1.0,
        "experts": float(model.is_mixture),
        "device": float(device.id not in constants.MEASURED),
        "framework": float(any(strange.values())) + float(framework in constants.OF_ONE_LABORATORY),
    }
    foreign = device.vendor not in constants.VENDORS
    seconds = float(parts.seconds)
    waiting = float(issue_share(found.issued / parts.working * factor) * (parts.working + parts.issuing) / seconds)
    more = constants.VENDOR_WIDTH * foreign, constants.HOST_WIDTH * waiting
    below, above = (math.hypot(float(b[0]), *more) for b in constants.SPREAD.bounds(lacks))
    step = Interval(seconds, seconds * math.exp(-below), seconds * math.exp(above), "s")
    ideal = found.relative_peak * 312e12 * seconds
    # As steps of other networks use a board: of the rate of 16 bits that its watts feed, and of its bandwidth.
    rate = "bf16" if "bf16" in device.peak_flops else "fp16"
    fed = min(sustained_flops(device, rate), fed_flops(device, rate))
    products = float((1 + found.anew / found.passes) * found.model_flops)
    moved = float(parts.elementwise + parts.update) * constants.STEP.memory / factor
    moved += products * bytes_of_a_flop(model, layout, recipe) / device.memory_bandwidth_bytes_s
    uses = (np.array([min(used / seconds, 1.0)]) for used in (products / found.speed_up / fed, moved))
    drawn = StepPower.from_dict(StepPredictor.load().manifest["step_power"]).predict(device, *uses)
    needed = Interval(middle, low, high, "byte")
    kept = 0.0
    if unequal and framework not in PACKING:
        stage = memory.stages[memory.fullest]
        kept = min(UNEQUAL_MORE * (stage.activations + stage.working), max(device.usable_bytes - high, 0.0))
    return Run(
        memory=memory,
        in_use=replace(needed, high=high + kept),
        fits_probability=MemoryFigures(needed).probability_fits(device.usable_bytes),
        parts_s=parts,
        step_s=step,
        mfu=float(found.model_flops / ideal),
        power_w=Interval(float(drawn.median[0]), float(drawn.low[0]), float(drawn.high[0]), "W"),
        why=(
            *(["vendor"] if foreign else ["device"] if lacks["device"] else []),
            *(name for name, holds in strange.items() if holds),
            *(["issue"] if waiting > _WAITS else []),
        ),
        kept_bytes=kept,
    )
