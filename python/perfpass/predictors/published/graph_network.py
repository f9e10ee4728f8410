"""Graph networks in NumPy, on classes of nodes: no torch at prediction time (docs/internals/quotient.md).

A network is a list of layers over nodes, a readout, and a list of layers over the readout joined with static inputs.
Layers and their weights are those of PyTorch Geometric, by its names; `training.graph_networks.modules` is the twin
that learns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.errors import ArgumentError, ArtefactError
from perfpass.predictors.published.graph_classes import Classes, Level

READOUTS = ("sum", "mean", "max", "log_sum")
MESSAGE_LAYERS = ("sage", "gat", "gcn", "gin")
BATCH_NORM_EPS = 1e-5
GAT_SLOPE = 0.2
# Below this a vector is not scaled to unit length (torch.nn.functional.normalize).
_LEAST_NORM = 1e-12


@dataclass(frozen=True)
class Spec:
    """``graph``: layers over nodes; ``readout``: one of READOUTS; ``head``: layers over [readout, statics].

    A layer is a dict with a ``kind``: sage (inputs, outputs, aggregation), gat (inputs, outputs, heads), gcn (inputs,
    outputs), gin (inputs, outputs), dense (inputs, outputs), batch_norm (inputs), relu, unit (rows to length 1),
    dropout (p; nothing at prediction time). Without ``graph`` the head reads the statics alone.
    """

    graph: tuple[dict[str, Any], ...]
    readout: str
    head: tuple[dict[str, Any], ...]

    @property
    def rounds(self) -> int:
        """Rounds of refinement after which classes have one embedding each."""
        return sum(layer["kind"] in MESSAGE_LAYERS for layer in self.graph) + self.sees_degrees

    @property
    def sees_degrees(self) -> bool:
        """Whether a layer weighs a neighbour by the number of that one's neighbours: known from round 1 on."""
        return any(layer["kind"] == "gcn" for layer in self.graph)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"graph": list(self.graph), "readout": self.readout, "head": list(self.head)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Spec:
        """The inverse of `to_dict`."""
        return cls(tuple(values["graph"]), values["readout"], tuple(values["head"]))


class GraphNetwork:
    """A network with its weights [float32], named ``graph.<i>.<name>`` and ``head.<i>.<name>``."""

    def __init__(self, spec: Spec, weights: Mapping[str, np.ndarray]) -> None:
        """Raises ArtefactError where a weight is missing, of another shape or not finite, or a layer is unknown."""
        self.spec = spec
        self._graph = [(layer["kind"], _layer(layer, f"graph.{i}", weights)) for i, layer in enumerate(spec.graph)]
        self._head = [(layer["kind"], _layer(layer, f"head.{i}", weights)) for i, layer in enumerate(spec.head)]
        if spec.readout not in READOUTS:
            raise ArtefactError(f"readout {spec.readout!r}; allowed are {', '.join(READOUTS)}")

    def embed(self, classes: Classes) -> np.ndarray:
        """[C, H] the embedding of every class of the last level."""
        if len(classes.levels) != self.spec.rounds + 1:
            raise ArgumentError(f"got classes of {len(classes.levels) - 1} rounds; {self.spec.rounds} are needed")
        h, at = np.asarray(classes.nodes, dtype=np.float32), 0
        if self.spec.sees_degrees:
            h, at = h[classes.levels[1].previous], 1
        for kind, layer in self._graph:
            if kind in MESSAGE_LAYERS:
                at += 1
                h = layer(h, classes.levels[at], classes.levels[at - 1])
            else:
                h = layer(h)
        return h

    def readout(self, classes: Classes) -> np.ndarray:
        """[G, H] the embedding of every graph; [G, 0] for a network without graph layers."""
        if not self._graph:
            return np.zeros((classes.graphs, 0), dtype=np.float32)
        return _read_out(self.spec.readout, self.embed(classes), classes)

    def head(self, embedding: np.ndarray, statics: np.ndarray) -> np.ndarray:
        """[R, outputs] from one embedding [R, H] and statics [R, S] per row."""
        h = np.hstack([embedding, statics]).astype(np.float32)
        for _, layer in self._head:
            h = layer(h)
        return h


def _read_out(how: str, h: np.ndarray, classes: Classes) -> np.ndarray:
    starts = np.searchsorted(classes.graph, np.arange(classes.graphs))
    if how == "max":
        return np.maximum.reduceat(h, starts, axis=0)
    count = classes.count[:, None].astype(np.float32)
    total = np.add.reduceat(h * count, starts, axis=0)
    if how == "sum":
        return total
    if how == "log_sum":
        return np.sign(total) * np.log1p(np.abs(total))
    return total / np.add.reduceat(count, starts, axis=0)


