"""Requests by a rate: arrivals of a point process, lengths of a distribution, conversations; all from a seed.

Gaps between arrivals are gamma distributed with shape ``burstiness`` (1: Poisson; below it bursts, above it evener; the
parameter of vLLM's benchmark). Gaps and lengths are drawn apart, so that another rate has the same requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfpass.errors import ArgumentError, LimitError
from perfpass.predictors.engine.requests import MOST_REQUESTS, MOST_TOKENS, Requests
from perfpass.text import unknown

ARRIVALS = ("poisson", "gamma", "constant", "closed")
# Ids of a conversation's blocks: tokens of each, and how many ids a conversation may have.
_TURN_BLOCK, _CONVERSATION = 64, 2**20


@dataclass(frozen=True)
class Lengths:
    """Tokens of prompts or answers: lognormal by ``mean`` and coefficient of variation ``cv``; 0: all equal."""

    mean: float
    cv: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.mean <= MOST_TOKENS or not 0 <= self.cv <= 10:
            raise ArgumentError(
                f"lengths need a mean of 1 to {MOST_TOKENS:,} tokens and a cv of 0 to 10, got {self.mean}, {self.cv}"
            )

    def draw(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """[count] whole numbers of at least 1."""
        if not self.cv:
            return np.full(count, round(self.mean), dtype=np.int64)
        spread = np.log1p(self.cv**2)
        drawn = generator.lognormal(np.log(self.mean) - spread / 2, np.sqrt(spread), count)
        return np.clip(np.rint(drawn), 1, MOST_TOKENS).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Lengths drawn, in pairs, from those of other requests (a trace)."""

    of: Requests


def requests(
    count: int,
    prompt: Lengths | Drawn,
    output: Lengths | None = None,
    *,
    rate_per_s: float | None = None,
    arrivals: str = "poisson",
    burstiness: float = 1.0,
    concurrency: int | None = None,
    turns: int = 1,
    pause_s: float = 0.0,
    seed: int = 0,
) -> Requests:
    """``count`` requests.

    ``arrivals``: poisson, gamma (``burstiness``) or constant at ``rate_per_s`` requests a second; closed:
    ``concurrency`` users that all begin at once (the burst that opens a benchmark) and send their next request
    ``pause_s`` after an answer. ``turns``: requests of a conversation, each of which begins with the prompt and
    answer before it; ``prompt`` is then what a turn adds, and conversations, not requests, come at the rate over
    ``turns``.

    Raises ArgumentError for values out of range, LimitError for too many requests.
    """
    _check(count, rate_per_s, arrivals, burstiness, concurrency, turns, pause_s)
    gaps, lengths = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
    if isinstance(prompt, Drawn):
        chosen = lengths.integers(0, len(prompt.of), count)
        prompts, outputs = (np.asarray(v)[chosen] for v in (prompt.of.prompt_tokens, prompt.of.output_tokens))
    elif output is None:
        raise ArgumentError("lengths of prompts need lengths of answers beside them")
    else:
        prompts, outputs = prompt.draw(lengths, count), output.draw(lengths, count)
    place = np.arange(count)
    if arrivals == "closed":
        assert concurrency is not None
        if turns > 1:
            raise ArgumentError("conversations arrive at a rate: a closed loop has one request after the other anyway")
        after = np.where(place < concurrency, -1, place - concurrency)
        return Requests(np.where(after < 0, 0.0, pause_s), prompts, outputs, after)
    assert rate_per_s is not None
    begun = -(-count // turns)
    if arrivals == "constant":
        times = np.arange(begun, dtype=np.float64)
    else:
        shape = burstiness if arrivals == "gamma" else 1.0
        times = np.cumsum(gaps.gamma(shape, 1 / shape, begun))
        times -= times[0]
    times *= turns / rate_per_s
    if turns == 1:
        return Requests(times, prompts, outputs)
    return _conversations(times, prompts, outputs, turns, pause_s)


def profile(rates: Sequence[float], span_s: float, prompt: Lengths, output: Lengths, *, seed: int = 0) -> Requests:
    """Poisson arrivals whose rate is that of each of ``rates`` (requests a second) for an equal part of ``span_s``.

    Raises ArgumentError for rates that are none, LimitError for too many requests.
    """
    each = np.array(rates, dtype=np.float64)
    if not (1 <= len(each) <= 10_000 and np.isfinite(each).all() and (each >= 0).all() and each.max() > 0):
        raise ArgumentError("rates are 1 to 10,000 finite numbers of requests a second, at least 0 and not all 0")
    part = span_s / len(each)
    mean = float(each.sum() * part)
    if mean > 0.98 * MOST_REQUESTS:
        raise LimitError(
            f"these rates make {mean:,.0f} requests; at most {MOST_REQUESTS:,} can be simulated: take a part of the "
            "day, or lower rates for a part of the replicas"
        )
    gaps, lengths = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
    counts = gaps.poisson(each * part)
    begins = np.repeat(np.arange(len(each)) * part, counts)
    times = np.sort(begins + part * gaps.random(int(counts.sum())))
    return Requests(times, prompt.draw(lengths, len(times)), output.draw(lengths, len(times)))


def _check(
    count: int,
    rate_per_s: float | None,
    arrivals: str,
    burstiness: float,
    concurrency: int | None,
    turns: int,
    pause_s: float,
) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ArgumentError(f"the number of requests must be a whole number of at least 1, got {count!r}")
    if count > MOST_REQUESTS:
        raise LimitError(f"{count:,} requests; at most {MOST_REQUESTS:,} can be simulated")
    if arrivals not in ARRIVALS:
        raise ArgumentError(unknown("arrivals", arrivals, ARRIVALS))
    if arrivals == "closed":
        if concurrency is None or concurrency < 1:
            raise ArgumentError(f"a closed loop needs requests in flight, at least 1; got concurrency {concurrency!r}")
    elif rate_per_s is None or not 1e-6 <= rate_per_s <= 1e6:
        raise ArgumentError(f"a rate must be from 1e-6 to 1e6 requests a second, got {rate_per_s!r}")
    if not 0.01 <= burstiness <= 1e4:
        raise ArgumentError(f"burstiness must be from 0.01 to 10,000 (1: Poisson), got {burstiness!r}")
    if not 1 <= turns <= 10_000 or not 0 <= pause_s <= 86400:
        raise ArgumentError(f"turns must be 1 to 10,000 and a pause 0 to 86,400 s, got {turns!r} and {pause_s!r}")


def _conversations(begin_s: np.ndarray, added: np.ndarray, outputs: np.ndarray, turns: int, pause_s: float) -> Requests:
    """Turn by turn, so that those that begin stand before those that follow; a prompt holds all that was said."""
    count, begun = len(added), len(begin_s)
    place = np.arange(count)
    who, turn = place % begun, place // begun
    after = np.where(turn == 0, -1, place - begun)
    prompts = added.copy()
    for i in range(begun, count):
        prompts[i] += prompts[i - begun] + outputs[i - begun]
    if prompts.max() > MOST_TOKENS:
        raise LimitError(f"a conversation grows to {prompts.max():,} tokens; at most {MOST_TOKENS:,} are taken")
    blocks = (prompts + outputs) // _TURN_BLOCK
    starts = np.concatenate([[0], np.cumsum(blocks)])
    inner = np.arange(starts[-1]) - np.repeat(starts[:-1], blocks)
    ids = np.repeat(who, blocks) * _CONVERSATION + inner
    times = np.where(after < 0, begin_s[who], pause_s)
    return replace(Requests(times, prompts, outputs, after), ids=ids, starts=starts, block_tokens=_TURN_BLOCK)
