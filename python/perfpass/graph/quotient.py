"""The quotient graph: message passing on classes of equal nodes instead of nodes, with the very same output.

Nodes with equal features and equal neighbourhoods up to k edges away have equal embeddings after k layers of message
passing, whatever the weights. `refine` finds these classes round by round in the core; layer k of a network then runs
from the classes of round k - 1 to those of round k, and a readout weighs classes by their multiplicity
(docs/internals/quotient.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from perfpass import _core
from perfpass.errors import ArgumentError

Directions = Literal["producers", "consumers", "both"]
_MOST_ROUNDS = 64  # as the core's
_DIRECTIONS = {"producers": (True, False), "consumers": (False, True), "both": (True, True)}


@dataclass(frozen=True, eq=False)
class Edges:
    """From each of C classes to the classes of the round before in which its nodes have neighbours; int32 arrays.

    The neighbours of class c are ``neighbour[offset[c]:offset[c + 1]]``, ascending; ``count`` says how many edges lead
    to nodes of that class from one node (1 where only the set of neighbours counts).
    """

    offset: np.ndarray
    neighbour: np.ndarray
    count: np.ndarray

    @cached_property
    def owner(self) -> np.ndarray:
        """[E] the class that each entry belongs to."""
        return np.repeat(np.arange(len(self.offset) - 1, dtype=np.int32), np.diff(self.offset))


@dataclass(frozen=True, eq=False)
class Round:
    """The classes after k rounds, numbered in the order of their first nodes; int32 arrays.

    ``class_of`` [N]; ``representative`` [C] a node of each class, ``multiplicity`` [C] how many it has, ``previous``
    [C] its class of the round before (round 0: empty). ``producers`` and ``consumers``: None where that direction does
    not count, and in round 0.
    """

    class_of: np.ndarray
    representative: np.ndarray
    multiplicity: np.ndarray
    previous: np.ndarray
    producers: Edges | None
    consumers: Edges | None

    def __len__(self) -> int:
        return len(self.representative)


def refine(
    edge_index: np.ndarray,
    features: np.ndarray,
    *,
    rounds: int = 3,
    directions: Directions = "both",
    multiplicity: bool = True,
) -> tuple[Round, ...]:
    """The classes of rounds 0 to ``rounds`` of a graph of N nodes.

    ``edge_index`` [2, E]: producer and consumer of each edge; equal edges count as often as they occur, loops are
    allowed. ``features`` [N, F] of any type: nodes start equal where all bytes are. ``directions``: whether messages
    come from producers, consumers, or both (kept apart). ``multiplicity`` False: only which classes are among the
    neighbours counts, which is enough for maxima and gives fewer classes; sums and means need it. A layer that divides
    by the degrees of neighbours (GCN) needs the degree among the features.

    Raises ArgumentError for shapes that do not fit, nodes out of range and rounds that are not 0 to 64.
    """
    edges, rows = np.asarray(edge_index), np.ascontiguousarray(features)
    if directions not in _DIRECTIONS:
        raise ArgumentError(f"unknown directions {directions!r}; allowed are {', '.join(_DIRECTIONS)}")
    if edges.ndim != 2 or edges.shape[0] != 2 or rows.ndim != 2 or rows.dtype.hasobject:
        raise ArgumentError(
            f"edge_index must be [2, E] and features [N, F] of numbers, got {edges.shape} and {rows.shape} {rows.dtype}"
        )
    if edges.size and (edges.min() < 0 or edges.max() >= len(rows)):
        raise ArgumentError(f"edge_index holds {edges.min()} to {edges.max()}; there are {len(rows)} nodes")
    if not 0 <= rounds <= _MOST_ROUNDS:
        raise ArgumentError(f"rounds must be 0 to {_MOST_ROUNDS}, got {rounds}")
    producer, consumer = (np.ascontiguousarray(end, dtype=np.int32) for end in edges)
    width = rows.shape[1] * rows.dtype.itemsize
    raw = rows.view(np.uint8).reshape(len(rows), width) if rows.size else np.zeros((len(rows), 0), np.uint8)
    found = _core.quotient(producer, consumer, raw, rounds, *_DIRECTIONS[directions], multiplicity)
    return tuple(
        Round(
            nodes, first, many, before, Edges(*made) if len(made[0]) else None, Edges(*used) if len(used[0]) else None
        )
        for nodes, first, many, before, made, used in found
    )