def _layer(layer: Mapping[str, Any], name: str, weights: Mapping[str, np.ndarray]) -> Any:
    kinds = {
        "sage": _Sage,
        "gat": _Gat,
        "gcn": _Gcn,
        "gin": _Gin,
        "dense": _Dense,
        "batch_norm": _BatchNorm,
        "relu": _Relu,
        "unit": _Unit,
        "dropout": _Dropout,
    }
    if layer.get("kind") not in kinds:
        raise ArtefactError(f"layer {name} is of kind {layer.get('kind')!r}; allowed are {', '.join(kinds)}")

    def weight(part: str, *shape: int) -> np.ndarray:
        found = weights.get(f"{name}.{part}")
        if found is None or found.shape != shape:
            is_there = "is missing" if found is None else f"has the shape {found.shape}"
            raise ArtefactError(f"weight {name}.{part} {is_there}; {shape} is needed; run `perfpass train` again")
        if not np.isfinite(found).all():
            raise ArtefactError(f"weight {name}.{part} is not finite; run `perfpass train` again")
        return np.ascontiguousarray(found, dtype=np.float32)

    return kinds[layer["kind"]](layer, weight)


class _Dense:
    def __init__(self, layer: Mapping[str, Any], weight: Any) -> None:
        self.matrix = weight("weight", layer["outputs"], layer["inputs"]).T
        self.bias = weight("bias", layer["outputs"])

    def __call__(self, h: np.ndarray) -> np.ndarray:
        return h @ self.matrix + self.bias


class _Sage:
    """W_l aggregate(neighbours) + b + W_r self (Hamilton et al., "Inductive representation learning", NIPS 2017)."""

    def __init__(self, layer: Mapping[str, Any], weight: Any) -> None:
        inputs, outputs = layer["inputs"], layer["outputs"]
        self.aggregation = layer["aggregation"]
        if self.aggregation not in ("mean", "sum", "max"):
            raise ArtefactError(f"aggregation {self.aggregation!r}; allowed are mean, sum and max")
        parts = weight("lin_l.weight", outputs, inputs), weight("lin_r.weight", outputs, inputs)
        # Sums of products are products of sums, and the round before has fewer classes: multiply there, unless that
        # widens what is summed. Maxima have to come first.
        self.outputs, self.first = outputs, outputs <= inputs and self.aggregation != "max"
        joined = np.vstack(parts) if self.first else np.hstack(parts)
        self.matrix, self.bias = np.ascontiguousarray(joined.T), weight("lin_l.bias", outputs)

    def __call__(self, h: np.ndarray, at: Level, before: Level) -> np.ndarray:
        if self.first:
            products = h @ self.matrix
            out = self._aggregated(products[:, : self.outputs], at)
            out += products[at.previous, self.outputs :]
        else:
            out = np.hstack([self._aggregated(h, at), h[at.previous]]) @ self.matrix
        out += self.bias
        return out

    def _aggregated(self, h: np.ndarray, at: Level) -> np.ndarray:
        """[C, ...] sum, mean or maximum of what arrives; 0 where nothing does."""
        if self.aggregation == "max":
            return at.max(h[at.source])
        arrived = at.sum(h[at.source] * at.weight[:, None])
        return arrived / np.maximum(at.degree, 1.0)[:, None] if self.aggregation == "mean" else arrived


class _Gcn:
    """Symmetric normalisation with self loops (Kipf and Welling, ICLR 2017)."""

    def __init__(self, layer: Mapping[str, Any], weight: Any) -> None:
        self.matrix, self.bias = (
            weight("lin.weight", layer["outputs"], layer["inputs"]).T,
            weight("bias", layer["outputs"]),
        )

    def __call__(self, h: np.ndarray, at: Level, before: Level) -> np.ndarray:
        sent = (h @ self.matrix) / np.sqrt(before.degree + 1.0)[:, None]
        scale = (1.0 / np.sqrt(at.degree + 1.0))[:, None]
        own = (sent * np.sqrt(before.degree + 1.0)[:, None])[at.previous] * scale
        return (at.sum(sent[at.source] * at.weight[:, None]) + own) * scale + self.bias


