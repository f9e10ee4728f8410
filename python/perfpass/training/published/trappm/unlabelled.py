"""Graphs without measurements to pre-train on: every network of the records, at 24 batch sizes each.

`python -m perfpass.training.published.trappm.unlabelled FILE.parquet` lists them: library, network, size, batch,
nodes, edges, classes. The graphs are not stored; they come from `comparison.graphs.Graphs`, and `Unlabelled` streams
them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perfpass import features
from perfpass.errors import ArgumentError
from perfpass.predictors.published.graph_classes import Classes, Partition, partition
from perfpass.training.tasks import tasks
from perfpass.training.tasks.graphs import Graphs, Key
from perfpass.whole_file import replacing

if TYPE_CHECKING:
    import pandas

SCHEMA = "trappm"
BATCHES: tuple[int, ...] = (
    *(1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24),
    *(28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 192, 256),
)


def networks(graphs: Graphs, *, quiet: bool = True) -> list[Key]:
    """Every network that a record of any task ran and that can be traced, sorted."""
    return graphs.ensure({key for name in tasks.TASKS for key in tasks.load(name).keys}, quiet=quiet)


@dataclass(frozen=True, eq=False)
class _Network:
    """One network at every batch size: the partition that all share, and what of the features [C, F] differs."""

    parts: Partition
    nodes: np.ndarray
    varying: np.ndarray
    values: np.ndarray

    def at(self, index: int) -> Classes:
        nodes = self.nodes.copy()
        nodes[:, self.varying] = self.values[index]
        return Classes(nodes, self.parts.levels, np.zeros(len(self.parts.levels[-1]), dtype=np.int64))


class Unlabelled:
    """The graphs of some networks at each of ``batches``, as classes after ``rounds`` rounds; each trace is read once.

    Kept in memory as features of classes, of which few differ from batch to batch: some 60 kB a network.
    """

    def __init__(self, graphs: Graphs, keys: Iterable[Key], rounds: int, batches: tuple[int, ...] = BATCHES) -> None:
        self.keys, self.batches, self.rounds = sorted(keys), batches, rounds
        if not self.keys or len(batches) < 2:
            raise ArgumentError("unlabelled graphs need a network and two batch sizes or more")
        self._found = [_read(graphs, key, batches, rounds) for key in self.keys]

    def __len__(self) -> int:
        """Graphs, not networks."""
        return len(self.keys) * len(self.batches)

    def at(self, network: int, batch: int) -> Classes:
        """One graph by the places of its network and batch size."""
        return self._found[network].at(batch)

    def epoch(self, seed: int, epoch: int, per_step: int) -> Iterator[list[Classes]]:
        """Each network once, in steps of ``per_step``; after as many epochs as there are batches, each graph once."""
        of_batch = np.random.default_rng((seed, 0)).permuted(
            np.tile(np.arange(len(self.batches)), (len(self.keys), 1)), axis=1
        )[:, epoch % len(self.batches)]
        order = np.random.default_rng((seed, 1, epoch)).permutation(len(self.keys))
        for chosen in np.array_split(order, -(-len(order) // per_step)):
            yield [self.at(i, of_batch[i]) for i in chosen.tolist()]

    def listed(self) -> pandas.DataFrame:
        """One row a graph."""
        import pandas

        rows = []
        for (library, network, size), found in zip(self.keys, self._found, strict=True):
            last = found.parts.levels[-1]
            nodes, edges = int(last.count.sum()), int((last.weight * last.count[last.target]).sum())
            rows += [(library, network, size, batch, nodes, edges, len(last)) for batch in self.batches]
        return pandas.DataFrame(rows, columns=["library", "network", "size", "batch", "nodes", "edges", "classes"])


def _read(graphs: Graphs, key: Key, batches: tuple[int, ...], rounds: int) -> _Network:
    found = [features.extract(graphs.at(key, batch), SCHEMA) for batch in batches]
    # Two sizes tell apart what grows differently; a coincidence at both is seen by `fits`, and then all sizes decide.
    parts = partition(np.hstack([f.nodes for f in found[:2]]), found[0].edge_index, rounds)
    if not all(parts.fits(f.nodes) for f in found):
        parts = partition(np.hstack([f.nodes for f in found]), found[0].edge_index, rounds)
    values = np.stack([f.nodes[parts.example] for f in found])
    varying = np.flatnonzero((values != values[0]).any(axis=(0, 1)))
    return _Network(parts, values[0].copy(), varying, values[:, :, varying].copy())


def main(place: str) -> None:
    """Write the list."""
    graphs = Graphs()
    listed = Unlabelled(graphs, networks(graphs, quiet=False), rounds=4).listed()
    with replacing(place) as file:
        listed.to_parquet(file, compression="zstd", index=False)
    print(f"{len(listed)} graphs of {len(listed) // len(BATCHES)} networks")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m perfpass.training.published.trappm.unlabelled FILE.parquet")
    main(sys.argv[1])
