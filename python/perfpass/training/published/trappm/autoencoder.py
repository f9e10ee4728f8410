"""TraPPM's graph autoencoder: four SAGE layers whose nodes' inner products tell edges from pairs without one.

It learns on classes. Two nodes of one class have one embedding, so the loss of the edges is a sum over pairs of classes
times the edges between their members: the very loss of the whole graph. Round L + 1 of the refinement knows
those numbers, for it counts what arrives at a class from the classes of round L. Pairs without an edge are drawn as two
nodes of one graph, known by their classes alone; a drawn pair weighs as much as it is likely to be neither an edge nor
one node twice, so the expected loss is that of pairs without an edge, drawn evenly. Dropout draws once per class.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from perfpass.predictors.learned import arrays as stored
from perfpass.predictors.published.graph_classes import Classes, union
from perfpass.predictors.published.graph_network import Scaling, Spec
from perfpass.training.graph_networks.modules import BatchNorm, ClassTensors, Network
from perfpass.training.published.trappm.unlabelled import Unlabelled
from perfpass.whole_file import write_whole

LAYERS = 4
# One round beyond the layers: see above.
ROUNDS = LAYERS + 1
NODE_FEATURES = 113


@dataclass(frozen=True)
class Pretraining:
    """How the encoder learns. ``latent`` wide, twice that in the first layer, as published; ``epochs``: passes over all
    networks, each at one of its batch sizes; ``pairs`` drawn without an edge per graph. ``start``: the last batch
    norm's first scale. Embeddings are not negative, so at 1 all products are large, and what is learned first is to
    make every embedding 0.
    """

    latent: int = 64
    dropout: float = 0.5
    start: float = 0.2
    learning_rate: float = 5e-3
    epochs: int = 24
    graphs_per_step: int = 32
    pairs: int = 256


# As in the published code: 400 passes over all graphs, one graph a step.
PUBLISHED = Pretraining(latent=512, start=1.0, learning_rate=5e-4, epochs=9600, graphs_per_step=1)


def spec(shape: Pretraining) -> Spec:
    """Batch norm and ReLU after each layer, dropout after all but the last; the sum of the nodes is the embedding."""
    graph: list[dict[str, Any]] = []
    inputs = NODE_FEATURES
    for i in range(LAYERS):
        outputs = shape.latent * (2 if i == 0 else 1)
        graph += [
            {"kind": "sage", "inputs": inputs, "outputs": outputs, "aggregation": "mean"},
            {"kind": "batch_norm", "inputs": outputs},
            {"kind": "relu"},
        ]
        if i < LAYERS - 1:
            graph.append({"kind": "dropout", "p": shape.dropout})
        inputs = outputs
    return Spec(tuple(graph), "sum", ())


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of classes of round L, [K] each, and how much each weighs."""

    first: np.ndarray
    second: np.ndarray
    weight: np.ndarray


def edges(on: Classes) -> Pairs:
    """Every edge of the graphs of ``on``, producer first, as pairs of classes of the last round but one."""
    last = on.levels[-1]
    return Pairs(last.source, last.previous[last.target], last.weight * last.count[last.target])


def non_edges(on: Classes, per_graph: int, generator: np.random.Generator) -> Pairs:
    """``per_graph`` pairs of nodes of each graph, weighing the probability that no edge and no node twice was drawn.

    Each graph's weights are divided so that it counts by its edges, as if as many pairs as edges were drawn.
    """
    at = on.levels[-2]
    graph = np.empty(len(at), dtype=np.int64)
    graph[on.levels[-1].previous] = on.graph
    count = at.count.astype(np.float64)
    ends = np.cumsum(count)
    nodes = np.bincount(graph, weights=count, minlength=on.graphs)
    starts = np.cumsum(nodes) - nodes

    # Nodes are numbered class by class, and classes graph by graph.
    def drawn() -> np.ndarray:
        node = starts[:, None] + np.floor(generator.random((on.graphs, per_graph)) * nodes[:, None])
        return np.minimum(np.searchsorted(ends, node.ravel(), side="right"), len(at) - 1)

    first, second = drawn(), drawn()
    linked = edges(on)
    keys, place = np.unique(linked.first * len(at) + linked.second, return_inverse=True)
    # A last key that no pair has, so that every pair finds a place.
    keys, multiplicity = np.append(keys, len(at) ** 2), np.append(np.bincount(place, weights=linked.weight), 0.0)
    wanted = first * len(at) + second
    found = np.searchsorted(keys, wanted)
    between = np.where(keys[found] == wanted, multiplicity[found], 0.0)
    taken = between + np.where(first == second, count[first], 0.0)
    free = np.clip(1.0 - taken / (count[first] * count[second]), 0.0, 1.0)
    of_graph = np.bincount(graph[linked.second], weights=linked.weight, minlength=on.graphs)
    return Pairs(first, second, free * np.repeat(of_graph / per_graph, per_graph))