class _Gat:
    """Attention over neighbours and self (Velickovic et al., ICLR 2018); heads side by side."""

    def __init__(self, layer: Mapping[str, Any], weight: Any) -> None:
        self.heads = layer["heads"]
        self.width = layer["outputs"] // self.heads
        self.matrix = weight("lin.weight", layer["outputs"], layer["inputs"]).T
        self.sending = weight("att_src", 1, self.heads, self.width)
        self.receiving = weight("att_dst", 1, self.heads, self.width)
        self.bias = weight("bias", layer["outputs"])

    def __call__(self, h: np.ndarray, at: Level, before: Level) -> np.ndarray:
        values = (h @ self.matrix).reshape(-1, self.heads, self.width)
        sending, receiving = (values * self.sending).sum(-1), (values * self.receiving).sum(-1)
        values_own, receiving = values[at.previous], receiving[at.previous]
        arriving = _leaky(sending[at.source] + receiving[at.target])
        own = _leaky(sending[at.previous] + receiving)
        top = own.copy()
        np.maximum.at(top, at.target, arriving)
        share = np.exp(arriving - top[at.target]) * at.weight[:, None]
        own = np.exp(own - top)
        total = own + at.sum(share)
        mixed = values_own * own[:, :, None] + at.sum(values[at.source] * share[:, :, None])
        return (mixed / total[:, :, None]).reshape(len(own), -1) + self.bias


def _leaky(values: np.ndarray) -> np.ndarray:
    return np.where(values > 0, values, values * np.float32(GAT_SLOPE))


class _Gin:
    """Two dense layers over self + sum of neighbours (Xu et al., ICLR 2019), epsilon 0."""

    def __init__(self, layer: Mapping[str, Any], weight: Any) -> None:
        inputs, outputs = layer["inputs"], layer["outputs"]
        self.first, self.first_bias = weight("lins.0.weight", outputs, inputs).T, weight("lins.0.bias", outputs)
        self.second, self.second_bias = weight("lins.1.weight", outputs, outputs).T, weight("lins.1.bias", outputs)

    def __call__(self, h: np.ndarray, at: Level, before: Level) -> np.ndarray:
        joined = h[at.previous] + at.sum(h[at.source] * at.weight[:, None])
        return np.maximum(joined @ self.first + self.first_bias, 0.0) @ self.second + self.second_bias


class _BatchNorm:
    def __init__(self, layer: Mapping[str, Any], weight: Any) -> None:
        n = layer["inputs"]
        spread = np.sqrt(weight("running_var", n) + np.float32(BATCH_NORM_EPS))
        self.scale = weight("weight", n) / spread
        self.shift = weight("bias", n) - weight("running_mean", n) * self.scale

    def __call__(self, h: np.ndarray) -> np.ndarray:
        return h * self.scale + self.shift


class _Relu:
    def __init__(self, layer: Mapping[str, Any], weight: Any) -> None:
        pass

    def __call__(self, h: np.ndarray) -> np.ndarray:
        return np.maximum(h, 0.0)


class _Unit:
    """Rows of length 1, as PyTorch Geometric's SAGEConv with ``normalize=True``."""

    def __init__(self, layer: Mapping[str, Any], weight: Any) -> None:
        pass

    def __call__(self, h: np.ndarray) -> np.ndarray:
        return h / np.maximum(np.sqrt(np.einsum("ij,ij->i", h, h)), _LEAST_NORM)[:, None]


class _Dropout:
    def __init__(self, layer: Mapping[str, Any], weight: Any) -> None:
        pass

    def __call__(self, h: np.ndarray) -> np.ndarray:
        return h


@dataclass(frozen=True, eq=False)
class Scaling:
    """``factor`` * (x - ``mean``) per column, of sign(x) log(1 + |x|) where ``log``; bounded by LIMIT.

    A column that never varied in training has the factor 0: a value unlike those must not move a weight that never
    learned. The bound keeps a value far from all others from carrying a network away.
    """

    log: bool
    mean: np.ndarray
    factor: np.ndarray
    LIMIT = 8.0

    @classmethod
    def fitted(cls, values: np.ndarray, weights: np.ndarray | None = None, *, log: bool) -> Scaling:
        """Mean 0 and variance 1 of ``values`` [N, F], each row counting ``weights`` [N] times."""
        seen = _squeezed(values, log).astype(np.float64)
        mean = np.average(seen, axis=0, weights=weights)
        spread = np.sqrt(np.average((seen - mean) ** 2, axis=0, weights=weights))
        varies = spread > 1e-5 * np.maximum(np.abs(mean), 1.0)
        factor = np.where(varies, 1.0 / np.where(varies, spread, 1.0), 0.0)
        return cls(log, mean.astype(np.float32), factor.astype(np.float32))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """The scaled values [N, F], float32."""
        scaled = (_squeezed(values, self.log) - self.mean) * self.factor
        return np.clip(scaled, -self.LIMIT, self.LIMIT).astype(np.float32)


def _squeezed(values: np.ndarray, log: bool) -> np.ndarray:
    return np.sign(values) * np.log1p(np.abs(values)) if log else np.asarray(values)
