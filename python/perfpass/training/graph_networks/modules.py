"""The layers of `predictors.graph_network` as torch modules; classes count as often as they have members.

Parameters have the names and shapes of PyTorch Geometric's layers. Without dropout, outputs and gradients are those of
the whole graph; dropout draws once per class, so that equal nodes lose the same entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from perfpass.errors import ArgumentError
from perfpass.predictors.published.graph_classes import Classes
from perfpass.predictors.published.graph_network import BATCH_NORM_EPS, GAT_SLOPE, MESSAGE_LAYERS, Spec


@dataclass(frozen=True, eq=False)
class LevelTensors:
    """`Level` on a torch device; counts, weights and degrees [., 1] with a second axis, to multiply rows."""

    count: Tensor
    previous: Tensor
    source: Tensor
    target: Tensor
    weight: Tensor
    degree: Tensor

    def sum(self, messages: Tensor) -> Tensor:
        """[C, ...] the sum of messages [K, ...] at each class."""
        return messages.new_zeros((len(self.count), *messages.shape[1:])).index_add(0, self.target, messages)


@dataclass(frozen=True, eq=False)
class ClassTensors:
    """`Classes` on a torch device."""

    nodes: Tensor
    levels: tuple[LevelTensors, ...]
    graph: Tensor
    graphs: int

    @classmethod
    def of(
        cls, classes: Classes, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
    ) -> ClassTensors:
        """``dtype``: of everything that is no index."""

        def tensor(values: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).to(device, dtype)

        def index(values: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(device)

        levels = tuple(
            LevelTensors(
                tensor(level.count[:, None]),
                index(level.previous),
                index(level.source),
                index(level.target),
                tensor(level.weight[:, None]),
                tensor(level.degree[:, None]),
            )
            for level in classes.levels
        )
        return cls(tensor(classes.nodes), levels, index(classes.graph), classes.graphs)


class Sage(nn.Module):
    """W_l aggregate(neighbours) + b + W_r self."""

    def __init__(self, inputs: int, outputs: int, aggregation: str = "mean") -> None:
        super().__init__()
        self.aggregation = aggregation
        self.lin_l, self.lin_r = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

    def forward(self, h: Tensor, at: LevelTensors, before: LevelTensors) -> Tensor:
        """[C, outputs] of h [B, inputs]."""
        sent = h[at.source]
        if self.aggregation == "max":
            zeros = h.new_zeros((len(at.count), h.shape[1]))
            arrived = zeros.scatter_reduce(0, at.target[:, None].expand_as(sent), sent, "amax", include_self=False)
        else:
            arrived = at.sum(sent * at.weight.to(h.dtype))
        if self.aggregation == "mean":
            arrived = arrived / at.degree.clamp(min=1).to(h.dtype)
        out: Tensor = self.lin_l(arrived) + self.lin_r(h[at.previous])
        return out


class Gcn(nn.Module):
    """Symmetric normalisation with self loops."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.lin = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.xavier_uniform_(self.lin.weight)

    def forward(self, h: Tensor, at: LevelTensors, before: LevelTensors) -> Tensor:
        """[C, outputs] of h [B, inputs]."""
        values = self.lin(h)
        sent = values * (before.degree + 1).rsqrt()
        scale = (at.degree + 1).rsqrt()
        out: Tensor = (at.sum(sent[at.source] * at.weight) + values[at.previous] * scale) * scale + self.bias
        return out


class Gat(nn.Module):
    """Attention over neighbours and self; heads side by side."""

    def __init__(self, inputs: int, outputs: int, heads: int = 1) -> None:
        super().__init__()
        if outputs % heads:
            raise ArgumentError(f"{outputs} outputs cannot be shared by {heads} heads; take a divisor")
        self.heads, self.width = heads, outputs // heads
        self.lin = nn.Linear(inputs, outputs, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, heads, self.width))
        self.att_dst = nn.Parameter(torch.empty(1, heads, self.width))
        self.bias = nn.Parameter(torch.zeros(outputs))
        for values in (self.lin.weight, self.att_src, self.att_dst):
            nn.init.xavier_uniform_(values)

    def forward(self, h: Tensor, at: LevelTensors, before: LevelTensors) -> Tensor:
        """[C, outputs] of h [B, inputs]."""
        values = self.lin(h).view(-1, self.heads, self.width)
        sending, receiving = (values * self.att_src).sum(-1), (values * self.att_dst).sum(-1)
        own_values, receiving = values[at.previous], receiving[at.previous]
        arriving = functional.leaky_relu(sending[at.source] + receiving[at.target], GAT_SLOPE)
        own = functional.leaky_relu(sending[at.previous] + receiving, GAT_SLOPE)
        place = at.target[:, None].expand_as(arriving)
        top = own.detach().scatter_reduce(0, place, arriving.detach(), "amax", include_self=True)
        share = (arriving - top[at.target]).exp() * at.weight
        own = (own - top).exp()
        total = own + at.sum(share)
        mixed = own_values * own[:, :, None] + at.sum(values[at.source] * share[:, :, None])
        return (mixed / total[:, :, None]).flatten(1) + self.bias


