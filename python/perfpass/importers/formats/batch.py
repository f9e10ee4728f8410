"""A graph whose file fixes the batch, at another batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfpass.errors import ShapeError
from perfpass.graph import OPERATORS, ROLES, OpGraph, costs

_INPUT, _ACTIVATION = ROLES.index("input"), ROLES.index("activation")
_BATCH_NORM = OPERATORS.index("batch_norm")  # its further outputs are a channel's statistics


def scaled(graph: OpGraph, declared: int | None, batch: int | None) -> OpGraph:
    """``graph``, read at the batch ``declared`` that its file fixes, at ``batch``; as it is where either is None.

    In every tensor that depends on an input that begins with the batch, one axis grows: the first one that is the
    batch, else the first that is a multiple of it (heads, windows or tokens folded into it). Raises ShapeError where
    no input begins with the batch, where a tensor shows no such axis, and where the products of an operator do not
    grow with the batch: then another axis was the batch.
    """
    if declared is None or batch is None or declared == batch:
        return graph
    start, dims = graph.core.shape_offset, graph.core.dims.copy()
    for tensor in _dependent(graph, declared):
        shape = dims[start[tensor] : start[tensor + 1]]
        if not len(shape):
            continue
        axes = np.flatnonzero(shape == declared)
        axes = axes if len(axes) else np.flatnonzero(shape % declared == 0)
        if not len(axes):
            raise _hidden(graph, declared, tensor)
        shape[axes[0]] = shape[axes[0]] // declared * batch
    found = replace(graph, core=graph.core.with_dims(np.ascontiguousarray(dims)))
    before, after = costs.count(graph).macs, costs.count(found).macs
    wrong = np.flatnonzero((after != before) & (after * declared != before * batch))
    if len(wrong):
        raise _hidden(graph, declared, int(graph.node_outputs(int(wrong[0]))[0]))
    return found


def _dependent(graph: OpGraph, batch: int) -> list[int]:
    """The tensors that depend on inputs that begin with the batch. Raises ShapeError where no input does."""
    inputs = [int(t) for t in graph.core.graph_inputs if (shape := graph.shape(int(t))) and shape[0] == batch]
    if not inputs:
        raise ShapeError(f"no input of the file begins with its batch of {batch}; export the model with an open batch")
    reached = np.zeros(graph.tensor_count, dtype=bool)
    reached[inputs] = True
    roles = graph.core.tensor_role
    for node, op in enumerate(graph.core.op.tolist()):
        if reached[(read := graph.node_inputs(node))[read >= 0]].any():
            written = graph.node_outputs(node)[: 1 if op == _BATCH_NORM else None]
            reached[written[written >= 0]] = True
    return [int(t) for t in np.flatnonzero(reached) if roles[t] in (_INPUT, _ACTIVATION)]


def _hidden(graph: OpGraph, batch: int, tensor: int) -> ShapeError:
    name = graph.string(int(graph.tensor_name[tensor])) or "a tensor"
    shape = " x ".join(map(str, graph.shape(tensor)))
    return ShapeError(
        f"the file fixes the batch to {batch}, and {name!r} of shape {shape} does not show which of its axes that is; "
        "leave the batch out, or export the model with an open batch"
    )
