"""Promises of the engines' model: nothing lost, nothing before its cause, no cache over its size, theory kept."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpass.errors import ArgumentError, LimitError
from perfpass.predictors.engine import arrivals
from perfpass.predictors.engine.arrivals import Drawn, Lengths
from perfpass.predictors.engine.cache import PagedCache
from perfpass.predictors.engine.events import Pool, Ran, run
from perfpass.predictors.engine.queueing import steady
from perfpass.predictors.engine.requests import Requests
from perfpass.predictors.engine.settings import ENGINES, ROUTERS, EngineSettings, engine_settings
from twins import engine as plain


class KnownSteps:
    """Steps of stated seconds: a fixed part, and parts for every size of a batch."""

    def __init__(
        self, fixed_s: float = 4e-3, prompt_s: float = 3e-5, decode_s: float = 2e-5, context_s: float = 2e-9
    ) -> None:
        self.sizes = fixed_s, prompt_s, decode_s, context_s

    def seconds(self, batch: Any) -> np.ndarray:
        return np.atleast_1d(self.one(*(np.asarray(v) for v in vars(batch).values())))

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


# One request at a time: a step is a prompt or a decode, so a service is a sum that is known.
ONE = EngineSettings(10_000, 1, 1, mixed=True, chunked=True, reserved=0.0, prefix_sharing=False)


def one_place(count: int, rate: float, output: Lengths, seed: int) -> tuple[Requests, Ran]:
    requests = arrivals.requests(count, Lengths(100), output, rate_per_s=rate, seed=seed)
    return requests, run(requests, Pool(KnownSteps(context_s=0.0), ONE, 10**6))


@pytest.mark.parametrize("cv", [0.0, 1.0])
def test_one_place_waits_as_theory_says(cv):
    """Every wait is Lindley's recursion exactly; their mean that of Pollaczek and Khinchine (M/D/1, M/G/1) within its
    statistical error.
    """
    waits, wanted = [], []
    for seed in range(8):
        requests, found = one_place(8000, 5.0, Lengths(20, cv), seed)
        service = 4e-3 + 3e-5 * 100 + (requests.output_tokens - 1) * (4e-3 + 2e-5)
        assert np.allclose(found.end_s - found.admitted_s, service)
        free = np.maximum.accumulate(found.arrival_s - np.concatenate([[0], np.cumsum(service)[:-1]]))
        assert np.allclose(found.admitted_s, free + np.concatenate([[0], np.cumsum(service)[:-1]]))
        rate = len(requests) / found.arrival_s[-1]
        wanted.append(rate * (service**2).mean() / (2 * (1 - rate * service.mean())))
        waits.append((found.admitted_s - found.arrival_s).mean())
    error = np.std(np.subtract(waits, wanted), ddof=1) / np.sqrt(len(waits))
    assert abs(np.mean(waits) - np.mean(wanted)) < 3 * error
    closed = steady(KnownSteps(context_s=0.0), ONE, 10**6, 5.0, 100, np.mean(requests.output_tokens), output_cv=cv)
    assert closed is not None
    assert closed.ttft_mean_s - (4e-3 + 3e-5 * 100) == pytest.approx(np.mean(wanted), rel=0.1)


def test_littles_law_holds():
    requests = arrivals.requests(4000, Lengths(500, 0.5), Lengths(50, 0.5), rate_per_s=10.0, seed=2)
    found = run(requests, Pool(KnownSteps(), ENGINES["vllm"], 400_000))
    inside = (found.end_s - found.admitted_s).sum()
    assert found.work.sequence_s == pytest.approx(inside, rel=1e-9)


@pytest.mark.parametrize("runtime", ENGINES)
@pytest.mark.parametrize(("prompt", "output", "rate"), [(1024, 128, 5.0), (1024, 128, 14.0), (200, 16, 20.0)])
def test_the_closed_form_says_what_the_events_say(runtime, prompt, output, rate):
    requests = arrivals.requests(4000, Lengths(prompt), Lengths(output), rate_per_s=rate, seed=3)
    found = run(requests, Pool(KnownSteps(), engine_settings(runtime), 400_000))
    closed = steady(KnownSteps(), engine_settings(runtime), 400_000, rate, prompt, output)
    assert closed is not None
    settled = slice(500, 3500)
    ttft = (found.first_s - found.arrival_s)[settled]
    tpot = ((found.end_s - found.first_s) / (requests.output_tokens - 1))[settled]
    assert closed.ttft_mean_s == pytest.approx(ttft.mean(), rel=0.06)
    assert closed.ttft_p99_s == pytest.approx(np.percentile(ttft, 99), rel=0.25)
    assert closed.tpot_s == pytest.approx(tpot.mean(), rel=0.08)


def test_what_cannot_keep_up_has_no_steady_state():
    steps, vllm = KnownSteps(), ENGINES["vllm"]
    assert steady(steps, vllm, 400_000, 5.0, 8000, 500) is None
    assert steady(steps, vllm, 400_000, 40.0, 1024, 1) is None
    assert steady(steps, ONE, 400_000, 40.0, 1024, 100) is None
    assert steady(steps, vllm, 1200, 14.0, 1024, 128) is None


@pytest.mark.parametrize("runtime", ENGINES)
def test_more_requests_a_second_are_never_served_sooner(runtime):
    tails = []
    for rate in (2.0, 6.0, 10.0, 14.0, 18.0, 24.0):
        requests = arrivals.requests(1500, Lengths(1024, 0.5), Lengths(128, 0.5), rate_per_s=rate, seed=4)
        found = run(requests, Pool(KnownSteps(), engine_settings(runtime), 60_000))
        tails.append(np.percentile(found.first_s - found.arrival_s, [50, 99]))
    assert (np.diff(tails, axis=0) > -0.02 * np.array(tails[1:])).all()


def test_a_prefix_hit_of_nothing_changes_nothing_and_one_of_all_computes_a_token_each():
    requests = arrivals.requests(300, Lengths(600, 0.4), Lengths(30), rate_per_s=8.0, seed=5)
    pool = Pool(KnownSteps(), ENGINES["vllm"], 100_000)
    plain_run, none, whole = (run(requests, pool, prefix_hit=hit) for hit in (None, 0.0, 1.0))
    assert (none.end_s == plain_run.end_s).all() and none.found_tokens.sum() == 0
    assert whole.work.prompt_tokens == len(requests)
    assert (whole.found_tokens == requests.prompt_tokens - 1).all()
    half = run(requests, pool, prefix_hit=0.5)
    means = [(r.first_s - r.arrival_s).mean() for r in (none, half, whole)]
    assert means[0] > means[1] > means[2]


def test_equal_prompts_are_computed_once():
    count, block = 40, 16
    requests = Requests(np.arange(count) * 1.0, np.full(count, 320), np.full(count, 4))
    requests = ids_of(requests, [7] * count, block)
    found = run(requests, Pool(KnownSteps(), ENGINES["vllm"], 10_000))
    assert found.found_tokens[0] == 0 and (found.found_tokens[1:] == 19 * block).all()  # a last token is computed
    apart = run(ids_of(requests, list(range(count)), block), Pool(KnownSteps(), ENGINES["vllm"], 100_000))
    assert apart.found_tokens.sum() == 0


def test_turns_of_a_conversation_find_what_was_said_before():
    requests = arrivals.requests(60, Lengths(320), Lengths(64), rate_per_s=1.0, turns=4, pause_s=2.0, seed=6)
    found = run(requests, Pool(KnownSteps(), ENGINES["vllm"], 1_000_000))
    before = requests.after >= 0
    assert (found.arrival_s[before] == found.end_s[requests.after[before]] + 2.0).all()
    said = requests.prompt_tokens[requests.after[before]] + requests.output_tokens[requests.after[before]]
    assert (found.found_tokens[before] == (said - 1) // 64 * 64).all()
    assert (requests.prompt_tokens[before] == said + 320).all()


def test_a_closed_loop_keeps_its_users_busy():
    requests = arrivals.requests(200, Lengths(100), Lengths(20), arrivals="closed", concurrency=8)
    found = run(requests, Pool(KnownSteps(), ENGINES["vllm"], 100_000))
    moments = np.linspace(0, found.end_s.max() * 0.9, 50)
    inside = [((found.arrival_s <= m) & (found.end_s > m)).sum() for m in moments]
    assert set(inside) == {8}


def test_a_router_that_knows_prefixes_finds_more_of_them():
    requests = arrivals.requests(400, Lengths(300), Lengths(40), rate_per_s=20.0, turns=5, pause_s=1.0, seed=7)
    hits = {}
    for router in ROUTERS:
        found = run(requests, Pool(KnownSteps(), ENGINES["vllm"], 200_000, 4), router=router)
        hits[router] = found.found_tokens.sum() / requests.prompt_tokens.sum()
    assert hits["prefix"] > 1.5 * max(hits["round-robin"], hits["least-loaded"])


def test_priority_goes_first():
    urgent = np.tile([1.0, 1.0, 1.0, 0.0], 100)
    requests = replace(arrivals.requests(400, Lengths(2000), Lengths(40), rate_per_s=16.0, seed=8), priority=urgent)
    found = run(requests, Pool(KnownSteps(), replace(ENGINES["vllm"], max_sequences=8), 100_000))
    wait = found.admitted_s - found.arrival_s
    assert wait[urgent == 0].mean() < 0.5 * wait[urgent == 1].mean()


def test_what_is_drawn_is_drawn_again_and_has_the_asked_mean():
    for kind, burstiness in (("poisson", 1.0), ("gamma", 0.3), ("gamma", 5.0), ("constant", 1.0)):
        one, two = (
            arrivals.requests(
                20_000,
                Lengths(800, 1.0),
                Lengths(90, 0.5),
                rate_per_s=5.0,
                arrivals=kind,
                burstiness=burstiness,
                seed=9,
            )
            for _ in range(2)
        )
        assert (one.arrival_s == two.arrival_s).all() and (one.prompt_tokens == two.prompt_tokens).all()
        gaps = np.diff(one.arrival_s)
        assert gaps.mean() == pytest.approx(0.2, rel=0.05)
        assert gaps.std() / gaps.mean() == pytest.approx(
            0.0 if kind == "constant" else burstiness**-0.5, rel=0.05, abs=1e-6
        )
        assert one.prompt_tokens.mean() == pytest.approx(800, rel=0.05)
        assert one.output_tokens.std() == pytest.approx(45, rel=0.1)
    again = arrivals.requests(50, Drawn(one), rate_per_s=1.0)
    assert set(zip(again.prompt_tokens, again.output_tokens, strict=True)) <= set(
        zip(one.prompt_tokens, one.output_tokens, strict=True)
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rate_per_s": math.nan}, "a rate must be from"),
        ({"rate_per_s": -1.0}, "a rate must be from"),
        ({"arrivals": "weibull"}, "unknown arrivals 'weibull'"),
        ({"burstiness": 0.0}, "burstiness must be"),
        ({"arrivals": "closed", "concurrency": None}, "a closed loop needs requests in flight"),
        ({"turns": 0}, "turns must be"),
        ({"count": 0}, "the number of requests"),
    ],
)
def test_requests_out_of_range_are_refused(change, said):
    options = {"count": 10, "prompt": Lengths(10), "output": Lengths(10), "rate_per_s": 1.0, **change}
    with pytest.raises(ArgumentError, match=said):
        arrivals.requests(options.pop("count"), options.pop("prompt"), **options)
    with pytest.raises(LimitError, match="at most 1,000,000"):
        arrivals.requests(10**7, Lengths(10), Lengths(10), rate_per_s=1.0)


def test_settings_are_those_of_the_version_and_the_board():
    assert engine_settings("vllm", 140e9) == engine_settings("vllm", 140e9, version="0.12.0") == ENGINES["vllm"]
    first = engine_settings("vllm", version="v0.5.4")
    assert not first.mixed and not first.prefix_sharing and engine_settings("vllm", version="nightly").mixed
    for small in (engine_settings("vllm", 24e9), engine_settings("vllm", 80e9, a100=True)):
        assert small.max_batched_tokens < engine_settings("vllm", 80e9).max_batched_tokens
    assert engine_settings("sglang", 24e9).max_batched_tokens == 4096
    with pytest.raises(ArgumentError, match="unknown runtime 'tgis'"):
        engine_settings("tgis")
