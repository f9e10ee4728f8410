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
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.memory import NOTHING, served
from perfpass.llm.speculation import Speculation
from perfpass.llm.vision import Images
from perfpass.prediction import Interval
from perfpass.predictors.serving.prediction import Brought, LlmPrediction, Switched, prediction_of
from perfpass.predictors.switches.adapting import adapt
from perfpass.predictors.switches.experts import imbalance
from perfpass.predictors.switches.images import look
from perfpass.predictors.switches.load import Deployment, Switch
from perfpass.predictors.switches.prefixes import share
from perfpass.predictors.switches.speculative import speculate
from perfpass.predictors.switches.unequal import vary


@dataclass(frozen=True)
class Switches:
    """What is switched on; what is left as it is changes nothing.

    ``answer_variation``: coefficient of variation of the answers' lengths. ``expert_imbalance``: tokens of the busiest
    expert group over the mean. ``images``: in every prompt, whose length does not count them. ``prefix_hit``: share of
    the prompt's tokens that are found in the cache; ``from_host``: share of these that are found in the host's memory.
    ``adapters``: low-rank adapters. ``speculation``: speculative decoding.
    """

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
        if self.from_host and not self.prefix_hit:
            raise ArgumentError("of no tokens that are found, none can be found on the host; give prefix_hit too")

    @property
    def prompt_tokens(self) -> int:
        """Tokens that are added to every prompt."""
        return self.images.tokens if self.images else 0

    def _on(self) -> Iterator[tuple[str, Switch]]:
        if self.answer_variation:
            yield "unequal answers", partial(vary, variation=self.answer_variation)
        if self.expert_imbalance != 1.0:  # before all that wraps the steps
            yield "uneven experts", partial(imbalance, factor=self.expert_imbalance)
        if self.images is not None:
            yield "images", partial(look, images=self.images)
        if self.prefix_hit:
            yield "prefix caching", partial(share, hit=self.prefix_hit, from_host=self.from_host)
        if self.adapters is not None:
            yield "adapters", partial(adapt, adapters=self.adapters)
        if self.speculation is not None:
            yield "speculative decoding", partial(speculate, asked=self.speculation)

    def applied(self, found: LlmPrediction, model: LanguageModel, device: Device) -> LlmPrediction:
        """``found``, predicted without them, with the switches on; without energy and offline throughput.

        Raises ArgumentError for what does not go together.
        """
        deployment = Deployment(model, device, found.serving)
        load, beside = deployment.load(), NOTHING
        plain = before = load.times()
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
        memory = found.memory if beside == NOTHING else served(model, device, found.serving, beside)
        changed = prediction_of(
            model,
            device,
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
