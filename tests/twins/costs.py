"""Costs counted node by node with Python integers; formulas as docs/internals/costs.md gives them."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2, prod

from perfpass import _core
from perfpass.graph import ATTRIBUTES, DTYPES, OPERATORS, ROLES, OpGraph

BITS = dict(zip(DTYPES, _core.DTYPE_BITS, strict=True))
FLOATING = ("float64", "float32", "float16", "bfloat16", "float8", "float4")
CONVOLUTIONS = ("conv", "conv_transpose", "deform_conv", "quantized_conv")
POOLINGS = ("max_pool", "avg_pool", "lp_pool", "global_avg_pool", "global_max_pool", "roi_pool", "max_unpool")

# FLOPs per element -> operators
_PER_OUTPUT = {
    1: "relu tanh abs neg exp log sqrt rsqrt reciprocal erf trigonometric round sign is_special sub div pow mod "
    "compare logical bitwise where",
    2: "batch_norm leaky_relu prelu clip dequantize",
    3: "l2_norm softplus softsign rotary_embedding window",
    4: "rms_norm elu hard_sigmoid sigmoid",
    5: "lrn softmax log_softmax selu celu gelu hard_swish silu mish glu quantize affine_grid",
    7: "layer_norm instance_norm group_norm dynamic_quantize grid_sample",
    10: "quantized_elementwise",
    32: "roi_pool",
}
_PER_INPUT = {
    1: "reduce_sum reduce_mean reduce_max reduce_min reduce_prod reduce_any arg_reduce cumulative global_avg_pool "
    "global_max_pool fold non_max_suppression unique einsum",
    2: "reduce_norm",
    3: "loss",
    4: "reduce_log_sum_exp reduce_variance",
}
FLOPS_PER_OUTPUT = {op: flops for flops, ops in _PER_OUTPUT.items() for op in ops.split()}
FLOPS_PER_INPUT = {op: flops for flops, ops in _PER_INPUT.items() for op in ops.split()}
GENERATORS = ("constant", "fill", "range", "random", "shape_of", "eye", "window")
CONTROL = ("conditional", "loop", "scan", "sequence", "text")
RETURNS_PART = ("gather", "embedding", "slice", "split", "compress")


class Node:
    """One node with Python values: attributes by name, shapes as tuples, dtypes and roles as names."""

    def __init__(self, graph: OpGraph, index: int) -> None:
        self.graph, self.index = graph, index
        self.op = OPERATORS[graph.op[index]]
        self.source = graph.source_op_name(index)
        self.attribute = dict(zip(ATTRIBUTES, graph.attributes[index].tolist(), strict=True))
        self.inputs = graph.node_inputs(index).tolist()
        self.outputs = graph.node_outputs(index).tolist()
        self.repeat = float(graph.repeat[index])

    def input(self, slot: int) -> int:
        return self.inputs[slot] if slot < len(self.inputs) else -1

    def output(self, slot: int) -> int:
        return self.outputs[slot] if slot < len(self.outputs) else -1

    def shape(self, tensor: int) -> tuple[int, ...]:
        return self.graph.shape(tensor) if tensor >= 0 else ()

    def elements(self, tensor: int) -> int:
        return prod(self.shape(tensor)) if tensor >= 0 else 0

    def dtype(self, tensor: int) -> str:
        return DTYPES[self.graph.tensor_dtype[tensor]]

    def role(self, tensor: int) -> str:
        return ROLES[self.graph.tensor_role[tensor]]


def bits(dtype: str, float_as: str | None) -> int:
    return BITS[float_as] if float_as and dtype in FLOATING and BITS[dtype] >= 16 else BITS[dtype]


def size_in_bytes(node: Node, tensor: int, float_as: str | None) -> int:
    return ceil(node.elements(tensor) * bits(node.dtype(tensor), float_as) / 8)


def channels(node: Node, tensor: int) -> int:
    shape = node.shape(tensor)
    if node.attribute["spatial_rank"] > 0 and len(shape) == node.attribute["spatial_rank"] + 3:
        return shape[1] * shape[-1]
    return shape[-1] if node.attribute["channels_last"] else shape[1]


def convolution_weight(node: Node) -> int:
    return node.input(3) if node.op == "quantized_conv" and len(node.shape(node.input(1))) < 3 else node.input(1)


def kernel_area(node: Node) -> int:
    if node.op in CONVOLUTIONS:
        groups = max(1, node.attribute["groups"])
        per_position = channels(node, node.input(0)) // groups * channels(node, node.output(0))
        return node.elements(convolution_weight(node)) // per_position if per_position else 0
    if node.op in POOLINGS and node.attribute["spatial_rank"] > 0:
        return prod(max(0, node.attribute[f"kernel_{i}"]) for i in range(min(3, node.attribute["spatial_rank"])))
    return 0


def right_operand(node: Node) -> int:
    behind_scales = len(node.shape(node.input(1))) < 2 <= len(node.shape(node.input(3)))
    return node.input(3) if node.op == "quantized_matmul" and behind_scales else node.input(1)


def contracted(node: Node) -> int:
    a = node.shape(node.input(0))
    return a[-2] if len(a) >= 2 and node.attribute["transpose_a"] else a[-1]


@dataclass
class Attention:
    batch: int
    q_length: int
    k_length: int
    qk_dim: int
    v_dim: int
    projection: int = 0


def with_past(node: Node, length: int, head_dim: int) -> int:
    present = node.shape(node.output(1))
    if len(present) == 4 and present[3] == head_dim:
        return max(length, present[2])
    if len(present) == 5 and present[0] == 2:
        return max(length, present[3])
    return length


def attention(node: Node) -> Attention:
    q, k, v = (node.shape(node.input(i)) for i in range(3))
    heads = node.attribute["num_heads"]
    kv_heads = node.attribute["num_kv_heads"] or heads
    if len(q) == 2 and heads:  # tokens of all sequences in a row
        q, v = (1, *q), (1, *v) if v else v
        k = k if node.input(1) < 0 or node.role(node.input(1)) in ("weight", "literal") else (1, *k)
    if len(q) == 3 and len(k) == 2:  # projection weight [hidden, q + k + v]
        hidden = node.shape(node.output(0))[-1]
        heads = max(1, heads)
        qk = (k[1] - hidden) // 2 // heads
        sizes = Attention(q[0] * heads, q[1], q[1], qk, hidden // heads, q[0] * q[1] * k[0] * k[1])
    elif len(q) == 5 and q[3] == 3 and heads:  # [batch, length, heads, 3, dim]
        sizes = Attention(q[0] * q[2], q[1], q[1], q[4], q[4])
    elif len(q) == 3 and heads and node.input(1) < 0:  # query, key and value along the hidden axis
        dim = q[2] // (heads + 2 * kv_heads)
        sizes = Attention(q[0] * heads, q[1], q[1], dim, dim)
    elif len(q) == 3 and heads and len(k) == 5:  # keys and values [batch, length, heads, 2, dim]
        sizes = Attention(q[0] * heads, q[1], k[1], k[4], k[4])
    elif len(q) == 3 and heads:  # [batch, length, heads x dim]
        v_dim = v[3] if len(v) == 4 else v[-1] // kv_heads
        sizes = Attention(q[0] * heads, q[1], k[2] if len(k) == 4 else k[1], q[2] // heads, v_dim)
    else:  # [..., heads, length, dim], or [batch, length, heads, dim]
        axis = -3 if len(q) == 4 and heads and q[1] != heads and q[2] == heads else -2
        k, v = k or q, v or q
        sizes = Attention(prod(q) // (q[axis] * q[-1]), q[axis], k[axis], q[-1], v[-1])
    sizes.k_length = with_past(node, sizes.k_length, sizes.qk_dim)
    return sizes


def recurrent_macs(node: Node) -> int:
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[node.op] * node.attribute["hidden_size"]
    matrices, stacked = [], []
    for tensor in node.inputs[1:]:
        shape = node.shape(tensor)
        if len(shape) == 2 and shape[0] == gates:
            matrices.append(prod(shape))
        elif len(shape) == 3 and gates in shape[1:]:
            stacked.append(prod(shape))  # the weights of all directions, then perhaps states of the same sizes
    weights = sum(matrices) + (sum(stacked[:2]) if len(node.shape(node.input(1))) == 3 else 0)
    x = node.shape(node.input(0))
    return prod(x[:-1]) * weights


def step_sizes(node: Node) -> tuple[int, int, int, int]:
    """Steps, sequences, gates x directions x hidden and hidden of an LSTM, GRU or RNN; zeros elsewhere."""
    if node.op not in ("lstm", "gru", "rnn"):
        return 0, 0, 0, 0
    x, weight = node.shape(node.input(0)), node.shape(node.input(1))
    gates, directions = {"lstm": 4, "gru": 3, "rnn": 1}[node.op], max(1, node.attribute["directions"])
    hidden = node.attribute["hidden_size"]
    if hidden <= 0:
        last = node.shape(node.input(2))
        hidden = last[-1] if last else 1

    def is_state(shape: tuple[int, ...]) -> bool:
        other_direction = len(shape) == 2 and len(weight) != 3 and shape[0] == gates * hidden
        return len(shape) >= 2 and shape[-1] == hidden and not other_direction

    batch = 1
    if len(x) >= 3:
        states = [node.shape(t) for t in node.inputs[3:] if t >= 0 and is_state(node.shape(t))]
        if states and len(weight) == 3:
            batch = prod(states[-1]) // (hidden * directions)
        elif states:
            batch = states[-1][1] if len(states[-1]) == 3 else states[-1][0]
        else:
            batch = x[1] if len(weight) == 3 else x[0]
    steps = prod(x) // (x[-1] if x else 1) // max(1, batch) if prod(x) else 0
    if steps < 1 or hidden < 1:
        return 0, 0, 0, 0
    return steps, max(1, batch), gates * directions * hidden, hidden


def moe_macs(node: Node) -> int:
    x = node.shape(node.input(0))
    width = node.attribute["weight_bits"]
    total = 0
    for tensor in node.inputs[1:]:
        shape = node.shape(tensor)
        if len(shape) == 3 and (node.dtype(tensor) in FLOATING) == (width == 0):
            packing = BITS[node.dtype(tensor)] / width if width else 1
            total += prod(x[:-1]) * max(1, node.attribute["contraction"]) * int(shape[1] * shape[2] * packing)
    return total


def macs(node: Node) -> int:
    out = node.elements(node.output(0))
    if node.op in ("conv", "deform_conv", "quantized_conv"):
        # channels_out x kernel x channels_in / groups elements in every layout
        return out * (node.elements(convolution_weight(node)) // channels(node, node.output(0)))
    if node.op == "conv_transpose":
        in_channels = channels(node, node.input(0))
        return node.elements(node.input(0)) * (node.elements(node.input(1)) // in_channels)
    if node.op in ("matmul", "dense", "quantized_matmul", "matmul_nbits"):
        return out * contracted(node)
    if node.op == "einsum":
        operands = sum(t >= 0 for t in node.inputs)
        return out * max(1, node.attribute["contraction"]) * (operands - 1) if operands >= 2 else 0
    if node.op == "bilinear":
        _, i, j = bilinear_weight(node)
        return out * (i * j + j)
    if node.op == "attention":
        a = attention(node)
        return a.batch * a.q_length * a.k_length * (a.qk_dim + a.v_dim) + a.projection
    if node.op in ("lstm", "gru", "rnn"):
        return recurrent_macs(node)
    if node.op == "moe":
        return moe_macs(node)
    if node.op == "state_space_scan":
        x, third = node.shape(node.input(0)), node.shape(node.input(2))
        if node.attribute["num_heads"] == 0:  # Mamba: x [B, D, L], A [D, N]
            return 2 * prod(x) * third[-1]
        heads = node.attribute["num_heads"]
        kv_heads = node.attribute["num_kv_heads"] or heads
        return prod(x[:-1]) * (x[-1] // heads) * (third[-1] // kv_heads) * (heads + kv_heads)
    return 0


def bilinear_weight(node: Node) -> tuple[int, ...]:
    second, third = node.shape(node.input(1)), node.shape(node.input(2))
    return second if len(second) == 3 and len(third) < 3 else third


def has_bias(node: Node) -> bool:
    slot = {"conv": 2, "conv_transpose": 2, "matmul": 2, "dense": 2}
    slot |= {"bilinear": 3, "matmul_nbits": 5, "quantized_conv": 8}
    if node.op == "deform_conv":
        return any(len(node.shape(node.input(i))) == 1 for i in (3, 4))
    return node.op in slot and node.input(slot[node.op]) >= 0


def axis_length(node: Node, tensor: int) -> int:
    shape = node.shape(tensor)
    axis = node.attribute["axis"]
    if not shape:
        return 1
    return shape[axis] if -len(shape) <= axis < len(shape) else shape[-1]


def steps(n: int) -> int:
    return max(1, ceil(log2(n))) if n > 1 else 1


def complex_numbers(node: Node, tensor: int) -> int:
    shape = node.shape(tensor)
    pairs = bool(shape) and shape[-1] == 2 and node.dtype(tensor) in FLOATING
    return node.elements(tensor) // 2 if pairs else node.elements(tensor)


def mac_operator_flops(node: Node, count: int) -> int:
    out = node.elements(node.output(0))
    flops = 2 * count + (out if has_bias(node) else 0)
    if node.op == "attention":
        a = attention(node)
        return flops + 6 * a.batch * a.q_length * a.k_length
    if node.op == "deform_conv":
        sizes = gemm(node)
        return flops + 7 * sizes[0] * sizes[1] * sizes[3]
    if node.op in ("quantized_conv", "quantized_matmul") and BITS[node.dtype(node.output(0))] <= 8:
        return flops + 5 * out
    return flops + out * {"lstm": 30, "gru": 23, "rnn": 4}.get(node.op, 0)


def flops(node: Node, count: int) -> int:
    if node.op == "state_space_scan":
        return 2 * count if node.attribute["num_heads"] else count // 2 * 9
    if count > 0:
        return mac_operator_flops(node, count)
    into, out = node.elements(node.input(0)), node.elements(node.output(0))
    if is_fused_embedding(node):
        return 9 * out
    if node.op in ("add", "mul", "minimum", "maximum"):
        return out * max(1, len(node.inputs) - 1)
    if node.op in ("max_pool", "avg_pool"):
        return out * kernel_area(node) if kernel_area(node) else into
    if node.op == "lp_pool":
        return 2 * out * kernel_area(node)
    if node.op == "resize":
        return 0 if "nearest" in node.source else 7 * out
    if node.op == "sort":
        return into * steps(axis_length(node, node.input(0)))
    if node.op == "top_k":
        return into * steps(axis_length(node, node.output(0)))
    if node.op == "dft":
        return 5 * complex_numbers(node, node.output(0)) * steps(axis_length(node, node.output(0)))
    if node.op == "stft":
        shape = node.shape(node.output(0))
        return 10 * complex_numbers(node, node.output(0)) * steps(2 * (shape[-2] if len(shape) >= 2 else 1))
    if node.op == "determinant":
        shape = node.shape(node.input(0))
        return into * (shape[-1] if shape else 1) * 2 // 3
    return out * FLOPS_PER_OUTPUT.get(node.op, 0) + into * FLOPS_PER_INPUT.get(node.op, 0)


def is_fused_embedding(node: Node) -> bool:
    """Ids first, tables behind them: EmbedLayerNormalization."""
    if node.op != "embedding" or len(node.inputs) < 3 or node.input(0) < 0:
        return False
    return node.role(node.input(0)) in ("activation", "input") and node.dtype(node.input(0)) not in FLOATING


def overwrites(node: Node) -> bool:
    return bool(node.attribute["in_place"]) and node.op in ("scatter", "copy") and len(node.inputs) >= 2


def bytes_read(node: Node, float_as: str | None) -> int:
    if node.op in GENERATORS + CONTROL:
        return 0
    if is_fused_embedding(node):
        tables = {
            t for t in node.inputs if t >= 0 and node.role(t) in ("weight", "literal") and len(node.shape(t)) == 2
        }
        rows = sum(ceil(node.elements(node.output(0)) * bits(node.dtype(t), float_as) / 8) for t in tables)
        return rows + sum(size_in_bytes(node, t, float_as) for t in {*node.inputs} - tables if t >= 0)
    if node.op in RETURNS_PART:
        returned = 0
        if node.input(0) >= 0:
            width = node.attribute["weight_bits"] or bits(node.dtype(node.input(0)), float_as)
            returned = sum(ceil(node.elements(t) * width / 8) for t in node.outputs if t >= 0)
        return returned + sum(size_in_bytes(node, t, float_as) for t in set(node.inputs[1:]) if t >= 0)
    first = 1 if overwrites(node) else 0
    found = 0
    for t in set(node.inputs[first:]) - {-1}:
        weight = shown_weight(node, t)
        found += min(size_in_bytes(node, u, float_as) for u in (t, weight) if u >= 0)
    return found


def shown_weight(node: Node, tensor: int) -> int:
    """The weight that a product reads through views and transposes alone; -1 where there is none."""
    if node.attribute["view"] or node.op not in ("matmul", "dense"):
        return -1
    found = tensor
    while found >= 0 and (maker := int(node.graph.producer[found])) >= 0:
        view = Node(node.graph, maker)
        if not view.attribute["view"] and view.op != "transpose":
            return -1
        found = view.input(0)
    return found if found not in (tensor, -1) and node.role(found) == "weight" else -1


def bytes_written(node: Node, float_as: str | None) -> int:
    if node.op == "constant" or node.op in CONTROL:
        return 0
    written = [node.inputs[-1]] if overwrites(node) else node.outputs
    return sum(size_in_bytes(node, t, float_as) for t in written if t >= 0)


def logical_elements(node: Node, slot: int, tensor: int) -> int:
    width = node.attribute["weight_bits"]
    if node.op == "matmul_nbits":
        if slot == 1:
            return node.shape(node.input(0))[-1] * node.shape(node.output(0))[-1]
        if slot == 3 and BITS[node.dtype(tensor)] == 8:
            return node.elements(node.input(2))
        return node.elements(tensor)
    stored = BITS[node.dtype(tensor)]
    packed = 0 < width < stored and node.dtype(tensor) not in FLOATING and len(node.shape(tensor)) >= 2
    return node.elements(tensor) * stored // width if packed else node.elements(tensor)


def repeated(value: int, repeat: float) -> int:
    return value * int(repeat) if repeat == int(repeat) else round(value * repeat)


def count(graph: OpGraph, float_as: str | None = None) -> dict[str, list[int]]:
    """The six columns of perfpass.graph.costs.Costs as lists of Python integers."""
    columns: dict[str, list[int]] = {
        name: [] for name in ("macs", "flops", "bytes_read", "bytes_written", "parameters", "weight_bytes")
    }
    seen: set[int] = set()
    nodes = [Node(graph, index) for index in range(graph.node_count)]
    owner: dict[int, int] = {}  # of weights that products read through views, or behind a transpose: the first of them
    turned: dict[int, bool] = {}  # whether a transpose is the first to read a tensor
    for node in nodes:
        for t in node.inputs:
            first = turned.setdefault(t, node.op == "transpose")
            product = not node.attribute["view"] and node.op in ("matmul", "dense")
            if product and first and t >= 0 and node.role(t) == "weight":
                owner.setdefault(t, node.index)
            elif (weight := shown_weight(node, t)) >= 0:
                owner.setdefault(weight, node.index)
    for node in nodes:
        read = [weight if (weight := shown_weight(node, t)) >= 0 else t for t in node.inputs]
        new = [s for s, t in enumerate(read) if t >= 0 and node.role(t) == "weight" and t not in seen]
        new = [s for s in new if s == read.index(read[s]) and owner.get(read[s], node.index) == node.index]
        seen.update(read[s] for s in new)
        columns["parameters"].append(sum(logical_elements(node, s, read[s]) for s in new))
        columns["weight_bytes"].append(sum(size_in_bytes(node, read[s], float_as) for s in new))
        mac_count = 0 if node.attribute["view"] else macs(node)
        moved = (0, 0, 0)
        if not node.attribute["view"]:
            moved = (flops(node, mac_count), bytes_read(node, float_as), bytes_written(node, float_as))
        for name, value in zip(("macs", "flops", "bytes_read", "bytes_written"), (mac_count, *moved), strict=True):
            columns[name].append(repeated(value, node.repeat))
    return columns


def gemm(node: Node) -> tuple[int, int, int, int]:
    """Sizes b, m, n, k of the equivalent batch of matrix products; zeros where there is none."""
    out = node.elements(node.output(0))
    if node.op in CONVOLUTIONS:
        groups = max(1, node.attribute["groups"])
        into, made = channels(node, node.input(0)), channels(node, node.output(0))
        area = kernel_area(node)
        if node.op == "conv_transpose":
            return groups, node.elements(node.input(0)) // into, made // groups * area, into // groups
        return groups, out // made, made // groups, into // groups * area
    if node.op in ("matmul", "dense", "quantized_matmul", "matmul_nbits"):
        a, b = node.shape(node.input(0)), node.shape(right_operand(node))
        k = contracted(node)
        if node.op in ("dense", "matmul_nbits") or len(b) <= 2:
            n = 1 if len(b) == 1 else node.shape(node.output(0))[-1]
            return 1, out // n if n else 0, n, k
        m = 1 if len(a) < 2 else a[-1] if node.attribute["transpose_a"] else a[-2]
        n = b[-2] if node.attribute["transpose_b"] else b[-1]
        if (weight := shown_weight(node, right_operand(node))) >= 0 and node.elements(weight) == n * k:
            return 1, out // n if n else 0, n, k
        return out // (m * n) if m * n else 0, m, n, k
    if node.op == "einsum":
        shape = node.shape(node.output(0))
        n = shape[-1] if shape else 1
        return 1, out // n if n else 0, n, max(1, node.attribute["contraction"])
    if node.op == "bilinear":
        o, i, j = bilinear_weight(node)
        return 1, out // o, o, i * j
    if node.op == "attention":
        a = attention(node)
        return a.batch, a.q_length, a.k_length, a.qk_dim
    if node.op == "moe":
        x = node.shape(node.input(0))
        first = next((node.shape(t) for t in node.inputs[1:] if len(node.shape(t)) == 3), None)
        if first is not None:
            return 1, prod(x[:-1]) * max(1, node.attribute["contraction"]), first[1] * first[2] // x[-1], x[-1]
    return 0, 0, 0, 0
