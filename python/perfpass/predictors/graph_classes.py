"""A graph as classes of nodes that no message-passing network of L layers can tell apart.

Nodes with the same features and, hop by hop, the same neighbourhood have the same embedding (Xu et al., "How powerful
are graph neural networks?", ICLR 2019, lemma 2). So a network of L layers gives on the classes, with multiplicities,
just what it gives on the graph; repeated layers of a model cost once. Classes are found by L rounds of colour
refinement along data-flow edges, producer to consumer; layer l runs on the classes of round l, which are fewer than
those of the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from perfpass.errors import ArgumentError

_MIX = tuple(np.uint64(m) for m in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_HALF = np.uint64(32)


def _no_index() -> np.ndarray:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Level:
    """The C classes that one round of refinement finds among n nodes, and how they hang on the B of the round before.

    ``count`` [C] members; ``previous`` [C] the class of the round before. A member of ``target`` [K] has ``weight`` [K]
    incoming edges from members of class ``source`` [K] of the round before; ``target`` ascends. The first level has
    counts alone.
    """

    count: np.ndarray
    previous: np.ndarray = field(default_factory=_no_index)
    source: np.ndarray = field(default_factory=_no_index)
    target: np.ndarray = field(default_factory=_no_index)
    weight: np.ndarray = field(default_factory=_no_index)

    def __len__(self) -> int:
        return len(self.count)

    @cached_property
    def degree(self) -> np.ndarray:
        """[C] incoming edges of a member."""
        return np.bincount(self.target, weights=self.weight, minlength=len(self)).astype(np.float32)

    @cached_property
    def _reached(self) -> tuple[np.ndarray, np.ndarray]:
        """The classes where something arrives, and where in ``target`` each begins."""
        return np.unique(self.target, return_index=True)

    def sum(self, messages: np.ndarray) -> np.ndarray:
        """[C, ...] the sum of what arrives [K, ...] at each class."""
        return self._reduced(np.add, messages)

    def max(self, messages: np.ndarray) -> np.ndarray:
        """[C, ...] the largest of what arrives; 0 where nothing does."""
        return self._reduced(np.maximum, messages)

    def _reduced(self, how: np.ufunc, messages: np.ndarray) -> np.ndarray:
        out = np.zeros((len(self), *messages.shape[1:]), dtype=np.float32)
        if len(messages):
            reached, starts = self._reached
            out[reached] = how.reduceat(messages, starts, axis=0)
        return out


@dataclass(frozen=True, eq=False)
class Classes:
    """One graph, or a disjoint union of ``graphs`` graphs, as classes of nodes after each round.

    ``nodes`` [C, F]: the features of the classes of ``levels[0]``; ``graph`` [C]: the graph of each class of the last.
    """

    nodes: np.ndarray
    levels: tuple[Level, ...]
    graph: np.ndarray
    graphs: int = 1

    def __len__(self) -> int:
        return len(self.levels[-1])

    @property
    def count(self) -> np.ndarray:
        """[C] members of the classes of the last level."""
        return self.levels[-1].count


@dataclass(frozen=True, eq=False)
class Partition:
    """``first`` and ``member`` [N]: the class of each node in the first and the last level; ``example``: a node of each
    class of the first level.
    """

    levels: tuple[Level, ...]
    first: np.ndarray
    example: np.ndarray
    member: np.ndarray

    def classes(self, nodes: np.ndarray) -> Classes:
        """The classes with features [N, F] that are equal within each class of the first level."""
        return Classes(nodes[self.example], self.levels, np.zeros(len(self.levels[-1]), dtype=np.int64))

    def fits(self, nodes: np.ndarray) -> bool:
        """Whether features [N, F] are equal within each class of the first level."""
        return len(nodes) == len(self.first) and np.array_equal(nodes[self.example][self.first], nodes)


def partition(nodes: np.ndarray, edge_index: np.ndarray, rounds: int) -> Partition:
    """The classes that ``rounds`` rounds of refinement find for ``nodes`` [N, F] and ``edge_index`` [2, E].

    Colours are compared by 64-bit hashes. Equal rows always share a colour; two different colours among N meet with
    probability N^2 / 2^64, 1e-12 for 9,000 nodes.
    """
    if rounds < 0 or nodes.ndim != 2 or not len(nodes):
        raise ArgumentError(f"classes need nodes [N, F] and rounds of at least 0, got {nodes.shape} and {rounds}")
    producer, consumer = edge_index
    colour = _rows_hash(nodes)
    _, first_example, first = np.unique(colour, return_index=True, return_inverse=True)
    levels, member = [Level(np.bincount(first).astype(np.float32))], first
    for _ in range(rounds):
        # Sums of hashes do not depend on the order of neighbours and count repeated ones.
        arriving = np.zeros(len(nodes), dtype=np.uint64)
        np.add.at(arriving, consumer, _mixed(colour)[producer])
        colour = _mixed(colour * _MIX[2] + _mixed(arriving))
        before = member
        _, example, member = np.unique(colour, return_index=True, return_inverse=True)
        # The neighbours of an example stand for those of all members: they agree in the colour of the round before.
        kept = example[member[consumer]] == consumer
        width = len(levels[-1])
        pairs, weight = np.unique(
            member[consumer[kept]].astype(np.int64) * width + before[producer[kept]], return_counts=True
        )
        target, source = np.divmod(pairs, width)
        count = np.bincount(member).astype(np.float32)
        levels.append(Level(count, before[example], source, target, weight.astype(np.float32)))
    return Partition(tuple(levels), first, first_example, member)


def classes(nodes: np.ndarray, edge_index: np.ndarray, rounds: int) -> Classes:
    """`partition` with the features of each class."""
    return partition(nodes, edge_index, rounds).classes(nodes)


def whole(nodes: np.ndarray, edge_index: np.ndarray, rounds: int) -> Classes:
    """The graph itself: every node a class of its own, in every round."""
    order = np.argsort(edge_index[1], kind="stable")
    source, target = edge_index[:, order].astype(np.int64)
    one, own = np.ones(len(nodes), dtype=np.float32), np.arange(len(nodes))
    level = Level(one, own, source, target, np.ones(len(source), dtype=np.float32))
    return Classes(nodes, (Level(one), *(level for _ in range(rounds))), np.zeros(len(nodes), dtype=np.int64))


def union(parts: Sequence[Classes]) -> Classes:
    """The disjoint union of graphs with as many rounds, in order."""
    levels: list[Level] = []
    before = np.zeros(len(parts), dtype=np.int64)
    for several in zip(*(part.levels for part in parts), strict=True):
        sizes = np.array([len(level) for level in several])
        offset = np.cumsum(sizes) - sizes
        levels.append(
            Level(
                np.concatenate([level.count for level in several]),
                np.concatenate([level.previous + b for level, b in zip(several, before, strict=True)]),
                np.concatenate([level.source + b for level, b in zip(several, before, strict=True)]),
                np.concatenate([level.target + o for level, o in zip(several, offset, strict=True)]),
                np.concatenate([level.weight for level in several]),
            )
        )
        before = offset
    first = np.cumsum([0, *(part.graphs for part in parts)])
    return Classes(
        np.concatenate([part.nodes for part in parts]),
        tuple(levels),
        np.concatenate([part.graph + g for part, g in zip(parts, first, strict=False)]),
        int(first[-1]),
    )


def _mixed(values: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection whose output bits look random."""
    values = (values ^ (values >> np.uint64(30))) * _MIX[1]
    values = (values ^ (values >> np.uint64(27))) * _MIX[2]
    return values ^ (values >> np.uint64(31))


def _rows_hash(nodes: np.ndarray) -> np.ndarray:
    """[N] a hash of the bits of each row."""
    bits = np.ascontiguousarray(nodes, dtype=np.float32).view(np.uint32)
    if bits.shape[1] % 2:
        bits = np.pad(bits, ((0, 0), (0, 1)))
    words = np.ascontiguousarray(bits.view(np.uint64).T)
    out = np.full(len(nodes), _MIX[0])
    # Column by column: what is written stays in the cache.
    for column in words:
        out ^= column
        out *= _MIX[1]
        out ^= out >> _HALF
    return _mixed(out)
