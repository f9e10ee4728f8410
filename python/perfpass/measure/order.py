"""The order of a campaign: what tells most comes first, so that a budget that runs out has cost little knowledge."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations

from perfpass.measure.configuration import Configuration

TOGETHER = 4  # configurations of one model measured in a row: building a model costs as much as measuring it once


def informative_order(
    configurations: Sequence[Configuration], known: Iterable[Configuration] = ()
) -> list[Configuration]:
    """All of ``configurations``, each of which adds most to what those before it (and ``known``) cover.

    What a configuration tells is summed over its traits (model, family, mode, batch, precision, ...) and pairs of
    them; a trait seen n times before counts 1 / (n + 1), so it is a greedy maximisation of a concave, hence
    submodular, coverage. Configurations of one model come in groups of up to `TOGETHER`. Deterministic; ties keep the
    given order.
    """
    seen: Counter[tuple[object, ...]] = Counter()
    for configuration in known:
        seen.update(_traits(configuration))
    waiting: dict[tuple[object, ...], list[Configuration]] = {}
    for configuration in configurations:
        waiting.setdefault(_build_key(configuration), []).append(configuration)
    # A group's gain only falls while others are chosen, so an old gain is an upper bound: only the group on top of the
    # heap is computed anew, and chosen if it stays there.
    heap = [(-_best_gain(group, seen), index, key) for index, (key, group) in enumerate(waiting.items())]
    heapq.heapify(heap)
    ordered: list[Configuration] = []
    while heap:
        _, index, key = heapq.heappop(heap)
        group = waiting[key]
        now = (-_best_gain(group, seen), index, key)
        if heap and now[:2] > heap[0][:2]:
            heapq.heappush(heap, now)
            continue
        for _ in range(min(TOGETHER, len(group))):
            chosen = max(group, key=lambda configuration: _gain(configuration, seen))
            group.remove(chosen)
            ordered.append(chosen)
            seen.update(_traits(chosen))
        if group:
            heapq.heappush(heap, (-_best_gain(group, seen), index, key))
    return ordered


def _build_key(configuration: Configuration) -> tuple[object, ...]:
    """Configurations that share it run on the same built model."""
    c = configuration
    return (c.model, c.image_size, c.runtime, c.mode in ("prefill", "decode"))


def _traits(configuration: Configuration) -> list[tuple[object, ...]]:
    c = configuration
    family = c.name.partition(".")[0].split("_")[0].rstrip("0123456789")
    size = (c.batch.bit_length(), (c.sequence_length or 0).bit_length(), c.image_size)
    single: list[tuple[object, ...]] = [
        ("model", c.model),
        ("family", c.source, family),
        ("mode", c.mode, c.optimizer),
        ("size", *size),
        ("precision", c.precision, c.layout),
        ("runtime", c.runtime, c.threads),
        ("repeat", c.repeat),
    ]
    return single + [(*a, *b) for a, b in combinations(single[1:6], 2)]


def _gain(configuration: Configuration, seen: Counter[tuple[object, ...]]) -> float:
    return sum(1.0 / (1 + seen[trait]) for trait in _traits(configuration))


def _best_gain(group: Sequence[Configuration], seen: Counter[tuple[object, ...]]) -> float:
    return max(_gain(configuration, seen) for configuration in group)
