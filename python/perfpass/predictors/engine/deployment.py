"""A served model as replicas that the events run: their steps, the tokens of their caches, the link between pools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from perfpass.devices import Device
from perfpass.errors import ArgumentError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.batch import EngineBatch, StepTime
from perfpass.llm.costs import Parallelism, Quantization
from perfpass.llm.memory import NOTHING, Beside, plan, sequence_bytes
from perfpass.llm.serving import Serving
from perfpass.predictors.engine.events import Pool, Ran, run
from perfpass.predictors.engine.requests import Requests
from perfpass.predictors.engine.settings import EngineSettings
from perfpass.predictors.kernels.network import CARD_BYTES_S
from perfpass.predictors.serving.base import REQUEST_S, prompt_issued_s
from perfpass.predictors.serving.first_token import prefix
from perfpass.predictors.serving.prediction import Transformation
from perfpass.predictors.serving.predictor import ServingPredictor
from perfpass.predictors.step_time.steps import Steps


@dataclass(frozen=True)
class Scaled:
    """A `StepTime` whose steps all take ``factor`` times as long."""

    steps: StepTime
    factor: float

    def seconds(self, batch: EngineBatch) -> np.ndarray:
        """Seconds [N] of N steps."""
        return self.factor * self.steps.seconds(batch)

    def one(
        self,
        prompt_tokens: float,
        prompts: float,
        prompt_attended: float,
        prompt_cached: float,
        decodes: float,
        decode_context: float,
    ) -> float:
        """Seconds of one step."""
        batch = (prompt_tokens, prompts, prompt_attended, prompt_cached, decodes, decode_context)
        return self.factor * self.steps.one(*batch)

    def decode_run(self, decodes: float, decode_context: float, steps: float) -> float:
        """Seconds of decode steps in a row."""
        return self.factor * self.steps.decode_run(decodes, decode_context, steps)


@dataclass(frozen=True)
class Deployment:
    """Replicas of a served model as the events take them; ``prefill`` where it has replicas of its own.

    Ranks that attend to requests of their own (data-parallel attention) are replicas here: each has a queue and a
    cache. ``issued_s``: what the host takes to issue a prompt, beside others' (`serving.base.prompt_issued_s`).
    """

    pool: Pool
    prefill: Pool | None = None
    transfer_s: Callable[[int], float] | None = None
    issued_s: float = 0.0

    @classmethod
    def of(
        cls,
        model: LanguageModel,
        device: Device,
        serving: Serving,
        settings: EngineSettings,
        switches: Transformation | None = None,
    ) -> Deployment:
        """The pools of ``serving``. Raises ArgumentError where weights leave no room for a cache."""
        length = serving.input_length + serving.output_length
        constants = ServingPredictor.load().constants
        issued_s = prompt_issued_s(model, serving, constants)
        steps: StepTime = Steps(model, device, serving)
        beside, held = NOTHING, device
        if switches:
            steps, beside, held = switches.stepped(model, device, serving)
        room = cache_tokens(model, held, serving.parallelism, serving.quantization, length, beside)
        decoding = replace(settings, max_sequences=serving.decode_batch or settings.max_sequences)
        pool = Pool(steps, decoding, room, serving.workers * serving.parallelism.attention_data)
        if serving.mode != "disagg" or serving.prefill is None:
            return cls(pool, issued_s=issued_s)
        split, quantization = serving.prefill, serving.quantization
        apart = Pool(
            Steps(model, device, replace(serving, parallelism=split)),
            settings,
            cache_tokens(model, device, split, quantization, length),
            serving.prefill_workers * split.attention_data,
        )
        fixed = constants[f"{prefix(True)}handover_s.{serving.runtime}"]

        def transfer_s(tokens: int) -> float:
            return fixed + sequence_bytes(model, split, quantization, tokens) / CARD_BYTES_S

        return cls(pool, apart, transfer_s, issued_s)

    def run(
        self,
        requests: Requests,
        *,
        factor: float = 1.0,
        router: str,
        prefix_hit: float | None,
        schedule: tuple[tuple[float, int], ...] = (),
    ) -> Ran:
        """All requests, with every step, and what its host issues, ``factor`` times as long; the others as of
        `events.run`.
        """

        def scaled(pool: Pool) -> Pool:
            return replace(pool, steps=Scaled(pool.steps, factor)) if factor != 1.0 else pool

        return run(
            requests,
            scaled(self.pool),
            prefill=scaled(self.prefill) if self.prefill else None,
            transfer_s=self.transfer_s,
            router=router,
            prefix_hit=prefix_hit,
            before_s=REQUEST_S + factor * self.issued_s,
            schedule=schedule,
        )


def cache_tokens(
    model: LanguageModel,
    device: Device,
    split: Parallelism,
    quantization: Quantization,
    length: int,
    beside: Beside = NOTHING,
) -> int:
    """Tokens that the cache of one attention-data rank holds, in requests of ``length``: what its plan leaves with
    ``beside``.

    Raises ArgumentError where that is less than one request.
    """
    found = plan(model, device, split, quantization, context=length, beside=beside)
    free = found.usable_bytes - found.weights_bytes - found.workspace_bytes - found.runtime_bytes
    if found.most_sequences < 1:
        free = found.whole_bytes - found.least_bytes
    tokens = free / max(found.cache_per_sequence_bytes, 1.0) * length
    if tokens < length:
        raise ArgumentError(
            f"{model.name} leaves no room for the cache of a request of {length:,} tokens on {split.gpus} x "
            f"{device.name}; take more GPUs (--tp) or a narrower precision"
        )
    return int(min(tokens, 1e12))
