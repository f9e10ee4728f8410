"""A training step of a forward graph, node by node with sets and dictionaries: what autograd keeps, and backward."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, prod

from perfpass.graph import ATTRIBUTES, DTYPES, OPERATORS, ROLES, OpGraph
from twins.costs import BITS, FLOATING

# What the backward pass of an operator reads again: its inputs, its output, or nothing that the forward pass made.
_SAVES_OUTPUT = (
    "relu", "sigmoid", "tanh", "softmax", "log_softmax", "exp", "sqrt", "rsqrt", "reciprocal", "elu", "selu", "celu",
)  # fmt: skip
_SAVES_BOTH = ("attention", "lstm", "gru", "rnn", "l2_norm", "reduce_norm", "cumulative", "reduce_prod")
_SAVES_NOTHING = (
    "unknown", "add", "sub", "neg", "cast", "reduce_sum", "reduce_mean", "avg_pool", "global_avg_pool", "reshape",
    "transpose", "concat", "split", "slice", "pad", "tile", "expand", "depth_to_space", "space_to_depth", "unfold",
    "fold", "roll", "reverse", "copy", "identity", "triangular", "resize", "round", "sign", "compare", "logical",
    "bitwise", "is_special", "constant", "fill", "range", "random", "shape_of", "eye", "window",
    "arg_reduce", "reduce_any", "top_k", "sort", "gather", "embedding", "scatter", "one_hot", "loss",
)  # fmt: skip
# CUDA's autocast: at 16 bits; in fp32; as the first input.
_HALF = (
    "conv", "conv_transpose", "deform_conv", "dense", "matmul", "einsum", "bilinear", "attention", "lstm", "gru", "rnn",
    "prelu", "quantized_conv", "quantized_matmul", "matmul_nbits", "moe",
)  # fmt: skip
_WIDE = (
    "softmax", "log_softmax", "layer_norm", "group_norm", "rms_norm", "l2_norm", "exp", "log", "pow", "rsqrt",
    "reciprocal", "softplus", "reduce_sum", "reduce_norm", "reduce_prod", "reduce_log_sum_exp", "cumulative", "loss",
)  # fmt: skip
_AS_INPUT = ("batch_norm", "instance_norm", "lrn")


@dataclass
class _Forward:
    """What is known after the forward pass: owners, which node saves them, copies by node, widths."""

    graph: OpGraph
    float_as: str | None
    alignment: int
    autocast: bool
    owner: list[int]
    saver: dict[int, int] = field(default_factory=dict)
    copies: dict[int, int] = field(default_factory=dict)
    shares: set[int] = field(default_factory=set)
    wide: set[int] = field(default_factory=set)

    def rounded(self, size: int) -> int:
        return ceil(size / self.alignment) * self.alignment

    def elements(self, tensor: int) -> int:
        return prod(self.graph.shape(tensor))

    def is_cast(self, tensor: int) -> bool:
        dtype = DTYPES[self.graph.tensor_dtype[tensor]]
        return dtype in FLOATING and BITS[dtype] >= 16

    def role(self, tensor: int) -> str:
        return ROLES[self.graph.tensor_role[tensor]]

    def size(self, tensor: int, wide: bool | None = None) -> int:
        bits = BITS[DTYPES[self.graph.tensor_dtype[tensor]]]
        wide = tensor in self.wide if wide is None else wide
        if self.is_cast(tensor):
            bits = 32 if self.autocast and wide else BITS[self.float_as] if self.float_as else bits
        return self.rounded(ceil(self.elements(tensor) * bits / 8))

    def node(self, node: int) -> tuple[str, dict[str, int], list[int], list[int]]:
        attributes = dict(zip(ATTRIBUTES, self.graph.attributes[node].tolist(), strict=True))
        op = OPERATORS[self.graph.op[node]]
        return op, attributes, self.graph.node_inputs(node).tolist(), self.graph.node_outputs(node).tolist()


def _forward(graph: OpGraph, float_as: str | None, alignment: int, autocast: bool) -> _Forward:
    f = _Forward(graph, float_as, alignment, autocast, list(range(graph.tensor_count)))
    f.wide = {t for t in f.owner if f.role(t) != "activation"}
    for node in range(graph.node_count):
        op, attribute, given, made = f.node(node)
        saves_inputs = op not in (*_SAVES_OUTPUT, *_SAVES_NOTHING)
        has_source = bool(given) and given[0] >= 0
        if has_source and (attribute["view"] or (attribute["in_place"] and not saves_inputs)):
            f.shares.add(node)
            for tensor in made if attribute["view"] else made[:1]:
                if tensor >= 0:
                    f.owner[tensor] = f.owner[given[0]]
        variable = [t for t in given if t >= 0 and f.role(t) != "literal"]
        if has_source and (attribute["view"] or op in _AS_INPUT):
            wide = given[0] in f.wide
        else:
            wide = op not in _HALF and (op in _WIDE or any(t in f.wide and f.is_cast(t) for t in variable))
        f.wide = f.wide | set(made) if wide else f.wide - set(made)
        if attribute["view"]:
            continue
        kept, copied = [], 0
        if saves_inputs and not (op in ("mul", "div") and len(variable) == 1):
            casts = autocast and (op in _HALF or op in _WIDE)
            for t in variable:
                cast = casts and f.is_cast(t) and (t in f.wide) != (op in _WIDE)
                if cast and f.role(f.owner[t]) in ("activation", "input"):
                    copied += f.size(t, op in _WIDE)
                else:
                    kept.append(t)
        if op == "max_pool" and made and made[0] >= 0:
            copied += f.rounded(8 * f.elements(made[0]))
        if op in (*_SAVES_OUTPUT, *_SAVES_BOTH):
            kept += [t for t in made if t >= 0]
        f.copies[node] = copied
        for t in kept:
            f.saver.setdefault(f.owner[t], node)
    f.saver = {t: node for t, node in f.saver.items() if f.role(t) in ("activation", "input")}
    return f


def saved_activations(
    graph: OpGraph, float_as: str | None, alignment_bytes: int, autocast: bool
) -> tuple[int, int, int, list[int]]:
    """Bytes saved; alive in backward at its peak, and of weights' gradients then; owners of what is saved."""
    f = _forward(graph, float_as, alignment_bytes, autocast)
    results = [int(t) for t in graph.graph_outputs]
    results = [t for t in results if f.is_cast(t) and f.role(f.owner[t]) == "activation"]
    results = [t for t in results if not graph.string(int(graph.tensor_name[t])).startswith("present")]
    held = {f.owner[t] for t in results} | {t for t in f.owner if f.role(t) == "input"}
    held = {t for t in held if f.role(t) in ("activation", "input")}
    saved = sum(map(f.size, f.saver)) + sum(f.copies.values())
    gradient = {f.owner[t]: f.size(f.owner[t]) for t in results}
    losses = [max(f.size(t), f.rounded(4 * f.elements(t))) for t in results]
    loss = sum(losses) + max(losses, default=0)
    learned: dict[int, int] = {}
    released: set[int] = set()  # nodes whose backward pass is done

    def alive() -> int:
        kept = sum(f.size(t) for t, node in f.saver.items() if node not in released or t in held)
        copies = sum(size for node, size in f.copies.items() if node not in released)
        return kept + copies + sum(f.size(t) for t in held if t not in f.saver) + sum(gradient.values())

    peak = (alive() + loss, 0)
    for node in reversed(range(graph.node_count)):
        op, attribute, given, made = f.node(node)
        mine = [f.owner[t] for t in made if t >= 0]
        if not attribute["view"] and any(t in gradient for t in mine):
            sources = [f.owner[t] for t in given if t >= 0 and f.is_cast(t) and f.role(f.owner[t]) == "activation"]
            sources = [t for t in dict.fromkeys(sources) if t not in mine]
            if op in ("add", "sub") and made[0] >= 0 and mine[0] in gradient:
                terms = [t for t in sources if t not in gradient and f.elements(t) == f.elements(made[0])]
                if keepers := [*terms, *([mine[0]] if node in f.shares else [])]:
                    size = gradient[mine[0]]
                    gradient.update(dict.fromkeys([mine[0], *terms], 0))
                    gradient[min(keepers)] = size
                sources = [t for t in sources if t not in terms]
            moment = sum(f.size(t) for t in sources if t in gradient)
            gradient.update({t: f.size(t) for t in sources if t not in gradient})
            if node in f.shares and f.role(mine[0]) == "activation":
                moment += f.size(mine[0])
            moment += f.copies[node] if op != "max_pool" else 0
            for t in given[: 3 if op == "batch_norm" else None]:
                if t >= 0 and f.is_cast(t) and f.role(f.owner[t]) == "weight":
                    moment += 2 * f.size(f.owner[t]) if f.owner[t] in learned else 0
                    moment += f.size(f.owner[t]) // 2 if autocast and op in _HALF else 0
                    learned[f.owner[t]] = f.size(f.owner[t])
            peak = max(peak, (alive() + moment, sum(learned.values())), key=sum)
            for t in made:
                if t >= 0 and f.owner[t] == t:
                    gradient.pop(t, None)
        released.add(node)
    return saved, *peak, sorted(f.saver, key=lambda t: (-f.size(t), t))
