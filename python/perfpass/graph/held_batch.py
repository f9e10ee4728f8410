"""Whether a graph was read at the batch that is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfpass.errors import ArgumentError
from perfpass.text import shown_value

if TYPE_CHECKING:
    from perfpass.graph import OpGraph


def check_held(graph: OpGraph, batch: Any) -> None:
    """Refuses a batch that the graph was not read with: its shapes are fixed, so another batch would answer for them.

    A batch is held by an input that has a dimension of it, or of up to three dimensions (tokens, nodes, frames of all
    samples in one) of which the first is a multiple of it. Raises ArgumentError.
    """
    if not isinstance(batch, int) or isinstance(batch, bool) or batch < 1:
        raise ArgumentError(f"batch must be a whole number of at least 1, got {shown_value(batch)}")
    shapes = [shape for shape in map(graph.core.shape, graph.graph_inputs.tolist()) if shape]
    if not shapes or any(batch in shape or (len(shape) <= 3 and shape[0] % batch == 0) for shape in shapes):
        return
    shown = ", ".join(str(list(shape)) for shape in shapes[:3]) + (", ..." if len(shapes) > 3 else "")
    raise ArgumentError(
        f"batch={batch}, but the graph was read with inputs of {shown}, which hold none of that size; read the model "
        f"at that batch (perfpass.load(model, batch={batch})), or leave batch out"
    )
