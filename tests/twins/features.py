"""Node features with NumPy, column by column as docs/reference/schemas.md describes them."""

from __future__ import annotations

from math import log1p

import numpy as np

from perfpass import _core, features
from perfpass.graph import OPERATOR_CLASS_OF, OPERATOR_CLASSES, OpGraph
from twins.costs import BITS, FLOATING, Node, gemm, kernel_area, size_in_bytes

COST_COLUMNS = ("macs", "flops", "bytes_read", "bytes_written", "parameters", "weight_bytes")

DIPPM = {
    "conv": "conv2d",
    "conv_transpose": "conv2d_transpose",
    "dense": "dense",
    "matmul": "batch_matmul",
    "softmax": "softmax",
    "dropout": "dropout",
    "layer_norm": "layer_norm",
    "transpose": "transpose",
    "split": "split",
    "mul": "multiply",
    "max_pool": "max_pool2d",
    "global_avg_pool": "adaptive_avg_pool2d",
}
NNLQP = {
    "conv": "Conv",
    "relu": "Relu",
    "add": "Add",
    "sigmoid": "Sigmoid",
    "max_pool": "MaxPool",
    "split": "Split",
    "global_avg_pool": "GlobalAveragePool",
    "dense": "Gemm",
    "transpose": "Transpose",
    "resize": "Upsample",
    "batch_norm": "BatchNormalization",
    "mul": "Mul",
    "concat": "Concat",
    "cast": "Cast",
    "matmul": "MatMul",
    "reduce_mean": "ReduceMean",
    "pow": "Pow",
    "slice": "Slice",
    "div": "Div",
    "sub": "Sub",
    "sqrt": "Sqrt",
    "clip": "Clip",
    "softmax": "Softmax",
    "tanh": "Tanh",
    "conv_transpose": "ConvTranspose",
}
TRAPPM = {
    **{op: name for op, name in NNLQP.items() if op not in ("resize",)},
    "deform_conv": "Conv",
    "einsum": "Einsum",
    "lstm": "LSTM",
    "gru": "GRU",
    "instance_norm": "InstanceNormalization",
    "lrn": "LRN",
    "leaky_relu": "LeakyRelu",
    "prelu": "PRelu",
    "hard_sigmoid": "HardSigmoid",
    "abs": "Abs",
    "neg": "Neg",
    "exp": "Exp",
    "log": "Log",
    "reciprocal": "Reciprocal",
    "erf": "Erf",
    "minimum": "Min",
    "maximum": "Max",
    "where": "Where",
    "reduce_sum": "ReduceSum",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
    "reduce_prod": "ReduceProd",
    "reduce_norm": "ReduceL2",
    "arg_reduce": "ArgMax",
    "cumulative": "CumSum",
    "avg_pool": "AveragePool",
    "roi_pool": "RoiAlign",
    "reshape": "Reshape",
    "pad": "Pad",
    "tile": "Tile",
    "expand": "Expand",
    "identity": "Identity",
    "copy": "Identity",
    "gather": "Gather",
    "embedding": "Gather",
    "scatter": "ScatterND",
    "one_hot": "OneHot",
    "compress": "Compress",
    "resize": "Resize",
    "top_k": "TopK",
    "non_max_suppression": "NonMaxSuppression",
    "non_zero": "NonZero",
    "quantize": "QuantizeLinear",
    "dynamic_quantize": "QuantizeLinear",
    "dequantize": "DequantizeLinear",
    "quantized_conv": "QLinearConv",
    "quantized_matmul": "QLinearMatMul",
    "constant": "Constant",
    "fill": "ConstantOfShape",
    "range": "Range",
    "shape_of": "Shape",
    "scan": "Scan",
    "dropout": "Dropout",
}


def batch(graph: OpGraph) -> int:
    shape = graph.shape(int(graph.graph_inputs[0])) if len(graph.graph_inputs) else ()
    return shape[0] if shape else 1


def padded(shape: tuple[int, ...], width: int) -> list[int]:
    return [*shape[:width], *[0] * (width - len(shape))]


def log(value: float) -> float:
    return log1p(value) if value > 0 else 0.0


