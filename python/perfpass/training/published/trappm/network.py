"""TraPPM as a method of the comparison, with its baselines: a frozen encoder beside a regressor that learns.

Published: Panner Selvam and Brorsson, "Can semi-supervised learning improve prediction of deep learning model resource
consumption?", NeurIPS 2023 workshop on ML for Systems; code at github.com/karthickai/trappm. The NNLQP baseline: Liu et
al., "NNLQP: a multi-platform neural network latency query and prediction system", ICPP 2022; code at
github.com/ModelTC/NNLQP. What is theirs and what is ours: docs/research/trappm.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.predictors.published.graph_classes import Classes, first_rounds
from perfpass.predictors.published.graph_network import GraphNetwork, Spec
from perfpass.predictors.published.run_features import RUN_FEATURES
from perfpass.training.graph_networks.data import ClassPool, Scalings, examples, scaled
from perfpass.training.graph_networks.fit import Settings, fit
from perfpass.training.graph_networks.fitted import FittedNetwork
from perfpass.training.graph_networks.modules import Network
from perfpass.training.published.trappm import autoencoder, pretrained
from perfpass.training.published.trappm.autoencoder import LAYERS, Encoder, Pretraining
from perfpass.training.published.trappm.unlabelled import SCHEMA
from perfpass.training.tasks.graphs import Graphs, Key
from perfpass.training.tasks.tasks import Split, Task

# What a kind reads: the schema of its graphs, and whether an encoder's embedding stands beside the statics.
KINDS = {"trappm": SCHEMA, "trappm-random": SCHEMA, "trappm-nnlqp": "nnlqp", "trappm-mlp": SCHEMA}
ENCODED = ("trappm", "trappm-random")
_SIZES = {SCHEMA: (113, 6), "nnlqp": (44, 4)}
_GRAPH_LAYERS = 2
# A fit takes about as many steps on every task; small tasks take small steps, often.
_STEPS, _STEPS_PER_EPOCH = 1800, 64


@dataclass(frozen=True)
class Shape:
    """Two graph layers and two dense layers, each ``hidden`` wide; ``unit``: outputs of graph layers have length 1."""

    hidden: int = 128
    dropout: float = 0.05
    aggregation: str = "sum"
    readout: str = "log_sum"
    unit: bool = False


# As the published code has it: means of neighbours, embeddings of length 1, their sum; squared error, one graph a step.
PUBLISHED_SHAPE = Shape(hidden=512, aggregation="mean", readout="sum", unit=True)
PUBLISHED_SETTINGS = Settings(
    learning_rate=1e-3, schedule="constant", graphs_per_step=1, huber_delta=10.0, epochs=100, patience=100, half=False
)


def spec(name: str, shape: Shape, latent: int) -> Spec:
    """The regressor of a kind; ``latent`` is the width of the encoder's embedding."""
    features, statics = _SIZES[KINDS[name]]
    relu, dropout = {"kind": "relu"}, {"kind": "dropout", "p": shape.dropout}
    graph: list[dict[str, Any]] = []
    width = features
    for _ in range(0 if name == "trappm-mlp" else _GRAPH_LAYERS):
        graph.append({"kind": "sage", "inputs": width, "outputs": shape.hidden, "aggregation": shape.aggregation})
        graph += [*([{"kind": "unit"}] if shape.unit else []), relu, dropout]
        width = shape.hidden
    inputs = statics + len(RUN_FEATURES) + (shape.hidden if graph else 0) + (latent if name in ENCODED else 0)
    head: list[dict[str, Any]] = []
    for _ in range(2):
        head += [{"kind": "dense", "inputs": inputs, "outputs": shape.hidden}, relu, dropout]
        inputs = shape.hidden
    return Spec(tuple(graph), shape.readout, (*head, {"kind": "dense", "inputs": inputs, "outputs": 1}))


