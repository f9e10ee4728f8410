"""From tasks to what a graph network learns from: classes of every distinct (network, batch), statics, targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfpass import features
from perfpass.devices import device as find_device
from perfpass.predictors.published.graph_classes import Classes, Partition, partition, union
from perfpass.predictors.published.graph_network import Scaling
from perfpass.predictors.published.run_features import run_features
from perfpass.training.tasks.graphs import Graphs, Key
from perfpass.training.tasks.tasks import Task

Instance = tuple[Key, int]


class ClassPool:
    """The classes and static features of every (network, batch) that was asked for, in one schema; kept in memory."""

    def __init__(self, graphs: Graphs, schema: str, rounds: int) -> None:
        self.graphs, self.schema, self.rounds = graphs, schema, rounds
        self._parts: dict[Key, Partition] = {}
        self._found: dict[Instance, tuple[Classes, np.ndarray]] = {}

    def at(self, key: Key, batch: int) -> tuple[Classes, np.ndarray]:
        """Classes with raw features, and the schema's statics [S]."""
        instance = (key, batch)
        if instance not in self._found:
            found = features.extract(self.graphs.at(key, batch), self.schema)
            # Sizes grow with the batch alike for nodes that are alike, so one partition serves all batches.
            parts = self._parts.get(key)
            if parts is None or not parts.fits(found.nodes):
                other = features.extract(self.graphs.at(key, batch + 1), self.schema)
                both = np.hstack([found.nodes, other.nodes])
                parts = self._parts[key] = partition(both, found.edge_index, self.rounds)
            self._found[instance] = parts.classes(found.nodes), found.statics
        return self._found[instance]

    def of(self, rows: Examples) -> dict[int, tuple[Classes, np.ndarray]]:
        """What `at` gives for every instance of ``rows``, network by network, so that each trace is read once."""
        used = sorted(np.unique(rows.graph).tolist(), key=lambda i: rows.instances[i])
        return {i: self.at(*rows.instances[i]) for i in used}


@dataclass(frozen=True, eq=False)
class Examples:
    """R rows: ``graph`` [R] which of ``instances`` each ran, ``runs`` [R, K] run features, ``targets`` [R, O].

    ``targets`` are natural logarithms of what was measured, NaN where it was not.
    """

    instances: tuple[Instance, ...]
    graph: np.ndarray
    runs: np.ndarray
    targets: np.ndarray

    def __len__(self) -> int:
        return len(self.graph)

    def subset(self, index: np.ndarray) -> Examples:
        """Some of the rows."""
        return Examples(self.instances, self.graph[index], self.runs[index], self.targets[index])


def examples(parts: Sequence[tuple[Task, int]], outputs: int) -> Examples:
    """The rows of several tasks one after the other; each comes with the output that it measured."""
    instances: dict[Instance, int] = {}
    graph, runs, targets = [], [], []
    for task, output in parts:
        graph += [
            instances.setdefault((key, int(batch)), len(instances))
            for key, batch in zip(task.keys, task.rows.batch, strict=True)
        ]
        runs.append(task_runs(task))
        measured = np.full((len(task), outputs), np.nan)
        measured[:, output] = np.log(task.value)
        targets.append(measured)
    return Examples(tuple(instances), np.array(graph), np.concatenate(runs), np.concatenate(targets))


def task_runs(task: Task) -> np.ndarray:
    """[N, K] run features of a task's rows. A task but latency ran training steps."""
    mode = "inference" if task.name == "latency" else "training"
    columns = ["device", "precision", "runtime", "layout", "optimizer"]
    distinct: dict[tuple[str | float, ...], np.ndarray] = {}
    # No limit of its own is 0, which equals itself, as NaN does not.
    rows = list(task.rows[columns].assign(limit=task.rows.power_limit_w.fillna(0.0)).itertuples(index=False, name=None))
    for row in rows:
        if row not in distinct:
            device, precision, runtime, layout, optimizer, limit = row
            how = {"precision": precision, "runtime": runtime, "layout": layout, "optimizer": optimizer}
            distinct[row] = run_features(find_device(device), mode=mode, power_limit_w=limit, **how)
    return np.stack([distinct[row] for row in rows])


@dataclass(frozen=True, eq=False)
class Scalings:
    """How nodes, statics and targets are scaled; fitted on the rows to learn from."""

    nodes: Scaling
    statics: Scaling
    targets_mean: np.ndarray
    targets_scale: np.ndarray

    @classmethod
    def fitted(cls, rows: Examples, pool: ClassPool) -> Scalings:
        """Each distinct graph of ``rows`` counts once for nodes, each row for statics and targets."""
        used = [found for found, _ in pool.of(rows).values()]
        nodes = Scaling.fitted(
            np.concatenate([c.nodes for c in used]), np.concatenate([c.levels[0].count for c in used]), log=True
        )
        # Columns of zeros are harmless: an output that no row measured keeps mean 0 and scale 1.
        measured = np.isfinite(rows.targets)
        count = np.maximum(measured.sum(axis=0), 1)
        filled = np.where(measured, rows.targets, 0.0)
        mean = filled.sum(axis=0) / count
        scale = np.sqrt((np.where(measured, rows.targets - mean, 0.0) ** 2).sum(axis=0) / count)
        return cls(nodes, Scaling.fitted(statics(rows, pool), log=False), mean, np.where(scale > 1e-6, scale, 1.0))


def statics(rows: Examples, pool: ClassPool) -> np.ndarray:
    """[R, S + K] log(1 + x) of the schema's statics of each row's graph, and the run features."""
    of_graph = {i: np.log1p(np.maximum(found, 0.0)) for i, (_, found) in pool.of(rows).items()}
    return np.hstack([np.stack([of_graph[i] for i in rows.graph]), rows.runs]).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Scaled:
    """Rows ready for a network: ``graphs`` scaled classes by index, ``graph`` [R], ``statics`` [R, S], ``targets``."""

    graphs: dict[int, Classes]
    graph: np.ndarray
    statics: np.ndarray
    targets: np.ndarray

    def batch(self, rows: np.ndarray) -> tuple[Classes, np.ndarray]:
        """The union of the graphs of ``rows``, and the place of each row's graph in it."""
        used, place = np.unique(self.graph[rows], return_inverse=True)
        return union([self.graphs[i] for i in used]), place


def scaled(rows: Examples, pool: ClassPool, scalings: Scalings, *, graphs: bool = True) -> Scaled:
    """``rows`` as a network takes them; without ``graphs`` for one that reads statics alone."""
    found: dict[int, Classes] = {}
    for i, (c, _) in pool.of(rows).items() if graphs else ():
        found[i] = replace(c, nodes=scalings.nodes(c.nodes))
    targets = (rows.targets - scalings.targets_mean) / scalings.targets_scale
    return Scaled(found, rows.graph, scalings.statics(statics(rows, pool)), targets.astype(np.float32))
