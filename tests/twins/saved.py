"""What autograd keeps of a forward graph, node by node with a set of tensors."""

from __future__ import annotations

from math import ceil, prod

from perfpass.graph import ATTRIBUTES, DTYPES, OPERATORS, ROLES, OpGraph
from twins.costs import BITS, FLOATING

# What the backward pass of an operator reads again: its inputs, its output, or nothing that the forward pass made.
_SAVES_OUTPUT = (
    "relu",
    "sigmoid",
    "tanh",
    "softmax",
    "log_softmax",
    "exp",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "elu",
    "selu",
    "celu",
)
_SAVES_BOTH = ("attention", "lstm", "gru", "rnn", "max_pool", "l2_norm", "reduce_norm", "cumulative", "reduce_prod")
_SAVES_NOTHING = (
    "unknown", "add", "sub", "neg", "cast", "reduce_sum", "reduce_mean", "avg_pool", "global_avg_pool", "reshape",
    "transpose", "concat", "split", "slice", "pad", "tile", "expand", "depth_to_space", "space_to_depth", "unfold",
    "fold", "roll", "reverse", "copy", "identity", "triangular", "resize", "round", "sign", "compare", "logical",
    "bitwise", "is_special", "constant", "fill", "range", "random", "shape_of", "eye", "window",
    "arg_reduce", "reduce_any", "top_k", "sort", "gather", "embedding", "scatter", "one_hot", "loss",
)  # fmt: skip


def saved_activations(graph: OpGraph, float_as: str | None, alignment_bytes: int) -> tuple[int, int, list[int]]:
    """Bytes saved, the largest tensor's, and the owners of what is saved, largest first."""

    def size(tensor: int) -> int:
        dtype = DTYPES[graph.tensor_dtype[tensor]]
        bits = BITS[dtype]
        if float_as and dtype in FLOATING and bits >= 16:
            bits = BITS[float_as]
        return ceil(ceil(prod(graph.shape(tensor)) * bits / 8) / alignment_bytes) * alignment_bytes

    role = [ROLES[r] for r in graph.tensor_role]
    owner = list(range(len(role)))
    kept: set[int] = set()
    for node in range(graph.node_count):
        op = OPERATORS[graph.op[node]]
        attribute = dict(zip(ATTRIBUTES, graph.attributes[node].tolist(), strict=True))
        given = graph.node_inputs(node).tolist()
        made = graph.node_outputs(node).tolist()
        saves_inputs = op not in (*_SAVES_OUTPUT, *_SAVES_NOTHING)
        if (attribute["view"] or (attribute["in_place"] and not saves_inputs)) and given and given[0] >= 0:
            for tensor in made if attribute["view"] else made[:1]:
                if tensor >= 0:
                    owner[tensor] = owner[given[0]]
        if attribute["view"]:
            continue
        variable = [t for t in given if t >= 0 and role[t] != "literal"]
        if saves_inputs and not (op in ("mul", "div") and len(variable) == 1):
            kept.update(owner[t] for t in variable)
        if op in (*_SAVES_OUTPUT, *_SAVES_BOTH):
            kept.update(owner[t] for t in made if t >= 0)
    ids = sorted((t for t in kept if role[t] in ("activation", "input")), key=lambda t: (-size(t), t))
    largest = max((size(t) for t in range(len(role)) if role[t] in ("activation", "input")), default=0)
    return sum(map(size, ids)), largest, ids