def squeezed(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Greedy: every dimension is matched as early as possible, what is left over must be 1."""
    rest = list(target)
    for d in shape:
        if rest and rest[0] == d:
            rest.pop(0)
        elif d != 1:
            return False
    return not rest and len(target) < len(shape)


def is_global_pool(node: Node) -> bool:
    return node.op == "global_avg_pool" or (node.op == "avg_pool" and node.attribute["kernel_0"] == 0)


def depths(graph: OpGraph) -> list[int]:
    depth = [0] * graph.node_count
    for producer, consumer in graph.edge_index.T.tolist():
        depth[consumer] = max(depth[consumer], depth[producer] + 1)
    return depth


def operator_row(graph: OpGraph, node: Node, counted: dict[str, list[int]], depth: list[int]) -> dict[str, float]:
    a, out = node.attribute, node.output(0)
    shape = node.shape(out)
    dtype = node.dtype(out) if out >= 0 else "undefined"
    moved = counted["bytes_read"][node.index] + counted["bytes_written"][node.index]
    row = {
        f"class_{OPERATOR_CLASSES[OPERATOR_CLASS_OF[graph.op[node.index]]]}": 1.0,
        "operator": float(graph.op[node.index]),
        "log_intensity": log(round(16 * counted["flops"][node.index] / moved)) if moved else 0.0,
        "log_input_elements": log(node.elements(node.input(0))),
        "log_output_elements": log(node.elements(out)),
        "input_rank": len(node.shape(node.input(0))),
        "output_rank": len(shape),
        "dtype_bits": BITS[dtype] / 32,
        "dtype_floating": float(dtype in FLOATING),
        "weight_bits": a["weight_bits"] / 32,
        "padded": float(any(a[f"pad_{end}_{i}"] > 0 for end in ("begin", "end") for i in range(3))),
        "log_groups": log(a["groups"]),
        "depthwise": float(a["groups"] > 1 and gemm(node)[3] > 0 and gemm(node)[3] == kernel_area(node)),
        "channels_last": float(a["channels_last"] != 0),
        "log_heads": log(a["num_heads"]),
        "log_kv_heads": log(a["num_kv_heads"]),
        "causal": float(a["causal"] != 0),
        "log_hidden_size": log(a["hidden_size"]),
        "directions": a["directions"],
        "view": float(a["view"] != 0),
        "in_place": float(a["in_place"] != 0),
        "log_repeat": log(node.repeat),
        "log_in_degree": log((graph.edge_index[1] == node.index).sum()),
        "log_out_degree": log((graph.edge_index[0] == node.index).sum()),
        "activations_in": sum(node.role(t) == "activation" for t in node.inputs if t >= 0),
        "weights_in": sum(node.role(t) == "weight" for t in node.inputs if t >= 0),
        "position": node.index / graph.node_count,
        "depth": depth[node.index] / max(depth) if max(depth) else 0.0,
        "from_input": float(any(node.role(t) == "input" for t in node.inputs if t >= 0)),
    }
    row |= {f"log_{name}": log(counted[name][node.index]) for name in COST_COLUMNS}
    row |= {f"log_gemm_{name}": log(size) for name, size in zip("bmnk", gemm(node), strict=True)}
    row |= {f"log_output_dim_{i}": log(d) for i, d in enumerate(padded(shape, 5))}
    row |= {f"log_{name}_{i}": log(a[f"{name}_{i}"]) for name in ("kernel", "stride", "dilation") for i in range(3)}
    return row


def operator_statics(graph: OpGraph, counted: dict[str, list[int]]) -> dict[str, float]:
    classes = [OPERATOR_CLASSES[OPERATOR_CLASS_OF[op]] for op in graph.op]
    moved = [r + w for r, w in zip(counted["bytes_read"], counted["bytes_written"], strict=True)]
    statics = {f"log_{name}": log(sum(counted[name])) for name in COST_COLUMNS}
    statics |= {"log_nodes": log(graph.node_count), "log_edges": log(graph.edge_count)}
    statics |= {"log_depth": log(max(depths(graph))), "log_batch": log(batch(graph))}
    for cls in OPERATOR_CLASSES:
        statics[f"log_count_{cls}"] = log(classes.count(cls))
        share = sum(m for m, c in zip(moved, classes, strict=True) if c == cls)
        statics[f"byte_share_{cls}"] = share / sum(moved) if sum(moved) else 0.0
    return statics


def dippm_row(node: Node) -> dict[str, float]:
    a, out = node.attribute, node.shape(node.output(0))
    name = DIPPM.get(node.op)
    if node.op == "add":
        biased = any(t >= 0 and node.role(t) == "weight" and len(node.shape(t)) == 1 for t in node.inputs)
        name = "bias_add" if biased else "add"
    elif node.op == "reshape":
        name = "squeeze" if squeezed(node.shape(node.input(0)), out) else "reshape"
    elif is_global_pool(node):
        name = "adaptive_avg_pool2d"
    row = dict(zip((f"output_{i}" for i in range(4)), padded(out, 4), strict=True))
    if name:
        row[name] = 1.0
    if node.op in ("conv", "conv_transpose"):
        channels = 0 if len(out) < 2 else out[-1] if a["channels_last"] else out[1]
        row |= {"stride_0": a["stride_0"], "stride_1": a["stride_1"]}
        row |= {"pad_top": a["pad_begin_0"], "pad_left": a["pad_begin_1"]}
        row |= {"pad_bottom": a["pad_end_0"], "pad_right": a["pad_end_1"]}
        row |= {"dilation_0": a["dilation_0"], "dilation_1": a["dilation_1"]}
        row |= {"groups": a["groups"], "channels": channels}
        row |= {"kernel_0": a["kernel_0"], "kernel_1": a["kernel_1"]}
    return row


def dippm_statics(graph: OpGraph, counted: dict[str, list[int]]) -> dict[str, float]:
    ops = [graph.op_name(n) for n in range(graph.node_count)]
    names = {"convolutions": "conv", "denses": "dense", "relus": "relu"}
    counts = {static: ops.count(op) for static, op in names.items()}
    return {"gmacs": sum(counted["macs"]) / 1e9, "batch": batch(graph), **counts}


def onnx_tool_memory(graph: OpGraph) -> list[int]:
    """[N] bytes of each node's outputs and of the weights that it is the first to read."""
    found, read = [], set()
    for node in (Node(graph, n) for n in range(graph.node_count)):
        weights = {t for t in node.inputs if t >= 0 and node.role(t) == "weight"} - read
        read |= weights
        found.append(sum(size_in_bytes(node, t, None) for t in (*weights, *node.outputs) if t >= 0))
    return found


def trappm_row(node: Node, counted: dict[str, list[int]], memory: int) -> dict[str, float]:
    listed = _core.node_feature_names("trappm")[:97]  # the 98th is None
    name = node.source if node.source in listed else TRAPPM.get(node.op, "None")
    row = {name: 1.0}
    row |= {f"input_{i}": d for i, d in enumerate(padded(node.shape(node.input(0)), 6))}
    row |= {f"output_{i}": d for i, d in enumerate(padded(node.shape(node.output(0)), 6))}
    row |= {"macs": counted["macs"][node.index], "parameters": counted["parameters"][node.index]}
    return row | {"memory_bytes": memory}


def trappm_statics(graph: OpGraph, counted: dict[str, list[int]]) -> dict[str, float]:
    memory = sum(onnx_tool_memory(graph))
    sums = {"macs": sum(counted["macs"]), "parameters": sum(counted["parameters"]), "memory_bytes": memory}
    return {"batch": batch(graph), "nodes": graph.node_count, "edges": graph.edge_count, **sums}


def nnlqp_attributes(node: Node, name: str) -> list[float]:
    a = node.attribute
    bias = (float(node.input(2) >= 0) - 0.77) / 1
    window = [(a["kernel_0"] - 2.53) / 56, (a["stride_0"] - 1.16) / 56, (a["pad_begin_0"] - 0.75) / 6]
    if name in ("Conv", "ConvTranspose"):
        return [*window, a["dilation_0"] - 1.0, (a["groups"] - 15.08) / 6144, bias]
    if name in ("MaxPool", "AveragePool"):
        return window
    if name == "Gemm":
        return [bias]
    if name == "Transpose":
        source, free = node.shape(node.input(0)), list(range(len(node.shape(node.input(0)))))
        permutation = []
        for d in node.shape(node.output(0)):
            axis = next((i for i in free if source[i] == d), None)
            if axis is not None:
                free.remove(axis)
            permutation.append(axis or 0)
        return [(axis - 1.78) / 4 for axis in padded(tuple(permutation), 8)]
    return []


def nnlqp_row(node: Node) -> dict[str, float]:
    shape, out = node.shape(node.input(0)), node.shape(node.output(0))
    name = NNLQP.get(node.op)
    if node.op == "reshape":
        name = "Flatten" if len(out) == 2 and len(shape) > 2 and shape[0] == out[0] else "Reshape"
    elif node.op in ("avg_pool", "global_avg_pool"):
        name = "GlobalAveragePool" if is_global_pool(node) else "AveragePool"
    row = {name: 1.0} if name else {}
    row |= {f"attribute_{i}": v for i, v in enumerate(nnlqp_attributes(node, name or ""))}
    sizes = zip(padded(out, 4), (12.25, 286.96, 32.62, 31.80), (1024, 2496, 256, 256), strict=True)
    return row | {f"output_{i}": (d - centre) / scale for i, (d, centre, scale) in enumerate(sizes)}


def nnlqp_statics(graph: OpGraph, counted: dict[str, list[int]]) -> dict[str, float]:
    moved = sum(counted["bytes_read"]) + sum(counted["bytes_written"])
    totals = {"gflops": sum(counted["flops"]) / 1e9, "gparameters": sum(counted["parameters"]) / 1e9}
    return {"batch": batch(graph), **totals, "memory_access_gb": moved / 1e9}


def extract(graph: OpGraph, schema: str, counted: dict[str, list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """The matrix [N, F] and the vector [S] of perfpass.features.extract."""
    nodes = [Node(graph, n) for n in range(graph.node_count)]
    if schema == "operator":
        depth = depths(graph)
        rows, statics = [operator_row(graph, n, counted, depth) for n in nodes], operator_statics(graph, counted)
    elif schema == "dippm":
        rows, statics = [dippm_row(n) for n in nodes], dippm_statics(graph, counted)
    elif schema == "trappm":
        rows, statics = (
            [trappm_row(n, counted, m) for n, m in zip(nodes, onnx_tool_memory(graph), strict=True)],
            trappm_statics(graph, counted),
        )
    else:
        rows, statics = [nnlqp_row(n) for n in nodes], nnlqp_statics(graph, counted)
    node_names, static_names = features.names(schema)
    assert set().union(*rows) <= set(node_names)
    assert set(statics) == set(static_names)
    matrix = np.array([[row.get(name, 0.0) for name in node_names] for row in rows], dtype=np.float32)
    return matrix, np.array([statics[name] for name in static_names], dtype=np.float32)
