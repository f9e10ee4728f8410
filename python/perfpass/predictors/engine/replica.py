"""One replica of an engine: what it has admitted, the step that it runs, and what that step changes.

Between an arrival, an end and a full cache nothing in a batch of decodes changes but its context, so such steps run
together (`StepTime.decode_run`). Sequences that decode are kept by the step in which they end, their blocks by the
step in which each needs a new one: a run of any length costs the same.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from heapq import heappop, heappush

from perfpass.llm.batch import StepTime
from perfpass.predictors.engine.cache import PagedCache
from perfpass.predictors.engine.settings import EngineSettings

CAUSES = ("cache", "sequences", "step")  # what a request that waits waits for


class Sequence:
    """A request inside an engine. ``goal``: tokens that its prefill puts into the cache, of which ``computed`` are.

    ``own``: blocks of its own; ``shared``: ids that it reads. ``ready``: prefilled elsewhere, its cache has to come.
    """

    __slots__ = (
        *("index", "prompt", "output", "ids", "priority", "emitted", "goal", "computed", "own", "shared"),
        *("registered", "ends", "phase", "admitted", "said_s", "ready", "preempted", "found"),
    )

    def __init__(self, index: int, prompt: int, output: int, ids: SequenceOf[int], priority: float) -> None:
        self.index, self.prompt, self.output = index, prompt, output
        self.ids, self.priority = ids, priority
        self.emitted = self.goal = self.computed = self.own = self.registered = 0
        self.shared: list[int] = []
        self.ends, self.phase = -1, 0
        self.admitted = self.ready = False
        self.said_s = 0.0
        self.preempted = self.found = 0

    def __lt__(self, other: Sequence) -> bool:
        return self.index < other.index


class Replica:
    """A replica between two events; times are the caller's."""

    def __init__(
        self,
        steps: StepTime,
        settings: EngineSettings,
        capacity: int,
        *,
        unit_tokens: int,
        prefix_hit: float | None = None,
        prefill_only: bool = False,
    ) -> None:
        """``capacity``: blocks of the cache; ``unit_tokens``: of an id; ``prefix_hit``: a share of each prompt that is
        always found, instead of ids; ``prefill_only``: what is prefilled leaves (`end` returns it as first).
        """
        self.steps, self.settings, self.prefill_only = steps, settings, prefill_only
        self.block = settings.block_tokens
        self.unit_tokens = unit_tokens
        self.cache = PagedCache(capacity, unit_tokens // self.block)
        self.prefix_hit = prefix_hit
        self.waiting: list[tuple[float, int, Sequence]] = []
        self.prefilling: list[Sequence] = []
        self.decoding: list[tuple[int, int, Sequence]] = []  # by the step that is their last
        self.newest: list[tuple[float, int, Sequence]] = []
        self.coming: list[Sequence] = []  # admitted, their cache on its way
        self.arrived: list[Sequence] = []
        self.active = self.decodes = self.context = self.growth = 0
        self.counter = 0  # decode steps so far
        self.phases = [0] * self.block  # sequences that decode, by the step that needs a new block
        self.chunks: list[tuple[Sequence, int]] = []
        self.begun_s, self.seconds, self.run, self.decoded = 0.0, 0.0, 0, False
        self.running = False
        self.version = 0
        self.stalled: list[list[float]] = []  # [sequences, when they last said a token]
        # What happened: seconds of steps, summed over time cache blocks and sequences, waiting by cause.
        self.busy_s = self.prefill_s = self.block_s = self.sequence_s = self.decode_steps = 0.0
        self.context_steps = 0.0
        self.waited_s = dict.fromkeys(CAUSES, 0.0)
        self.cause = "step"
        self.peak_blocks = self.preemptions = self.decoded_tokens = 0
        self.prompt_tokens = self.recomputed_tokens = 0
        self.gaps_s: list[float] = []
        self.gap_counts: list[int] = []

    # -- what comes in ------------------------------------------------------------------------------------------

    @property
    def load(self) -> int:
        """Requests that are here."""
        return len(self.waiting) + self.active

    def blocks(self, tokens: int) -> int:
        """Blocks that so many tokens take."""
        return -(-tokens // self.block)

    def holds(self, prompt: int, output: int) -> bool:
        """Whether a request fits into an empty cache at its full length."""
        return self.blocks(prompt + output - 1) <= self.cache.capacity

    def matched(self, one: Sequence) -> int:
        """Tokens of a prompt that are in the cache."""
        return self.cache.found(one.ids, (one.prompt - 1) // self.unit_tokens) * self.unit_tokens

    def enqueue(self, one: Sequence, now_s: float) -> bool:
        """Puts a request into the queue; whether it is next, and a run of decodes should end for it."""
        heappush(self.waiting, (one.priority, one.index, one))
        return self.running and self.waiting[0][2] is one and self.interrupt(now_s)

    def receive(self, one: Sequence, now_s: float) -> bool:
        """The cache of a request is here; whether a run of decodes ends for it."""
        one.said_s = now_s
        self.arrived.append(one)
        return self.running and self.interrupt(now_s)

    def interrupt(self, now_s: float) -> bool:
        """Ends a run of decodes with the step that runs at ``now_s``; whether that is earlier than planned."""
        if self.run <= 1:
            return False
        low, low_s, high, high_s = 0, 0.0, self.run, self.seconds
        passed = now_s - self.begun_s
        while high - low > 1:
            # Steps grow with their context, so the chord is below the number sought, and near it.
            share = (passed - low_s) / (high_s - low_s)
            middle = min(max(low + int(share * (high - low)), low + 1), high - 1)
            found_s = self.steps.decode_run(self.decodes, self.context, middle)
            if found_s >= passed:
                high, high_s = middle, found_s
            else:
                low, low_s = middle, found_s
        if high == self.run:
            return False
        self.run, self.seconds = high, high_s
        self.version += 1
        return True

    # -- planning a step ----------------------------------------------------------------------------------------

    def begin(self, now_s: float) -> bool:
        """Plans the next step, or run of decodes; whether there is one. Its end is ``begun_s + seconds``."""
        for one in self.arrived:
            self.coming.remove(one)
            self._start_decode(one, one.said_s)
        self.arrived.clear()
        preempted = False
        while self.decodes and self._new_blocks(1) > self.cache.available:
            self._preempt()
            preempted = True
        decodes = self.decodes
        self._choose_chunks(preempted)
        self.begun_s, self.running = now_s, True
        if self.chunks:
            self.decoded = self.settings.mixed and decodes > 0
            tokens = prompts = 0
            attended = past = 0.0
            for one, new in self.chunks:
                tokens += new
                prompts += 1
                past += one.computed
                attended += new * one.computed + new * (new + 1) / 2
            beside = (decodes, self.context) if self.decoded else (0, 0)
            self.run = 1
            self.seconds = self.steps.one(tokens, prompts, attended, past, *beside)
            return True
        if decodes:
            self.decoded = True
            self.run = self._longest_run()
            self.seconds = self.steps.decode_run(decodes, self.context, self.run)
            return True
        self.running = False
        return False

    def _choose_chunks(self, preempted: bool) -> None:
        settings, chunks = self.settings, self.chunks
        chunks.clear()
        left = settings.max_batched_tokens - (self.decodes if settings.mixed else 0)
        for one in self.prefilling:
            new = min(one.goal - one.computed, left)
            if new > 0:
                chunks.append((one, new))
                left -= new
        # The decodes of this step come first: their blocks are kept back.
        kept = self._new_blocks(1) if self.decodes else 0
        self.cause = "step"
        while self.waiting and not preempted:
            one = self.waiting[0][2]
            if self.active >= settings.max_sequences:
                self.cause = "sequences"
                return
            if not one.ready and left <= 0:
                return
            if not self._admit(one, kept, left if chunks else None):
                return
            heappop(self.waiting)
            if not one.ready:
                new = one.goal - one.computed
                new = min(new, left) if settings.chunked else new
                chunks.append((one, new))
                left -= new

    def _admit(self, one: Sequence, kept: int, left: int | None) -> bool:
        """Takes the blocks of a request if there is room, for it and for what is ``reserved``."""
        cache, length = self.cache, one.prompt + one.emitted - (1 if one.ready else 0)
        hits = unread = cached = 0
        if not one.ready:
            if self.prefix_hit is not None:
                cached = min(round(self.prefix_hit * one.prompt), length - 1)
            elif self.settings.prefix_sharing and one.ids:
                hits = cache.found(one.ids, (length - 1) // self.unit_tokens)
                unread = cache.unread(one.ids, hits)
                cached = hits * self.unit_tokens
            if not self.settings.chunked and left is not None and length - cached > left:
                return False
        need = self.blocks(length) - hits * cache.unit
        own_growth = self.blocks(one.prompt + one.output - 1) - self.blocks(length)
        room = cache.available - kept
        if need + unread + self.settings.reserved * max(self.growth - kept + own_growth, 0) > room and (
            self.active or need + unread > room
        ):
            self.cause = "cache"
            return False
        one.shared = list(one.ids[:hits])
        cache.read(one.shared)
        cache.take(need)
        one.own, one.registered = need, hits
        one.goal, one.computed = length, cached
        one.admitted = True
        self.active += 1
        self.growth += own_growth
        self.newest.append((-one.priority, -one.index, one))
        if len(self.newest) > 4 * self.active + 64:
            self._by_age()
        if one.ready:
            self.coming.append(one)
        else:
            self.prefilling.append(one)
            if not one.preempted:
                one.found = cached
            else:
                self.recomputed_tokens += length - cached
            self.prompt_tokens += length - cached
        return True

    def _new_blocks(self, steps: int) -> int:
        """Blocks that the decodes need for their next steps."""
        whole, rest = divmod(steps, self.block)
        need = whole * self.decodes
        if rest:
            # Step j (of the counter) begins a block for those of phase (1 - j) modulo the block.
            first = (-self.counter) % self.block
            low = first - rest + 1
            phases = self.phases
            need += sum(phases[low : first + 1]) if low >= 0 else sum(phases[: first + 1]) + sum(phases[low:])
        return need

    def _longest_run(self) -> int:
        """Steps until a decode ends or the cache is full."""
        decoding, counter = self.decoding, self.counter
        while decoding[0][2].ends != decoding[0][0]:
            heappop(decoding)
        steps = decoding[0][0] - counter
        room = self.cache.available
        if self._new_blocks(steps) <= room:
            return steps
        low, high = 1, steps  # one step fits: `begin` has made room for it
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._new_blocks(middle) <= room else (low, middle)
        return low

    def _preempt(self) -> None:
        """Sends the newest request back to the queue; what it has said is computed again with its prompt."""
        one = next(found for found in self._by_age() if found.ends >= 0 or found in self.prefilling)
        if one.ends >= 0:
            self._stop_decode(one)
            next(group for group in self.stalled if group[1] == one.said_s)[0] -= 1
        else:
            self.prefilling.remove(one)
        self.growth -= self.blocks(one.prompt + one.output - 1) - self._held(one)
        self._release(one)
        one.ready = False
        one.preempted += 1
        self.preemptions += 1
        heappush(self.waiting, (one.priority, one.index, one))

    def _by_age(self) -> list[Sequence]:
        """Admitted sequences, those of the lowest priority and of them the newest first."""
        self.newest = sorted(entry for entry in set(self.newest) if entry[2].admitted)
        return [entry[2] for entry in self.newest]

    # -- after a step -------------------------------------------------------------------------------------------

    def end(self, now_s: float) -> tuple[list[Sequence], list[Sequence]]:
        """What the step that ends now did: sequences that said their first token, and those that are done."""
        spent, cache = now_s - self.begun_s, self.cache
        self.running = False
        self.busy_s += spent
        self.sequence_s += spent * self.active
        self.block_s += spent * cache.used
        if self.waiting:
            self.waited_s[self.cause] += spent * len(self.waiting)
        first: list[Sequence] = []
        done: list[Sequence] = []
        if self.decoded:
            self._decode(self.run, now_s, done)
        if self.chunks:
            self.prefill_s += spent
            for one, new in self.chunks:
                one.computed += new
                if one.computed == one.goal:
                    self._prefilled(one, now_s, first, done)
            self.chunks.clear()
        self.peak_blocks = max(self.peak_blocks, cache.used)
        self.decoded = False
        return first, done

    def _decode(self, steps: int, now_s: float, done: list[Sequence]) -> None:
        decodes, spent = self.decodes, now_s - self.begun_s
        self.decode_steps += steps
        self.decoded_tokens += steps * decodes
        self.context_steps += steps * (self.context + decodes * (steps - 1) / 2)
        need = self._new_blocks(steps)
        self.cache.take(need)
        self.growth -= need
        self.counter += steps
        self.context += steps * decodes
        each = spent / steps
        for count, said_s in self.stalled:
            if count:
                self._gap(self.begun_s - said_s + each, int(count))
        if steps > 1:
            self._gap(each, (steps - 1) * decodes)
        decoding, counter = self.decoding, self.counter
        while decoding and decoding[0][0] <= counter:
            ends, _, one = heappop(decoding)
            if one.ends == ends:
                self._stop_decode(one)
                one.emitted = one.output
                self._share(one, (one.prompt + one.output - 1) // self.unit_tokens)
                self._finish(one, done)
        self.stalled = [[self.decodes, now_s]] if self.decodes else []

    def _gap(self, seconds: float, count: int) -> None:
        self.gaps_s.append(seconds)
        self.gap_counts.append(count)

    def _prefilled(self, one: Sequence, now_s: float, first: list[Sequence], done: list[Sequence]) -> None:
        self.prefilling.remove(one)
        self._share(one, one.goal // self.unit_tokens)
        if one.emitted:
            self._gap(now_s - one.said_s, 1)
        else:
            first.append(one)
        one.emitted += 1
        if one.emitted == one.output:
            self._finish(one, done)
        elif self.prefill_only:
            self.growth -= self.blocks(one.prompt + one.output - 1) - self._held(one)
            self._release(one)
            one.ready = True
        else:
            self._start_decode(one, now_s)

    def _share(self, one: Sequence, upto: int) -> None:
        """Full blocks of what is in the cache now, up to an id, are for others too."""
        if one.registered < min(upto, len(one.ids)) and self.settings.prefix_sharing and self.prefix_hit is None:
            new = self.cache.share(one.ids[one.registered : upto])
            one.shared += new
            one.own -= len(new) * self.cache.unit
            one.registered = min(upto, len(one.ids))

    def _start_decode(self, one: Sequence, said_s: float) -> None:
        one.said_s = said_s
        one.ends = self.counter + one.output - one.emitted
        one.phase = (one.goal - self.counter) % self.block
        self.phases[one.phase] += 1
        self.decodes += 1
        self.context += one.goal
        heappush(self.decoding, (one.ends, one.index, one))
        if self.stalled and self.stalled[-1][1] == said_s:
            self.stalled[-1][0] += 1
        else:
            self.stalled.append([1, said_s])

    def _stop_decode(self, one: Sequence) -> None:
        """Takes a sequence out of the decodes, with what it has said until now."""
        left = one.ends - self.counter
        passed = one.output - left - one.emitted
        one.own += self.blocks(one.goal + passed) - self.blocks(one.goal)
        one.emitted += passed
        self.phases[one.phase] -= 1
        self.decodes -= 1
        self.context -= one.goal + passed
        one.ends = -1
        if passed and self.stalled:
            one.said_s = self.stalled[0][1]

    def _held(self, one: Sequence) -> int:
        return one.own + len(one.shared) * self.cache.unit

    def _release(self, one: Sequence) -> None:
        self.cache.release(one.own, one.shared)
        one.own, one.shared, one.registered = 0, [], 0
        one.admitted = False
        self.active -= 1

    def _finish(self, one: Sequence, done: list[Sequence]) -> None:
        self._release(one)
        done.append(one)
