"""A training step whose blocks are checkpointed: what it keeps, and what it computes anew.

Each block keeps its inputs alone (`torch.utils.checkpoint`; Chen et al., arXiv:1604.06174); its backward pass runs it
forward once more, and then holds what autograd saves of that one block. It stops as soon as all of that is there
(`set_checkpoint_early_stop`, PyTorch's default): the last product of a transformer's block is not computed again.
"""

from __future__ import annotations

from math import prod

import numpy as np

from perfpass import _core
from perfpass.errors import UnsupportedError
from perfpass.graph import blocks as of_names
from perfpass.graph.frozen import rebuilt
from perfpass.graph.opgraph import DTYPES, OPERATORS, ROLES, OpGraph
from perfpass.graph.saved import saved_activations
from perfpass.late import dataclass

_RELU = OPERATORS.index("relu")
_ACTIVATION, _WEIGHT = ROLES.index("activation"), ROLES.index("weight")


@dataclass(frozen=True, eq=False)
class Checkpointed:
    """Of a step: ``backward`` and ``gradients`` as of `perfpass.graph.saved.SavedActivations`; ``again`` [N]: which
    nodes run twice; ``blocks``: how many there are.
    """

    backward: int
    gradients: int
    again: np.ndarray
    blocks: int


def checkpointed(graph: OpGraph, float_as: str | None = None, alignment_bytes: int = 1) -> Checkpointed:
    """What a step of ``graph`` holds with every block checkpointed; arguments as of `saved_activations`.

    Raises UnsupportedError where names tell fewer than two blocks.
    """
    labels = [graph.label(node) for node in range(graph.node_count)]
    weights = [graph.string(int(graph.tensor_name[t])) for t in np.flatnonzero(graph.tensor_role == _WEIGHT)]
    found = of_names.blocks(weights)
    place = of_names.places(labels, found)
    kept = [b for b in range(len(found)) if (place == b).any()]
    if len(kept) < 2:
        raise UnsupportedError(
            "no names of operators tell blocks that could be checkpointed; ask a torch module, or leave recompute out"
        )
    rest = rebuilt(graph, nodes=np.flatnonzero(place < 0))
    outside = saved_activations(rest, float_as, alignment_bytes)

    def size(tensors: set[int]) -> int:
        return sum(_bytes(graph, t, float_as, alignment_bytes) for t in tensors)

    entered, held, weighs, peaks = set[int](), list[int](), list[int](), list[int]()
    again = np.zeros(graph.node_count, dtype=bool)
    for block in kept:
        nodes = np.flatnonzero(place == block)
        made = {int(t) for node in nodes.tolist() for t in graph.node_outputs(node) if t >= 0}
        read = {int(t) for node in nodes.tolist() for t in graph.node_inputs(node) if t >= 0}
        inputs = {t for t in read - made if graph.tensor_role[t] == _ACTIVATION}
        left = sorted(t for t in made if _is_read(graph, t, place, block))
        alone = rebuilt(graph, nodes=nodes, results=left)
        inner = saved_activations(alone, float_as, alignment_bytes)
        last = int(np.asarray(alone.producer)[inner.tensors].max(initial=-1))
        # A relu keeps its result, which may lie in the buffer of an earlier one.
        last = max(last, int(np.flatnonzero(np.asarray(alone.op) == _RELU).max(initial=-1)))
        again[nodes[: last + 1]] = True
        entered |= inputs
        held.append(size(entered))
        weighs.append(size({t for t in read if graph.tensor_role[t] == _WEIGHT}))
        peaks.append(inner.backward - size(inputs))
    # Backward, what later blocks kept is gone, and their gradients are there.
    after = np.cumsum(weighs[::-1])[::-1]
    found_at = [(outside.saved + h + more, int(early)) for h, more, early in zip(held, peaks, after, strict=True)]
    found_at.append((held[-1] + outside.backward, outside.gradients))
    backward, gradients = max(found_at, key=sum)
    return Checkpointed(backward, gradients, again, len(kept))


def _is_read(graph: OpGraph, tensor: int, place: np.ndarray, block: int) -> bool:
    readers = graph.edge_index[1][np.asarray(graph.edge_tensor) == tensor]
    return bool((place[readers] != block).any()) or tensor in graph.graph_outputs


def _bytes(graph: OpGraph, tensor: int, float_as: str | None, alignment: int) -> int:
    name = DTYPES[int(graph.tensor_dtype[tensor])]
    if float_as and name.startswith(("float", "bfloat")):
        name = float_as
    size = prod(graph.shape(tensor)) * _core.DTYPE_BITS[DTYPES.index(name)] // 8
    return -(-size // alignment) * alignment
