"""GraphSAGE over a language model's operator graphs (prefill and decode), with the workload and hardware columns.

The baseline that trees on a table were compared with: three SAGE layers with mean aggregation, mean readout, three
fully connected layers (DIPPM's shape), here on classes of nodes, whose outputs are those of the whole graph.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.features import names
from perfpass.llm import table as llm_table
from perfpass.predictors.published.graph_classes import Classes, classes, union
from perfpass.predictors.published.graph_network import Spec
from perfpass.training.published.llm_trees.table import runtimes, table

if TYPE_CHECKING:
    import torch

    from perfpass.training.tasks.graphs import Graphs
    from perfpass.training.tasks.tasks import Split, Task

LAYERS = 3
# Columns of the operator schema that number the nodes: no two nodes would be alike.
_NUMBERING = ("position", "depth")
# Totals of the graph among the schema's statics: six costs, nodes, edges, depth, batch.
_TOTALS = 10
_SOURCES = ("llm-prefill", "llm-decode")


@dataclass(frozen=True)
class Settings:
    """Sizes and training. `PUBLISHED` has the sizes of the publication's graph network (DIPPM)."""

    hidden: int = 64
    steps: int = 260
    adaptation_steps: int = 40
    pairs: int = 48
    rate: float = 3e-3
    dropout: float = 0.05


PUBLISHED = Settings(hidden=512, rate=2.754e-5)

_described: dict[tuple[str, str, int, int], tuple[Classes, np.ndarray]] = {}


def described(graphs: Graphs, source: str, model: str, tokens: int, batch: int) -> tuple[Classes, np.ndarray]:
    """A run's graph, as classes for `LAYERS` rounds, and its totals [10]; kept for the process."""
    from perfpass.features import extract

    key = (source, model, tokens, batch)
    if key not in _described:
        found = extract(graphs.at((source, model, tokens), batch))
        kept = [i for i, n in enumerate(names("operator")[0]) if n not in _NUMBERING]
        _described[key] = classes(found.nodes[:, kept], found.edge_index, LAYERS), found.statics[:_TOTALS]
    return _described[key]


class Sage:
    """The method; ``hardware`` says whether it sees the device's columns."""

    def __init__(self, name: str = "llm-gnn", hardware: bool = True, settings: Settings | None = None) -> None:
        self.name, self.settings = name, settings or Settings()
        self.columns = llm_table.columns_of(["workload", "hardware"] if hardware else ["workload"])

    def fit(self, task: Task, graphs: Graphs, split: Split, seed: int = 0) -> FittedSage:
        """Adam on the Huber loss of the scaled logarithm; the rate falls to 0 over the steps."""
        import torch

        torch.manual_seed(seed)
        s = self.settings
        runs = Runs(task, graphs, self.columns)
        target = np.log(task.value)
        where = np.concatenate([split.train, split.valid])
        centre, spread = float(target[where].mean()), float(target[where].std())
        runs.scale(where)
        place = "cuda" if torch.cuda.is_available() else "cpu"
        network = _network(runs.node_width, runs.numbers.shape[1], s).to(place)
        fitted = FittedSage(network, runs, centre, spread, target, s, where)
        _learn(fitted, where, where[:0], s.steps, s.rate, seed)
        return fitted


