"""Equal questions are computed once, answers are kept within their bytes, and what waits has an end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpass.errors import ArgumentError
from perfpass.serve.problems import Problem
from perfpass.serve.settings import Settings
from perfpass.serve.work import Cache, Work


def run(test: Callable[[Work], object], settings: Settings | None = None) -> None:
    async def inside() -> None:
        work = Work(settings or Settings())
        try:
            await test(work)  # type: ignore[misc]
        finally:
            work.close()

    asyncio.run(inside())


def test_equal_questions_at_once_are_one_computation():
    calls, go = [], threading.Event()

    def compute() -> bytes:
        calls.append(1)
        go.wait(60)
        return b"answer"

    async def test(work: Work) -> None:
        asking = [asyncio.create_task(work.answer("key", "graphs", compute)) for _ in range(20)]
        await asyncio.sleep(0)
        go.set()
        found = await asyncio.gather(*asking)
        assert {body for body, _ in found} == {b"answer"} and [how for _, how in found].count("miss") == 1
        assert await work.answer("key", "graphs", compute) == (b"answer", "hit")
        assert len(calls) == 1

    run(test)


def test_an_error_reaches_all_who_wait_and_is_not_kept():
    tries = []

    def compute() -> bytes:
        tries.append(1)
        raise ArgumentError("no")

    async def test(work: Work) -> None:
        found = await asyncio.gather(*(work.answer("key", "graphs", compute) for _ in range(3)), return_exceptions=True)
        assert [type(error) for error in found] == [ArgumentError] * 3 and len(tries) == 1
        with pytest.raises(ArgumentError):
            await work.answer("key", "graphs", compute)
        assert len(tries) == 2

    run(test)


def test_what_takes_too_long_is_told_so_and_answered_later():
    go = threading.Event()

    async def test(work: Work) -> None:
        slow = work.answer("slow", "graphs", lambda: b"late" if go.wait(60) else b"")
        with pytest.raises(Problem) as told:
            await slow
        assert told.value.name == "time" and told.value.status == 503
        go.set()
        while work.lanes["graphs"].waiting:
            await asyncio.sleep(0.01)
        assert await work.answer("slow", "graphs", lambda: b"") == (b"late", "hit")

    run(test, Settings(question_seconds=0.1))


def test_a_full_queue_refuses_and_the_other_lane_goes_on():
    go = threading.Event()

    async def test(work: Work) -> None:
        asking = [asyncio.create_task(work.answer(str(i), "others", lambda: b"x" * go.wait(60))) for i in range(2)]
        await asyncio.sleep(0.01)
        with pytest.raises(Problem) as told:
            await work.answer("third", "others", lambda: b"")
        assert told.value.name == "busy" and told.value.headers["Retry-After"] == "1"
        assert await work.answer("quick", "graphs", lambda: b"now") == (b"now", "miss")
        go.set()
        await asyncio.gather(*asking)

    run(test, Settings(queue=2))


def test_a_thread_that_is_lost_shows():
    go = threading.Event()

    async def test(work: Work) -> None:
        with pytest.raises(Problem):
            await work.answer("endless", "graphs", lambda: b"x" * go.wait(60))
        assert work.running and not work.stuck
        while not work.stuck:
            await asyncio.sleep(0.05)
        go.set()

    run(test, Settings(question_seconds=0.1))


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 60)), max_size=60))
def test_a_cache_stays_within_its_bytes_and_forgets_the_least_used(kept):
    cache = Cache(100)
    for key, size in kept:
        if cache.find(str(key)) is None:
            cache.keep(str(key), b"x" * size)
            assert cache.find(str(key)) == b"x" * size
        assert cache.bytes == sum(len(found) for found in (cache.find(str(k)) for k in range(9)) if found) <= 100
