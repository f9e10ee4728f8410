"""`perfpass.llm.step_time`: how long one step of an engine's batch takes, with an interval and what limits it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.llm import assumed
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.batch import EngineBatch
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import Parallelism, Quantization
from perfpass.llm.precision import quantization
from perfpass.llm.serving import Serving, check_gpu, check_runtime, check_split
from perfpass.llm.versions import check_version
from perfpass.prediction import COVERAGE, Interval, Support, SupportLevel
from perfpass.predictors.learned import width_words
from perfpass.predictors.serving.base import Sizes
from perfpass.predictors.serving.predictor import ServingPredictor
from perfpass.predictors.step_time.overheads import RUNTIMES
from perfpass.predictors.step_time.parts import PARTS
from perfpass.predictors.step_time.setup import kernel_boards
from perfpass.predictors.step_time.steps import Steps


@dataclass(frozen=True)
class StepPrediction:
    """Medians and 90 % bounds of N steps in seconds, [N] each.

    ``limits``: of each step, what takes most of it (`steps.LIMITS`). ``parts``: seconds [N] by part, "engine" the
    scheduler's and host's own. ``support`` says what stands behind. ``steps`` answers more batches of the same
    deployment in plain numbers, some microseconds each (`perfpass.llm.StepTime`).
    """

    seconds: np.ndarray
    low_s: np.ndarray
    high_s: np.ndarray
    limits: tuple[str, ...]
    parts: dict[str, np.ndarray]
    support: Support
    steps: Steps


def step_time(
    model: str | os.PathLike[str] | Mapping[str, Any] | LanguageModel,
    device: str | Device,
    batch: EngineBatch,
    *,
    runtime: str = assumed.RUNTIME,
    runtime_version: str = "",
    precision: str | Quantization | None = None,
    kv_precision: str | None = None,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: int = 1,
    eager: bool = False,
) -> StepPrediction:
    """How long steps of a served model take that run ``batch`` together: prompt chunks, decodes, or both.

    The deployment as for `perfpass.predict_llm`; with ``dp`` above 1 a batch is that of one attention-data rank.
    ``eager``: without CUDA graphs. Raises ArgumentError, DeviceError, and what reading a configuration raises.
    """
    read = model if isinstance(model, LanguageModel) else language_model(model)
    target = find_device(device) if not isinstance(device, Device) else device
    check_gpu(target)
    check_version(runtime_version)
    check_runtime(runtime, target)
    check_split(read, tp, pp)
    used, changed = quantization(read, precision, kv_precision, target, runtime)
    split = Parallelism.of(tp, pp, dp, ep)
    assumed.check_together(target, split.gpus)
    serving = Serving(1, 1, 1.0, runtime, runtime_version, parallelism=split, quantization=used)
    steps = Steps(read, target, serving, eager=eager)
    by_part = steps.parts(batch)
    seconds = by_part.sum(axis=1)
    bounds, wide = ServingPredictor.load().step_bounds(read, target, serving, _sizes(batch, dp, len(seconds)), seconds)
    first = Interval(float(seconds[0]), float(bounds.low[0]), float(bounds.high[0]), "s", COVERAGE)
    return StepPrediction(
        seconds=seconds,
        low_s=bounds.low,
        high_s=bounds.high,
        limits=steps.limits(batch),
        parts=dict(zip((*PARTS, "engine"), by_part.T, strict=True)),
        support=_support(target, runtime, steps, [*wide, *([changed] if changed else [])], first),
        steps=steps,
    )


def _sizes(batch: EngineBatch, data: int, rows: int) -> Sizes:
    """The closed loop whose tokens take such steps: as many requests, each with the mean of what they attend to."""
    requests = np.maximum(batch.prompts + batch.decodes, 1.0)
    prompts = np.asarray(batch.prompt_tokens) + np.asarray(batch.prompt_cached)
    tokens = np.maximum((prompts + batch.decode_context) / requests, 1.0)
    answers = np.full(rows, float(assumed.OUTPUT_LENGTH))
    return Sizes(np.broadcast_to(tokens, (rows,)), answers, np.broadcast_to(requests * data, (rows,)))


def _support(device: Device, runtime: str, steps: Steps, wide: list[str], first: Interval) -> Support:
    said = list(steps.reasons)
    if device.id not in kernel_boards():
        said.insert(0, f"no kernel of a serving engine on {device.name} to learn from")
    if runtime not in RUNTIMES:
        said.insert(0, f"no step of {runtime} to learn from: those of {RUNTIMES[0]}")
    found: SupportLevel = "near" if said else "in range"
    return Support(width_words.level_of(first, found), tuple(dict.fromkeys((*said, *wide))))
