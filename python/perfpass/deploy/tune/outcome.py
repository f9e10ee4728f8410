"""What a closed loop of requests takes under settings of an engine, from the loads of one deployment.

Requests beyond those that run at once wait for one to be done. Steps of fewer tokens than a prompt read the weights
again for every chunk and keep tokens of others waiting for a shorter time: how much is the steps' own difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from perfpass.deploy.tune.settings import Settings
from perfpass.devices import Device
from perfpass.llm import EngineBatch, LanguageModel, Serving, StepTime
from perfpass.llm.memory import CHUNK_TOKENS, ServingMemory, plan
from perfpass.prediction import Interval
from perfpass.predictors.estimate import Bounds
from perfpass.predictors.serving import loads
from perfpass.predictors.serving.base import Sizes
from perfpass.predictors.step_time import steps

_MS = 1e3


@dataclass(frozen=True)
class Outcome:
    """``longest_gap_ms``: between two tokens, while a full chunk of another's prompt is in the step (median).
    ``running``: requests at once over the deployment, of ``room`` that memory has. ``problem``: why nothing is said.
    """

    ttft_ms: Interval
    tpot_ms: Interval
    output_tokens_per_s: Interval
    longest_gap_ms: float
    running: int
    room: int
    memory: ServingMemory
    problem: str

    @property
    def fits(self) -> bool:
        """Whether at least one request runs, and something can be said."""
        return not self.problem


@dataclass(frozen=True)
class Asked:
    """A model on a device under a load: ``serving``'s lengths, requests in flight, precision and runtime."""

    model: LanguageModel
    device: Device
    serving: Serving

    @property
    def context(self) -> int:
        """Tokens of a whole request."""
        return self.serving.input_length + self.serving.output_length

    def of(self, one: Settings) -> Serving:
        """The deployment of settings."""
        q = replace(self.serving.quantization, kv_cache=one.kv)
        return replace(self.serving, parallelism=one.split, workers=one.workers, quantization=q)

    def memory(self, one: Settings) -> ServingMemory:
        """The memory of each GPU under settings."""
        q = replace(self.serving.quantization, kv_cache=one.kv)
        share, tokens = one.memory_share, one.batched_tokens
        return plan(self.model, self.device, one.split, q, context=self.context, chunk_tokens=tokens, utilization=share)


def outcomes(asked: Asked, of: list[Settings]) -> list[Outcome]:
    """Outcomes of settings that differ in ``sequences``, ``batched_tokens`` and ``memory_share`` alone."""
    serving, memories = asked.of(of[0]), [asked.memory(one) for one in of]
    room = [max(memory.most_sequences, 0) * one.ranks for memory, one in zip(memories, of, strict=True)]
    wanted = asked.serving.concurrency
    held = [max(1.0, min(wanted, one.sequences * one.ranks, most)) for one, most in zip(of, room, strict=True)]
    rows = np.ones(len(of))
    sizes = Sizes(rows * serving.input_length, rows * serving.output_length, np.array(held))
    found = loads.predict_loads(asked.model, asked.device, serving, sizes)
    times = steps.Steps(asked.model, asked.device, serving)
    out = []
    for i, (one, memory) in enumerate(zip(of, memories, strict=True)):
        chunks = _Chunks(times, serving, held[i] / one.ranks)
        slower = chunks.prompt_s(one.batched_tokens) - chunks.prompt_s(CHUNK_TOKENS)
        tpot = _longer(_at(found.tpot_ms, i), _MS * slower * held[i] / one.ranks / serving.output_length)
        first = _longer(_at(found.ttft_ms, i), _MS * slower)
        rest = serving.output_length - 1
        request = _sum(first, tpot, rest)
        rounds = wanted / held[i] - 1
        first = _sum(first, request, rounds)
        rate = request.inverse(_MS * held[i] * serving.output_length, "tokens/s")
        why = str(found.problem[i]) or ("" if room[i] else "no request fits with these settings")
        gap = _MS * chunks.step_s(one.batched_tokens)
        out.append(Outcome(first, tpot, rate, gap, math.floor(held[i]), room[i], memory, why))
    return out


@dataclass(frozen=True)
class _Chunks:
    """Prompts in chunks beside ``others`` decodes of a rank."""

    times: StepTime
    serving: Serving
    others: float

    def prompt_s(self, tokens: int) -> float:
        """Seconds that the chunks of one prompt add to the steps that they are in."""
        prompt = self.serving.input_length
        past = np.arange(0, prompt, tokens, dtype=np.float64)
        new = np.minimum(tokens, prompt - past)
        return float(np.sum(self._with(new, past) - self._with(np.zeros(1), np.zeros(1))))

    def step_s(self, tokens: int) -> float:
        """Seconds of a step whose every token that decodes leave is of prompts."""
        new = np.array([max(tokens - self.others, 1.0)])
        return float(self._with(new, np.zeros(1))[0])

    def _with(self, new: np.ndarray, past: np.ndarray) -> np.ndarray:
        decodes = max(self.others - 1, 0.0)
        context = self.serving.input_length + self.serving.output_length / 2
        whole = np.minimum(new, self.serving.input_length)  # a step may hold several prompts, whole ones
        prompts = np.where(new > 0, np.ceil(new / self.serving.input_length), 0.0)
        attended = new * past + new * (whole + 1) / 2
        return self.times.seconds(EngineBatch(new, prompts, attended, past, decodes, decodes * context))


def _at(bounds: Bounds, row: int) -> Interval:
    median, low, high = (float(getattr(bounds, name)[row]) for name in ("median", "low", "high"))
    return Interval(median, min(low, median), max(high, median), "ms")


def _longer(found: Interval, more_ms: float) -> Interval:
    """An interval whose median takes so much longer (or shorter), as wide as before."""
    factor = max((found.median + more_ms) / found.median, 0.05)
    return found.scaled(factor, "ms")


def _sum(one: Interval, other: Interval, times: float) -> Interval:
    """``one`` and ``times`` the ``other``: errors of one deployment go together."""
    median, low, high = (getattr(one, n) + times * getattr(other, n) for n in ("median", "low", "high"))
    return Interval(median, low, high, "ms")
