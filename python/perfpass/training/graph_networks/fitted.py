"""A fitted network on the rows of a task: how it predicts, what is stored of it, and how it learns on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from perfpass.predictors.graph_network import GraphNetwork
from perfpass.training.comparison.tasks import Task
from perfpass.training.graph_networks.data import ClassPool, Examples, Scalings, examples, scaled

# Fine-tuning on a few records: passes over them, and rows learned before per new one, so that nothing is forgotten.
_PASSES = 20
_OLD_PER_NEW = 2


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
        """The network after it also learned from ``rows`` of the task: fine-tuned on them and on rows known before."""
        from perfpass.training.graph_networks.fit import Settings, fit
        from perfpass.training.graph_networks.modules import Network

        if not len(rows):
            return self
        fresh = self._rows(rows)
        measured = np.flatnonzero(np.isfinite(self.learned.targets[:, self.output]))
        drawn = np.random.default_rng(seed).permutation(measured)[: _OLD_PER_NEW * len(fresh)]
        both = joined(fresh, self.learned.subset(drawn))
        network = Network(self.network.spec)
        network.load(self.weights)
        on_graphs = bool(self.network.spec.graph)
        data = scaled(both, self.pool, self.scalings, graphs=on_graphs)
        judged = scaled(fresh, self.pool, self.scalings, graphs=on_graphs)
        settings = Settings(learning_rate=1e-3, epochs=_PASSES, graphs_per_step=16, patience=_PASSES)
        outcome = fit(network, data, judged, self.scalings.targets_scale, settings, seed=seed)
        return self.with_weights(outcome.weights)

    def _rows(self, rows: np.ndarray) -> Examples:
        outputs = len(self.scalings.targets_mean)
        return examples([(self.task.subset(np.asarray(rows)), self.output)], outputs)


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
