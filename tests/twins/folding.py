"""What no input of a graph decides, in plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfpass.graph import ATTRIBUTES, OPERATOR_CLASS_OF, OPERATOR_CLASSES, ROLES

if TYPE_CHECKING:
    from perfpass.graph import OpGraph

# Classes of operators that are computed when a model is loaded, where nothing but constants goes in.
_ON_LOAD = {"activation", "elementwise", "reduction", "data_movement", "gather", "generator"}


def takes_shape(graph: OpGraph, node: int) -> bool:
    """Whether PyTorch made a tensor like another one, filled: of that it takes the shape alone."""
    source, in_place = graph.source_op_name(node), graph.attributes[node, ATTRIBUTES.index("in_place")]
    like = source.startswith("aten.new_") or (source.startswith("aten.") and source.endswith("_like"))
    return graph.op_name(node) == "fill" and not in_place and like


def fixed(graph: OpGraph, on_load: bool, weights: bool = True) -> np.ndarray:
    """[N] bool: whether a node computes the same for all inputs, and, ``on_load``, when the model is loaded.

    Without ``weights``: whatever those are. What a scatter writes into or writes is none.
    """
    producer = graph.producer.tolist()
    roles = [ROLES[role] for role in graph.tensor_role.tolist()]
    found = np.zeros(graph.node_count, dtype=bool)
    for node in range(graph.node_count):
        operator, kind = graph.op_name(node), OPERATOR_CLASSES[OPERATOR_CLASS_OF[graph.op[node]]]
        read = [t for t in graph.node_inputs(node).tolist() if t >= 0 and not takes_shape(graph, node)]
        takes = operator != "random" and (bool(read) or kind == "generator")
        if on_load:
            takes &= kind in _ON_LOAD and node not in graph.stated_operators
        known = ("weight", "literal") if weights or operator == "scatter" else ("literal",)
        made = all(roles[t] in known or (producer[t] >= 0 and found[producer[t]]) for t in read)
        found[node] = operator == "shape_of" or (takes and made)
    return found
