"""Whether a deployment fits into its GPUs, and what would help where it does not."""

from __future__ import annotations

import math
from dataclasses import replace

from perfpass.decision import percent
from perfpass.devices import Device
from perfpass.devices.larger import nearest
from perfpass.errors import PerfPassError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.costs import ELEMENT_BYTES, PRECISIONS, Parallelism, Quantization
from perfpass.llm.memory import served
from perfpass.llm.serving import MemoryFit, Serving, check_arithmetic, check_runtime, check_split
from perfpass.prediction import MemoryVerdict
from perfpass.text import size

_NARROWER = ("fp8", "int8", "nvfp4", "int4")  # the widest first
_MOST_RANKS = 64
_HOLDER = "usable on each GPU"


def judged(model: LanguageModel, device: Device, serving: Serving, memory: MemoryFit) -> MemoryVerdict:
    """The verdict on ``memory``, with what would make it fit without settings chosen by hand.

    One request has to fit; others wait. So where it is not refused, the figures are those of one.
    """
    answer, least = memory.answer, memory.room.least if memory.room else memory.least
    one = least is not None and answer != "no"
    return MemoryVerdict(
        fits=answer,
        needed_bytes=int(least.median) if one and least else memory.total_bytes,
        needed_high_bytes=int(least.high) if one and least else memory.total_bytes,
        available_bytes=memory.limit_bytes,
        remedies=() if answer == "yes" else _remedies(model, device, serving, memory),
        holder=_HOLDER,
        probability=memory.probability if one else None,
    )


def _remedies(model: LanguageModel, device: Device, serving: Serving, memory: MemoryFit) -> tuple[str, ...]:
    # Imported here: most deployments fit.
    from perfpass.predictors.remedies import device_change, in_words

    def held(other: Device) -> MemoryFit | None:
        try:
            check_runtime(serving.runtime, other)
            check_arithmetic(other, serving.quantization.gemm, serving.quantization.moe)
            found = served(model, other, serving)
        except PerfPassError:
            return None
        return found if found.answer == "yes" else None

    found = (_more_gpus(model, device, serving), _narrower(model, device, serving), _shorter(serving, memory))
    others = [device_change(other, fit.probability, fit.total_bytes) for other, fit in nearest(device, held)]
    return (*(text for text in found if text), *in_words(others))


def _more_gpus(model: LanguageModel, device: Device, serving: Serving) -> str | None:
    """The next tensor-parallel split that fits; none of a slice, whose instances do not work together."""
    split = serving.parallelism
    if device.mig_profile is not None:
        return None
    ranks = split.tensor * 2
    while ranks * split.pipeline * split.attention_data <= _MOST_RANKS:
        try:
            check_split(model, ranks)
            wider = Parallelism.of(ranks, split.pipeline, split.attention_data, split.expert)
            found = served(model, device, replace(serving, parallelism=wider))
        except PerfPassError:
            return None
        if found.answer == "yes":
            return f"--tp {ranks} ({size(found.total_bytes)} on each GPU, {_chance(found)})"
        ranks *= 2
    return None


def _chance(found: MemoryFit) -> str:
    return f"P(fits) {percent(found.probability)}"


def _narrower(model: LanguageModel, device: Device, serving: Serving) -> str | None:
    """The widest narrower precision that fits and that the device computes in."""
    now = serving.quantization
    for name in _NARROWER:
        gemm, moe = PRECISIONS[name]
        if ELEMENT_BYTES[moe] >= ELEMENT_BYTES[now.moe]:
            continue
        try:
            check_arithmetic(device, gemm, moe)
            found = served(model, device, replace(serving, quantization=Quantization(gemm, moe, now.kv_cache)))
        except PerfPassError:
            continue
        if found.answer == "yes":
            return f"--precision {name} ({size(found.total_bytes)}, {_chance(found)})"
    return None


def _shorter(serving: Serving, memory: MemoryFit) -> str | None:
    """The tokens of a request whose cache fits beside the weights, where a shorter one does."""
    asked = serving.input_length + serving.output_length
    free = memory.usable_bytes - memory.total_bytes + memory.cache_bytes
    tokens = math.floor(asked * free / memory.cache_bytes / 256) * 256 if memory.cache_bytes else 0
    if 0 < tokens < asked:
        return f"requests of at most {tokens:,} tokens, prompt and answer together (asked: {asked:,})"
    return None
