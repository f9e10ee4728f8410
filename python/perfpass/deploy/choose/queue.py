"""Waiting for a network whose requests come at random: 99 in 100 are done within a limit, by a closed form.

One device takes batches of ``batch`` requests, one after the other, each for the same time S: the predicted latency.
Requests arrive as a Poisson process of rate r. A batch waits for its requests to come (Erlang of batch - 1 of them for
the first), then for the batches ahead of it: a GI/D/1 queue, whose waiting time W has P(W > t) <= exp(-u t) with u the
positive root of E[exp(u (S - A))] = 1, A between batches (Kingman, Inequalities in the theory of queues, 1970). With
the Erlang times of batches that is u S = batch log(1 + u / r). A bound: what is said is kept or bettered.
"""

from __future__ import annotations

import math

_TURNS = 60
_EASIEST, _HARDEST = 1e-9, 1e12  # of u / r
_SLOW = 0.01  # of requests, those that may take longer


def waits_ms(run_ms: float, batch: int, rate_per_s: float, share: float = _SLOW) -> float:
    """Ms in the queue that all but ``share`` of the batches stay below; infinite where the device cannot keep up."""
    rate = rate_per_s / 1e3
    if rate * run_ms >= batch:
        return math.inf
    low, high = _EASIEST, _HARDEST
    for _ in range(_TURNS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _run_ms(middle, batch, rate) > run_ms else (low, middle)
    return _wait_ms(low, rate, share)


def _run_ms(root: float, batch: int, rate_per_ms: float) -> float:
    """The run of which u / r is ``root``: the longer, the smaller."""
    return batch * math.log1p(root) / (rate_per_ms * root)


def _wait_ms(root: float, rate_per_ms: float, share: float) -> float:
    return -math.log(share) / (rate_per_ms * root)


def gathers_ms(batch: int, rate_per_s: float, share: float = _SLOW) -> float:
    """Ms until the requests after a batch's first have come, in all but ``share`` of the batches."""
    if batch == 1:
        return 0.0
    low, high = 0.0, (batch + 10.0) * 10.0
    for _ in range(_TURNS):
        middle = (low + high) / 2
        low, high = (middle, high) if _fewer(batch - 1, middle) > share else (low, middle)
    return high / rate_per_s * 1e3


def _fewer(count: int, mean: float) -> float:
    """P(fewer than ``count`` arrivals) of a Poisson number of ``mean``."""
    logs = [n * math.log(mean) - math.lgamma(n + 1) - mean for n in range(count)] if mean > 0 else []
    return math.fsum(map(math.exp, logs)) if mean > 0 else 1.0


def longest_run_ms(p99_ms: float, batch: int, rate_per_s: float) -> float:
    """The longest run of a batch with which 99 requests in 100 are done within ``p99_ms``; 0 for none.

    A batch of several gathers and waits: one in 200 may be late by either, so one in 100 by both.
    """
    share, rate = (_SLOW if batch == 1 else _SLOW / 2), rate_per_s / 1e3
    left = p99_ms - gathers_ms(batch, rate_per_s, share)
    if left <= 0:
        return 0.0
    low, high = _EASIEST, _HARDEST
    for _ in range(_TURNS):
        middle = math.sqrt(low * high)
        longer = _run_ms(middle, batch, rate) + _wait_ms(middle, rate, share) > left
        low, high = (middle, high) if longer else (low, middle)
    return _run_ms(high, batch, rate)


def p99_ms(run_ms: float, batch: int, rate_per_s: float) -> float:
    """Ms within which 99 requests in 100 are done, each batch of which runs for ``run_ms``."""
    share = _SLOW if batch == 1 else _SLOW / 2
    return run_ms + waits_ms(run_ms, batch, rate_per_s, share) + gathers_ms(batch, rate_per_s, share)
