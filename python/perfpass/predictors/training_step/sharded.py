"""What each rank of a training step holds where replicas share parameters, gradients and states of any network.

ZeRO's stages (arXiv:1910.02054, section 5) as PyTorch has them. "zero1": ZeroRedundancyOptimizer gives whole parameters
to ranks, the largest first, each to the rank that has least. "zero2" and "zero3": `fully_shard` splits each parameter
along its first dimension (FSDP2; arXiv:2304.11277 has the idea), so the first rank has most. Of a sharded network the
blocks are wrapped (`perfpass.graph.blocks`) and the network itself around them: a block's whole parameters exist while
it runs, the next block's beside it, and its whole gradients until they are summed; what lies outside of blocks stays
gathered from the forward pass to the end of the backward pass. "zero2" keeps all gathered between the passes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import prod

import numpy as np

from perfpass.graph import OpGraph, blocks
from perfpass.graph.frozen import trained
from perfpass.graph.optimizers import Optimizer

SHARDINGS = ("none", "zero1", "zero2", "zero3")
OFFLOADS = ("none", "optimizer", "parameters")


@dataclass(frozen=True, eq=False)
class Parameters:
    """Trained parameters of a network, [K] each: elements, length of the first dimension, block (-1 outside of all).

    ``element_bytes``: of a parameter, a gradient and a state alike; ``beside_bytes``: weights that are not trained;
    ``copies``: bytes of 16-bit copies over those of the parameters (autocast).
    """

    elements: np.ndarray
    rows: np.ndarray
    block: np.ndarray
    element_bytes: float
    beside_bytes: float = 0.0
    copies: float = 0.0

    @property
    def bytes(self) -> float:
        """Of all."""
        return float(self.elements.sum() * self.element_bytes)

    @property
    def units(self) -> np.ndarray:
        """[U] bytes of what is gathered at once: of the rest outside of blocks, then of every block."""
        found = np.bincount(self.block + 1, self.elements * self.element_bytes)
        return np.asarray(found if len(found) else np.zeros(1))


def parameters(graph: OpGraph, element_bytes: float, beside_bytes: float = 0.0, copies: float = 0.0) -> Parameters:
    """Those of ``graph``. Raises UnsupportedError where none is trained."""
    learned = np.flatnonzero(trained(graph, graph.frozen)).tolist()
    names = [graph.string(int(graph.tensor_name[t])) for t in learned]
    shapes = [graph.shape(t) for t in learned]
    place = blocks.places(names, blocks.blocks(names))
    elements = np.array([prod(shape) for shape in shapes], dtype=np.float64)
    rows = np.array([shape[0] if shape else 1 for shape in shapes], dtype=np.float64)
    return Parameters(elements, rows, place, element_bytes, beside_bytes, copies)


@dataclass(frozen=True)
class Rank:
    """Bytes that a rank holds. ``owned``: of parameters that it steps. ``weights``, ``gradients``, ``states``: from
    step to step (gradients while they live); ``moment``: what the optimizer's step makes; ``gathered``: whole
    parameters and copies beside, while passes run; ``under_way``: whole gradients of the block that is summed;
    ``buckets``: of DistributedDataParallel; ``host``: of the host's memory.
    """

    owned: float
    weights: float
    gradients: float
    states: float
    moment: float
    gathered: float
    under_way: float
    buckets: float
    host: float = 0.0

    def to_dict(self) -> dict[str, float]:
        """Strict JSON."""
        return asdict(self)

    def alive(self, backward: float, early: float) -> float:
        """The peak beside activations of ``backward`` bytes, at which ``early`` of all gradients (0 to 1) exist."""
        passes = self.gathered + backward + early * self.gradients + self.under_way
        return self.weights + self.states + max(passes, self.gradients + self.moment)


def split(found: Parameters, sharding: str, ranks: int) -> np.ndarray:
    """[ranks] elements of the parameters that each rank owns; they sum to the whole."""
    if sharding == "none" or ranks == 1:
        return np.full(ranks, found.elements.sum())
    if sharding == "zero1":
        owned = np.zeros(ranks)
        for size in sorted(found.elements.tolist(), reverse=True):
            owned[owned.argmin()] += size
        return owned
    each = np.ceil(found.rows / ranks)
    rank = np.arange(ranks)[:, None]
    mine = np.clip(found.rows - rank * each, 0, each)
    return np.asarray((mine * found.elements / np.maximum(found.rows, 1)).sum(axis=1))


def rank(found: Parameters, sharding: str, ranks: int, optimizer: Optimizer, *, lists: bool) -> Rank:
    """The fullest of ``ranks``; ``lists``: the optimizer's kernels take lists of tensors (on GPUs)."""
    whole, width = found.bytes, found.element_bytes
    own = float(split(found, sharding, ranks).max()) * width
    states, moment = own * optimizer.states, own * optimizer.temporaries * lists
    casts = found.copies * whole
    if sharding in ("none", "zero1") or ranks == 1:
        buckets = whole if ranks > 1 else 0.0
        return Rank(own, found.beside_bytes + whole, whole, states, moment, casts, 0.0, buckets)
    outside, widest = float(found.units[0]), float(found.units.max())
    gathered = whole
    if sharding == "zero3":
        two = np.sort(found.units[1:])[-2:].sum()
        gathered = min(whole, outside + float(two))
    return Rank(own, found.beside_bytes + own, own, states, moment, gathered * (1 + found.copies), widest, 0.0)


def offloaded(held: Rank, found: Parameters, offload: str) -> Rank:
    """With states and gradients ("optimizer") or weights, too ("parameters"), on the host.

    Of gradients those of two units are on their way; of weights that wait on the host two units are on the device.
    """
    if offload == "none":
        return held
    two = float(np.sort(found.units)[-2:].sum())
    gradients = min(held.gradients, two)
    host = held.states + held.gradients
    moved = replace(held, gradients=gradients, states=0.0, moment=0.0, host=host)
    if offload == "optimizer":
        return moved
    own = held.weights - found.beside_bytes
    return replace(moved, weights=found.beside_bytes + min(own, two), host=host + own)
