"""Time of any graph in any runtime: every operator priced by what it has to do, and the host that issues them.

An operator takes the smooth maximum of its FLOPs over what the board's power limit feeds, in whole waves of tiles over
the SMs, and of its bytes over the bandwidth of memory or last-level cache, each times a share that its family reaches
(`EFFICIENCY`, set on measured operators of NeuSight and aiconfigurator and on vision networks). A graph takes the sum,
or what its host needs to issue the operators, whichever is longer. A few levels, with priors that keep them near 1,
scale this to runtimes, precisions and boards (perfpass.training.inference.operators). No level depends on a size, so
the time never falls with the batch, the sequence or a smaller slice. NumPy alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property, lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass import _core
from perfpass.graph import OPERATOR_CLASS_OF, OPERATOR_CLASSES, OPERATORS
from perfpass.late import dataclass
from perfpass.predictors.inference.fusion import FUSING
from perfpass.predictors.inference.levels import Levels
from perfpass.predictors.learned import artefacts
from perfpass.predictors.roofline import (
    DENSE_REACH,
    GENERIC_DEPTHWISE,
    PAGEABLE_COPY_BYTES_S,
    SMOOTHNESS,
    WINOGRAD_JOULES,
    WRAPPER_HOST,
    emulated,
    fed_flops,
    first_of,
    interpolating_s,
    issue_share,
    of_before_ampere,
    packed,
    reached,
    slower_host,
    smooth_maximum,
    sustained_bandwidth,
)
from perfpass.predictors.workload import PRECISIONS

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph.table import OperatorColumns, Tables
    from perfpass.predictors.way import Way

FAMILIES: tuple[str, ...] = (
    "conv1d", "conv", "conv3x3", "conv_grouped", "conv_depthwise", "dense", "matmul", "attention", "attention_vector",
    "recurrent", "norm", "softmax", "pointwise", "move", "gather", "other",
)  # fmt: skip
_F = {name: i for i, name in enumerate(FAMILIES)}
# What the host issues differently: families, and batch norm, which eager PyTorch hands to cuDNN through as many layers
# as a convolution; a layer norm is one kernel of its own.
HOST_CLASSES = (*FAMILIES, "batch_norm")
CUDNN = "cudnn"  # of the host's levels: what all convolutions and batch norms share
HOST_LEVELS = (*HOST_CLASSES, CUDNN)
_IN_CUDNN = np.array([name.startswith("conv") or name == "batch_norm" for name in HOST_CLASSES])
_FAMILY_OF_HOST_CLASS = (*FAMILIES, "norm")
# Shares of the rate of vector units, of that of matrix units, and of the bandwidth, that kernels of a family reach.
# 3x3 convolutions in fp32 may exceed their FLOPs' rate by Winograd's transform.
EFFICIENCY: dict[str, tuple[float, float, float]] = {
    "conv1d": (0.7, 0.3, 0.7),
    "conv": (0.9, 0.5, 0.8),
    "conv3x3": (1.2, 0.6, 0.8),
    "conv_grouped": (0.35, 0.15, 0.6),
    "conv_depthwise": (0.35, 0.35, 0.6),
    "dense": (0.95, DENSE_REACH, 0.85),
    "matmul": (0.97, 0.6, 0.8),
    "attention": (0.85, 0.85, 0.8),
    "attention_vector": (0.5, 0.5, 0.8),
    "recurrent": (0.3, 0.2, 0.5),
    "norm": (0.5, 0.5, 0.6),
    "softmax": (0.5, 0.5, 0.65),
    "pointwise": (0.5, 0.5, 0.9),
    "move": (0.5, 0.5, 0.75),
    "gather": (0.5, 0.5, 0.5),
    "other": (0.3, 0.3, 0.6),
}
# Tiles that libraries choose from, and the share of the rate that a tile of this area reaches.
_TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 64), (32, 32))
_SPLITS = (1, 2, 4, 8)  # along k, where the tiles are fewer than the SMs
_CONVOLUTION_SPLITS = 2  # the most of convolutions, which are rarely split
_FULL_TILE = 128 * 128
_AREA_EXPONENT = {"vector": 0.2, "matrix": 0.3}
_PROLOGUE_K = 32  # of the inner dimension, that filling a tile's pipeline costs
# A fused attention's rate grows with the keys that a block of queries shares its start and its softmax over.
_ATTENTION_KEYS = 350.0
# Of the last-level cache over memory's bandwidth; in engines what the SMs read of it, where that is more.
_CACHE_SPEED = 2.5
# Bytes that an SM has of the cache in a cycle, by microbenchmarks of Volta and Turing (Jia et al.: 2,155 GB/s on a
# V100, 1,270 GB/s on a T4). Boards of slow memory (L4, L40S) have many times its bandwidth there.
_SM_CACHE_BYTES = 18.0
_CACHED_SHARE = 0.5  # of the cache that an operator finds its inputs and outputs in
# Of what HBM boards reach of their bandwidth (NeuSight's V100 and A100: 89 %) those with GDDR do (its T4, P4 and L4),
# and the first HBM2 (its P100: 75 %).
_GDDR_SHARE, _FIRST_HBM2_SHARE = 0.88, 0.84
_LEAST_S = 1e-12  # of an operator without work
# Recurrent layers run step after step, and every step reads the recurrent weights again. A step's own time: 11 us at
# 256 units on a GTX 1080 Ti; the 139 to 234 us with 1,536 to 2,816 units on a TITAN Xp are within 30 % of this and the
# reading (DeepBench's README).
STEP_S = 10e-6
_LOOPED, _STEP_KERNELS = ("tensorrt",), 2
_STEP_SHARE = 0.85  # of the bandwidth that reading recurrent weights reaches
_GENERIC_AREA = 25  # depthwise kernels beyond it take the libraries' generic one
# Which reaches this share of vector units by itself, not of what other depthwise kernels reach: timm's networks that it
# bounds were else priced 1.6 to 2.5 times too slow in eager PyTorch. Compiled graphs do not take it.
_GENERIC = GENERIC_DEPTHWISE / EFFICIENCY["conv_depthwise"][0]
_COMPILED = ("torch.compile",)
_MOST_KEPT = 64  # factors of ways that are asked again and again
GAP_S = 3e-6  # ramps of one kernel on the queue
# Start and end of one kernel where no host stands between two (a CUDA graph, a loop of an engine): the middle of the
# 3,500 (B200) to 5,100 cycles (H100, L40S) that measured products and attention take beside their work in a graph
# (`perfpass.predictors.kernels.physics`).
GRAPH_CYCLES = 4300.0
# The host, for one operator: dispatch of eager PyTorch, the wrapper that Inductor writes in Python (`WRAPPER_HOST`),
# and dispatch of graphs that are compiled or built.
ISSUE_S = {"eager": 12e-6, "wrapper": WRAPPER_HOST * 12e-6, "compiled": 4e-6, "engine": 2.5e-6}
_IN_PYTHON = ("eager", "wrapper")
# Whose level of the host a runtime has, where it is not its own: Inductor's wrapper is a share of eager PyTorch.
HOST_OF = {"torch.compile": "torch"}
# What Python issues, beside boards from before Ampere: the trees' 40 us over the middle of that and of the 27 beside
# later ones, since the level is fitted on both.
OLDER_HOST = 40.0 / 33.0
# Of a whole run: its call, its first and last kernel.
CALL_S = {"eager": 60e-6, "wrapper": 60e-6, "compiled": 60e-6, "engine": 40e-6}
ISSUED_AS = {
    "torch": "eager", "torchscript": "eager", "torch.compile": "wrapper", "onnxruntime": "compiled",
    "tensorrt": "engine", "tvm": "engine", "relax": "engine", "tensorflow": "eager",
}  # fmt: skip
# Runtimes that time kernels or write their own, which take fp32's where those of halves are slower.
_TIMED = ("tensorrt", "tvm", "relax")
# Runtimes that multiply fp32 in TF32 where a board has it, if nobody says otherwise: TensorRT (its flag TF32) and ONNX
# Runtime (use_tf32 of its CUDA provider). PyTorch does so in cuDNN's convolutions alone.
TF32_PRODUCTS = ("tensorrt", "onnxruntime")
FUSED = ("norm", "pointwise", "move")
# Share of the bytes of pointwise operators and of transposes, splits and copies that still move when they are fused.
_FUSED_KEPT = 0.35
_KEPT = (_F["pointwise"], _F["move"])
_CLASS_FAMILY = {
    "matmul": "matmul", "attention": "attention", "recurrent": "recurrent", "normalization": "norm",
    "softmax": "softmax", "activation": "pointwise", "elementwise": "pointwise", "reduction": "norm",
    "pooling": "move", "data_movement": "move", "gather": "gather", "resize": "move", "quantization": "pointwise",
    "generator": "move", "sort": "other", "signal": "other", "control": "other", "unknown": "other",
}  # fmt: skip
_FAMILY_OF_OPERATOR = np.array(
    [_F["dense"] if name == "dense" else _F[_CLASS_FAMILY.get(OPERATOR_CLASSES[OPERATOR_CLASS_OF[i]], "other")]
     for i, name in enumerate(OPERATORS)]
)  # fmt: skip
_CONVOLUTION, _MATMUL = OPERATOR_CLASSES.index("convolution"), OPERATOR_CLASSES.index("matmul")
# What an engine writes with the convolution before it: it moves the other operand of a sum, and nothing else.
JOINED = np.isin(OPERATORS, ("relu", "leaky_relu", "prelu", "clip", "add"))
# Engines keep tensors in the layout that matrix units read, and time the kernels they choose from; the shares of
# `EFFICIENCY` are those of eager PyTorch, which turns every tensor. Chosen on sources left out (docs/decisions.md).
_ENGINE_CONVOLUTIONS = 1.1
_BATCH_NORM = OPERATORS.index("batch_norm")
_STEPPED = np.array([name in ("lstm", "gru", "rnn") for name in OPERATORS])
_PRODUCTS = np.array([name.startswith(("conv", "dense", "matmul", "attention", "recurrent")) for name in FAMILIES])
_CONVOLUTIONS = np.array([name.startswith("conv") for name in FAMILIES])
_SHARES = np.array([EFFICIENCY[name] for name in FAMILIES])  # of vector units, matrix units, memory
CONVOLUTION = " convolution"  # suffix of a precision's level: convolutions reach another share of matrix units
LEVELS: tuple[str, ...] = (
    "all", "class", "runtime", "precision", "launched", "gap", "host class", "host runtime", "generation",
)  # fmt: skip


def precision_class(way: Way) -> str:
    """Which kernels run: "fp64", "fp32", "tf32", "half", "amp" (halves, cast around each product) or "int8".

    Halves on boards without matrix units are fp32's; in eager PyTorch, which sums them in fp32, also where vector units
    take two at a time (P100), and everywhere where kernels for matrix units would be emulated (GTX 16).
    """
    rate = PRECISIONS[way.precision][1]
    if rate in ("fp16", "bf16"):
        if way.device.peak(rate) <= way.device.peak_flops["fp32"] or _unpacked(way) or emulated(way.device, rate):
            return "fp32"
        return "amp" if way.precision.startswith("amp") else "half"
    return "int8" if rate in ("int8", "fp8") else rate


def _unpacked(way: Way) -> bool:
    """Whether products of halves run as those of fp32 do, although vector units could take two at a time."""
    return ISSUED_AS[way.runtime] == "eager" and packed(way.device, PRECISIONS[way.precision][1])


def kernels_of(way: Way) -> str:
    """The name of a precision's level: its class, and whether the runtime chooses kernels when it builds a graph.

    No run under autocast was measured in a built graph, whose products are those of halves.
    """
    kind = precision_class(way)
    if ISSUED_AS[way.runtime] == "eager":
        return f"{kind}, eager"
    return f"{'half' if kind == 'amp' else kind}, built"


def generation(device: Device) -> str:
    """Boards that share a level: those of one compute capability, or of one vendor where there is none."""
    capability = device.compute_capability
    return device.vendor if capability is None else f"{capability[0]}.{capability[1]}"


def host_scale(way: Way) -> float:
    """What the host beside a board takes to issue an operator, over what the levels say; nothing of a CUDA graph."""
    if way.cuda_graph:
        return 0.0
    older = ISSUED_AS[way.runtime] in _IN_PYTHON and of_before_ampere(way.device)
    return slower_host(way.device) * (OLDER_HOST if older else 1.0)


@cache
def host_design() -> np.ndarray:
    """[len(HOST_CLASSES), len(HOST_LEVELS)] 1.0 where a level scales a class: its own, its family's, and cuDNN's."""
    levels = np.array(HOST_LEVELS)
    found = (np.array(HOST_CLASSES)[:, None] == levels) | (np.array(_FAMILY_OF_HOST_CLASS)[:, None] == levels)
    found |= _IN_CUDNN[:, None] & (levels == CUDNN)
    return found.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Work:
    """What R operators have to do, of one execution: ``seconds`` [R] on the device, before any level, and ``family``.

    ``issued`` [R]: 1 where a kernel is launched, 0 for a view and for what a runtime folds away. ``host`` [R]: indices
    into HOST_CLASSES.
    """

    seconds: np.ndarray
    family: np.ndarray
    issued: np.ndarray
    host: np.ndarray


def families(table: OperatorColumns, way: Way) -> np.ndarray:
    """[R] index into FAMILIES."""
    found = _FAMILY_OF_OPERATOR[np.asarray(table.op)]
    convolution = np.asarray(table.op_class) == _CONVOLUTION
    if np.count_nonzero(convolution):
        area, groups, n = (np.asarray(c) for c in (table.kernel_area, table.groups, table.n))
        kind = first_of(
            [(groups > 1) & (n <= 2), groups > 1, _flat(table), area == 9],
            [_F["conv_depthwise"], _F["conv_grouped"], _F["conv1d"], _F["conv3x3"]],
            _F["conv"],
        )
        found = np.where(convolution, kind, found)
    weighted = (found == _F["matmul"]) & (np.asarray(table.weight_bytes) > 0)
    found = np.where(weighted, _F["dense"], found)
    if precision_class(way) in ("fp32", "tf32", "fp64"):
        found = np.where(found == _F["attention"], _F["attention_vector"], found)
    return found


def _flat(table: OperatorColumns) -> np.ndarray:
    """[R] whether a kernel is of one dimension: of no square, or of more than 7 taps a side, and of no cube."""
    area = np.asarray(table.kernel_area)
    side, edge = np.sqrt(area), np.cbrt(area)
    square = (np.abs(side - np.round(side)) < 1e-6) & (side <= 7)
    return np.asarray(~square & ((np.abs(edge - np.round(edge)) > 1e-6) | (edge > 7)))


def work(
    table: OperatorColumns, way: Way, *, engine: bool = False, step: bool = False, graph: np.ndarray | None = None
) -> Work:  # fmt: skip
    """What every row of ``table`` (counted at the width of ``way``) has to do on the device of ``way``.

    ``engine``: with the vector units of `perfpass.predictors.inference.engines`. Halves on boards without matrix units
    run there two at a time. And the power limit holds back the FLOPs that are asked; what whole tiles and a kernel that
    reaches little of its rate take beside them leaves units idle, at the clock, and burns little. What is written with
    the convolution before it hides behind that one. ``step``: of a step of training, whose levels were fitted on a
    slower generic depthwise kernel. ``graph`` [R]: which of several graphs a row is of.
    """
    device, kind = way.device, families(table, way)
    generic = GENERIC_DEPTHWISE if step else _generic(way)
    speed, fed, on_matrix = _speeds(table, way, kind, engine, generic)
    shares = _SHARES[kind]
    flops = np.asarray(table.flops, dtype=np.float64)
    compute = flops / speed
    stepped = _STEPPED[np.asarray(table.op)] & (np.asarray(table.b) > 0)
    product = _PRODUCTS[kind] & (np.asarray(table.m) > 0) & (kind != _F["conv_depthwise"]) & ~stepped
    if product.any():
        compute *= _tiled(table, product, device, on_matrix)
    fused = (kind == _F["attention"]) | (kind == _F["attention_vector"])
    if fused.any():
        keys = np.asarray(table.n, dtype=np.float64)[fused]
        compute[fused] *= 1.0 + _ATTENTION_KEYS / np.maximum(keys, 16.0)
    compute = np.maximum(compute, flops / fed)
    moved = np.add(table.bytes_read, table.bytes_written, dtype=np.float64)
    runs = (np.asarray(table.view) == 0).astype(np.float64)
    issued = runs
    if way.runtime in FUSING:
        issued = runs = np.where(np.asarray(table.op) == _BATCH_NORM, 0.0, runs)
        if engine:
            joined = _joined(table, graph)
            moved = np.where(joined, np.maximum(moved - 2.0 * np.asarray(table.bytes_written), 0.0), moved)
            compute, issued = np.where(joined, 0.0, compute), np.where(joined, _joined_launches(way) * runs, runs)
        moved = np.where(np.isin(kind, _KEPT), moved * _FUSED_KEPT, moved)
    cache_speed = _cache_speed(device) if engine else _CACHE_SPEED
    memory = _moving_s(moved, shares[:, 2], device, cache_speed)
    seconds = np.asarray(smooth_maximum(compute, np.maximum(memory, _LEAST_S)))
    seconds = np.maximum(seconds, interpolating_s(table, way))
    if way.runtime in FUSING and fused.any():
        seconds[fused] = np.minimum(seconds[fused], _in_parts_s(table, fused, way, engine))
    if stepped.any():
        each = _step_s(way) + _moving_s(_step_bytes(table)[stepped], _STEP_SHARE, device, cache_speed)
        in_turn = np.asarray(table.b, dtype=np.float64)[stepped] * each
        seconds[stepped] = smooth_maximum(seconds[stepped], in_turn)
    host = np.where(np.asarray(table.op) == _BATCH_NORM, HOST_CLASSES.index("batch_norm"), kind)
    return Work(seconds * runs, kind, issued, host)


def _in_parts_s(table: OperatorColumns, fused: np.ndarray, way: Way, engine: bool) -> np.ndarray:
    """[F] seconds of the attention in rows ``fused`` [R] run in parts, the most that a fused kernel takes where a
    runtime chooses its kernels. PyTorch takes its fused one by types and shapes.

    Two products of half the FLOPs and of half the bytes each, of which the first writes the scores and the second reads
    them, and a softmax that reads and writes them between. What a softmax computes hides behind what it moves.
    """
    b, m, n, k, flops, read, written, elements = (
        np.ascontiguousarray(np.asarray(column)[fused], dtype=np.float64)
        for column in (table.b, table.m, table.n, table.k, table.flops, table.bytes_read, table.bytes_written,
                       table.output_elements)
    )  # fmt: skip
    device, cache_speed = way.device, _cache_speed(way.device) if engine else _CACHE_SPEED
    one = SimpleNamespace(op_class=np.array([_MATMUL]), kernel_area=np.zeros(1))
    speed, fed, on_matrix = _speeds(one, way, np.array([_F["matmul"]]), engine, 1.0)
    scores = b * m * n * written / np.maximum(elements, 1.0)
    moved = (read + written) / 2.0 + scores
    memory = np.maximum(_moving_s(moved, _SHARES[_F["matmul"], 2], device, cache_speed), _LEAST_S)
    seconds = _moving_s(2.0 * scores, _SHARES[_F["softmax"], 2], device, cache_speed)
    every, no = np.ones(len(b), dtype=bool), np.zeros(len(b), dtype=bool)
    tiling, units = _tiling(max(device.sm_count, 1)), np.broadcast_to(on_matrix, b.shape).copy()
    for columns, depth in ((n, k), (k, n)):
        tiles = tiling.whole_tiles(b, m, columns, depth, no, units, every)
        compute = np.maximum(flops / 2.0 / speed * tiles, flops / 2.0 / fed)
        seconds = seconds + smooth_maximum(compute, memory)
    return np.asarray(seconds)


def large_depthwise(table: OperatorColumns, kind: np.ndarray) -> np.ndarray:
    """[R] depthwise kernels beyond `_GENERIC_AREA`, of families ``kind`` [R].

    Of two dimensions: QuartzNet's of 33 to 87 taps in one take a twentieth of what the generic kernel would.
    """
    large = (kind == _F["conv_depthwise"]) & (np.asarray(table.kernel_area) > _GENERIC_AREA)
    return np.asarray(large & ~_flat(table)) if np.count_nonzero(large) else large


def _generic(way: Way) -> float:
    """The rate of depthwise kernels beyond `_GENERIC_AREA` over that of smaller ones: engines have kernels of their own
    (at the generic rate GPUNet-D1 and -D2 took twice what TensorRT was measured at), and processors no such limit.
    """
    libraries = way.device.kind == "gpu" and ISSUED_AS[way.runtime] != "engine" and way.runtime not in _COMPILED
    return _GENERIC if libraries else 1.0


def _joined(table: OperatorColumns, graph: np.ndarray | None) -> np.ndarray:
    """[R] whether an engine writes a row with the convolution before it: one of as many elements, in the same graph."""
    size = np.asarray(table.output_elements, dtype=np.int64)
    if graph is not None:
        size = size + np.asarray(graph, dtype=np.int64) * (int(size.max(initial=0)) + 1)
    of = size[np.asarray(table.op_class) == _CONVOLUTION]
    return np.asarray(JOINED[np.asarray(table.op)] & np.isin(size, of))


def _joined_launches(way: Way) -> float:
    """Share of what an engine writes with a convolution that is launched as if it did not.

    ONNX Runtime makes one node of them when it loads a file, as in files that it has optimised. TensorRT's shares of
    launches were fitted with all pointwise operators, and are better so: DeepLearningExamples' networks for images in
    Paddle err by 7.7 %, and 9.9 without.
    """
    return 0.0 if way.runtime == "onnxruntime" else 1.0


def _cache_speed(device: Device) -> float:
    """Of the last-level cache over memory's bandwidth."""
    cycles = _SM_CACHE_BYTES * device.sm_count * device.clock_hz
    return max(_CACHE_SPEED, cycles / device.memory_bandwidth_bytes_s)


