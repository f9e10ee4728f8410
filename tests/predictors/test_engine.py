"""Promises of the engines' model: nothing lost, nothing before its cause, no cache over its size, theory kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpass.errors import LimitError
from perfpass.predictors.engine.cache import PagedCache
from perfpass.predictors.engine.events import Pool, Ran, run
from perfpass.predictors.engine.requests import Requests
from perfpass.predictors.engine.settings import ROUTERS, EngineSettings
from twins import engine as plain


class KnownSteps:
    """Steps of stated seconds: a fixed part, and parts for every size of a batch."""

    def __init__(
        self, fixed_s: float = 4e-3, prompt_s: float = 3e-5, decode_s: float = 2e-5, context_s: float = 2e-9
    ) -> None:
        self.sizes = fixed_s, prompt_s, decode_s, context_s

    def seconds(self, batch: Any) -> np.ndarray:
        return np.atleast_1d(self.one(*vars(batch).values()))

    def one(
        self, prompt_tokens: float, prompts: float, attended: float, cached: float, decodes: float, context: float
    ) -> float:
        fixed, prompt, decode, read = self.sizes
        return fixed + prompt * prompt_tokens + read * (attended + cached + context) + decode * decodes

    def decode_run(self, decodes: float, context: float, steps: float) -> float:
        fixed, _, decode, read = self.sizes
        return steps * (fixed + decode * decodes + read * (context + decodes * (steps - 1) / 2))


NUMBER = st.integers(1, 40)
SMALL = st.builds(
    EngineSettings,
    max_batched_tokens=st.integers(3, 40),
    max_sequences=st.integers(1, 6),
    block_tokens=st.sampled_from([1, 2, 4, 16]),
    mixed=st.booleans(),
    chunked=st.booleans(),
    reserved=st.sampled_from([0.0, 0.1, 1.0]),
)
LOAD = st.lists(st.tuples(st.floats(0, 0.3), NUMBER, NUMBER), min_size=1, max_size=20)


def asked(load: list[tuple[float, int, int]], **more: Any) -> Requests:
    gaps, prompts, outputs = (np.array(v) for v in zip(*load, strict=True))
    return Requests(np.cumsum(gaps) - gaps[0], prompts, outputs, **more)


def ids_of(requests: Requests, groups: list[int], block: int) -> Requests:
    """With prefixes: requests of a group share theirs as far as both go."""
    each = [[1000 * g + j for j in range(int(p + o) // block)] for g, p, o in
            zip(groups, requests.prompt_tokens, requests.output_tokens, strict=False)]  # fmt: skip
    starts = np.cumsum([0, *map(len, each)])
    return replace(
        requests, ids=np.array([i for ids in each for i in ids], dtype=np.int64), starts=starts, block_tokens=block
    )


def keeps_its_promises(requests: Requests, found: Ran) -> None:
    served = ~found.refused
    assert np.isfinite(found.end_s[served]).all() and np.isnan(found.end_s[found.refused]).all()
    assert (found.arrival_s[served] <= found.admitted_s[served]).all()
    assert (found.admitted_s[served] < found.first_s[served]).all()
    assert (found.first_s[served] <= found.end_s[served]).all()
    outputs, prompts = requests.output_tokens[served], requests.prompt_tokens[served]
    assert found.gap_counts.sum() == (outputs - 1).sum()
    assert np.isclose((found.gaps_s * found.gap_counts).sum(), (found.end_s - found.first_s)[served].sum())
    for work in (found.work, found.prefill):
        if work:
            assert work.peak_blocks <= work.capacity_blocks
    computed = (found.prefill or found.work).prompt_tokens - found.work.recomputed_tokens * (found.prefill is None)
    assert computed == prompts.sum() - found.found_tokens[served].sum()
    assert found.work.busy_s <= np.nanmax(found.end_s) * found.work.replicas + 1e-9


@settings(max_examples=150, deadline=None)
@given(LOAD, SMALL, st.integers(16, 120))
def test_runs_of_steps_are_the_steps_one_by_one(load, policy, tokens):
    """The engine that skips what does not change, against one that does every step and counts every block."""
    policy = replace(policy, block_tokens=min(policy.block_tokens, tokens), prefix_sharing=False)
    requests, steps = asked(load), KnownSteps()
    slow = plain.run(requests, steps, policy, tokens)
    if not np.isfinite(slow["end"]).any():
        with pytest.raises(LimitError, match="no request fits"):
            run(requests, Pool(steps, policy, tokens))
        return
    fast = run(requests, Pool(steps, policy, tokens))
    keeps_its_promises(requests, fast)
    assert np.allclose(fast.first_s, slow["first"], atol=1e-9, equal_nan=True)
    assert np.allclose(fast.end_s, slow["end"], atol=1e-9, equal_nan=True)
    gaps = np.sort(np.repeat(fast.gaps_s, fast.gap_counts))
    assert np.allclose(gaps, slow["gaps"], atol=1e-5)  # a run tells the mean of its steps


@settings(max_examples=150, deadline=None)
@given(LOAD, SMALL, st.integers(80, 300), st.integers(1, 3), st.sampled_from(ROUTERS), st.booleans(), st.data())
def test_nothing_is_lost_and_nothing_precedes_its_cause(load, policy, tokens, replicas, router, apart, data):
    requests = asked(
        load, priority=np.array(data.draw(st.lists(st.integers(0, 2), min_size=20, max_size=20)))[: len(load)]
    )
    groups = data.draw(st.lists(st.integers(0, 2), min_size=20, max_size=20))
    requests = ids_of(requests, groups, 16)
    pool = Pool(KnownSteps(), policy, tokens, replicas)
    prefill = Pool(KnownSteps(), policy, tokens, 2) if apart else None
    found = run(
        requests, pool, prefill=prefill, transfer_s=(lambda n: 1e-3 + 1e-5 * n) if apart else None, router=router
    )
    keeps_its_promises(requests, found)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 8), st.integers(0, 5), st.booleans()), max_size=60))
def test_a_cache_never_holds_more_than_its_size(moves):
    cache, held = PagedCache(24, 2), []
    for group, blocks, own, leaves in moves:
        ids = [100 * group + j for j in range(blocks)]
        hits = cache.found(ids, blocks)
        need = own + 2 * (blocks - hits)
        if need + cache.unread(ids, hits) <= cache.available:
            cache.read(ids[:hits])
            cache.take(need)
            new = cache.share(ids[hits:])
            held.append((need - 2 * len(new), ids[:hits] + new))
        elif leaves and held:
            cache.release(*held.pop(0))
        assert 0 <= cache.used <= cache.filled <= cache.capacity
        assert cache.used == sum(own for own, _ in held) + 2 * len({i for _, ids in held for i in ids})
    for one in held:
        cache.release(*one)
    assert cache.used == 0


def test_the_longest_unused_prefix_goes_first_and_its_end_before_its_beginning():
    cache = PagedCache(4)
    for ids in ([1, 2], [11, 12]):
        cache.take(2)
        cache.release(0, cache.share(ids))
    cache.take(1)
    assert cache.found([1, 2], 2) == 1 and cache.found([11, 12], 2) == 2
