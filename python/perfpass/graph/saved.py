"""What autograd keeps of a forward graph between the passes of a step."""

from __future__ import annotations

import numpy as np

from perfpass import _core
from perfpass.graph.opgraph import OpGraph
from perfpass.late import dataclass


@dataclass(frozen=True)
class SavedActivations:
    """Bytes of a step's two passes: ``saved`` is what autograd keeps between them.

    ``backward``: inputs, results, what is still saved, gradients of activations and the loss's tensors, when they and
    the gradients of weights that exist then (``gradients``) are most. ``tensors``: ids of the saved buffers' owners,
    largest first.
    """

    saved: int
    backward: int
    gradients: int
    tensors: np.ndarray


def saved_activations(
    graph: OpGraph, float_as: str | None = None, alignment_bytes: int = 1, *, autocast: bool = False
) -> SavedActivations:
    """What autograd keeps of a forward graph (what the gradients of its operators read again), and its backward pass.

    Each buffer counts once (views and in-place results share that of their source), rounded up to
    ``alignment_bytes``; weights do not count, inputs do. ``autocast``: weights of fp32, and operators at ``float_as``
    or fp32 by CUDA's lists, with the copies that casts make. The loss is cross entropy of every floating result but
    caches, in fp32 or wider. docs/predictors/training_step.md compares it with PyTorch's own steps.
    Raises ArgumentError, LimitError as `perfpass.graph.liveness.plan` does.
    """
    found = _core.saved_activations(graph.core, float_as or "", alignment_bytes, autocast)
    return SavedActivations(found.saved_bytes, found.backward_bytes, found.gradient_bytes, found.tensors)
