"""What a steady rate of requests means for one engine, in closed form: decodes at once, time per token, first tokens.

Requests arrive as a Poisson process of rate r. A decode step of n requests takes s(n); a prompt adds e to the step that
it runs in. Steps of a mean length t = s / (1 - r e) follow, and n = r (answer - 1) t by Little's law: a fixed point.

First tokens. What arrives during a step runs with the next one (gated service), so the number of prompts of a step is
a Markov chain: Poisson, with a mean of r times the length of the step before, which follows from its own number. A
request meets a step in proportion to its length, waits for the rest of it, uniform, then for the step that it shares
with those that came during the same one. Where the engine is empty, with probability exp(-requests in it) as if nobody
waited (M/G/infinity), it begins at once.

An engine of one place is an M/G/1 queue: its mean wait is Pollaczek's and Khinchine's, r E[S^2] / (2 (1 - r E[S])); the
tail is taken exponential beyond the probability of a wait, which is exact for exponential times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from perfpass.devices import Device
from perfpass.errors import ArgumentError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.batch import EngineBatch, StepTime
from perfpass.llm.configuration import language_model
from perfpass.llm.serving import Serving
from perfpass.predictors.engine.deployment import Deployment
from perfpass.predictors.engine.settings import EngineSettings, settings_of
from perfpass.predictors.serving.base import REQUEST_S

_TURNS = 60
_RATES = 1e-4, 1e5  # requests a second between which rates are sought
_TRIED = 48  # sizes of a batch between which the balance is sought
_MOST_PROMPTS = 400  # of one step, in the chain


@dataclass(frozen=True)
class Expected:
    """Seconds to the first token (mean, and of 99 requests in 100) and per token after it; ``batch``: decodes at once;
    ``busy``: share of an engine's time.
    """

    ttft_mean_s: float
    ttft_p99_s: float
    tpot_s: float
    batch: float
    busy: float


def steady(
    steps: StepTime,
    settings: EngineSettings,
    cache_tokens: float,
    rate_per_s: float,
    prompt: float,
    output: float,
    *,
    output_cv: float = 0.0,
    before_s: float = 0.0,
) -> Expected | None:
    """One engine at ``rate_per_s``; None where it cannot keep up: too much work, too little cache, too few places.

    ``output_cv``: of the answers' lengths (it counts where only one request runs at a time).
    """
    if settings.max_sequences == 1:
        return _one_place(steps, rate_per_s, prompt, output, output_cv, before_s)
    context = prompt + output / 2
    most = min(settings.max_sequences, cache_tokens / (prompt + output))
    attended = prompt * (prompt + 1) / 2
    alone = steps.one(prompt, 1.0, attended, 0.0, 0.0, 0.0)

    def step(batch: float) -> float:
        return steps.one(0.0, 0.0, 0.0, 0.0, batch, batch * context) if output > 1 else 0.0

    def added(batch: float) -> float:
        if not settings.mixed or output <= 1:
            return alone
        return max(steps.one(prompt, 1.0, attended, 0.0, batch, batch * context) - step(batch), 0.0)

    def mean_step(batch: float) -> float:
        left = 1 - rate_per_s * added(batch)
        return step(batch) / left if left > 0 else math.inf

    def wanted(batch: float) -> float:
        return rate_per_s * (output - 1) * mean_step(batch)

    if output <= 1:
        return _prompts_alone(alone, rate_per_s, before_s)
    # Of several balances the emptiest engine's is the one that a quiet start leads to.
    tried = np.geomspace(min(1e-3, most), most, _TRIED).tolist()
    high = next((batch for batch in tried if wanted(batch) <= batch), None)
    if high is None:
        return None
    low = max((batch for batch in tried if batch < high), default=0.0)
    for _ in range(_TURNS):
        middle = (low + high) / 2
        low, high = (middle, high) if wanted(middle) > middle else (low, middle)
    batch = max(high, 1.0)  # what decodes at all is one request at least
    s, t = step(batch), mean_step(high)
    if rate_per_s * t * prompt > settings.max_batched_tokens:
        return None
    beside = batch if settings.mixed else 0.0
    k = np.arange(_prompts(rate_per_s * t) + 1)
    together = EngineBatch(k * prompt, 1.0 * k, k * attended, 0.0, beside, beside * context)
    lengths = np.concatenate([[s], steps.seconds(together)[1:]])
    mean, p99 = _gated(lengths, rate_per_s, max(math.ceil(prompt / settings.max_batched_tokens) - 1, 0) * s)
    inside = rate_per_s * (mean + (output - 1) * t)
    empty = math.exp(-inside)
    return Expected(
        before_s + (1 - empty) * mean + empty * alone,
        before_s + (p99 if empty < 0.99 else max(alone, p99 * (1 - empty))),
        max(t, s),
        high,
        1 - empty,
    )


def _prompts(mean: float) -> int:
    """The most prompts of a step that are worth counting, where it has ``mean`` of them."""
    return int(min(_MOST_PROMPTS, 12 + 2 * mean + 10 * math.sqrt(mean + 1)))


def _gated(steps_s: np.ndarray, rate: float, more_s: float) -> tuple[float, float]:
    """Mean and 99th percentile of first tokens in an engine that is never empty.

    ``steps_s`` [K]: of a step with 0, 1, ... prompts.
    """
    lengths = steps_s[:-1]
    k = np.arange(len(lengths))
    logs = np.array([math.lgamma(i + 1) for i in k])
    came = rate * lengths[:, None]
    moves = np.exp(k[None, :] * np.log(np.maximum(came, 1e-300)) - came - logs[None, :])  # [k, how many came]
    moves /= moves.sum(axis=1, keepdims=True)
    shares = np.full(len(k), 1 / len(k))
    for _ in range(200):
        shares = shares @ moves
    met = shares * lengths / (shares @ lengths)
    own = steps_s[1:] + more_s  # of the step that it runs in, with so many others
    chance = met[:, None] * moves
    found = float(met @ (lengths / 2) + chance.sum(axis=0) @ own)

    def within(time: float) -> float:
        rest = np.clip((time - own[None, :]) / lengths[:, None], 0.0, 1.0)
        return float((chance * rest).sum())

    low, high = 0.0, float(lengths[-1] + own[-1])
    for _ in range(_TURNS):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) < 0.99 else (low, middle)
    return found, high


def _prompts_alone(alone: float, rate: float, before_s: float) -> Expected | None:
    """Answers of one token: prompts that come during a step run together in the next, each as long as alone."""
    if rate * alone >= 1:
        return None
    wait = rate * alone**2 / (2 * (1 - rate * alone))
    return Expected(before_s + wait + alone, before_s + _tail(wait, rate * alone) + alone, 0.0, 0.0, rate * alone)


def _one_place(
    steps: StepTime, rate: float, prompt: float, output: float, output_cv: float, before_s: float
) -> Expected | None:
    first = steps.one(prompt, 1.0, prompt * (prompt + 1) / 2, 0.0, 0.0, 0.0)
    run = steps.decode_run(1.0, prompt, output - 1) if output > 1 else 0.0
    whole = first + run
    if rate * whole >= 1:
        return None
    second = whole**2 + (run * output_cv) ** 2
    wait = rate * second / (2 * (1 - rate * whole))
    busy = rate * whole
    each = run / (output - 1) if output > 1 else 0.0
    return Expected(before_s + wait + first, before_s + _tail(wait, busy) + first, each, rate * run, busy)


def _tail(wait: float, busy: float) -> float:
    """The wait that 99 in 100 stay below: P(wait > t) = busy exp(-t busy / wait)."""
    return max(wait / busy * math.log(busy / 0.01), 0.0) if wait > 0 else 0.0


def most_rate(
    model: LanguageModel | str,
    device: Device,
    serving: Serving,
    ttft_p99_s: float | None = None,
    tpot_s: float | None = None,
) -> float:
    """The highest rate (requests a second) at which a deployment keeps its targets; without targets, keeps up.

    Raises ArgumentError where it keeps them at no rate.
    """
    read = model if isinstance(model, LanguageModel) else language_model(model)

    def keeps(rate: float) -> bool:
        found = expected(read, device, serving, rate)
        if found is None:
            return False
        return (ttft_p99_s is None or found.ttft_p99_s <= ttft_p99_s) and (tpot_s is None or found.tpot_s <= tpot_s)

    low, high = _RATES
    if not keeps(low):
        named = ((ttft_p99_s, "to 99 in 100 first tokens"), (tpot_s, "a token"))
        asked = " and ".join(f"{1e3 * v:g} ms {name}" for v, name in named if v) or "up"
        raise ArgumentError(
            f"{read.name} on {serving.parallelism.gpus} x {device.name} does not keep {asked} at any rate; loosen the "
            "targets, or take another device or split"
        )
    for _ in range(_TURNS // 2):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def expected(
    model: LanguageModel, device: Device, serving: Serving, rate_per_s: float, settings: EngineSettings | None = None
) -> Expected | None:
    """A deployment at a rate over all of its replicas; prefill and decode on the same ones. None as of `steady`.

    Raises ArgumentError as `perfpass.predictors.engine.deployment.Deployment.of`.
    """
    taken = settings or settings_of(device, serving)
    found = Deployment.of(model, device, replace(serving, mode="agg", prefill=None), taken)
    pool, before_s = found.pool, REQUEST_S + found.issued_s
    each = rate_per_s / pool.replicas
    lengths = float(serving.input_length), float(serving.output_length)
    return steady(pool.steps, taken, pool.cache_tokens, each, *lengths, before_s=before_s)