def _step_s(way: Way) -> float:
    """Seconds of one step of a recurrent layer beside what it reads.

    TensorRT runs a layer as a loop on the device: a product with the recurrent weights and the gates' kernel, each of
    which starts and ends as a kernel of a graph does.
    """
    looped = way.runtime in _LOOPED and way.device.clock_hz > 0
    return _STEP_KERNELS * GRAPH_CYCLES / way.device.clock_hz if looped else STEP_S


def on_matrix_units(table: OperatorColumns, way: Way) -> np.ndarray:
    """[R] whether a row's products run on matrix units."""
    return _rates(table, way, families(table, way), 1.0)[1] > 0


def moving_s(moved: np.ndarray, family: int, device: Device) -> np.ndarray:
    """[R] seconds, before any level, in which kernels of a family move ``moved`` bytes [R]."""
    return _moving_s(moved, _SHARES[family, 2], device, _CACHE_SPEED)


def _moving_s(moved: np.ndarray, share: np.ndarray | float, device: Device, cache_speed: float) -> np.ndarray:
    """[R] seconds that ``moved`` bytes [R] take at ``share`` [R] of the bandwidths of memory and cache."""
    resident = np.minimum(1.0, _CACHED_SHARE * device.l2_bytes / np.maximum(moved, 1.0))
    return np.asarray(moved * (1.0 - resident * (1.0 - 1.0 / cache_speed)) / (_reached_bytes_s(device) * share))


