"""What one replica does with its requests, as far as switches change it, and the times that follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from perfpass.devices import Device
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.batch import StepTime
from perfpass.llm.costs import Parallelism, Quantization, cache_bytes
from perfpass.llm.memory import Beside, likely_sequences
from perfpass.llm.serving import Serving
from perfpass.predictors.serving.base import REQUEST_S, RUNTIMES, prompt_issued_s
from perfpass.predictors.serving.first_token import in_turn
from perfpass.predictors.serving.predictor import ServingPredictor
from perfpass.predictors.step_time.steps import Steps


@dataclass(frozen=True)
class Load:
    """A closed loop of equal requests on one attention-data rank.

    ``steps``: how long its steps take. Of a request: ``computed`` prompt tokens after ``cached`` ones that are found,
    ``output`` tokens, ``context`` in the cache on average while it decodes; ``busy_s`` of the GPU and ``fetch_s`` of
    other parts, its host among them, before its prefill. ``wanted`` requests, of which ``most`` find room. ``tokens``
    of a request in a decode step. ``apart``: prefill has GPUs of its own.
    """

    steps: StepTime
    computed: float
    cached: float
    output: float
    context: float
    wanted: float
    most: float
    tokens: float = 1.0
    busy_s: float = 0.0
    fetch_s: float = 0.0
    apart: bool = False

    def times(self) -> tuple[float, float]:
        """Seconds to the first token and for each after it.

        Decoding stands still while other requests prefill; a request waits for those ahead of it, as many as mean
        value analysis of a closed loop finds (`in_turn`), and for room in the cache.
        """
        requests = max(min(self.wanted, self.most), 1.0)
        step = self.steps.one(0.0, 0.0, 0.0, 0.0, requests, requests * self.context)
        new = self.computed
        attended = new * self.cached + new * (new + 1.0) / 2.0
        prompt = self.busy_s + self.steps.one(new, 1.0, attended, self.cached, 0.0, 0.0)
        stalls = 0.0 if self.apart else (requests - 1.0) * prompt / self.output
        token = step / self.tokens + stalls
        rest = self.output * token
        turn = float(in_turn(np.asarray(prompt), np.asarray(rest), np.asarray(requests)))
        queue = (max(self.wanted, 1.0) / requests - 1.0) * rest
        return REQUEST_S + self.fetch_s + (1.0 - 1.0 / requests) * step + queue + turn, token


@dataclass(frozen=True)
class Change:
    """What a switch makes of a load: ``beside`` on each GPU, ``said`` in a line and as ``facts`` by name.

    ``spread``: how far the times may be off for it, as a logarithm of 90 in 100; ``unseen``: what no record covers.
    """

    load: Load
    said: str
    beside: Beside
    spread: float = 0.0
    unseen: str = ""
    facts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Deployment:
    """A model as it is served on a device."""

    model: LanguageModel
    device: Device
    serving: Serving

    def steps(
        self,
        model: LanguageModel | None = None,
        split: Parallelism | None = None,
        quantization: Quantization | None = None,
    ) -> StepTime:
        """The steps of this deployment, or of another model, split or precision in its place."""
        s = self._known()
        serving = replace(s, parallelism=split or s.parallelism, quantization=quantization or s.quantization)
        return Steps(model or self.model, self.device, serving)

    def _known(self) -> Serving:
        """In a runtime whose steps are known."""
        s = self.serving
        return s if s.runtime in RUNTIMES else replace(s, runtime=RUNTIMES[0])

    def room(self, context: float, beside: Beside) -> float:
        """Requests of ``context`` tokens that find room on a rank with ``beside`` in its memory."""
        s = self.serving
        each = float(cache_bytes(self.model, s.parallelism, s.quantization, context))
        most = float(likely_sequences(self.model, self.device, s, context, context + s.output_length / 2))
        free = most * max(each, 1.0) - beside.weights_bytes
        return max(0.0, free / max(each + beside.sequence_bytes, 1.0))

    def load(self) -> Load:
        """Its load without any switch."""
        s = self.serving
        context = s.input_length + s.output_length / 2
        ranks = s.workers * s.parallelism.attention_data
        return Load(
            steps=self.steps(),
            computed=float(s.input_length),
            cached=0.0,
            output=float(s.output_length),
            context=context,
            wanted=max(s.concurrency / ranks, 1.0),
            most=self.room(context, Beside()),
            fetch_s=prompt_issued_s(self.model, self._known(), ServingPredictor.load().constants),
            apart=s.mode == "disagg",
        )


Switch = Callable[[Deployment, Load], Change]
