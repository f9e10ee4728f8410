"""Whether a deployment fits into its GPUs, and what would help where it does not."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from perfpass.decision import Change
from perfpass.devices import Device
from perfpass.devices.larger import nearest
from perfpass.errors import PerfPassError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.assumed import ranks_of
from perfpass.llm.costs import ELEMENT_BYTES, Parallelism, Quantization
from perfpass.llm.memory import served
from perfpass.llm.precision import quantization
from perfpass.llm.serving import MemoryFit, Serving, check_arithmetic, check_runtime, check_split
from perfpass.prediction import Interval, MemoryVerdict

_NARROWER = ("fp8", "int8", "nvfp4", "int4")  # the widest first
_MOST_RANKS = 64
_STEP_TOKENS = 256
_HOLDER = "usable on each GPU"


def judged(model: LanguageModel, device: Device, serving: Serving, memory: MemoryFit) -> MemoryVerdict:
    """The verdict on ``memory``, with what would make it fit without settings chosen by hand.

    One request has to fit; others wait. So where it is not refused, the figures are those of one.
    """
    # Imported here: most deployments fit.
    from perfpass.predictors.remedies import in_words

    answer, least = memory.answer, _of_one(memory)
    one = least is not None and answer != "no"
    return MemoryVerdict(
        fits=answer,
        needed_bytes=int(least.median) if one and least else memory.total_bytes,
        needed_high_bytes=int(least.high) if one and least else memory.total_bytes,
        available_bytes=memory.limit_bytes,
        remedies=() if answer == "yes" else tuple(in_words(changes(model, device, serving))),
        holder=_HOLDER,
        probability=memory.probability if one else None,
    )


def _of_one(memory: MemoryFit) -> Interval | None:
    """What one request needs, which the answer is about."""
    return memory.room.least if memory.room else memory.least


def changes(model: LanguageModel, device: Device, serving: Serving) -> Iterator[Change]:
    """All that would make one request fit by default, the cheapest first, each counted as the question itself was.

    ``options`` are what `perfpass.predict_llm` takes for it.
    """
    # Imported here: most deployments fit.
    from perfpass.predictors.remedies import device_change

    def held(on: Device = device, **changed: Any) -> MemoryFit | None:
        """With a change, where it fits by the rule of the verdict."""
        asked = replace(serving, **changed)
        try:
            check_runtime(asked.runtime, on)
            check_arithmetic(on, asked.quantization.gemm, asked.quantization.moe, runtime=asked.runtime)
            check_split(model, asked.parallelism.tensor, asked.parallelism.pipeline)
            found = served(model, on, asked)
        except PerfPassError:
            return None
        return found if found.answer == "yes" else None

    yield from _shorter(serving, held)
    for name, narrower in _narrower(model, device, serving.quantization, serving.runtime):
        if found := held(quantization=narrower):
            yield _change("quantization", f"--precision {name}", {"precision": name}, found)
            break
    for ranks, split in _wider(device, serving.parallelism):
        if found := held(parallelism=split):
            yield _change("split", f"--tp {ranks}", {"tp": ranks}, found)
            break
    for other, found in nearest(device, held):
        yield device_change(other, found.probability, _needed(found))


def _change(kind: str, text: str, options: Mapping[str, Any], found: MemoryFit) -> Change:
    return Change(kind, text, options, found.probability, _needed(found))


def _needed(found: MemoryFit) -> int:
    one = _of_one(found)
    return int(one.median) if one is not None else found.total_bytes


def _wider(device: Device, now: Parallelism) -> Iterator[tuple[int, Parallelism]]:
    """Tensor-parallel splits over more GPUs; none of what stands alone."""
    ranks = 2 * now.tensor
    while len(ranks_of(device)) > 1 and ranks * now.pipeline * now.attention_data <= _MOST_RANKS:
        yield ranks, Parallelism.of(ranks, now.pipeline, now.attention_data, now.expert)
        ranks *= 2


def _narrower(
    model: LanguageModel, device: Device, now: Quantization, runtime: str
) -> Iterator[tuple[str, Quantization]]:
    """Narrower precisions that the device computes in, the widest first, with the cache that asking for them brings."""
    for name in _NARROWER:
        try:
            found, _ = quantization(model, name, None, device, runtime)
        except PerfPassError:
            continue
        if ELEMENT_BYTES[found.moe] < ELEMENT_BYTES[now.moe]:
            yield name, replace(found, kv_cache=max(found.kv_cache, now.kv_cache, key=ELEMENT_BYTES.__getitem__))


def _shorter(serving: Serving, held: Callable[..., MemoryFit | None]) -> Iterator[Change]:
    """The longest requests that fit, prompt and answer in the proportion asked for."""
    asked = serving.input_length + serving.output_length
    lengths = range(_STEP_TOKENS, asked, _STEP_TOKENS)

    def at(tokens: int) -> dict[str, int]:
        answer = min(tokens - 1, max(1, round(tokens * serving.output_length / asked)))
        return {"input_length": tokens - answer, "output_length": answer}

    count = bisect.bisect_left(lengths, True, key=lambda tokens: held(**at(tokens)) is None)
    if count and (found := held(**at(lengths[count - 1]))):
        text = f"requests of at most {lengths[count - 1]:,} tokens, prompt and answer together (asked: {asked:,})"
        yield _change("load", text, at(lengths[count - 1]), found)
