"""The graph encoder (GIN; Xu et al., ICLR 2019) and its pre-training by masked autoencoding.

Masked autoencoding with scaled cosine error after Hou et al., GraphMAE (KDD 2022): features of masked nodes are
replaced by a learned vector, their codes by zeros, one GIN layer rebuilds the features. On classes, nodes with equal
features are masked together, and count as often as there are members.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from perfpass.graph import OPERATORS
from perfpass.predictors.published.graph_classes import Classes, union
from perfpass.predictors.published.graph_language import ROUNDS, node_columns, operator_column
from perfpass.training.graph_networks.modules import ClassTensors, Gin, LevelTensors
from perfpass.training.published.graph_language.corpus import Corpus

# The exponent of the scaled cosine error (GraphMAE, section 3.2).
_GAMMA = 2.0
_GRAPHS = 24


class Layer(nn.Module):
    """A GIN layer, then layer norm and ReLU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gin, self.norm = Gin(width, width), nn.LayerNorm(width)

    def forward(self, h: Tensor, at: LevelTensors, before: LevelTensors) -> Tensor:
        """[C, width] of h [B, width]."""
        return torch.relu(self.norm(self.gin(h, at, before)))


class On:
    """Classes on a torch device, with what each round's classes belong to: ``graph`` and ``origin`` [levels][C], the
    graph and the class of the first round.
    """

    def __init__(self, graph: Classes, place: str) -> None:
        self.tensors = ClassTensors.of(graph, place)
        self.levels, self.graphs = self.tensors.levels, graph.graphs
        belongs = [graph.graph]
        for at in range(len(graph.levels) - 1, 0, -1):
            before = np.zeros(len(graph.levels[at - 1]), dtype=np.int64)
            before[graph.levels[at].previous] = belongs[0]
            belongs.insert(0, before)
        self.graph = [torch.from_numpy(np.ascontiguousarray(b)).to(place) for b in belongs]
        self.origin = [torch.arange(len(graph.levels[0]), device=place)]
        for level in self.levels[1:]:
            self.origin.append(self.origin[-1][level.previous])

    def mean(self, h: Tensor, at: int) -> Tensor:
        """[G, H] over nodes, of the classes of round ``at``."""
        count = self.levels[at].count
        total = h.new_zeros((self.graphs, h.shape[1])).index_add(0, self.graph[at], h * count)
        return total / h.new_zeros((self.graphs, 1)).index_add(0, self.graph[at], count)


class Encoder(nn.Module):
    """`ROUNDS` GIN layers and the mean over nodes. Weights as `predictors.graph_language.embed` reads them."""

    centre: Tensor
    spread: Tensor

    def __init__(self, hidden: int) -> None:
        super().__init__()
        width = len(node_columns())
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))
        self.read = nn.Linear(width, hidden)
        self.operator = nn.Embedding(len(OPERATORS), hidden)
        self.layers = nn.ModuleList(Layer(hidden) for _ in range(ROUNDS))

    def scale_to(self, corpus: Corpus) -> None:
        """Centre and scale features by those of a sample of graphs."""
        sample = np.concatenate([p.nodes for p in corpus.parts[:: max(len(corpus) // 400, 1)]]).astype(np.float64)
        spread = sample.std(axis=0)
        self.centre.copy_(torch.from_numpy(sample.mean(axis=0)))
        self.spread.copy_(torch.from_numpy(np.where(spread > 1e-3, spread, 1.0)))

    def nodes(self, on: On) -> tuple[Tensor, Tensor]:
        """Scaled features [C, F] and what the first layer reads [C, H], of the classes before any round."""
        given = on.tensors.nodes
        scaled = (given - self.centre) / self.spread
        return scaled, self.read(scaled) + self.operator(given[:, operator_column()].long())

    def codes(self, h: Tensor, on: On) -> list[Tensor]:
        """The output of each layer, of the classes of its round."""
        out = []
        for i, layer in enumerate(self.layers, 1):
            h = layer(h, on.levels[i], on.levels[i - 1])
            out.append(h)
        return out

    def forward(self, on: On, tokens: int = 1) -> Tensor:
        """[G, tokens, H]: the mean over nodes of the last layer, or of each of the last ``tokens`` layers."""
        codes = list(enumerate(self.codes(self.nodes(on)[1], on), 1))
        return torch.stack([on.mean(code, at) for at, code in codes[-tokens:]], dim=1)


def scaled_cosine_error(rebuilt: Tensor, wanted: Tensor, weight: Tensor) -> Tensor:
    """The mean of (1 - cosine)^gamma over rows, each as often as ``weight`` [C, 1] says."""
    error = (1.0 - functional.cosine_similarity(rebuilt, wanted, dim=1)).clamp(min=0.0) ** _GAMMA
    return (error * weight[:, 0]).sum() / weight.sum().clamp(min=1.0)


def pretrain(encoder: Encoder, corpus: Corpus, steps: int, share: float, rate: float, seed: int, place: str) -> float:
    """Masked autoencoding on the graphs of ``corpus``, without any measurement; the mean of the last losses."""
    hidden, width = encoder.read.out_features, encoder.read.in_features
    mask = nn.Parameter(torch.zeros(hidden, device=place))
    between = nn.Linear(hidden, hidden, bias=False).to(place)
    decoder = Gin(hidden, width).to(place)
    learned: list[Any] = [*encoder.parameters(), mask, *between.parameters(), *decoder.parameters()]
    optimizer = torch.optim.AdamW(learned, lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps)
    draw = np.random.default_rng(seed)
    recent: list[float] = []
    for _ in range(steps):
        chosen = draw.choice(len(corpus), size=min(_GRAPHS, len(corpus)), replace=False)
        on = On(union([corpus.parts[i] for i in chosen]), place)
        hide = torch.as_tensor(draw.random(len(on.tensors.nodes)) < share, device=place)[:, None]
        wanted, h = encoder.nodes(on)
        code = between(encoder.codes(torch.where(hide, mask, h), on)[-1])
        code = torch.where(hide[on.origin[ROUNDS]], torch.zeros_like(code), code)
        rebuilt = decoder(code, on.levels[ROUNDS + 1], on.levels[ROUNDS])
        origin = on.origin[ROUNDS + 1]
        loss = scaled_cosine_error(rebuilt, wanted[origin], on.levels[ROUNDS + 1].count * hide[origin])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        schedule.step()
        recent = [*recent[-19:], float(loss.detach())]
    return float(np.mean(recent))
