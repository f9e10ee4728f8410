"""Exact counting: MACs, FLOPs, bytes and parameters of every operator, forward pass (docs/internals/costs.md).

A MAC is two FLOPs; every distinct input tensor is read once and every output written once; a view moves nothing;
gathers, slices and embeddings read what they return; a weight that several nodes share is a parameter of the first that
reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfpass import _core
from perfpass.late import dataclass

if TYPE_CHECKING:
    import numpy as np

    from perfpass.graph.opgraph import OpGraph


@dataclass(frozen=True, eq=False)
class Costs:
    """Costs of one graph, one entry per node ([N] int64, read-only views on the compiled core).

    All but ``parameters`` and ``weight_bytes`` are already multiplied by the node's ``repeat``.
    """

    core: _core.Costs

    @property
    def macs(self) -> np.ndarray:
        """[N] multiply-accumulates of convolutions, matrix products, attention and recurrences; 0 elsewhere."""
        return self.core.macs

    @property
    def flops(self) -> np.ndarray:
        """[N] arithmetic operations; two per MAC plus the counts of docs/internals/costs.md."""
        return self.core.flops

    @property
    def bytes_read(self) -> np.ndarray:
        """[N] bytes read from memory."""
        return self.core.bytes_read

    @property
    def bytes_written(self) -> np.ndarray:
        """[N] bytes written to memory."""
        return self.core.bytes_written

    @property
    def parameters(self) -> np.ndarray:
        """[N] elements of the weights first read at this node."""
        return self.core.parameters

    @property
    def weight_bytes(self) -> np.ndarray:
        """[N] bytes of the weights first read at this node."""
        return self.core.weight_bytes

    @property
    def totals(self) -> dict[str, int]:
        """Sums over the graph by column name. Raises LimitError where a sum passes 2^62."""
        return self.core.totals()


def count(graph: OpGraph, float_as: str | None = None) -> Costs:
    """Count the costs of every node of ``graph``.

    ``float_as`` ("float16", "bfloat16", "float8", ...) counts every floating tensor of 16 to 64 bits at that width, for
    a run in another precision than the file's. Raises ArgumentError for a type that is not floating, GraphError where
    an operator lacks an input that its cost depends on, LimitError where a count passes 2^62.
    """
    return Costs(_core.count_costs(graph.core, float_as or ""))