@dataclass(frozen=True, eq=False)
class FittedSage:
    """A trained network with the runs it was made for."""

    network: torch.nn.Module
    runs: Runs
    centre: float
    spread: float
    target: np.ndarray
    settings: Settings
    learned: np.ndarray

    @property
    def parameters(self) -> int:
        """Weights."""
        return sum(p.numel() for p in self.network.parameters())

    def adapted(self, rows: np.ndarray, seed: int = 0) -> FittedSage:
        """The same network after `Settings.adaptation_steps` more steps, on ``rows`` and about twice as many others."""
        rows = np.asarray(rows)
        known = np.setdiff1d(self.learned, rows)
        fitted = replace(self, network=copy.deepcopy(self.network), learned=np.union1d(known, rows))
        _learn(fitted, known, rows, self.settings.adaptation_steps, self.settings.rate / 2, seed)
        return fitted

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """Seconds; a graph is embedded once for all of its rows."""
        import torch

        place = next(self.network.parameters()).device.type
        order = np.argsort(self.runs.pair_of[rows], kind="stable")
        out = np.empty(len(rows))
        with torch.no_grad():
            for part in np.array_split(order, max(len(rows) // 512, 1)):
                out[part] = self.network(*self.runs.tensors(rows[part], place)).cpu().numpy()
        return np.exp(out * self.spread + self.centre)


def _learn(fitted: FittedSage, rows: np.ndarray, few: np.ndarray, steps: int, rate: float, seed: int) -> None:
    """Steps of Adam on the Huber loss; half of the runs of every step are of ``few``, where there are some."""
    import torch

    s, runs, network = fitted.settings, fitted.runs, fitted.network
    place = next(network.parameters()).device.type
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps)
    loss = torch.nn.HuberLoss()
    draw = np.random.default_rng(seed)
    members = [rows[runs.pair_of[rows] == p] for p in np.unique(runs.pair_of[rows])]
    network.train()
    for _ in range(steps):
        count = s.pairs // 2 if len(few) else s.pairs
        chosen = np.concatenate([members[i] for i in draw.permutation(len(members))[:count]])
        if len(few):
            chosen = np.concatenate([draw.permutation(chosen)[: 2 * len(few)], few])
        predicted = network(*runs.tensors(chosen, place))
        wanted = torch.tensor((fitted.target[chosen] - fitted.centre) / fitted.spread, dtype=torch.float32)
        optimizer.zero_grad()
        loss(predicted, wanted.to(place)).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    network.eval()


class Runs:
    """The rows of a task with their graphs: ``pair_of`` [N] numbers pairs of graphs, ``numbers`` [N, S] the rest."""

    def __init__(self, task: Task, graphs: Graphs, columns: Sequence[int]) -> None:
        keys = [(k[1], k[2], int(b)) for k, b in zip(task.keys, task.rows.batch, strict=True)]
        self.pairs = sorted(set(keys))
        place = {k: i for i, k in enumerate(self.pairs)}
        self.pair_of = np.array([place[k] for k in keys])
        self.graphs = graphs
        totals = np.array(
            [np.concatenate([described(graphs, s, *p)[1] for s in _SOURCES]) for p in self.pairs], dtype=np.float64
        )
        plain = table(task, None)[:, list(columns)]
        known = np.isfinite(plain)
        plain = np.log1p(np.where(known, plain, 0.0))
        self.numbers = np.concatenate([plain, known, runtimes(task), totals[self.pair_of]], axis=1)
        self.node_width = described(graphs, _SOURCES[0], *self.pairs[0])[0].nodes.shape[1]
        self.node_centre = self.node_spread = np.zeros(self.node_width)

    def scale(self, rows: np.ndarray) -> None:
        """Centre and scale numbers and node features by those of ``rows``."""
        spread = self.numbers[rows].std(axis=0)
        self.numbers = (self.numbers - self.numbers[rows].mean(axis=0)) / np.where(spread > 1e-6, spread, 1.0)
        chosen = [self.pairs[p] for p in np.unique(self.pair_of[rows])[::5]]
        nodes = np.concatenate([described(self.graphs, s, *p)[0].nodes for p in chosen for s in _SOURCES])
        spread = nodes.std(axis=0)
        self.node_centre, self.node_spread = nodes.mean(axis=0), np.where(spread > 1e-6, spread, 1.0)

    def tensors(self, rows: np.ndarray, place: str) -> tuple[Any, ...]:
        """What the network reads: joined graphs, the graphs of each row, and the numbers."""
        import torch

        from perfpass.training.graph_networks.modules import ClassTensors

        pairs, member = np.unique(self.pair_of[rows], return_inverse=True)
        parts = union([described(self.graphs, s, *self.pairs[p])[0] for s in _SOURCES for p in pairs])
        scaled = replace(parts, nodes=((parts.nodes - self.node_centre) / self.node_spread).astype(np.float32))
        numbers = torch.as_tensor(self.numbers[rows], dtype=torch.float32, device=place)
        return ClassTensors.of(scaled, place), torch.as_tensor(member, device=place), numbers


def _network(nodes: int, numbers: int, settings: Settings) -> Any:
    import torch
    from torch import Tensor, nn

    from perfpass.training.graph_networks.modules import ClassTensors, Network

    class Pair(nn.Module):
        """Embeddings of prefill and decode (one network for both), joined with the numbers."""

        def __init__(self) -> None:
            super().__init__()
            h, drop = settings.hidden, nn.Dropout(settings.dropout)
            self.graphs = Network(_spec(nodes, h))
            self.head = nn.Sequential(
                *(nn.Linear(2 * h + numbers, h), nn.ReLU(), drop),
                *(nn.Linear(h, h), nn.ReLU(), drop),
                nn.Linear(h, 1),
            )

        def forward(self, on: ClassTensors, member: Tensor, of_run: Tensor) -> Tensor:
            """[R]; the first half of the graphs are prefills, the second the decodes of the same runs."""
            mean = self.graphs.readout(on)
            half = on.graphs // 2
            pooled = torch.cat([mean[:half], mean[half:]], dim=1)
            out: Tensor = self.head(torch.cat([pooled[member], of_run], dim=1))
            return out[:, 0]

    return Pair()


def _spec(nodes: int, hidden: int) -> Spec:
    """`LAYERS` SAGE layers with mean aggregation, and the mean over nodes."""
    layers: list[dict[str, Any]] = []
    for inputs in [nodes, *[hidden] * (LAYERS - 1)]:
        layers += [{"kind": "sage", "inputs": inputs, "outputs": hidden, "aggregation": "mean"}, {"kind": "relu"}]
    return Spec(tuple(layers), "mean", ())
