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
from perfpass.predictors.graph_classes import Classes
from perfpass.predictors.graph_network import BATCH_NORM_EPS, GAT_SLOPE, Spec


@dataclass(frozen=True, eq=False)
class ClassTensors:
    """`Classes` on a torch device; ``degree`` [C, 1] incoming edges of a member."""

    nodes: Tensor
    count: Tensor
    source: Tensor
    target: Tensor
    weight: Tensor
    degree: Tensor
    graph: Tensor
    graphs: int

    @classmethod
    def of(cls, classes: Classes, device: str | torch.device = "cpu") -> ClassTensors:
        """Counts, weights and degrees get a second axis, to multiply rows."""
        degree = np.bincount(classes.target, weights=classes.weight, minlength=len(classes)).astype(np.float32)

        def tensor(values: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(device)

        return cls(
            tensor(classes.nodes.astype(np.float32)),
            tensor(classes.count.astype(np.float32)[:, None]),
            tensor(classes.source.astype(np.int64)),
            tensor(classes.target.astype(np.int64)),
            tensor(classes.weight.astype(np.float32)[:, None]),
            tensor(degree[:, None]),
            tensor(classes.graph.astype(np.int64)),
            classes.graphs,
        )

    def arriving_sum(self, messages: Tensor) -> Tensor:
        """[C, ...] the sum of messages [K, ...] at each class."""
        zeros = messages.new_zeros((len(self.count), *messages.shape[1:]))
        return zeros.index_add(0, self.target, messages)


class Sage(nn.Module):
    """W_l aggregate(neighbours) + b + W_r self."""

    def __init__(self, inputs: int, outputs: int, aggregation: str = "mean") -> None:
        super().__init__()
        self.aggregation = aggregation
        self.lin_l, self.lin_r = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

    def forward(self, h: Tensor, on: ClassTensors) -> Tensor:
        """[C, outputs] of h [C, inputs]."""
        sent = h[on.source]
        if self.aggregation == "max":
            at = on.target[:, None].expand_as(sent)
            arrived = torch.zeros_like(h).scatter_reduce(0, at, sent, "amax", include_self=False)
        else:
            arrived = on.arriving_sum(sent * on.weight.to(h.dtype))
        if self.aggregation == "mean":
            arrived = arrived / on.degree.clamp(min=1).to(h.dtype)
        out: Tensor = self.lin_l(arrived) + self.lin_r(h)
        return out


class Gcn(nn.Module):
    """Symmetric normalisation with self loops."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.lin = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.xavier_uniform_(self.lin.weight)

    def forward(self, h: Tensor, on: ClassTensors) -> Tensor:
        """[C, outputs] of h [C, inputs]."""
        scale = (on.degree + 1).rsqrt()
        sent = self.lin(h) * scale
        out: Tensor = (on.arriving_sum(sent[on.source] * on.weight) + sent) * scale + self.bias
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

    def forward(self, h: Tensor, on: ClassTensors) -> Tensor:
        """[C, outputs] of h [C, inputs]."""
        values = self.lin(h).view(-1, self.heads, self.width)
        sending, receiving = (values * self.att_src).sum(-1), (values * self.att_dst).sum(-1)
        arriving = functional.leaky_relu(sending[on.source] + receiving[on.target], GAT_SLOPE)
        own = functional.leaky_relu(sending + receiving, GAT_SLOPE)
        at = on.target[:, None].expand_as(arriving)
        top = own.detach().scatter_reduce(0, at, arriving.detach(), "amax", include_self=True)
        share = (arriving - top[on.target]).exp() * on.weight
        own = (own - top).exp()
        total = own + on.arriving_sum(share)
        mixed = values * own[:, :, None] + on.arriving_sum(values[on.source] * share[:, :, None])
        return (mixed / total[:, :, None]).flatten(1) + self.bias


class Gin(nn.Module):
    """Two dense layers over self + sum of neighbours, epsilon 0."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(inputs, outputs), nn.Linear(outputs, outputs)])

    def forward(self, h: Tensor, on: ClassTensors) -> Tensor:
        """[C, outputs] of h [C, inputs]."""
        joined = h + on.arriving_sum(h[on.source] * on.weight.to(h.dtype))
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

    def forward(self, h: Tensor, on: ClassTensors) -> Tensor:
        """[C, inputs] of h [C, inputs]."""
        mean, variance = self.running_mean, self.running_var
        if self.training:
            members = on.count.sum()
            mean = (h * on.count).sum(0) / members
            variance = ((h - mean).square() * on.count).sum(0) / members
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(variance * members / (members - 1).clamp(min=1), self.momentum)
        return (h - mean) * (variance + BATCH_NORM_EPS).rsqrt() * self.weight + self.bias


class Plain(nn.Module):
    """A module that looks at rows alone, among layers that see the graph."""

    def __init__(self, how: Any) -> None:
        super().__init__()
        self.how = how

    def forward(self, h: Tensor, on: ClassTensors | None) -> Tensor:
        """The same of every row."""
        out: Tensor = self.how(h)
        return out


class Dense(nn.Linear):
    """A linear layer among layers that see the graph."""

    def forward(self, h: Tensor, on: ClassTensors | None = None) -> Tensor:
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
        h = on.nodes
        for layer in self.graph:
            h = layer(h, on)
        return read_out(self.spec.readout, h.float(), on)

    def from_embedding(self, embedding: Tensor, statics: Tensor) -> Tensor:
        """[R, outputs] of one embedding [R, H] and statics [R, S] per row."""
        h = torch.cat([embedding, statics], dim=1)
        for layer in self.head:
            h = layer(h, None)
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
        at = on.graph[:, None].expand_as(h)
        return h.new_zeros((on.graphs, h.shape[1])).scatter_reduce(0, at, h, "amax", include_self=False)
    total = h.new_zeros((on.graphs, h.shape[1])).index_add(0, on.graph, h * on.count)
    if how == "sum":
        return total
    if how == "log_sum":
        return total.sign() * total.abs().log1p()
    return total / on.count.new_zeros((on.graphs, 1)).index_add(0, on.graph, on.count)


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