class Gin(nn.Module):
    """Two dense layers over self + sum of neighbours, epsilon 0."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(inputs, outputs), nn.Linear(outputs, outputs)])

    def forward(self, h: Tensor, at: LevelTensors, before: LevelTensors) -> Tensor:
        """[C, outputs] of h [B, inputs]."""
        joined = h[at.previous] + at.sum(h[at.source] * at.weight.to(h.dtype))
        out: Tensor = self.lins[1](torch.relu(self.lins[0](joined)))
        return out


class BatchNorm(nn.Module):
    """Batch norm over the members of all classes, with the running statistics of torch's."""

    def __init__(self, inputs: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.momentum = momentum
        self.weight, self.bias = nn.Parameter(torch.ones(inputs)), nn.Parameter(torch.zeros(inputs))
        self.register_buffer("running_mean", torch.zeros(inputs))
        self.register_buffer("running_var", torch.ones(inputs))
        self.running_mean: Tensor
        self.running_var: Tensor

    def forward(self, h: Tensor, at: LevelTensors) -> Tensor:
        """[C, inputs] of h [C, inputs]."""
        mean, variance = self.running_mean, self.running_var
        if self.training:
            members = at.count.sum()
            mean = (h * at.count).sum(0) / members
            variance = ((h - mean).square() * at.count).sum(0) / members
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(variance * members / (members - 1).clamp(min=1), self.momentum)
        return (h - mean) * (variance + BATCH_NORM_EPS).rsqrt() * self.weight + self.bias


class Plain(nn.Module):
    """A module that looks at rows alone, among layers that see the graph."""

    def __init__(self, how: Any) -> None:
        super().__init__()
        self.how = how

    def forward(self, h: Tensor, at: LevelTensors | None = None) -> Tensor:
        """The same of every row."""
        out: Tensor = self.how(h)
        return out


class Dense(nn.Linear):
    """A linear layer among layers that see the graph."""

    def forward(self, h: Tensor, at: LevelTensors | None = None) -> Tensor:
        """[C, outputs] of h [C, inputs]."""
        return super().forward(h)


class Network(nn.Module):
    """The torch twin of `predictors.graph_network.GraphNetwork`; weights go over by `weights` and `load`."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        self.graph = nn.ModuleList(_module(layer) for layer in spec.graph)
        self.head = nn.ModuleList(_module(layer) for layer in spec.head)

    def readout(self, on: ClassTensors) -> Tensor:
        """[G, H] the embedding of every graph; [G, 0] without graph layers."""
        if not len(self.graph):
            return on.nodes.new_zeros((on.graphs, 0))
        return read_out(self.spec.readout, self.embed(on).float(), on)

    def embed(self, on: ClassTensors) -> Tensor:
        """[C, H] the embedding of every class of the last level."""
        h, at = on.nodes, 0
        if self.spec.sees_degrees:
            h, at = h[on.levels[1].previous], 1
        for layer, module in zip(self.spec.graph, self.graph, strict=True):
            if layer["kind"] in MESSAGE_LAYERS:
                at += 1
                h = module(h, on.levels[at], on.levels[at - 1])
            else:
                h = module(h, on.levels[at])
        return h

    def from_embedding(self, embedding: Tensor, statics: Tensor) -> Tensor:
        """[R, outputs] of one embedding [R, H] and statics [R, S] per row."""
        h = torch.cat([embedding, statics], dim=1)
        for layer in self.head:
            h = layer(h)
        return h

    def forward(self, on: ClassTensors, row_graph: Tensor, statics: Tensor) -> Tensor:
        """[R, outputs]; ``row_graph`` [R] names the graph of each row, so that its rows share one embedding."""
        return self.from_embedding(self.readout(on)[row_graph], statics)

    def weights(self) -> dict[str, np.ndarray]:
        """Parameters and statistics by name, float32."""
        return {name: values.detach().cpu().numpy().copy() for name, values in self.state_dict().items()}

    def load(self, weights: dict[str, np.ndarray]) -> None:
        """The inverse of `weights`."""
        self.load_state_dict({name: torch.from_numpy(np.array(values)) for name, values in weights.items()})


def read_out(how: str, h: Tensor, on: ClassTensors) -> Tensor:
    """[G, H] of h [C, H]."""
    if how == "max":
        place = on.graph[:, None].expand_as(h)
        return h.new_zeros((on.graphs, h.shape[1])).scatter_reduce(0, place, h, "amax", include_self=False)
    total = h.new_zeros((on.graphs, h.shape[1])).index_add(0, on.graph, h * on.levels[-1].count)
    if how == "sum":
        return total
    if how == "log_sum":
        return total.sign() * total.abs().log1p()
    return total / on.levels[-1].count.new_zeros((on.graphs, 1)).index_add(0, on.graph, on.levels[-1].count)


def _module(layer: dict[str, Any]) -> nn.Module:
    kind = layer["kind"]
    sizes = {name: value for name, value in layer.items() if name != "kind"}
    if kind == "relu":
        return Plain(torch.relu)
    if kind == "unit":
        return Plain(functional.normalize)
    if kind == "dropout":
        return Plain(nn.Dropout(sizes["p"]))
    if kind == "dense":
        return Dense(sizes["inputs"], sizes["outputs"])
    return {"sage": Sage, "gcn": Gcn, "gat": Gat, "gin": Gin, "batch_norm": BatchNorm}[kind](**sizes)
