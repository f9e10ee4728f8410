"""The memory planner: liveness of every tensor over the execution order (docs/internals/costs.md, "Memory").

A tensor lives from its producer to its last reader; views and in-place outputs share the buffer of their source; graph
inputs live during the whole run, graph outputs until its end, weights always.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfpass import _core
from perfpass.late import dataclass

if TYPE_CHECKING:
    from perfpass.graph.opgraph import OpGraph


@dataclass(frozen=True, eq=False)
class MemoryPlan:
    """Bytes that a forward run keeps, and when.

    ``weight_bytes``: weights and literals, each once. ``input_bytes``: graph inputs. ``peak_activation_bytes``: the
    largest sum of live buffers, inputs included and weights not, first reached while ``peak_node`` runs (-1 where no
    node runs). ``peak_tensors``, ``peak_producers`` (-1 for graph inputs) and ``peak_bytes`` list the buffers alive
    then, largest first. ``live_bytes`` [N]: live while each node runs.
    """

    weight_bytes: int
    input_bytes: int
    peak_activation_bytes: int
    peak_node: int
    peak_tensors: np.ndarray
    peak_producers: np.ndarray
    peak_bytes: np.ndarray
    live_bytes: np.ndarray

    @property
    def total_bytes(self) -> int:
        """Weights plus activations at the peak."""
        return self.weight_bytes + self.peak_activation_bytes

    def alive_at_peak(self, graph: OpGraph, limit: int | None = None) -> list[tuple[str, str, int]]:
        """The buffers alive at the peak of ``graph``, largest first: producing operator, its label, bytes.

        A graph input has operator "input" and its own name as label.
        """
        rows = []
        for tensor, producer, size in zip(
            self.peak_tensors[:limit].tolist(),
            self.peak_producers[:limit].tolist(),
            self.peak_bytes[:limit].tolist(),
            strict=True,
        ):
            if producer < 0:
                rows.append(("input", graph.core.string(int(graph.core.tensor_name[tensor])), size))
            else:
                rows.append((graph.op_name(producer), graph.label(producer), size))
        return rows


def plan(graph: OpGraph, float_as: str | None = None, alignment_bytes: int = 1) -> MemoryPlan:
    """Plan the memory of one forward run of ``graph``.

    ``float_as`` as in `perfpass.graph.costs.count`; every buffer is rounded up to ``alignment_bytes`` (torch's caching
    allocator: 512). Raises ArgumentError for an alignment below 1 or a type that is not floating, LimitError past 2^62
    bytes in all.
    """
    core = _core.plan_memory(graph.core, float_as or "", alignment_bytes)
    return MemoryPlan(
        core.weight_bytes,
        core.input_bytes,
        core.peak_activation_bytes,
        core.peak_node,
        core.peak_tensors,
        core.peak_producers,
        core.peak_bytes,
        core.live_bytes,
    )
