"""Points of a sweep as candidates: with how many copies, and with what probability each target is kept.

The candidates are the same whatever is asked: points, each in as many copies as `COPIES`. A target only takes some
away. So a looser target never makes the choice dearer, and more confidence never makes it cheaper.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from perfpass.decision import together
from perfpass.deploy.choose import queue
from perfpass.deploy.choose.targets import Targets, limit_of
from perfpass.deploy.sweep import Sweep
from perfpass.deploy.sweep.served import SPLIT
from perfpass.deploy.sweep.splits import Split
from perfpass.prediction import Interval

# Copies of a deployment that are tried: all up to 32, then a tenth more each.
COPIES: tuple[int, ...] = (*range(1, 33), *(round(32 * 1.1**i) for i in range(1, 60)))
_OF_COPIES = ("latency_ms", "rate", "p99_ms")  # targets that more copies may keep
NO_CHANCE = 5e-4  # a probability below it is shown as 0.000: by how much a limit is missed says more then
_UNITS = {"power_w": "W", "energy_j": "J", "energy_per_token_j": "J", "peak_memory_bytes": "byte"}


@dataclass(frozen=True)
class Load:
    """What is asked: ``rate_per_s`` of requests (or samples), or ``in_flight`` all the time, or neither: as many as is
    cheapest. ``tokens``: those of an answer; 1 of a network, whose samples are counted.
    """

    rate_per_s: float | None
    in_flight: float | None
    tokens: int


@dataclass(frozen=True)
class Term:
    """One target of a candidate: its figure (None: certain), the ``limit`` on it and the probability to keep that."""

    name: str
    found: Interval | None
    limit: float
    probability: float


@dataclass(frozen=True)
class Candidate:
    """A point of a sweep (``row``) in ``copies``, its targets, USD an hour of all its devices (NaN: no price), and
    ``price``, by which candidates are ranked: USD of a million tokens or a thousand samples. ``device_s``: the time of
    devices that a token or a sample takes, by which those of a device without a price are.
    """

    row: int
    copies: int
    terms: tuple[Term, ...]
    usd_per_hour: float
    price: float
    device_s: float

    @property
    def probability(self) -> float:
        """That all targets are kept, at least."""
        return together(term.probability for term in self.terms)

    @property
    def worst(self) -> float:
        """The probability of the target that is least likely kept."""
        return min(term.probability for term in self.terms)

    @property
    def over(self) -> float:
        """How many times its limit the figure is that is furthest over, where a probability tells no more; infinite
        where even nothing would be too much, as in a batch that fills for longer than a run may take.
        """
        lost = ((t.found.median, t.limit) for t in self.terms if t.found is not None and t.probability < NO_CHANCE)
        return max((median / limit if limit > 0.0 else math.inf for median, limit in lost), default=0.0)


class Points:
    """The points of a sweep that have figures, as candidates for a load and targets."""

    def __init__(self, found: Sweep, load: Load, targets: Targets, *, served: bool) -> None:
        self.found, self.load, self.targets, self.served = found, load, targets, served
        self._columns = {name: column.tolist() for name, column in found.columns.items()}
        self.time = "request_ms" if served else "latency_ms"

    def value(self, row: int, name: str) -> Any:
        """What a column has for a row."""
        return self._columns[name][row]

    def interval(self, row: int, name: str) -> Interval:
        """A figure of a row."""
        median, low, high = (self._columns[f"{name}{end}"][row] for end in ("", "_low", "_high"))
        unit = _UNITS.get(name, "ms" if name.endswith("_ms") else "1/s")
        return Interval(median, min(low, median), max(high, median), unit)

    def at_once(self, row: int) -> float:
        """Requests (samples) that a copy has in flight."""
        return float(self._columns["concurrency" if self.served else "batch"][row])

    def devices(self, row: int) -> int:
        """Of one copy."""
        return self.split(row).gpus if self.served else 1

    def split(self, row: int) -> Split:
        """How a served copy is split."""
        return Split(*(int(self._columns[name][row]) for name in SPLIT))

    def best(self, row: int) -> Candidate:
        """The row in the fewest copies that keep all targets; where none do, in those likeliest to, if any may."""
        tried, before = None, 0.0
        for candidate in self._tried(row):
            if candidate.probability >= self.targets.confidence:
                return candidate
            if tried is None or candidate.probability > max(tried.probability, NO_CHANCE):
                tried = candidate
            in_time = min((t.probability for t in candidate.terms if t.name in _OF_COPIES), default=1.0)
            rest = together(t.probability for t in candidate.terms if t.name not in _OF_COPIES)
            if rest < self.targets.confidence <= in_time:
                return candidate  # no number of copies keeps the others
            if before and in_time <= before:
                break  # more copies wait no less, and cost more
            before = in_time
        assert tried is not None
        return tried

    def _tried(self, row: int) -> Iterator[Candidate]:
        """Candidates of a row with ever more copies, from the first that may keep up."""
        if self.load.rate_per_s is None:
            copies = 1 if self.load.in_flight is None else round(self.load.in_flight / self.at_once(row))
            yield self.candidate(row, copies)
            return
        fastest = limit_of(self.interval(row, self.time), self.targets.confidence)
        fewest = self.load.rate_per_s * fastest / (1e3 * self.at_once(row))
        for copies in COPIES:
            if copies < min(fewest, COPIES[-1]):
                continue
            yield self.candidate(row, copies)

    def reachable(self, row: int) -> Iterator[Candidate]:
        """Candidates of a row that may be what is next best: the first that keeps up, and more of it."""
        for i, one in enumerate(self._tried(row)):
            if i in (0, 1, 3, 8, 20):
                yield one
            if i >= 20:
                return

    def keeps_up_ms(self, one: Candidate) -> float | None:
        """The longest time of a request with which a candidate keeps up with the rate; None without one."""
        if self.load.rate_per_s is None:
            return None
        return self.at_once(one.row) * one.copies / self.load.rate_per_s * 1e3

    def candidate(self, row: int, copies: int) -> Candidate:
        """A row in a number of copies."""
        usd = self._columns["usd_per_hour"][row] * copies
        fits = Term("memory", None, math.nan, self._columns["fits"][row])
        terms = [fits, *self._times(row, copies)]
        if self.targets.max_power_w is not None:
            drawn = self.interval(row, "power_w").scaled(copies * self.devices(row), "W")
            terms.append(_kept("max_power_w", drawn, self.targets.max_power_w))
        if self.targets.max_usd_per_hour is not None:
            most = self.targets.max_usd_per_hour
            terms.append(Term("max_usd_per_hour", Interval(usd, usd, usd, "USD") if usd == usd else None, most,
                              float(usd <= most)))  # fmt: skip
        if self.load.rate_per_s is not None:
            counted = self.load.rate_per_s * self.load.tokens * 3600
            price = usd / counted * (1e6 if self.served else 1e3)
            device_s = copies * self.devices(row) * 3600 / counted
        else:
            price = self._columns["usd_per_million_tokens" if self.served else "usd_per_thousand_samples"][row]
            rate = self._columns["output_tokens_per_s" if self.served else "throughput_per_s"][row]
            device_s = self.devices(row) / rate if rate else math.inf
        return Candidate(row, copies, tuple(terms), usd, price, device_s)

    def _times(self, row: int, copies: int) -> list[Term]:
        """Targets of time. Those on one figure are one term, the tightest: of one variable all hold where it does."""
        targets, out = self.targets, []
        if self.served:
            for name, limit in (("ttft_ms", targets.ttft_ms), ("tpot_ms", targets.tpot_ms)):
                if limit is not None:
                    out.append(_kept(name, self.interval(row, name), limit))
        limits = {}
        if targets.latency_ms is not None:
            limits["latency_ms"] = targets.latency_ms
        if self.load.rate_per_s is not None:
            each = self.load.rate_per_s / copies
            limits["rate"] = self.at_once(row) / each * 1e3
            if targets.p99_ms is not None:
                limits["p99_ms"] = _longest(targets.p99_ms, int(self.at_once(row)), each)
        if limits:
            name = min(limits, key=lambda one: limits[one])
            out.append(_kept(name, self.interval(row, self.time), limits[name]))
        return out


@lru_cache(maxsize=4096)
def _longest(p99_ms: float, batch: int, rate_per_s: float) -> float:
    return queue.longest_run_ms(p99_ms, batch, rate_per_s)


def _kept(name: str, found: Interval, limit: float) -> Term:
    return Term(name, found, limit, found.probability_below(limit))
