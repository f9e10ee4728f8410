from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpass.errors import ArgumentError
from perfpass.llm.prefix import computed_tokens, hit_rates


def test_a_hit_of_all_still_computes_the_last_token():
    assert computed_tokens(1000, 1.0) == 1.0
    assert computed_tokens(1000, 0.0) == 1000.0
    assert computed_tokens(1, 1.0) == 1.0


@given(st.integers(1, 10**6), st.floats(0, 1), st.floats(0, 1))
def test_a_higher_hit_never_computes_more(tokens, one, other):
    low, high = sorted((one, other))
    assert computed_tokens(tokens, high) <= computed_tokens(tokens, low)


def found_by_a_cache(requests: list[list[int]], size: int) -> float:
    """A cache of so many blocks that drops the least recently used, run through a trace."""
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for blocks in requests:
        hits += sum(block in cache for block in blocks)
        for block in reversed(blocks):
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > size:
            cache.popitem(last=False)
    return hits / sum(map(len, requests))


def prefixes(seeds: list[tuple[int, int]]) -> list[list[int]]:
    """Prompts of some conversations: each so many blocks of its conversation's."""
    return [[1000 * conversation + i for i in range(blocks)] for conversation, blocks in seeds]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6)), min_size=1, max_size=40),
    st.integers(0, 40),
)
def test_what_a_cache_finds_is_what_one_of_its_size_finds_run_by_hand(seeds, size):
    requests = prefixes(seeds)
    assert hit_rates(requests, [size])[0] == pytest.approx(found_by_a_cache(requests, size))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6)), min_size=1, max_size=40))
def test_a_larger_cache_never_finds_less_and_none_finds_nothing(seeds):
    rates = hit_rates(prefixes(seeds), range(60))
    assert (np.diff(rates) >= 0).all()
    assert rates[0] == 0.0
    blocks = [block for request in prefixes(seeds) for block in request]
    assert rates[-1] == pytest.approx(1 - len(set(blocks)) / len(blocks))


@pytest.mark.parametrize(("requests", "sizes"), [([], [1]), ([[1]], [-1]), ([[1]], [float("nan")])])
def test_no_blocks_and_no_sizes_are_refused(requests, sizes):
    with pytest.raises(ArgumentError):
        hit_rates(requests, sizes)
