"""The graph encoder (GIN; Xu et al., ICLR 2019) and its pre-training by masked autoencoding.

Masked autoencoding with scaled cosine error after Hou et al., GraphMAE (KDD 2022): features of masked nodes are
replaced by a learned vector, their codes by zeros, one GIN layer rebuilds the features. On classes of nodes a class is
masked as a whole and counts as often as it has members.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from perfpass.graph import OPERATORS
from perfpass.predictors.graph_classes import Classes, union
from perfpass.predictors.graph_language import ROUNDS, operator_column
from perfpass.training.graph_language.corpus import Corpus

# The exponent of the scaled cosine error (GraphMAE, section 3.2).
_GAMMA = 2.0
_GRAPHS = 24


class Layer(nn.Module):
    """Two dense layers over self + sum of inputs, then layer norm."""

    def __init__(self, width: int, outputs: int | None = None) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, outputs or width)
        self.norm = nn.LayerNorm(outputs or width)

    def forward(self, h: Tensor, on: On, last: bool = False) -> Tensor:
        """[C, outputs]; without norm for the ``last`` layer of a decoder."""
        out = self.second(torch.relu(self.first(h.index_add(0, on.target, h[on.source] * on.weight))))
        return out if last else torch.relu(self.norm(out))


class On:
    """Classes on a torch device."""

    def __init__(self, graph: Classes, place: str) -> None:
        def tensor(values: np.ndarray, kind: torch.dtype) -> Tensor:
            return torch.as_tensor(np.ascontiguousarray(values), dtype=kind, device=place)

        self.nodes = tensor(graph.nodes, torch.float32)
        self.source, self.target = tensor(graph.source, torch.int64), tensor(graph.target, torch.int64)
        self.weight = tensor(graph.weight, torch.float32)[:, None]
        self.count = tensor(graph.count, torch.float32)[:, None]
        self.graph, self.graphs = tensor(graph.graph, torch.int64), graph.graphs

    def mean(self, h: Tensor) -> Tensor:
        """[G, H] over nodes."""
        total = h.new_zeros((self.graphs, h.shape[1])).index_add(0, self.graph, h * self.count)
        return total / h.new_zeros((self.graphs, 1)).index_add(0, self.graph, self.count)


class Encoder(nn.Module):
    """`ROUNDS` GIN layers and the mean over nodes. Weights as `predictors.graph_language.embed` reads them."""

    centre: Tensor
    spread: Tensor

    def __init__(self, corpus: Corpus, hidden: int) -> None:
        super().__init__()
        sample = np.concatenate([p.nodes.astype(np.float32) for p in corpus.parts[:: max(len(corpus) // 400, 1)]])
        spread = sample.std(axis=0)
        centre, spread = sample.mean(axis=0), np.where(spread > 1e-3, spread, 1.0)
        self.register_buffer("centre", torch.tensor(centre, dtype=torch.float32))
        self.register_buffer("spread", torch.tensor(spread, dtype=torch.float32))
        self.read = nn.Linear(len(centre), hidden)
        self.operator = nn.Embedding(len(OPERATORS), hidden)
        self.layers = nn.ModuleList(Layer(hidden) for _ in range(ROUNDS))

    def nodes(self, on: On) -> tuple[Tensor, Tensor]:
        """Scaled features [C, F] and what the first layer reads [C, H]."""
        scaled = (on.nodes - self.centre) / self.spread
        return scaled, self.read(scaled) + self.operator(on.nodes[:, operator_column()].long())

    def codes(self, h: Tensor, on: On) -> list[Tensor]:
        """The output of each layer."""
        out = []
        for layer in self.layers:
            h = layer(h, on)
            out.append(h)
        return out

    def forward(self, on: On, tokens: int = 1) -> Tensor:
        """[G, tokens, H]: the mean over nodes of the last layer, or of each of the last ``tokens`` layers."""
        codes = self.codes(self.nodes(on)[1], on)
        return torch.stack([on.mean(c) for c in codes[-tokens:]], dim=1)


def scaled_cosine_error(rebuilt: Tensor, wanted: Tensor, weight: Tensor) -> Tensor:
    """The mean of (1 - cosine)^gamma over rows, each as often as ``weight`` [C, 1] says."""
    error = (1.0 - functional.cosine_similarity(rebuilt, wanted, dim=1)).clamp(min=0.0) ** _GAMMA
    return (error * weight[:, 0]).sum() / weight.sum()


def pretrain(encoder: Encoder, corpus: Corpus, steps: int, share: float, rate: float, seed: int, place: str) -> float:
    """Masked autoencoding on the graphs of ``corpus``, without any measurement; the last loss."""
    hidden = encoder.read.out_features
    mask = nn.Parameter(torch.zeros(hidden, device=place))
    between = nn.Linear(hidden, hidden, bias=False).to(place)
    decoder = Layer(hidden, encoder.read.in_features).to(place)
    learned: list[Any] = [*encoder.parameters(), mask, *between.parameters(), *decoder.parameters()]
    optimizer = torch.optim.AdamW(learned, lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps)
    draw = np.random.default_rng(seed)
    recent: list[float] = []
    for _ in range(steps):
        chosen = draw.choice(len(corpus), size=min(_GRAPHS, len(corpus)), replace=False)
        on = On(union([corpus.parts[i] for i in chosen]), place)
        hide = torch.as_tensor(draw.random(len(on.nodes)) < share, device=place)[:, None]
        wanted, h = encoder.nodes(on)
        code = between(encoder.codes(torch.where(hide, mask, h), on)[-1])
        rebuilt = decoder(torch.where(hide, torch.zeros_like(code), code), on, last=True)
        loss = scaled_cosine_error(rebuilt, wanted, on.count * hide)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        schedule.step()
        recent = [*recent[-19:], float(loss.detach())]
    return float(np.mean(recent))