def _reached_bytes_s(device: Device) -> float:
    """Of the device's memory, by kinds of memory that were measured."""
    if not device.memory_type.upper().startswith("HBM"):
        return _GDDR_SHARE * sustained_bandwidth(device)
    return (_FIRST_HBM2_SHARE if device.architecture == "pascal-gp100" else 1.0) * sustained_bandwidth(device)


def _step_bytes(table: OperatorColumns) -> np.ndarray:
    """[R] bytes of the recurrent weights, which every step reads: their share of the MACs is that of the weights."""
    b, m, n, k = (np.asarray(c, dtype=np.float64) for c in (table.b, table.m, table.n, table.k))
    return np.asarray(n * k * (b * m) * table.weight_bytes / np.maximum(np.asarray(table.macs, dtype=np.float64), 1.0))


def _speeds(
    table: Any, way: Way, kind: np.ndarray, engine: bool, generic: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """[R] FLOP/s of whole tiles, of the FLOPs that are asked (which hold back less or as much), and on matrix units?"""
    vector, matrix = _rates(table, way, kind, generic)
    device, name, shares = way.device, PRECISIONS[way.precision][1], _SHARES[kind]
    top, limited, fed_shares = device.peak_flops["fp32"], fed_flops(device, "fp32"), shares[:, 0]
    if engine and packed(way.device, PRECISIONS[way.precision][1]):
        top, doubled = device.peak(name), fed_flops(device, name)
        vector, limited, matrix = vector * (doubled / limited), doubled, np.zeros(len(kind))
    on_matrix = matrix > 0
    fed = np.where(kind == _F["conv3x3"], np.minimum(top, vector * WINOGRAD_JOULES), vector)
    speed = fed
    if engine and name != "fp64":
        speed = vector * (top / limited)
        # Where a kernel reaches little of the rate, the power limit does not hold it back besides.
        fed_shares = np.where(kind == _F["attention_vector"], EFFICIENCY["dense"][0], fed_shares)
    native = np.isin(kind, (_F["conv"], _F["conv3x3"])) if engine else np.zeros(len(kind), dtype=bool)
    matrix = matrix * shares[:, 1] * np.where(native, _ENGINE_CONVOLUTIONS, 1.0)
    return np.where(on_matrix, matrix, speed * shares[:, 0]), np.where(on_matrix, matrix, fed * fed_shares), on_matrix


def _rates(table: Any, way: Way, kind: np.ndarray, generic: float) -> tuple[np.ndarray, np.ndarray]:
    """[R] FLOP/s of vector units, and of matrix units where a row runs there, else 0.

    ``generic``: rate of depthwise kernels beyond `_GENERIC_AREA` over that of smaller ones.
    """
    device, name = way.device, PRECISIONS[way.precision][1]
    vector = np.full(len(kind), fed_flops(device, "fp64" if name == "fp64" else "fp32"))
    vector = np.where(large_depthwise(table, kind), vector * generic, vector)
    products = _PRODUCTS[kind] & (kind != _F["conv_depthwise"])
    best = fed_flops(device, name) * reached(device, name)
    if name == "fp32" and "tf32" in device.peak_flops:
        every = way.runtime in TF32_PRODUCTS
        where = products if every else products & (np.asarray(table.op_class) == _CONVOLUTION)
        return vector, np.where(
            where & (kind != _F["attention_vector"]), fed_flops(device, "tf32") * reached(device, "tf32"), 0.0
        )
    if emulated(device, name) and way.runtime not in _TIMED:
        vector = np.where(products, np.minimum(vector, fed_flops(device, name)), vector)
    if name in ("fp32", "fp64") or best <= vector.max(initial=0.0) or _unpacked(way):
        return vector, np.zeros(len(kind))
    return vector, np.where(products, best, 0.0)


def _tiled(table: OperatorColumns, product: np.ndarray, device: Device, on_matrix: np.ndarray) -> np.ndarray:
    """[R] FLOPs in whole waves of tiles over FLOPs, 1 but of the rows ``product``; nondecreasing in the time with every
    size.
    """
    b, m, n, k = (np.ascontiguousarray(c, dtype=np.float64) for c in (table.b, table.m, table.n, table.k))
    convolution = np.asarray(table.op_class) == _CONVOLUTION
    return np.asarray(_tiling(max(device.sm_count, 1)).whole_tiles(b, m, n, k, convolution, on_matrix, product))


@lru_cache(maxsize=64)
def _tiling(sms: int) -> _core.Tiling:
    """What libraries choose from on a device of so many SMs."""
    sides = np.array(_TILES, dtype=np.float64)
    area = sides.prod(axis=1, keepdims=True) / _FULL_TILE
    shares = np.minimum(1.0, area ** np.array([_AREA_EXPONENT["vector"], _AREA_EXPONENT["matrix"]]))
    splits = np.array(_SPLITS, dtype=np.float64)
    return _core.Tiling(np.concatenate([sides, shares], axis=1), splits, _CONVOLUTION_SPLITS, _PROLOGUE_K, sms)


def for_core(way: Way) -> dict[str, Any]:
    """What `work` reads of ``way``, by family and as numbers, for the core (cpp_kernels/src/prediction/engine.cpp).

    As in engines, which alone the core predicts on GPUs.
    """
    kind = np.arange(len(FAMILIES))
    # A row of each family, none of them larger than what libraries have depthwise kernels for.
    rows = SimpleNamespace(op_class=np.where(_CONVOLUTIONS, _CONVOLUTION, 0), kernel_area=np.full(len(kind), 9))
    speed, fed, on_matrix = _speeds(rows, way, kind, engine=True, generic=1.0)
    bandwidth = _reached_bytes_s(way.device)
    return {
        "speed": speed,
        "fed": fed,
        "on_matrix": on_matrix,
        "product": _PRODUCTS,
        "bandwidth": bandwidth * _SHARES[:, 2],
        "kept": np.where(np.isin(kind, _KEPT), _FUSED_KEPT if way.runtime in FUSING else 1.0, 1.0),
        "folded": np.arange(len(OPERATORS)) == (_BATCH_NORM if way.runtime in FUSING else -1),
        "joined": JOINED & (way.runtime in FUSING),
        "joined_launches": _joined_launches(way),
        "tile_rows": [rows for rows, _ in _TILES],
        "tile_columns": [columns for _, columns in _TILES],
        "splits": _SPLITS,
        "convolution_splits": _CONVOLUTION_SPLITS,
        "full_tile": _FULL_TILE,
        "vector_exponent": _AREA_EXPONENT["vector"],
        "matrix_exponent": _AREA_EXPONENT["matrix"],
        "prologue": _PROLOGUE_K,
        "attention_keys": _ATTENTION_KEYS,
        "generic_depthwise": _generic(way),
        "generic_area": _GENERIC_AREA,
        "cache_bytes": _CACHED_SHARE * way.device.l2_bytes,
        "cache_speed": _cache_speed(way.device),
        "least_s": _LEAST_S,
        "step_s": _step_s(way),
        "step_bandwidth": bandwidth * _STEP_SHARE,
        "sms": max(way.device.sm_count, 1),
        "smoothness": SMOOTHNESS,
    }


def families_for_core(way: Way) -> tuple[np.ndarray, bool]:
    """[OPERATORS] the family of each but convolutions, and whether attention in ``way`` is that of vector units."""
    return _FAMILY_OF_OPERATOR, precision_class(way) in ("fp32", "tf32", "fp64")


@dataclass(frozen=True, eq=False)
class Seconds:
    """Seconds of N runs: ``total``, the ``device``'s and the ``host``'s part [N], and what each row has of it [R]."""

    total: np.ndarray
    device: np.ndarray
    host: np.ndarray
    row: np.ndarray


@dataclass(frozen=True)
class OperatorTimes(Levels):
    """Time of graphs by their operators; ``levels``: log factors by level and name (LEVELS), absent ones are 0."""

    NAMES = LEVELS

    @staticmethod
    @cache
    def load() -> OperatorTimes:
        """The shipped levels, read once per process. Raises ArtefactError."""
        return OperatorTimes.read(artefacts.shipped("operators"))

    def factors(self, way: Way) -> np.ndarray:
        """[len(FAMILIES)] of the device's time."""
        return self._kept(("factors", way.runtime, kernels_of(way), generation(way.device)), self._factors)

    def _kept(self, key: tuple[str, ...], make: Callable[..., np.ndarray]) -> np.ndarray:
        """What ``make`` gives for the words of ``key`` behind its first, made once."""
        if (found := self._made.get(key)) is None:
            if len(self._made) >= _MOST_KEPT:
                self._made.clear()
            found = self._made[key] = make(*key[1:])
            found.flags.writeable = False
        return found

    @cached_property
    def _made(self) -> dict[tuple[str, ...], np.ndarray]:
        return {}

    def _factors(self, runtime: str, precision: str, generation: str) -> np.ndarray:
        shared = self._of("all", "") + self._of("runtime", runtime) + self._of("generation", generation)
        each = np.array([self._of("class", name) for name in FAMILIES]) + shared
        each = each + np.where(_PRODUCTS & ~_CONVOLUTIONS, self._of("precision", precision), 0.0)
        each = each + np.where(_CONVOLUTIONS, self._of("precision", precision + CONVOLUTION), 0.0)
        if runtime in FUSING:
            each = each + np.where(np.isin(FAMILIES, FUSED), self._of("launched", runtime), 0.0)
        return np.asarray(np.exp(each))

    def seconds(self, tables: Tables, way: Way) -> Seconds:
        """The time of N graphs."""
        done = work(tables.table, way)
        times = done.issued * tables.count
        row = done.seconds * tables.count * self.factors(way)[done.family] + GAP_S * np.exp(self._of("gap", "")) * times
        issued = times * self.issue_s(way)[done.host] * host_scale(way)
        device_s, host_s = sums = tables.sums(row), tables.sums(issued)
        bound = issue_share(host_s / np.maximum(device_s, 1e-12))
        if way.copied_bytes:
            device_s = device_s + way.copied_bytes / PAGEABLE_COPY_BYTES_S
        host_s = host_s + CALL_S[ISSUED_AS[way.runtime]]
        total = smooth_maximum(device_s, host_s)
        # Of the time, each operator has what it takes of the part that bounds: the device's, or the host's.
        parts = [v / np.maximum(of, 1e-300)[tables.graph] for v, of in zip((row, issued), sums, strict=True)]
        share = (1.0 - bound)[tables.graph] * parts[0] + bound[tables.graph] * parts[1]
        return Seconds(total, device_s, host_s, share * total[tables.graph])

    def issue_s(self, way: Way) -> np.ndarray:
        """[len(HOST_CLASSES)] seconds of the host to issue an operator."""
        return self._kept(("issue_s", way.runtime), self._issue_s)

    def _issue_s(self, runtime: str) -> np.ndarray:
        each = host_design() @ [self._of("host class", name) for name in HOST_LEVELS]
        level = self._of("host runtime", HOST_OF.get(runtime, runtime))
        return np.asarray(ISSUE_S[ISSUED_AS[runtime]] * np.exp(each + level))
