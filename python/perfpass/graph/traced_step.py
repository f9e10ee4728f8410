"""A whole training step as an operator graph: forward, backward, optimizer."""

from __future__ import annotations

import numpy as np

from perfpass.graph.opgraph import OpGraph
from perfpass.late import dataclass

PHASES: tuple[str, ...] = ("forward", "backward", "optimizer")


@dataclass(frozen=True, eq=False, repr=False)
class TrainingGraph(OpGraph):
    """An OpGraph of one step.

    ``phase`` [N] indexes PHASES. Activations that the backward pass reads live until it has read them, gradients of
    parameters (``gradients``, tensor ids) until the end; ``states`` are the optimizer's tensors, constants of the graph
    like the weights. ``optimizer`` is the optimizer's name ("none": the step ends with the backward pass).
    """

    phase: np.ndarray
    gradients: np.ndarray
    states: np.ndarray
    optimizer: str

    def nodes_of(self, phase: str) -> np.ndarray:
        """Indices of the nodes of a phase of PHASES."""
        return np.flatnonzero(self.phase == PHASES.index(phase))
