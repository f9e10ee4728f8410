"""GraphSAGE over a language model's operator graphs (prefill and decode), with the workload and hardware columns.

The baseline that trees on a table were compared with: three SAGE layers with mean aggregation, mean readout, three
fully connected layers (DIPPM's shape), here on classes of nodes, whose outputs are those of the whole graph.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.features import llm_table, names
from perfpass.predictors.graph_classes import Classes, classes, union
from perfpass.training.llm.table import runtimes, table

if TYPE_CHECKING:
    import torch

    from perfpass.training.comparison.graphs import Graphs
    from perfpass.training.comparison.tasks import Split, Task

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
        optimizer = torch.optim.Adam(network.parameters(), lr=s.rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=s.rate, total_steps=s.steps)
        loss = torch.nn.HuberLoss()
        draw = np.random.default_rng(seed)
        members = [where[runs.pair_of[where] == p] for p in np.unique(runs.pair_of[where])]
        network.train()
        for _ in range(s.steps):
            rows = np.concatenate([members[i] for i in draw.permutation(len(members))[: s.pairs]])
            predicted = network(*runs.tensors(rows, place))
            wanted = torch.tensor((target[rows] - centre) / spread, dtype=torch.float32, device=place)
            optimizer.zero_grad()
            loss(predicted, wanted).backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        network.eval()
        return FittedSage(network, runs, centre, spread)


@dataclass(frozen=True, eq=False)
class FittedSage:
    """A trained network with the runs it was made for."""

    network: torch.nn.Module
    runs: Runs
    centre: float
    spread: float

    @property
    def parameters(self) -> int:
        """Weights."""
        return sum(p.numel() for p in self.network.parameters())

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

        pairs, member = np.unique(self.pair_of[rows], return_inverse=True)
        parts = [described(self.graphs, s, *self.pairs[p])[0] for s in _SOURCES for p in pairs]
        whole = union(parts)
        nodes = (whole.nodes - self.node_centre) / self.node_spread

        def tensor(values: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
            return torch.as_tensor(np.ascontiguousarray(values), dtype=dtype, device=place)

        return (
            tensor(nodes, torch.float32),
            tensor(whole.source, torch.int64),
            tensor(whole.target, torch.int64),
            tensor(whole.weight, torch.float32),
            tensor(whole.count, torch.float32),
            tensor(whole.graph, torch.int64),
            len(parts),
            tensor(member, torch.int64),
            tensor(self.numbers[rows], torch.float32),
        )


def _network(nodes: int, numbers: int, settings: Settings) -> Any:
    import torch

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [nodes] + [settings.hidden] * LAYERS
            self.own = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in itertools.pairwise(widths))
            self.read = torch.nn.ModuleList(torch.nn.Linear(a, b, bias=False) for a, b in itertools.pairwise(widths))
            h, drop = settings.hidden, torch.nn.Dropout(settings.dropout)
            self.head = torch.nn.Sequential(
                *(torch.nn.Linear(2 * h + numbers, h), torch.nn.ReLU(), drop),
                *(torch.nn.Linear(h, h), torch.nn.ReLU(), drop),
                torch.nn.Linear(h, 1),
            )

        def forward(self, x, source, target, weight, count, graph_of, graphs, member, numbers):  # type: ignore[no-untyped-def]
            degree = torch.zeros(len(x), device=x.device).index_add(0, target, weight).clamp(min=1.0)
            share = (weight / degree[target])[:, None]
            for own, read in zip(self.own, self.read, strict=True):
                gathered = torch.zeros_like(x).index_add(0, target, x[source] * share)
                x = torch.relu(own(x) + read(gathered))
            total = torch.zeros(graphs, x.shape[1], device=x.device).index_add(0, graph_of, x * count[:, None])
            nodes_of = torch.zeros(graphs, device=x.device).index_add(0, graph_of, count)
            mean = total / nodes_of[:, None]
            half = graphs // 2
            pooled = torch.cat([mean[:half], mean[half:]], dim=1)
            return self.head(torch.cat([pooled[member], numbers], dim=1))[:, 0]

    return Network()
