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
from perfpass.graph.quotient import refine


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
    def _turns(self) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """What arrives first, second, ... at each class: places in ``target``, and the classes, each once a turn."""
        starts = np.flatnonzero(np.diff(self.target, prepend=-1))
        turn = np.arange(len(self.target)) - np.repeat(starts, np.diff(starts, append=len(self.target)))
        order = np.argsort(turn, kind="stable")
        ends = np.cumsum(np.bincount(turn))
        return tuple((places, self.target[places]) for places in np.split(order, ends[:-1]) if len(places))

    def sum(self, messages: np.ndarray) -> np.ndarray:
        """[C, ...] the sum of what arrives [K, ...] at each class."""
        return self._reduced(np.add, messages)

    def max(self, messages: np.ndarray) -> np.ndarray:
        """[C, ...] the largest of what arrives; 0 where nothing does."""
        return self._reduced(np.maximum, messages)

    def _reduced(self, how: np.ufunc, messages: np.ndarray) -> np.ndarray:
        # Turn by turn: few edges arrive at a class, and ufunc.reduceat is slow on rows.
        out = np.zeros((len(self), *messages.shape[1:]), dtype=np.float32)
        for turn, (places, classes) in enumerate(self._turns):
            arriving = messages[places]
            out[classes] = how(out[classes], arriving) if turn else arriving
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

    Features and neighbourhoods are compared whole, in the core (`perfpass.graph.quotient`), so nothing is joined by
    chance. Raises ArgumentError for shapes that do not fit.
    """
    if not len(nodes):
        raise ArgumentError("a graph without nodes has no classes")
    found = refine(edge_index, np.asarray(nodes, dtype=np.float32), rounds=rounds, directions="producers")
    levels = [Level(found[0].multiplicity.astype(np.float32))]
    for refined in found[1:]:
        arriving = refined.producers
        count, previous = refined.multiplicity.astype(np.float32), refined.previous.astype(np.int64)
        if arriving is None:
            levels.append(Level(count, previous))
            continue
        source, target = arriving.neighbour.astype(np.int64), arriving.owner.astype(np.int64)
        levels.append(Level(count, previous, source, target, arriving.count.astype(np.float32)))
    first, last = found[0], found[-1]
    return Partition(
        tuple(levels),
        first.class_of.astype(np.int64),
        first.representative.astype(np.int64),
        last.class_of.astype(np.int64),
    )


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


def first_rounds(found: Classes, rounds: int) -> Classes:
    """The classes of one graph after fewer rounds."""
    levels = found.levels[: rounds + 1]
    return Classes(found.nodes, levels, np.zeros(len(levels[-1]), dtype=np.int64))


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
