"""A fitted network on the rows of a task: how it predicts, what is stored of it, and how it learns on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch

from perfpass.predictors.published.graph_network import GraphNetwork
from perfpass.training.graph_networks.data import ClassPool, Examples, Scalings, examples, scaled
from perfpass.training.graph_networks.fit import Settings, fit
from perfpass.training.graph_networks.modules import Network
from perfpass.training.tasks.tasks import Task

# Rows known before that stay beside those of a new device.
_OLD_ROWS = 256
# How a network goes on learning from a few records of a new device: briefly.
_ADAPTATION = Settings(learning_rate=5e-4, epochs=15, graphs_per_step=16, patience=15)


@dataclass(frozen=True, eq=False)
class FittedNetwork:
    """Predicts by the NumPy evaluator, as what ships does. ``output``: which of the network's says the task's value.

    ``learned``: the rows that it learned from, for `adapted` to mix in.
    """

    task: Task
    network: GraphNetwork
    weights: dict[str, np.ndarray]
    scalings: Scalings
    pool: ClassPool
    learned: Examples
    output: int = 0
    history: list[dict[str, float]] = field(default_factory=list)

    @property
    def parameters(self) -> int:
        """Numbers that were learned."""
        return int(sum(values.size for values in self.weights.values()))

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """[len(rows)] in the task's unit."""
        return self.outputs(self._rows(rows))[:, self.output]

    def with_weights(self, weights: dict[str, np.ndarray]) -> FittedNetwork:
        """The same network with other weights (rounded ones)."""
        return replace(self, weights=weights, network=GraphNetwork(self.network.spec, weights))

    def on(self, task: Task, output: int) -> FittedNetwork:
        """The same network for the rows of another task, which one of its outputs says."""
        return replace(self, task=task, output=output)

    def outputs(self, rows: Examples) -> np.ndarray:
        """[R, O] every output of some rows."""
        on_graphs = bool(self.network.spec.graph)
        data = scaled(rows, self.pool, self.scalings, graphs=on_graphs)
        found = np.empty((len(rows), len(self.scalings.targets_mean)))
        order = np.argsort(data.graph, kind="stable")
        for part in np.array_split(order, max(1, len(order) // 256)):
            embedding = np.zeros((len(part), 0), dtype=np.float32)
            if on_graphs:
                union, place = data.batch(part)
                embedding = self.network.readout(union)[place]
            found[part] = self.network.head(embedding, data.statics[part])
        return np.exp(np.clip(found * self.scalings.targets_scale + self.scalings.targets_mean, -30.0, 60.0))

    def adapted(self, rows: np.ndarray, seed: int = 0) -> FittedNetwork:
        """Fine-tuned on ``rows`` and some that it knows, after the output was moved by the rows' middle ratio."""
        if not len(rows):
            return self
        torch.manual_seed(seed)
        weights = {name: values.copy() for name, values in self.weights.items()}
        last = max((name for name in weights if name.startswith("head.") and name.endswith(".bias")), key=_layer)
        ratio = np.median(np.log(self.task.value[rows] / self.predict(rows)))
        weights[last][self.output] += ratio / self.scalings.targets_scale[self.output]
        network = Network(self.network.spec)
        network.load(weights)
        new = self._rows(rows)
        measured = np.flatnonzero(np.isfinite(self.learned.targets[:, self.output]))
        old = self.learned.subset(np.random.default_rng(seed).permutation(measured)[:_OLD_ROWS])
        on_graphs = bool(network.graph)
        train, judged = (scaled(part, self.pool, self.scalings, graphs=on_graphs) for part in (joined(new, old), new))
        outcome = fit(network, train, judged, self.scalings.targets_scale, _ADAPTATION, seed=seed)
        return replace(self.with_weights(outcome.weights), history=outcome.history)

    def _rows(self, rows: np.ndarray) -> Examples:
        outputs = len(self.scalings.targets_mean)
        return examples([(self.task.subset(np.asarray(rows)), self.output)], outputs)


def _layer(name: str) -> int:
    return int(name.split(".")[1])


def joined(first: Examples, second: Examples) -> Examples:
    """The rows of both, one after the other."""
    instances = dict.fromkeys(first.instances)
    instances |= dict.fromkeys(second.instances)
    place = {instance: i for i, instance in enumerate(instances)}
    moved = np.array([place[instance] for instance in second.instances])
    return Examples(
        tuple(instances),
        np.concatenate([first.graph, moved[second.graph]]),
        np.concatenate([first.runs, second.runs]),
        np.concatenate([first.targets, second.targets]),
    )


def scalings_arrays(scalings: Scalings) -> dict[str, np.ndarray]:
    """What an artefact keeps of the scalings, by name."""
    parts = {"nodes": scalings.nodes, "statics": scalings.statics}
    arrays = {f"{name}.{part}": getattr(of, part) for name, of in parts.items() for part in ("mean", "factor")}
    return arrays | {
        "targets.mean": scalings.targets_mean.astype(np.float32),
        "targets.scale": scalings.targets_scale.astype(np.float32),
    }
