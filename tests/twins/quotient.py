"""Colour refinement with dictionaries of tuples."""

from __future__ import annotations

from collections import Counter


def classes(
    edges: list[tuple[int, int]], features: list[bytes], rounds: int, producers: bool, consumers: bool, counted: bool
) -> list[list[int]]:
    """The class of every node after each round, numbered in the order of first appearance."""

    def numbered(keys: list[object]) -> list[int]:
        order = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        return [order[key] for key in keys]

    found = [numbered(list(features))]
    for _ in range(rounds):
        now = found[-1]
        into: list[Counter[int]] = [Counter() for _ in features]
        out: list[Counter[int]] = [Counter() for _ in features]
        for a, b in edges:
            into[b][now[a]] += 1
            out[a][now[b]] += 1

        def seen(neighbours: Counter[int], counts: bool = counted) -> frozenset[object]:
            return frozenset(neighbours.items() if counts else neighbours)

        found.append(
            numbered(
                [
                    (now[n], seen(into[n]) if producers else None, seen(out[n]) if consumers else None)
                    for n in range(len(features))
                ]
            )
        )
    return found
