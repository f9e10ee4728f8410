"""A graph as classes of nodes that no message-passing network of L layers can tell apart.

Nodes with the same features and, hop by hop, the same neighbourhood have the same embedding (Xu et al., "How powerful
are graph neural networks?", ICLR 2019, lemma 2). So a network of L layers gives on the classes, with multiplicities,
just what it gives on the graph; repeated layers of a model cost once. Classes are found by L rounds of colour
refinement along data-flow edges, producer to consumer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfpass.errors import ArgumentError

_MIX = tuple(np.uint64(m) for m in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_HALF = np.uint64(32)


@dataclass(frozen=True, eq=False)
class Classes:
    """C classes of the nodes of one graph, or of a disjoint union of G graphs.

    ``nodes`` [C, F] the features of one member, ``count`` [C] members; ``graph`` [C] the graph of each class, ``graphs``
    G. A member of ``target`` [K] has ``weight`` [K] incoming edges from members of ``source`` [K]; ``target`` ascends.
    """

    nodes: np.ndarray
    count: np.ndarray
    source: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    graph: np.ndarray
    graphs: int = 1

    def __len__(self) -> int:
        return len(self.count)


@dataclass(frozen=True, eq=False)
class Partition:
    """``member`` [N] the class of each node, ``example`` [C] a node of each; edges between classes as in `Classes`."""

    member: np.ndarray
    example: np.ndarray
    source: np.ndarray
    target: np.ndarray
    weight: np.ndarray

    def classes(self, nodes: np.ndarray) -> Classes:
        """The classes with features [N, F] that are equal within each class."""
        count = np.bincount(self.member, minlength=len(self.example)).astype(np.float32)
        zeros = np.zeros(len(count), dtype=np.int64)
        return Classes(nodes[self.example], count, self.source, self.target, self.weight, zeros)


def partition(nodes: np.ndarray, edge_index: np.ndarray, rounds: int) -> Partition:
    """The classes that ``rounds`` rounds of refinement find for ``nodes`` [N, F] and ``edge_index`` [2, E].

    Colours are compared by 64-bit hashes. Equal rows always share a colour; two different colours among N meet with
    probability N^2 / 2^64, 1e-12 for 9,000 nodes.
    """
    if rounds < 0 or nodes.ndim != 2 or not len(nodes):
        raise ArgumentError(f"classes need nodes [N, F] and rounds of at least 0, got {nodes.shape} and {rounds}")
    producer, consumer = edge_index
    colour = _rows_hash(nodes)
    for _ in range(rounds):
        # Sums of hashes do not depend on the order of neighbours and count repeated ones.
        arriving = np.zeros(len(nodes), dtype=np.uint64)
        np.add.at(arriving, consumer, _mixed(colour)[producer])
        colour = _mixed(colour * _MIX[2] + _mixed(arriving))
    _, example, member = np.unique(colour, return_index=True, return_inverse=True)
    # The neighbours of an example stand for those of all members: they agree in the colour of the round before.
    kept = example[member[consumer]] == consumer
    pairs, weight = np.unique(
        member[consumer[kept]].astype(np.int64) * len(example) + member[producer[kept]], return_counts=True
    )
    target, source = np.divmod(pairs, len(example))
    return Partition(member, example, source, target, weight.astype(np.float32))


def classes(nodes: np.ndarray, edge_index: np.ndarray, rounds: int) -> Classes:
    """`partition` with the features of each class."""
    return partition(nodes, edge_index, rounds).classes(nodes)


def whole(nodes: np.ndarray, edge_index: np.ndarray) -> Classes:
    """The graph itself: every node a class of its own."""
    order = np.argsort(edge_index[1], kind="stable")
    source, target = edge_index[:, order].astype(np.int64)
    one, zero = np.ones(len(nodes), dtype=np.float32), np.zeros(len(nodes), dtype=np.int64)
    return Classes(nodes, one, source, target, np.ones(len(source), dtype=np.float32), zero)


def union(parts: Sequence[Classes]) -> Classes:
    """The disjoint union of graphs, in order."""
    sizes = np.array([len(p) for p in parts])
    offsets = np.cumsum(sizes) - sizes
    first = np.cumsum([0, *(p.graphs for p in parts)])
    return Classes(
        np.concatenate([p.nodes for p in parts]),
        np.concatenate([p.count for p in parts]),
        np.concatenate([p.source + o for p, o in zip(parts, offsets, strict=True)]),
        np.concatenate([p.target + o for p, o in zip(parts, offsets, strict=True)]),
        np.concatenate([p.weight for p in parts]),
        np.concatenate([p.graph + g for p, g in zip(parts, first, strict=False)]),
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
    words = bits[:, ::2].astype(np.uint64) << _HALF | bits[:, 1::2]
    column = _mixed(np.arange(1, words.shape[1] + 1, dtype=np.uint64) * _MIX[0])
    with np.errstate(over="ignore"):
        return _mixed(_mixed(words + column).sum(axis=1, dtype=np.uint64) + _MIX[0])
