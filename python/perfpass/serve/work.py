"""Questions answered once: a cache of answers, one computation for equal questions, and a bound on what waits."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

from perfpass.serve.problems import Problem
from perfpass.serve.settings import Settings

How = Literal["hit", "miss", "joined"]
# Uploaded graphs take milliseconds. What is built from a name or tried on many devices takes up to seconds: a thread of
# its own, so that the first do not wait for it. More threads would share one interpreter's lock; more workers do not.
LANES = ("graphs", "others")
_STUCK = 10  # times the limit of a question, after which a thread counts as lost


class Cache:
    """Answers by what was asked, the least used leaving first."""

    def __init__(self, most_bytes: int) -> None:
        """``most_bytes``: of the answers; what is one's own per entry is not counted."""
        self._most_bytes, self.bytes = most_bytes, 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def find(self, key: str) -> bytes | None:
        """The answer, which is now the last that leaves."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def keep(self, key: str, answer: bytes) -> None:
        """Keeps it, if it fits."""
        if len(answer) > self._most_bytes or key in self._kept:
            return
        self._kept[key] = answer
        self.bytes += len(answer)
        while self.bytes > self._most_bytes:
            _, left = self._kept.popitem(last=False)
            self.bytes -= len(left)


@dataclass
class Lane:
    """A thread and what waits for it; ``since``: when it began what it does now, None: nothing."""

    executor: ThreadPoolExecutor
    waiting: int = 0
    since: float | None = field(default=None)


def _lanes() -> dict[str, Lane]:
    return {name: Lane(ThreadPoolExecutor(1, thread_name_prefix=name)) for name in LANES}


class Work:
    """Where the questions of one worker are answered."""

    def __init__(self, settings: Settings) -> None:
        """``settings``: bounds of what waits and of how long."""
        self._settings = settings
        self.cache = Cache(settings.most_cache_bytes)
        self._asked: dict[str, asyncio.Future[bytes]] = {}
        self.lanes = _lanes()

    async def answer(self, key: str, lane: str, compute: Callable[[], bytes]) -> tuple[bytes, How]:
        """The answer of ``compute`` or an equal one. Raises Problem where it waits or takes too long, and what it does.

        Who leaves does not stop it: the answer is kept for the next.
        """
        if (found := self.cache.find(key)) is not None:
            return found, "hit"
        how: How = "joined"
        if (future := self._asked.get(key)) is None:
            how, future = "miss", self._begin(key, self.lanes[lane], compute)
        try:
            limit = self._settings.question_seconds
            return await asyncio.wait_for(asyncio.shield(future), limit), how
        except asyncio.TimeoutError:
            raise Problem("time", f"no answer within {limit:g} s; ask again, it may be ready", _LATER) from None

    def _begin(self, key: str, lane: Lane, compute: Callable[[], bytes]) -> asyncio.Future[bytes]:
        if lane.waiting >= self._settings.queue:
            raise Problem("busy", f"{lane.waiting} questions wait; ask again in a second", _LATER)

        def timed() -> bytes:
            lane.since = time.monotonic()
            try:
                return compute()
            finally:
                lane.since = None

        lane.waiting += 1
        future = asyncio.get_running_loop().run_in_executor(lane.executor, timed)
        self._asked[key] = future

        def done(ended: asyncio.Future[bytes]) -> None:
            lane.waiting -= 1
            if self._asked.get(key) is ended:
                del self._asked[key]
            # Asked for, so that an error that nobody waits for any more is not reported as forgotten.
            if not ended.cancelled() and ended.exception() is None:
                self.cache.keep(key, ended.result())

        future.add_done_callback(done)
        return future

    @property
    def running(self) -> bool:
        """Whether a thread computes."""
        return any(lane.since is not None for lane in self.lanes.values())

    @property
    def stuck(self) -> bool:
        """Whether a thread is with one question for far longer than any may take."""
        now, most = time.monotonic(), _STUCK * self._settings.question_seconds
        return any(lane.since is not None and now - lane.since > most for lane in self.lanes.values())

    def close(self) -> None:
        """Forgets what waits, and does not wait for what runs; with new threads, an application may start again."""
        for lane in self.lanes.values():
            lane.executor.shutdown(wait=False, cancel_futures=True)
        self.lanes, self._asked = _lanes(), {}


_LATER = {"Retry-After": "1"}