class EncodedPool(ClassPool):
    """Classes after the regressor's rounds, and statics followed by the frozen embedding: the sum over all nodes.

    The encoder ends in a ReLU, so sums are not negative and `data.statics` takes log(1 + sum), as of the statics.
    """

    def __init__(self, inner: ClassPool, encoder: Encoder) -> None:
        super().__init__(inner.graphs, inner.schema, _GRAPH_LAYERS)
        self._inner, self._scaling = inner, encoder.scaling
        self._encoder = GraphNetwork(autoencoder.spec(encoder.shape), encoder.weights)

    def at(self, key: Key, batch: int) -> tuple[Classes, np.ndarray]:
        """Classes with raw features, and statics with the embedding [S + L]."""
        instance = (key, batch)
        if instance not in self._found:
            found, statics = self._inner.at(key, batch)
            both = np.concatenate([statics, self.embedding(key, batch)])
            self._found[instance] = first_rounds(found, _GRAPH_LAYERS), both
        return self._found[instance]

    def embedding(self, key: Key, batch: int) -> np.ndarray:
        """[L] the sum of the encoder's embeddings of all nodes."""
        found = self._inner.at(key, batch)[0]
        return self._encoder.readout(replace(found, nodes=self._scaling(found.nodes)))[0]


@lru_cache(maxsize=4)
def plain_pool(graphs: Graphs, schema: str, rounds: int) -> ClassPool:
    """One pool for all methods that read the same."""
    return ClassPool(graphs, schema, rounds)


@lru_cache(maxsize=4)
def _encoded_pool(graphs: Graphs, encoder: Encoder) -> EncodedPool:
    return EncodedPool(plain_pool(graphs, SCHEMA, LAYERS), encoder)


@dataclass(frozen=True)
class Trappm:
    """One of KINDS, a model per task. ``everything``: the encoder saw the graphs of networks held out, too.

    ``settings``: None takes as many steps on every task. ``frozen``: an encoder that is there already.
    """

    name: str
    shape: Shape = field(default_factory=Shape)
    settings: Settings | None = None
    pretraining: Pretraining = field(default_factory=Pretraining)
    encoder_seed: int = pretrained.SEEDS[0]
    everything: bool = False
    frozen: Encoder | None = None
    journal: Path | None = None
    quiet: bool = True

    def encoder(self, graphs: Graphs) -> Encoder:
        """Pre-trained, or as initialised."""
        if self.frozen is not None:
            return self.frozen
        untrained = self.name == "trappm-random"
        return pretrained.encoder(
            graphs, self.pretraining, self.encoder_seed, everything=self.everything, untrained=untrained
        )

    def pool(self, graphs: Graphs) -> ClassPool:
        """What the regressor reads of each graph."""
        if self.name in ENCODED:
            return _encoded_pool(graphs, self.encoder(graphs))
        return plain_pool(graphs, KINDS[self.name], LAYERS if KINDS[self.name] == SCHEMA else _GRAPH_LAYERS)

    def fit(self, task: Task, graphs: Graphs, split: Split, seed: int = 0) -> FittedNetwork:
        """Learn from ``split.train``; the best epoch is that of ``split.valid``."""
        import torch

        pool = self.pool(graphs)
        torch.manual_seed(seed)
        network = Network(spec(self.name, self.shape, self.pretraining.latent))
        to_learn, to_choose = (examples([(task.subset(rows), 0)], 1) for rows in (split.train, split.valid))
        scalings = Scalings.fitted(to_learn, pool)
        on_graphs = bool(network.graph)
        outcome = fit(
            network,
            scaled(to_learn, pool, scalings, graphs=on_graphs),
            scaled(to_choose, pool, scalings, graphs=on_graphs),
            scalings.targets_scale,
            self.settings or sized(len(to_learn.instances)),
            seed=seed,
            journal=self.journal,
            quiet=self.quiet,
        )
        plain = GraphNetwork(network.spec, outcome.weights)
        return FittedNetwork(task, plain, outcome.weights, scalings, pool, to_learn, history=outcome.history)

    def with_options(self, **changes: Any) -> Trappm:
        """The same method, fitted otherwise."""
        return replace(self, **changes)


def sized(graphs: int, settings: Settings | None = None) -> Settings:
    """Settings for so many distinct graphs to learn from: about `_STEPS` steps in all."""
    per_step = int(np.clip(graphs // _STEPS_PER_EPOCH, 2, 32))
    epochs = int(np.clip(_STEPS * per_step // max(graphs, 1), 12, 60))
    return replace(settings or Settings(), graphs_per_step=per_step, epochs=epochs, patience=epochs)


def method(name: str, **options: Any) -> Any:
    """One of KINDS or `trappm-boosting`, with options of its class. Raises ArgumentError for another name."""
    if name == "trappm-boosting":
        from perfpass.training.tasks.baselines import Boosting

        return Boosting(name, SCHEMA, **options)
    if name not in KINDS:
        raise ArgumentError(f"unknown predictor {name!r}; allowed are {', '.join(KINDS)}, trappm-boosting")
    return Trappm(name, **options)
