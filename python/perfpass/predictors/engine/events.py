"""Requests through replicas, event by event: arrivals, ends of steps, caches that come over a link.

A plain heap of times. A replica's run of decode steps is one event; an arrival that could begin with the next step ends
it early (`Replica.interrupt`). Requests that follow another one (turns, closed loops) arrive when that one has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

import numpy as np

from perfpass.errors import ArgumentError, LimitError
from perfpass.llm.batch import StepTime
from perfpass.predictors.engine.replica import CAUSES, Replica, Sequence
from perfpass.predictors.engine.requests import Requests
from perfpass.predictors.engine.settings import ROUTERS, EngineSettings
from perfpass.text import unknown

Schedule = tuple[tuple[float, int], ...]
_STEP, _ARRIVAL, _CACHE = range(3)
# Of a router that knows prefixes (lightseekorg/smg, docs/getting-started/load-balancing.md: cache_aware): the least
# share of a prompt that must be found, and how uneven loads may become.
_LEAST_MATCH, _UNEVEN, _UNEVEN_SHARE = 0.3, 64, 1.5


@dataclass(frozen=True)
class Pool:
    """``replicas`` alike: ``steps`` of each, ``cache_tokens`` that the cache of each holds."""

    steps: StepTime
    settings: EngineSettings
    cache_tokens: int
    replicas: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.replicas <= 10_000:
            raise ArgumentError(f"replicas must be 1 to 10,000, got {self.replicas}")
        if self.cache_tokens < self.settings.block_tokens:
            raise ArgumentError(f"a cache of {self.cache_tokens} tokens holds no block of {self.settings.block_tokens}")


@dataclass(frozen=True, eq=False)
class Ran:
    """What happened to N requests; times in seconds from the first arrival, NaN of those refused.

    ``arrival_s``, ``first_s`` (first token), ``end_s`` [N]; ``admitted_s`` [N]: the step in which the first of its
    prompt ran began; ``found_tokens`` [N] of its prompt in the cache; ``preemptions`` [N]; ``refused`` [N]: longer than
    the whole cache. ``gaps_s`` [M] between tokens with ``gap_counts`` [M]: how often each. Sums over the replicas of
    ``prefill`` (None where prompts and decodes run together) and of the others are in `Work`.
    """

    arrival_s: np.ndarray
    admitted_s: np.ndarray
    first_s: np.ndarray
    end_s: np.ndarray
    found_tokens: np.ndarray
    preemptions: np.ndarray
    refused: np.ndarray
    gaps_s: np.ndarray
    gap_counts: np.ndarray
    work: Work
    prefill: Work | None = None


@dataclass
class Work:
    """Sums over the replicas of a pool; seconds are those of all replicas together."""

    replicas: int
    capacity_blocks: int  # of one replica
    busy_s: float = 0.0
    prefill_s: float = 0.0
    block_s: float = 0.0  # blocks in use times seconds
    sequence_s: float = 0.0
    decode_steps: float = 0.0
    decoded_tokens: int = 0
    context_steps: float = 0.0
    prompt_tokens: int = 0
    recomputed_tokens: int = 0
    peak_blocks: int = 0
    preemptions: int = 0
    waited_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0.0))

    @classmethod
    def of(cls, replicas: list[Replica]) -> Work:
        """The sums."""
        names = (
            *("busy_s", "prefill_s", "block_s", "sequence_s", "decode_steps", "decoded_tokens", "context_steps"),
            *("prompt_tokens", "recomputed_tokens", "preemptions"),
        )
        sums = {name: sum(getattr(r, name) for r in replicas) for name in names}
        waited = {cause: sum(r.waited_s[cause] for r in replicas) for cause in CAUSES}
        peak = max(r.peak_blocks for r in replicas)
        return cls(len(replicas), replicas[0].cache.capacity, **sums, peak_blocks=peak, waited_s=waited)


class _Router:
    """Who gets the next request."""

    def __init__(self, kind: str, replicas: list[Replica], schedule: Schedule = ()) -> None:
        self._kind, self._replicas, self._schedule, self._next = kind, replicas, tuple(schedule), -1

    def choose(self, one: Sequence, now_s: float) -> int:
        while len(self._schedule) > 1 and self._schedule[1][0] <= now_s:
            self._schedule = self._schedule[1:]
        replicas = self._replicas[: self._schedule[0][1]] if self._schedule else self._replicas
        if len(replicas) == 1:
            return 0
        if self._kind == "round-robin":
            self._next = (self._next + 1) % len(replicas)
            return self._next
        loads = [r.load for r in replicas]
        least = loads.index(min(loads))
        if self._kind == "least-loaded" or not one.ids:
            return least
        most = max(loads)
        if most - loads[least] > _UNEVEN and most > _UNEVEN_SHARE * loads[least]:
            return least
        found = [r.matched(one) for r in replicas]
        best = max(range(len(replicas)), key=lambda i: (found[i], -loads[i]))
        return best if found[best] >= _LEAST_MATCH * one.prompt else least


def run(
    requests: Requests,
    pool: Pool,
    *,
    prefill: Pool | None = None,
    transfer_s: Callable[[int], float] | None = None,
    router: str = "round-robin",
    prefix_hit: float | None = None,
    before_s: float = 0.0,
    schedule: Schedule = (),
) -> Ran:
    """Runs all requests to their ends.

    ``prefill``: replicas that only prefill; ``transfer_s``: seconds that the cache of so many tokens takes to a replica
    of ``pool``, where the first token is said when it has come. ``prefix_hit``: share of each prompt that is found in
    the cache, instead of the requests' ids. ``before_s``: of every request before the engine sees it. ``schedule``:
    (second, replicas) from when on so many of them get new requests, the first at 0; what a replica has, it answers.

    Raises ArgumentError, and LimitError where no request fits into the cache.
    """
    return _Simulation(requests, pool, prefill, transfer_s, router, prefix_hit, before_s, schedule).run()


class _Simulation:
    def __init__(
        self,
        requests: Requests,
        pool: Pool,
        prefill: Pool | None,
        transfer_s: Callable[[int], float] | None,
        router: str,
        prefix_hit: float | None,
        before_s: float,
        schedule: Schedule,
    ) -> None:
        if router not in ROUTERS:
            raise ArgumentError(unknown("router", router, ROUTERS))
        if prefix_hit is not None and not 0 <= prefix_hit <= 1:
            raise ArgumentError(f"a prefix hit is a share from 0 to 1, got {prefix_hit!r}")
        if (prefill is None) != (transfer_s is None):
            raise ArgumentError(
                "replicas that only prefill need the time of a cache on its way, and the other way round"
            )
        self.requests, self.transfer_s, self.before_s = requests, transfer_s, before_s
        block = max(p.settings.block_tokens for p in (pool, prefill) if p)
        self.every = -(-block // requests.block_tokens)  # ids to a unit, where blocks are larger than theirs
        unit = self.every * requests.block_tokens
        for p in (pool, prefill):
            if p and unit % p.settings.block_tokens:
                raise ArgumentError(
                    f"ids of {unit} tokens do not divide into blocks of {p.settings.block_tokens}; choose block_tokens "
                    "that do"
                )

        def of(p: Pool, alone: bool) -> list[Replica]:
            capacity = p.cache_tokens // p.settings.block_tokens
            return [
                Replica(p.steps, p.settings, capacity, unit_tokens=unit, prefix_hit=prefix_hit, prefill_only=alone)
                for _ in range(p.replicas)
            ]

        self.decoders = of(pool, False)
        self.prefillers = of(prefill, True) if prefill else []
        self.replicas = self.decoders + self.prefillers
        begins = [second for second, _ in schedule]
        if schedule and (begins != sorted(begins) or any(not 1 <= n <= pool.replicas for _, n in schedule)):
            raise ArgumentError(f"a schedule has rising times and 1 to {pool.replicas} replicas, got {schedule[:4]}")
        self.router = _Router(router, self.prefillers or self.decoders, schedule)
        self.placed = _Router("least-loaded", self.decoders)
        self.events: list[tuple[float, int, int, int, int, Sequence | None]] = []
        self.order = 0
        self.due: set[int] = set()  # replicas whose next step is to be planned
        count = len(requests)
        self.arrival_s = np.full(count, np.nan)
        self.first_s, self.end_s, self.admitted_s = (np.full(count, np.nan) for _ in range(3))
        self.found, self.preemptions = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        self.refused = np.zeros(count, dtype=bool)
        self.followers: dict[int, list[int]] = {}

    def run(self) -> Ran:
        """All of it."""
        requests = self.requests
        times: list[float] = (np.asarray(requests.arrival_s, dtype=np.float64) + self.before_s).tolist()
        prompts: list[int] = np.asarray(requests.prompt_tokens).tolist()
        outputs: list[int] = np.asarray(requests.output_tokens).tolist()
        own = range(len(requests))
        if requests.after is not None:
            after: list[int] = np.asarray(requests.after).tolist()
            for i, before in enumerate(after):
                if before >= 0:
                    self.followers.setdefault(before, []).append(i)
            own = [i for i in own if after[i] < 0]  # type: ignore[assignment]
        self.lengths, self.times = (prompts, outputs), times
        waiting = iter(own)
        upcoming = next(waiting, None)
        events = self.events
        now_s = 0.0
        while events or upcoming is not None or self.due:
            if self.due and now_s < min(events[0][0] if events else inf, inf if upcoming is None else times[upcoming]):
                # What happens at one time has happened before a step begins.
                for place in sorted(self.due):
                    self._begin(place, now_s)
                self.due.clear()
                continue
            if upcoming is not None and (not events or times[upcoming] <= events[0][0]):
                now_s = times[upcoming]
                self._arrive(upcoming, now_s)
                upcoming = next(waiting, None)
                continue
            now_s, _, kind, a, b, one = heappop(events)
            if kind == _ARRIVAL:
                self._arrive(a, now_s)
            elif kind == _STEP:
                if self.replicas[a].version == b:
                    self._step(a, now_s)
            else:
                assert one is not None
                self._received(a, one, now_s)
        if self.refused.all():
            shortest = int((requests.prompt_tokens + requests.output_tokens).min())
            holds = self.decoders[0].cache.capacity * self.decoders[0].block
            raise LimitError(
                f"no request fits: the shortest has {shortest:,} tokens and a replica's cache holds {holds:,}; "
                "take more GPUs"
            )
        decoders, prefillers = self.decoders, self.prefillers
        return Ran(
            self.arrival_s,
            self.admitted_s,
            self.first_s,
            self.end_s,
            self.found,
            self.preemptions,
            self.refused,
            np.array([gap for r in decoders for gap in r.gaps_s]),
            np.array([n for r in decoders for n in r.gap_counts], dtype=np.int64),
            Work.of(decoders),
            Work.of(prefillers) if prefillers else None,
        )

    def _push(self, now_s: float, kind: int, a: int, b: int, one: Sequence | None = None) -> None:
        self.order += 1
        heappush(self.events, (now_s, self.order, kind, a, b, one))

    def _arrive(self, index: int, now_s: float) -> None:
        self.arrival_s[index] = now_s - self.before_s
        prompt, output = self.lengths[0][index], self.lengths[1][index]
        requests = self.requests
        ids = requests.prefix(index)[self.every - 1 :: self.every] if requests.ids is not None else []
        priority = 0.0 if requests.priority is None else float(requests.priority[index])
        one = Sequence(index, prompt, output, ids, priority)
        if not all(r.holds(prompt, output) for r in self.decoders[:1]) or not all(
            r.holds(prompt, 1) for r in self.prefillers[:1]
        ):
            self.refused[index] = True
            self._follow(index, now_s)
            return
        place = self.router.choose(one, now_s) + (len(self.decoders) if self.prefillers else 0)
        self._enqueue(place, one, now_s)

    def _enqueue(self, place: int, one: Sequence, now_s: float) -> None:
        replica = self.replicas[place]
        if replica.enqueue(one, now_s):
            self._push(replica.begun_s + replica.seconds, _STEP, place, replica.version)
        elif not replica.running:
            self.due.add(place)

    def _begin(self, place: int, now_s: float) -> None:
        replica = self.replicas[place]
        begun = replica.begin(now_s)
        for one, _ in replica.chunks:
            if np.isnan(self.admitted_s[one.index]):
                self.admitted_s[one.index] = now_s
        for one in replica.coming:
            if one.ready:
                one.ready = False  # on its way
                assert self.transfer_s is not None
                self._push(now_s + self.transfer_s(one.prompt), _CACHE, place, 0, one)
        if begun:
            self._push(replica.begun_s + replica.seconds, _STEP, place, replica.version)

    def _received(self, place: int, one: Sequence, now_s: float) -> None:
        self.first_s[one.index] = now_s
        replica = self.replicas[place]
        if replica.receive(one, now_s):
            self._push(replica.begun_s + replica.seconds, _STEP, place, replica.version)
        elif not replica.running:
            self.due.add(place)

    def _step(self, place: int, now_s: float) -> None:
        replica = self.replicas[place]
        first, done = replica.end(now_s)
        replica.version += 1
        for one in first:
            index = one.index
            self.found[index] = one.found
            if one.ready:
                self._enqueue(self.placed.choose(one, now_s), one, now_s)
            else:
                self.first_s[index] = now_s
        for one in done:
            self.end_s[one.index] = now_s
            self.preemptions[one.index] = one.preempted
            self._follow(one.index, now_s)
        self.due.add(place)

    def _follow(self, index: int, now_s: float) -> None:
        for other in self.followers.pop(index, ()):
            self._push(now_s + self.times[other], _ARRIVAL, other, 0)
