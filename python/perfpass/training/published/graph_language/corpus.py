"""Networks as the graph + language model sees them: classes of nodes, totals, texts."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.errors import PerfPassError
from perfpass.features import extract
from perfpass.predictors.published import graph_text
from perfpass.predictors.published.graph_classes import Classes, Partition, partition
from perfpass.predictors.published.graph_language import ROUNDS, TOTALS, node_columns
from perfpass.records import graph_cache

if TYPE_CHECKING:
    from perfpass.training.tasks.graphs import Graphs, Key
    from perfpass.training.tasks.tasks import Task

# (network, batch)
Pair = tuple["Key", int]
# The decoder of masked autoencoding is one layer more.
PREPARED_ROUNDS = ROUNDS + 1


def folder() -> Path:
    """Where trained stages are kept, outside the repository; deleting it costs minutes."""
    return graph_cache.directory().parent / "graph-language"


@dataclass(frozen=True, eq=False)
class Corpus:
    """P pairs of network and batch: ``parts`` [P] of classes, ``totals`` [P, 10], ``summaries`` [P]."""

    graphs: Graphs
    pairs: list[Pair]
    parts: list[Classes]
    totals: np.ndarray
    summaries: list[str]
    _structures: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.pairs)

    def place(self) -> dict[Pair, int]:
        """The place of each pair."""
        return {p: i for i, p in enumerate(self.pairs)}

    def structure(self, place: int) -> str:
        """`graph_text.structure` of a pair."""
        if place not in self._structures:
            graph = self.graphs.at(*self.pairs[place])
            found = extract(graph)
            divided = partition(found.nodes[:, node_columns()], found.edge_index, ROUNDS)
            self._structures[place] = graph_text.structure(graph, divided.member, found.edge_index)
        return self._structures[place]


_prepared: dict[str, Corpus] = {}


def name_of(pairs: Iterable[Pair]) -> str:
    """A name for what these pairs give."""
    return hashlib.sha256(repr(sorted(set(pairs))).encode()).hexdigest()[:16]


def prepare(pairs: Iterable[Pair], graphs: Graphs, *, quiet: bool = True) -> Corpus:
    """The corpus of these pairs, without networks that cannot be traced; kept for the process."""
    wanted = sorted(set(pairs))
    name = name_of(wanted)
    if name in _prepared:
        return _prepared[name]
    found: list[Pair] = []
    parts, totals, summaries = [], [], []
    divided: dict[Key, Partition] = {}
    for i, (key, batch) in enumerate(wanted):
        try:
            graph = graphs.at(key, batch)
        except PerfPassError:
            continue
        features = extract(graph)
        nodes = features.nodes[:, node_columns()]
        # Sizes grow with the batch alike for nodes that are alike, so one partition serves all batches.
        if key not in divided or not divided[key].fits(nodes):
            other = extract(graphs.at(key, batch + 1)).nodes[:, node_columns()]
            divided[key] = partition(np.hstack([nodes, other]), features.edge_index, PREPARED_ROUNDS)
        found.append((key, batch))
        parts.append(divided[key].classes(nodes))
        totals.append(features.statics[:TOTALS])
        summaries.append(graph_text.summary(graph, features.statics[:TOTALS]))
        if not quiet and (i + 1) % 1000 == 0:
            print(f"prepared {i + 1} of {len(wanted)}", file=sys.stderr)
    _prepared[name] = Corpus(graphs, found, parts, np.array(totals), summaries)
    return _prepared[name]


class Unlabelled:
    """The graphs that the stages before prediction see, without a measurement: those of ``task``, or of the latency
    records. The corpus is prepared when a stage is not on disk yet.
    """

    def __init__(self, graphs: Graphs, task: Task | None = None) -> None:
        from perfpass.training.tasks.tasks import load

        self._graphs = graphs
        self._pairs = pairs_of(task if task is not None else traced(load("latency")))
        self.name = name_of(self._pairs)

    @cached_property
    def corpus(self) -> Corpus:
        """Prepared."""
        return prepare(self._pairs, self._graphs)


def pairs_of(task: Task) -> list[Pair]:
    """[N] the network and batch of each row."""
    return [(k, int(b)) for k, b in zip(task.keys, task.rows.batch, strict=True)]


def traced(task: Task) -> Task:
    """The rows whose network was traced before; `Task.traced` where none was."""
    from perfpass.training.tasks.graphs import Graphs

    there = {key: graph_cache.path(*key).is_file() for key in set(task.keys)}
    known = np.flatnonzero([there[key] for key in task.keys])
    return task.subset(known) if len(known) else task.traced(Graphs())
