"""Prefix caching: prompt tokens whose keys and values are found, and what a trace finds in a cache of any size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from perfpass.errors import ArgumentError


def computed_tokens(prompt_tokens: float, hit: float) -> float:
    """Prompt tokens that are left to compute where a share ``hit`` is found: at least the last one, whose logits are
    the answer's first token (vLLM, KVCacheManager.get_computed_blocks).

    Raises ArgumentError for a share outside 0 to 1.
    """
    if not 0.0 <= hit <= 1.0:
        raise ArgumentError(f"a prefix hit is a share from 0 to 1, got {hit!r}")
    return max(min(1.0, prompt_tokens), (1.0 - hit) * prompt_tokens)


def reuse_distances(requests: Iterable[Sequence[int]]) -> tuple[np.ndarray, int]:
    """Blocks that a cache must hold for each hit of a trace, and how many blocks it asks for in all.

    ``requests``: the blocks of each prompt by hash, in the order of arrival; a hash stands for a block and all before
    it. A cache of n blocks that drops the least recently used finds those blocks, and only those, whose distance
    [hits] is at most n (Mattson et al. 1970): the blocks touched since, itself included. Blocks are touched from the
    last to the first, as vLLM frees them, so that a prefix is never dropped before what follows it.
    """
    place: dict[int, int] = {}
    asked = [list(request) for request in requests]
    total = sum(map(len, asked))
    # A Fenwick tree over times: 1 where a block was touched last.
    tree = np.zeros(total + 1, dtype=np.int64).tolist()

    def add(at: int, amount: int) -> None:
        while at <= total:
            tree[at] += amount
            at += at & -at

    def until(at: int) -> int:
        found = 0
        while at > 0:
            found += tree[at]
            at -= at & -at
        return int(found)

    distances, now = [], 0
    for blocks in asked:
        # A request looks all its blocks up before it touches any.
        distances += [len(place) - until(place[block]) + 1 for block in blocks if block in place]
        for block in reversed(blocks):
            now += 1
            if block in place:
                add(place[block], -1)
            place[block] = now
            add(now, 1)
    return np.array(distances, dtype=np.int64), total


def hit_rates(requests: Iterable[Sequence[int]], sizes_blocks: Sequence[float]) -> np.ndarray:
    """[N] share of a trace's blocks that caches of ``sizes_blocks`` [N] blocks find; never falls with the size.

    Raises ArgumentError for a trace without blocks or a negative size.
    """
    sizes = np.asarray(sizes_blocks, dtype=np.float64)
    if np.isnan(sizes).any() or (sizes < 0).any():
        raise ArgumentError(f"a cache has 0 blocks or more, got {sizes.tolist()}")
    distances, total = reuse_distances(requests)
    if not total:
        raise ArgumentError("the trace has no blocks, so no share of them can be found")
    return np.asarray(np.searchsorted(np.sort(distances), sizes, side="right") / total)
