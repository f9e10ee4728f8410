"""Memory of a training step planned from its forward graph: the larger of its two peaks, and what is not known of it.

Backward: weights (under autocast the 16-bit copies too), the optimizer's states, what autograd still holds, gradients
of activations, the loss, and the gradients of weights that exist by then. Update: weights, all gradients, states, and
what the optimizer's list kernels make for a moment. In use is what the caching allocator makes of it, and the context.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfpass.graph.optimizers import OPTIMIZERS
from perfpass.late import dataclass
from perfpass.predictors.memory.allocation import weight_copies
from perfpass.predictors.workload import DEFAULT_OPTIMIZER, PRECISIONS

if TYPE_CHECKING:
    from perfpass.predictors.estimate import Columns
    from perfpass.predictors.way import Way

# What the simulated caching allocator reserves over what is alive: 1.03 to 1.28, in the middle 1.08, in 39 recorded
# steps of 13 networks (convolutional, transformers; fp32, bf16, autocast).
SLACK = 1.08
# What a step's interval is wide by: what else a program keeps; the allocator's holes; the context; whether gradients of
# the step before are still alive; what MIOpen's workspaces leave in the allocator; normalizations that an export folded
# away.
CAUSES = ("laboratory", "allocator", "context", "gradients", "workspaces", "normalizations")
# A context unlike the usual one, by hand: that of an AMD board (its libraries load kernels of every type) by more.
_CONTEXT_BYTES = {"AMD": 2.5 * 2.0**30}
_USUAL_CONTEXT_BYTES = 2.0**30
# Times that MIOpen's workspaces leave every activation in the allocator once more, as none says beforehand: in the
# middle, and at most (as an operator's input in the layout of its kernels, and as an output).
LEFT_AGAIN, MOST_LEFT_AGAIN = 1.0, 2.0
# What workspaces leave is a part of the median; this much of it at most, that a logarithm stays finite.
_MOST_OF_MEDIAN = 0.99
_FLOAT_BYTES = {"float64": 8.0, "float32": 4.0}


@dataclass(frozen=True, eq=False)
class Planned:
    """[N] bytes: ``parts`` that sum to ``alive``; ``earlier``: what gradients of the step before add, where kept.

    ``certain``: weights, all gradients and the optimizer's states, which every update has alive at once.
    """

    parts: dict[str, np.ndarray]
    alive: np.ndarray
    earlier: np.ndarray
    certain: np.ndarray


def planned(columns: Columns, way: Way) -> Planned:
    """What N steps hold. ``columns``: "parameters", "weight_bytes" at the width of the products, "backward_bytes" and
    "gradient_bytes" (`perfpass.graph.saved.SavedActivations`).
    """
    optimizer = OPTIMIZERS[way.optimizer or DEFAULT_OPTIMIZER]
    copies = weight_copies(way.precision)
    held = _FLOAT_BYTES.get(PRECISIONS[way.precision][0], 2.0) if copies == 1 else _FLOAT_BYTES["float32"]
    gradients = columns["parameters"] * held
    early = np.minimum(columns["gradient_bytes"], gradients)
    weights, states = columns["weight_bytes"], gradients * optimizer.states
    moment = gradients * optimizer.temporaries * (way.device.kind == "gpu")
    lasting = max(1, copies - 1) * weights
    backward = copies * weights + early + columns["backward_bytes"]
    updates = lasting + gradients + moment > backward
    parts = {
        "weights": np.where(updates, lasting, copies * weights),
        "gradients": np.where(updates, gradients, early),
        "optimizer": states + np.where(updates, moment, 0.0),
        "activations": np.where(updates, 0.0, columns["backward_bytes"]),
    }
    alive = np.asarray(sum(parts.values()))
    earlier = np.maximum(backward + states + gradients - early - alive, 0.0)
    return Planned(parts, alive, earlier, lasting + gradients + states)


def left_by_workspaces(columns: Columns, way: Way) -> np.ndarray:
    """[N] bytes that workspaces of MIOpen's convolutions leave in the allocator, in the middle of what they may.

    At most every activation twice: as an operator's input in the layout of its kernels, and as an output. They only
    add, and which of none and the most it is depends on algorithms that no graph names, so the middle is once.
    """
    amd = float(way.device.vendor == "AMD" and way.device.kind == "gpu")
    return np.asarray(LEFT_AGAIN * columns["convolutional"] * amd * columns["backward_bytes"])


def with_scores(columns: Columns, high: np.ndarray, of: np.ndarray) -> np.ndarray:
    """[N] the upper bound (a logarithm over ``of`` bytes) of programs that keep the scores of their attention.

    The plan has one kernel that keeps none, as PyTorch's own attention is. Programs that multiply, drop and multiply
    again (BERT of the transformers library up to 4.41) keep "score_bytes"; at most as much as all else that is kept,
    for beyond it programs fuse. By hand.
    """
    kept = np.minimum(columns["score_bytes"], columns["backward_bytes"]) if "score_bytes" in columns else 0.0
    return np.hypot(high, np.log1p(kept / np.maximum(of, 1.0)))


def lacks(columns: Columns, found: Planned, way: Way, in_use: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """[N] of each of `CAUSES`, for `perfpass.predictors.learned.spread`, as logarithms of the most that each may add.

    ``in_use``: medians of what is in use; None for live tensors, which have no context and no workspaces. ``columns``
    also has "folded" (the network has no normalization among its convolutions) and "convolutional", 0 or 1.
    """
    of = np.maximum(found.alive if in_use is None else in_use, 1.0)
    again = columns["backward_bytes"] / of
    beside = np.zeros(len(of)) if in_use is None else np.ones(len(of))
    # As far as none at all is below the median: the other way, to twice as much, is shorter.
    none = np.minimum(beside * left_by_workspaces(columns, way) / of, _MOST_OF_MEDIAN)
    return {
        "laboratory": np.ones(len(of)),
        "allocator": beside,
        "context": beside * np.log1p(_CONTEXT_BYTES.get(way.device.vendor, _USUAL_CONTEXT_BYTES) / of) ** 2,
        "gradients": np.log1p(found.earlier / of) ** 2,
        "workspaces": np.log1p(-none) ** 2,
        "normalizations": columns["folded"] * np.log1p(again) ** 2,
    }