def loss(embedding: torch.Tensor, linked: Pairs, apart: Pairs) -> torch.Tensor:
    """Mean of -log sigmoid(z z') over edges plus that of -log(1 - sigmoid(z z')) over pairs without one."""
    total = embedding.new_zeros(())
    for pairs, sign in ((linked, -1.0), (apart, 1.0)):
        first, second = (torch.from_numpy(ends).to(embedding.device) for ends in (pairs.first, pairs.second))
        weight = torch.from_numpy(pairs.weight.astype(np.float32)).to(embedding.device)
        product = (embedding[first] * embedding[second]).sum(1)
        total = total + (functional.softplus(sign * product) * weight).sum() / weight.sum().clamp(min=1e-6)
    return total


@dataclass(frozen=True, eq=False)
class Encoder:
    """``weights`` of `spec`, how its nodes are scaled, ``history`` by epoch, and how many ``graphs`` it saw."""

    shape: Pretraining
    scaling: Scaling
    weights: dict[str, np.ndarray]
    history: list[dict[str, float]]
    graphs: int

    def write(self, file: Path) -> None:
        """As safetensors."""
        arrays = {f"encoder.{name}": values for name, values in self.weights.items()}
        arrays |= {"nodes.mean": self.scaling.mean, "nodes.factor": self.scaling.factor}
        notes = {"shape": json.dumps(asdict(self.shape)), "history": json.dumps(self.history)}
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, stored.pack(arrays, notes | {"graphs": str(self.graphs)}))

    @classmethod
    def read(cls, file: Path) -> Encoder:
        """The inverse of `write`."""
        content = file.read_bytes()
        arrays, notes = stored.unpack(content, str(file)), stored.metadata(content, str(file))
        weights = {n.removeprefix("encoder."): np.array(v) for n, v in arrays.items() if n.startswith("encoder.")}
        return cls(
            Pretraining(**json.loads(notes["shape"])),
            Scaling(True, arrays["nodes.mean"], arrays["nodes.factor"]),
            weights,
            json.loads(notes["history"]),
            int(notes["graphs"]),
        )


def scaling(graphs: Unlabelled) -> Scaling:
    """Mean 0 and variance 1 of all nodes, from three batch sizes of each network."""
    chosen = np.linspace(0, len(graphs.batches) - 1, 3).astype(int)
    found = [graphs.at(i, b) for i in range(len(graphs.keys)) for b in chosen.tolist()]
    count = np.concatenate([c.levels[0].count for c in found])
    return Scaling.fitted(np.concatenate([c.nodes for c in found]), count, log=True)


def random_encoder(graphs: Unlabelled, shape: Pretraining, seed: int) -> Encoder:
    """An encoder that learned nothing: weights as initialised."""
    return Encoder(shape, scaling(graphs), _initialised(shape, seed).weights(), [], 0)


def _initialised(shape: Pretraining, seed: int) -> Network:
    torch.manual_seed(seed)
    network = Network(spec(shape))
    norms = [module for module in network.graph if isinstance(module, BatchNorm)]
    torch.nn.init.constant_(norms[-1].weight, shape.start)
    return network


def pretrain(
    graphs: Unlabelled, shape: Pretraining, *, seed: int = 1337, journal: Path | None = None, quiet: bool = True
) -> Encoder:
    """Learn to tell edges from pairs without one. ``journal``: where a stopped run goes on, with a new Adam."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network, of_nodes = _initialised(shape, seed).to(device), scaling(graphs)
    history: list[dict[str, float]] = []
    if journal is not None and journal.is_file():
        before = Encoder.read(journal)
        if before.shape == shape and np.array_equal(before.scaling.mean, of_nodes.mean):
            network.load(before.weights)
            history = before.history
    optimizer = torch.optim.Adam(network.parameters(), lr=shape.learning_rate)
    steps = -(-len(graphs.keys) // shape.graphs_per_step)
    for epoch in range(len(history), shape.epochs):
        started = time.perf_counter()
        torch.manual_seed(seed * 10_007 + epoch)
        generator = np.random.default_rng((seed, 2, epoch))
        network.train()
        losses = []
        for step, several in enumerate(graphs.epoch(seed, epoch, shape.graphs_per_step)):
            falling = 0.5 * (1.0 + np.cos(np.pi * (epoch + step / steps) / shape.epochs))
            for group in optimizer.param_groups:
                group["lr"] = shape.learning_rate * falling
            losses.append(_step(network, union(several), of_nodes, shape, generator, optimizer, device))
        seconds = time.perf_counter() - started
        history.append({"epoch": epoch + 1, "loss": float(np.mean(losses)), "seconds": round(seconds, 2)})
        if not quiet:
            print(json.dumps(history[-1]), file=sys.stderr, flush=True)
        seen = min((epoch + 1), len(graphs.batches)) * len(graphs.keys)
        encoder = Encoder(shape, of_nodes, network.weights(), history, seen)
        if journal is not None:
            encoder.write(journal)
    return encoder if history else random_encoder(graphs, shape, seed)


def _step(
    network: Network,
    on: Classes,
    of_nodes: Scaling,
    shape: Pretraining,
    generator: np.random.Generator,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> float:
    scaled = Classes(of_nodes(on.nodes), on.levels, on.graph, on.graphs)
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=shape.graphs_per_step > 1):
        embedding = network.embed(ClassTensors.of(scaled, device))
    found = loss(embedding.float(), edges(on), non_edges(on, shape.pairs, generator))
    optimizer.zero_grad()
    found.backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()
    return float(found.detach())
