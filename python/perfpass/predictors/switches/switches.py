"""Switches of an engine applied to a prediction: its times with them over those without, both by the engine's steps.

The learned figures stand for a plain engine. What a switch changes is counted in steps (`perfpass.llm.batch.StepTime`)
with and without it, and the ratio moves the learned figures: a switch that changes nothing changes no figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from perfpass.devices import Device
from perfpass.errors import ArgumentError
from perfpass.llm.adapters import Adapters
from perfpass.llm.answer_lengths import AnswerLengths
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.batch import StepTime
from perfpass.llm.memory import NOTHING, Beside, served
from perfpass.llm.serving import Serving
from perfpass.llm.speculation import Speculation
from perfpass.llm.vision import Images
from perfpass.prediction import Interval
from perfpass.predictors.serving.prediction import Brought, LlmPrediction, Switched, prediction_of
from perfpass.predictors.switches.adapting import adapt
from perfpass.predictors.switches.experts import imbalance
from perfpass.predictors.switches.images import look
from perfpass.predictors.switches.load import Deployment, Switch
from perfpass.predictors.switches.prefixes import share
from perfpass.predictors.switches.sharing import confine
from perfpass.predictors.switches.speculative import TokenSteps, speculate
from perfpass.predictors.switches.unequal import vary

_LEAST_SHARE, _MOST_GROUPS = 0.01, 4096


@dataclass(frozen=True)
class Switches:
    """What is switched on; what is left as it is changes nothing.

    ``gpu_share``: of every GPU's time and memory. ``answer_variation``: coefficient of variation of the answers'
    lengths. ``expert_imbalance``: tokens of the busiest expert group over the mean. ``images``: in every prompt, whose
    length does not count them. ``prefix_hit``: share of the prompt's tokens that are found in the cache; ``from_host``:
    share of these that are found in the host's memory. ``adapters``: low-rank adapters. ``speculation``: speculative
    decoding.
    """

    gpu_share: float = 1.0
    answer_variation: float = 0.0
    expert_imbalance: float = 1.0
    images: Images | None = None
    prefix_hit: float = 0.0
    from_host: float = 0.0
    adapters: Adapters | None = None
    speculation: Speculation | None = None

    def __post_init__(self) -> None:
        for name in ("prefix_hit", "from_host"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ArgumentError(f"{name} is a share from 0 to 1, got {value!r}")
        if not _LEAST_SHARE <= self.gpu_share <= 1.0:
            raise ArgumentError(f"gpu_share is {_LEAST_SHARE} to 1, got {self.gpu_share!r}")
        if not 1.0 <= self.expert_imbalance <= _MOST_GROUPS:
            raise ArgumentError(f"expert_imbalance is 1 to {_MOST_GROUPS:,}, got {self.expert_imbalance!r}")
        AnswerLengths(1.0, self.answer_variation)
        if self.from_host and not self.prefix_hit:
            raise ArgumentError("of no tokens that are found, none can be found on the host; give prefix_hit too")

    @property
    def prompt_tokens(self) -> int:
        """Tokens that are added to every prompt."""
        return self.images.tokens if self.images else 0

    def _on(self) -> Iterator[tuple[str, Switch]]:
        if self.expert_imbalance != 1.0:  # it stands for the model's own steps, which all others wrap
            yield "uneven experts", partial(imbalance, factor=self.expert_imbalance)
        if self.gpu_share != 1.0:
            yield "shared GPU", partial(confine, share=self.gpu_share)
        if self.answer_variation:
            yield "unequal answers", partial(vary, variation=self.answer_variation)
        if self.images is not None:
            yield "images", partial(look, images=self.images)
        if self.prefix_hit:
            yield "prefix caching", partial(share, hit=self.prefix_hit, from_host=self.from_host)
        if self.adapters is not None:
            yield "adapters", partial(adapt, adapters=self.adapters)
        if self.speculation is not None:
            yield "speculative decoding", partial(speculate, asked=self.speculation)

    def stepped(self, model: LanguageModel, device: Device, serving: Serving) -> tuple[StepTime, Beside, Device]:
        """The steps of a replica with the switches on, each of a token of every request; what its GPUs hold besides;
        and the device with the memory that is left to it.

        Raises ArgumentError for what is no matter of steps: prompts, answers, and prefill on workers of its own.
        """
        plain = Switches(gpu_share=self.gpu_share, expert_imbalance=self.expert_imbalance)
        if replace(plain, adapters=self.adapters, speculation=self.speculation) != self:
            raise ArgumentError(
                "steps have adapters, uneven experts, shares and drafts; state prompts and answers apart"
            )
        if serving.mode == "disagg":
            raise ArgumentError("what is switched on beside prefill workers is counted for a steady load alone")
        held = replace(device, memory_bytes=int(self.gpu_share * device.memory_bytes))
        deployment = Deployment(model, held, serving)
        load, beside = deployment.load(), NOTHING
        for _, switch in self._on():
            change = switch(deployment, load)
            load, beside = change.load, beside + change.beside
        return (load.steps if load.tokens == 1.0 else TokenSteps(load.steps, load.tokens)), beside, held

    def applied(self, found: LlmPrediction, model: LanguageModel, device: Device) -> LlmPrediction:
        """``found``, predicted without them, with the switches on; without energy and offline throughput.

        Raises ArgumentError for what does not go together.
        """
        load, beside = Deployment(model, device, found.serving).load(), NOTHING
        plain = before = load.times()
        held = replace(device, memory_bytes=int(self.gpu_share * device.memory_bytes))
        deployment = Deployment(model, held, found.serving)
        parts, spread, support = [], 0.0, found.support
        for name, switch in self._on():
            change = switch(deployment, load)
            beside += change.beside
            load = replace(change.load, most=deployment.room(change.load.context, beside))
            now = load.times()
            parts.append(
                Brought(name, change.said, now[0] / before[0], now[1] / before[1], int(change.beside.weights_bytes))
            )
            before, spread = now, math.hypot(spread, change.spread)
            if change.unseen:
                support = support.at_most("near", change.unseen)
        if not parts:
            return found
        times = zip((found.ttft_ms, found.tpot_ms), before, plain, strict=True)
        ttft, tpot = (_moved(value, now / was, spread) for value, now, was in times)
        medians = {name: getattr(found, name).median for name in ("ttft_ms", "tpot_ms", "output_tokens_per_s")}
        without = {**medians, "most_requests": float(found.memory.most_requests)}
        same = beside == NOTHING and held == device
        memory = found.memory if same else served(model, held, found.serving, beside)
        changed = prediction_of(
            model,
            held,
            found.serving,
            ttft,
            tpot,
            memory=memory,
            support=support,
            breakdown=found.breakdown,
            provenance=found.provenance,
            measured_as=found.model["measured_as"],
        )
        return replace(changed, switched=Switched(tuple(parts), without))


def _moved(value: Interval, ratio: float, spread: float) -> Interval:
    """``ratio`` times a time, with bounds that hold an error of ``spread`` (a logarithm) beside their own."""
    if not spread:
        return value.scaled(ratio, value.unit)
    low = math.hypot(math.log(value.median / value.low), spread)
    high = math.hypot(math.log(value.high / value.median), spread)
    median = value.median * ratio
    return Interval(median, median * math.exp(-low), median * math.exp(high), value.unit, value.coverage)
