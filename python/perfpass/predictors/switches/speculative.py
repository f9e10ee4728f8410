"""The steps of an engine that speculates: drafting, then one pass over the drafts of every request."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import hypot

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.batch import EngineBatch, StepTime
from perfpass.llm.costs import Parallelism, Quantization, weight_bytes
from perfpass.llm.memory import Beside, sequence_bytes
from perfpass.llm.precision import loaded
from perfpass.llm.serving import check_split, usable
from perfpass.llm.speculation import Speculation
from perfpass.predictors.switches.load import Change, Deployment, Load

# Logarithms that 90 in 100 speed-ups stay within where a method or a model is held out (data/results/accuracy/
# speculation.md), and by which those of single tasks differ from that of all.
_SPREAD, _TASKS_SPREAD = 0.21, 0.23
# Layers and heads that are trained for a finished model are published in 16 bits.
_HEADS_IN_16_BITS = ("eagle", "eagle-2", "eagle-3", "samd", "medusa")


class SpeculativeSteps:
    """A `StepTime` whose decode steps yield ``tokens`` of each request.

    The model's pass reads the cache of each request once for all of its drafts, so it is a step of more decodes with
    the same context. What drafts reads the prompt as well.
    """

    def __init__(self, target: StepTime, drafter: StepTime | None, speculation: Speculation) -> None:
        """``drafter``: the steps of `Speculation.drafter`; None where text is searched or nothing is drafted."""
        self._target, self._drafter, self._asked = target, drafter, speculation
        self.tokens = speculation.tokens

    def seconds(self, batch: EngineBatch) -> np.ndarray:
        """Seconds [N] of N steps."""
        decodes = np.asarray(batch.decodes, dtype=np.float64)
        verified = replace(batch, decodes=decodes * (self._asked.verified + 1))
        found = self._target.seconds(verified)
        if self._drafter is None:
            return found
        drafts = EngineBatch(decodes=decodes * self._asked.width, decode_context=batch.decode_context)
        prompts = replace(batch, decodes=0.0, decode_context=0.0)
        one = np.where(decodes > 0, self._drafter.seconds(drafts), 0.0)
        read = np.where(np.asarray(batch.prompt_tokens) > 0, self._drafter.seconds(prompts), 0.0)
        return np.asarray(found + self._asked.passes * one + read)

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
        prompt, asked = (prompt_tokens, prompts, prompt_attended, prompt_cached), self._asked
        found = self._target.one(*prompt, decodes * (asked.verified + 1), decode_context)
        if self._drafter is None:
            return found
        if decodes > 0:
            found += asked.passes * self._drafter.one(0.0, 0.0, 0.0, 0.0, decodes * asked.width, decode_context)
        return found + (self._drafter.one(*prompt, 0.0, 0.0) if prompt_tokens > 0 else 0.0)

    def decode_run(self, decodes: float, decode_context: float, steps: float) -> float:
        """Seconds until each of ``decodes`` requests has ``steps`` more tokens: the middle of the run counts."""
        middle = decode_context + decodes * (steps - 1.0) / 2.0
        return steps / self.tokens * self.one(0.0, 0.0, 0.0, 0.0, decodes, middle)


@dataclass(frozen=True)
class TokenSteps:
    """A `StepTime` whose decode steps yield one token of each request, of ``steps`` that yield ``tokens``: a token's
    share of a decode step, on average. Prompts take their whole time.
    """

    steps: StepTime
    tokens: float

    def seconds(self, batch: EngineBatch) -> np.ndarray:
        """Seconds [N] of N steps."""
        decodes = EngineBatch(decodes=batch.decodes, decode_context=batch.decode_context)
        shared = np.where(np.asarray(batch.decodes) > 0, self.steps.seconds(decodes), 0.0)
        return np.asarray(self.steps.seconds(batch) - (1.0 - 1.0 / self.tokens) * shared)

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
        prompt = prompt_tokens, prompts, prompt_attended, prompt_cached
        whole = self.steps.one(*prompt, decodes, decode_context)
        if not decodes:
            return whole
        shared = self.steps.one(0.0, 0.0, 0.0, 0.0, decodes, decode_context) if prompt_tokens else whole
        return whole - (1.0 - 1.0 / self.tokens) * shared

    def decode_run(self, decodes: float, decode_context: float, steps: float) -> float:
        """Seconds of ``steps`` decode steps in a row."""
        return self.steps.decode_run(decodes, decode_context, steps)


def speculate(deployment: Deployment, load: Load, asked: Speculation) -> Change:
    """Decode steps that draft and verify. Raises ArgumentError for a draft model of another vocabulary, and with
    prefill workers.
    """
    model, serving = deployment.model, deployment.serving
    if serving.mode == "disagg":
        raise ArgumentError("speculation beside prefill workers is not modelled; leave out one of them")
    drafter = asked.drafter(model)
    split, quantization = _deployed(deployment, asked, drafter)
    steps = SpeculativeSteps(load.steps, deployment.steps(drafter, split, quantization) if drafter else None, asked)
    length = serving.input_length + serving.output_length
    own = serving.parallelism, serving.quantization
    # The drafts of a step are in the cache until it is known which are kept.
    each = sequence_bytes(model, *own, length + asked.verified) - sequence_bytes(model, *own, length)
    weights = 0.0
    if drafter and asked.own_weights:
        weights = weight_bytes(drafter, split, quantization, tables=None if asked.own_tables else 0)
        each += sequence_bytes(drafter, split, quantization, length)
    spread = hypot(_SPREAD, _TASKS_SPREAD if asked.assumed else 0.0) if asked.drafted else 0.0
    unseen = "speculative decoding was measured without a server, one request at a time (Spec-Bench)"
    if asked.assumed:
        unseen += "; its acceptance is that of other models and tasks"
    return Change(
        replace(load, steps=steps, tokens=asked.tokens),
        asked.describe(),
        Beside(weights, each),
        spread,
        unseen if asked.drafted else "",
        {"draft_tokens": asked.drafted, "acceptance": asked.acceptance, "tokens_per_step": asked.tokens},
    )


def _deployed(
    deployment: Deployment, asked: Speculation, drafter: LanguageModel | None
) -> tuple[Parallelism, Quantization]:
    """Split and precision of what drafts: those of the model, but a draft model and heads keep their own precision,
    and a draft model whose heads do not divide runs on one GPU.
    """
    serving = deployment.serving
    split, used = replace(serving.parallelism, pipeline=1), serving.quantization
    if asked.draft is not None:
        try:
            check_split(asked.draft, split.tensor)
            split = Parallelism.of(split.tensor)
        except ArgumentError:
            split = Parallelism()
    if drafter is not None and asked.draft is not None:
        gemm, moe, _ = loaded(drafter, None, deployment.device, serving.runtime)
        used = Quantization(gemm, moe, used.kv_cache)
    elif drafter is not None and asked.method in _HEADS_IN_16_BITS:
        wide = usable(deployment.device, used.activations)
        used = Quantization(wide, wide, used.kv_cache)
    return split, used
