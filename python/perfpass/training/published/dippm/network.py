"""DIPPM as a method of the comparison: three graph blocks, three dense layers, time, memory and energy together.

Published: Panner Selvam and Brorsson, "DIPPM: a Deep Learning Inference Performance Predictive Model using Graph Neural
Networks", Euro-Par 2023; code at github.com/karthickai/dippm. What is theirs and what is ours: docs/research/dippm.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.predictors.published.graph_network import GraphNetwork, Spec
from perfpass.predictors.published.run_features import RUN_FEATURES
from perfpass.training.graph_networks.data import ClassPool, Scalings, examples, scaled
from perfpass.training.graph_networks.fit import Settings, fit
from perfpass.training.graph_networks.fitted import FittedNetwork
from perfpass.training.graph_networks.modules import Network
from perfpass.training.tasks import tasks
from perfpass.training.tasks.graphs import Graphs
from perfpass.training.tasks.tasks import Split, Task

SCHEMA = "dippm"
# What the network says, and which task measured it. Steps of training have their time in the first, told by a flag.
OUTPUTS = ("latency_ms", "peak_memory_bytes", "energy_j", "power_w")
OUTPUT_OF = {"latency": 0, "training_step": 0, "memory": 1, "energy": 2, "power": 3}
KINDS = {"dippm": "sage", "dippm-gat": "gat", "dippm-gcn": "gcn", "dippm-gin": "gin", "dippm-mlp": "mlp"}
_NODE_FEATURES, _STATICS = 32, 5


@dataclass(frozen=True)
class Shape:
    """``blocks`` graph blocks of ``layers`` layers and ``dense`` dense layers, each ``hidden`` wide."""

    hidden: int = 128
    blocks: int = 3
    layers: int = 1
    dense: int = 3
    dropout: float = 0.05
    readout: str = "log_sum"
    unit: bool = False


# As the published code has it: two layers a block, embeddings of length 1, a sum as readout.
PUBLISHED_SHAPE = Shape(hidden=512, layers=2, readout="sum", unit=True)
PUBLISHED_SETTINGS = Settings(
    learning_rate=2.7542287033381663e-05,
    schedule="constant",
    graphs_per_step=1,
    huber_delta=1.0,
    epochs=500,
    half=False,
)


def spec(kind: str, shape: Shape) -> Spec:
    """The network of a kind: sage, gat, gcn, gin, or mlp, which reads the statics alone."""
    relu, dropout = {"kind": "relu"}, {"kind": "dropout", "p": shape.dropout}
    graph: list[dict[str, Any]] = []
    width = _NODE_FEATURES
    for i in range(0 if kind == "mlp" else shape.blocks * shape.layers):
        layer: dict[str, Any] = {"kind": kind, "inputs": width, "outputs": shape.hidden}
        if kind == "sage":
            layer["aggregation"] = "mean"
        if kind == "gat":
            layer["heads"] = 1
        graph.append(layer)
        if shape.unit and kind == "sage":
            graph.append({"kind": "unit"})
        graph.append(relu)
        if (i + 1) % shape.layers == 0:
            graph.append(dropout)
        width = shape.hidden
    inputs = _STATICS + len(RUN_FEATURES) + (shape.hidden if graph else 0)
    head: list[dict[str, Any]] = []
    for _ in range(shape.dense):
        head += [{"kind": "dense", "inputs": inputs, "outputs": shape.hidden}, relu, dropout]
        inputs = shape.hidden
    return Spec(tuple(graph), shape.readout, (*head, {"kind": "dense", "inputs": inputs, "outputs": len(OUTPUTS)}))


@lru_cache(maxsize=8)
def _pool(graphs: Graphs, rounds: int) -> ClassPool:
    return ClassPool(graphs, SCHEMA, rounds)


@lru_cache(maxsize=4)
def _traced(name: str, graphs: Graphs) -> Task:
    return tasks.load(name).traced(graphs, quiet=True)


# What the comparison lets every network learn for, and below how many (network, batch) a step takes fewer of them.
STEPS, _FEW_GRAPHS = 2000, 4000


@dataclass(frozen=True)
class Dippm:
    """DIPPM or one of its variants. ``shared``: it learns from the other tasks' records too, as the published one.

    ``steps`` above 0: as many as that, in place of the settings' epochs, so that small tasks are learned as well.
    """

    name: str
    shape: Shape = field(default_factory=Shape)
    settings: Settings = field(default_factory=lambda: Settings(epochs=24))
    shared: bool = True
    steps: int = 0
    journal: Path | None = None
    quiet: bool = True

    def fit(self, task: Task, graphs: Graphs, split: Split, seed: int = 0) -> FittedNetwork:
        """Learn from ``split.train``, and from other tasks' records that ``split`` does not hold out."""
        parts = [task.subset(split.train), *(others(task, graphs, split) if self.shared else ())]
        method = self
        if self.steps:
            distinct = sum(len(set(zip(part.keys, part.rows.batch, strict=True))) for part in parts)
            graphs_per_step = 8 if distinct < _FEW_GRAPHS else self.settings.graphs_per_step
            epochs = -(-self.steps // -(-distinct // graphs_per_step))
            method = self.with_options(graphs_per_step=graphs_per_step, epochs=epochs, patience=epochs)
        return method.learn(parts, [task.subset(split.valid)], graphs, seed).on(task, OUTPUT_OF[task.name])

    def learn(self, train: list[Task], valid: list[Task], graphs: Graphs, seed: int = 0) -> FittedNetwork:
        """Learn from the records of several tasks, one network for all of them."""
        import torch

        torch.manual_seed(seed)
        network = Network(spec(KINDS[self.name], self.shape))
        pool = _pool(graphs, network.spec.rounds)
        rows = examples([(task, OUTPUT_OF[task.name]) for task in [*train, *valid]], len(OUTPUTS))
        learned = sum(len(task) for task in train)
        to_learn, to_choose = rows.subset(np.arange(learned)), rows.subset(np.arange(learned, len(rows)))
        scalings = Scalings.fitted(to_learn, pool)
        on_graphs = bool(network.graph)
        outcome = fit(
            network,
            scaled(to_learn, pool, scalings, graphs=on_graphs),
            scaled(to_choose, pool, scalings, graphs=on_graphs),
            scalings.targets_scale,
            self.settings,
            seed=seed,
            journal=self.journal,
            quiet=self.quiet,
        )
        plain = GraphNetwork(network.spec, outcome.weights)
        return FittedNetwork(
            train[0], plain, outcome.weights, scalings, pool, to_learn, OUTPUT_OF[train[0].name], outcome.history
        )

    def with_options(self, **changes: Any) -> Dippm:
        """The same method, fitted otherwise; settings by their own names."""
        own = {name: value for name, value in changes.items() if name in self.__dataclass_fields__}
        settings = {name: value for name, value in changes.items() if name not in own}
        if "epochs" in settings:
            own.setdefault("steps", 0)
        return replace(self, settings=replace(self.settings, **settings), **own)


def others(task: Task, graphs: Graphs, split: Split) -> list[Task]:
    """The other tasks' records that tell nothing of what ``split`` holds out.

    A split that holds out whole architectures, families or devices holds them out of every task; what validation looks
    at is held out alike. An adaptation sees no other task's records of its device.
    """
    held: dict[str, set[str]] = {}
    asked = task.rows.iloc[np.concatenate([split.valid, split.test])]
    for column in ("architecture", "family"):
        values = set(asked[column])
        if values.isdisjoint(set(task.rows[column].iloc[split.train])):
            held[column] = values
    devices = set(task.rows.device.iloc[split.test])
    if len(devices) == 1 and task.rows.device.nunique() > 1:
        held["device"] = devices
    found = []
    for name in tasks.TASKS:
        if name == task.name:
            continue
        other = _traced(name, graphs)
        keep = np.ones(len(other), dtype=bool)
        for column, values in held.items():
            keep &= ~other.rows[column].isin(values).to_numpy()
        if keep.any():
            found.append(other.subset(np.flatnonzero(keep)))
    return found


def method(name: str, **options: Any) -> Dippm:
    """One of KINDS as the comparison fits it, from one task's records; else by options of `Dippm`.

    Raises ArgumentError for another name.
    """
    if name not in KINDS:
        raise ArgumentError(f"unknown predictor {name!r}; allowed are {', '.join(KINDS)}")
    return Dippm(name, **{"shared": False, "steps": STEPS, **options})
