"""The features of a graph that runs once on a device: what its time is made of, at the roofline's scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.graph import OPERATOR_CLASSES
from perfpass.graph.table import Tables
from perfpass.predictors import roofline
from perfpass.predictors.learned.ratios import RatioFeatures, Sums, Vectors
from perfpass.predictors.learned.recorded import UNSTATED_TORCH
from perfpass.predictors.roofline import GROUPS

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.way import Way

SCHEMA_VERSION = 5
# Beside boards whose records state no release, over `roofline.ISSUE_S`: 40 us an operator, as beside others of their
# age. What each of them stood beside (31 to 69 us) counts where trees learn (perfpass.training.inference.model).
UNSTATED_HOST = 2.0
_ALIGNED = 8  # halves in 16 bytes, which a load of matrix units takes
# Where rows are odd, kernels load and widen one half at a time for every product, and reach half of vector units' rate.
_ODD_REACH = 0.5
_MATMUL, _CONV3X3, _DENSE = (GROUPS.index(name) for name in ("matmul", "conv3x3", "dense"))
_CONVOLUTION = OPERATOR_CLASSES.index("convolution")
_COMPUTE_SHARES = ("conv1x1", "conv3x3", "conv_large", "conv_grouped", "dense", "matmul", "attention")
_COMPUTE_GROUPS = np.array([GROUPS.index(g) for g in _COMPUTE_SHARES])
# Bytes that a multiprocessor moves in a cycle in kernels of 16-bit numbers, beside the memory's time; of wider ones in
# proportion, since a thread loads as many numbers of them.
_SM_BYTES = 24.0
# Of a number that is computed at a rate of `perfpass.predictors.roofline.RATES`: trees speak of no other.
_NUMBER_BYTES = {"fp64": 8.0, "fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0}
# Of the memory's time, where multiprocessors are of another kind (other vendors') or their clock is not stated: as on
# the boards with most rows (28, 13 and 17 %), beside which the factors of groups are fitted.
MOVED_SHARE = 0.19
# PyTorch's own depthwise kernel (conv_depthwise2d_forward_kernel), which fp32 takes in the usual layout: instructions
# of an output for its indices, and of a tap for its bounds, two loads and their addresses, at half of the issue rate.
_OUTPUT_INSTRUCTIONS, _TAP_INSTRUCTIONS = 130.0, 20.0
# Depthwise kernels in channels-last, which compiled graphs turn convolutions to, take so many times longer a tap beyond
# 7 x 7 (timm's convmixer, focalnet and mixnet); in the usual layout the time grows with the taps alone.
_CHANNELS_LAST_AREA, _EAGER_BEYOND, _COMPILED_BEYOND = 49, 3.0, 8.0
_DEPTHWISE_LARGE = GROUPS.index("conv_depthwise_large")
_DEPTHWISE3, _DEPTHWISE = GROUPS.index("conv_depthwise3"), GROUPS.index("conv_depthwise")
# What a multiprocessor issues for in a cycle: four warps, of a P100 two.
_LANES, _P100_LANES, _P100 = 128, 64, (6, 0)
_CACHE_EDGES = (-12, -2, 0, 2, 4)  # log2 of bytes over cache

# Sets of groups over which sizes are averaged, weighted by time, and the sizes that matter there.
_AVERAGED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "gemm": (
        ("conv1x1", "conv3x3", "conv_large", "conv_grouped", "dense", "matmul", "attention"),
        (
            "m", "n", "k", "waves", "wave_fill", "n_by_8", "k_by_8", "n_by_64", "k_by_64", "m_by_8", "balance",
            "cache", "stride",
        ),
    ),
    "conv": (
        ("conv1x1", "conv3x3", "conv_large", "conv_grouped"),
        ("n", "k", "groups", "area", "n_by_8", "k_by_8", "m"),
    ),
    "linear": (("dense", "matmul"), ("n", "k", "m", "b")),
    "attention": (("attention",), ("m", "k", "b", "m_by_8", "k_by_8", "n")),
    "depthwise": (
        ("conv_depthwise3", "conv_depthwise", "conv_depthwise_large"),
        ("area", "stride", "groups", "output", "cache"),
    ),
    "norm": (("layer_norm", "batch_norm", "other_norm"), ("cache", "output")),
    "memory": (
        ("relu", "activation", "add", "elementwise", "reduction", "pooling", "copy", "concat", "gather", "resize"),
        ("cache", "output", "shrink"),
    ),
}  # fmt: skip

SOFTWARE_FEATURES: tuple[str, ...] = (
    "compiled", "nhwc", "autocast", "bfloat16", "fp32", "fp64", "torch_age", "cpu", "copies_input",
)  # fmt: skip


def _own(sums: Sums, share: np.ndarray, device_s: np.ndarray, kernels: np.ndarray) -> list[np.ndarray]:
    """Time, launches and work of products by group."""
    return [share, sums.kernels / kernels[:, None], sums.compute[:, _COMPUTE_GROUPS] / device_s[:, None]]


RATIOS = RatioFeatures(
    groups=GROUPS,
    weights="log_weights",
    own=(
        *(f"time_{g}" for g in GROUPS), *(f"kernels_{g}" for g in GROUPS), *(f"compute_{g}" for g in _COMPUTE_SHARES),
    ),
    own_of=_own,
    averaged=_AVERAGED,
    binned={"cache": _CACHE_EDGES},
    software=SOFTWARE_FEATURES,
)  # fmt: skip
FEATURES: tuple[str, ...] = RATIOS.names


def torch_age(version: str | None) -> float:
    """Distance to the newest measured release (2.9), in releases over 12; 1 for the 1.x series."""
    parts = (version or "2.9").split(".")
    if not parts[0].isdigit() or int(parts[0]) < 2:
        return 1.0
    minor = int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 9
    return min(max((9 - minor) / 12.0, 0.0), 0.67)


def _software(way: Way) -> list[float]:
    precision = way.precision
    return [
        way.runtime == "torch.compile",
        way.layout == "nhwc",
        precision in ("amp", "amp_bf16"),
        precision in ("bf16", "amp_bf16"),
        precision == "fp32",
        precision == "fp64",
        torch_age(way.torch_version),
        way.device.kind == "cpu",
        way.copied_bytes > 0,
    ]


def _roof(table: Any, way: Way, byte_scale: float | np.ndarray = 1.0) -> roofline.Bound:
    """The roofline of every row, with what eager kernels and a board's watts make of it on GPUs.

    Matrix units that are held to half their rate (GeForce) are fed more of it than others. Products of two activations
    whose rows are no multiple of 8 halves find no kernel of matrix units in eager PyTorch (attention in parts over 49,
    197 or 577 tokens) and half of the rate of vector units, and compiled graphs pad them. What the power limit feeds,
    no kernel exceeds, however well it does at the clock: a T4 (70 W) has less than half of its peaks in products of
    fp32. Bytes pass the multiprocessors as well as the memory, of which an A100 has more beside them than other boards.
    Nor does PyTorch's own depthwise kernel exceed what the multiprocessors issue, who on an A100 have least time for it
    while the bytes move, nor its interpolation the pace of a thread for each pixel. Depthwise kernels beyond 7 x 7 are
    slow in channels-last, which compiled graphs turn to.
    """
    roof = roofline.bound(table, way, byte_scale)
    device, rate = way.device, roofline.RATES[way.precision]
    if device.kind != "gpu":
        return roof
    flops, products = np.asarray(table.flops, dtype=np.float64), roof.product
    vector = roofline.fed_flops(device, "fp64" if rate == "fp64" else "fp32")
    single = rate == "fp32" or roofline.summed_in_fp32(way)
    fed: np.ndarray | float = vector if single else roofline.fed_flops(device, rate)
    slowed: np.ndarray | float = 1.0
    if roofline.on_matrix_units(device, rate):
        slowed = np.where(products, roofline.HALVED_REACH / roofline.reached(device, rate), 1.0)
        reach = roofline.DENSE_REACH * roofline.reached(device, rate)
        fed = np.where(roof.group == _DENSE, fed * reach, fed)
        if way.runtime == "torch":
            odd = (np.asarray(table.n) % _ALIGNED != 0) | (np.asarray(table.k) % _ALIGNED != 0)
            odd &= roof.group == _MATMUL
            vector_peak = _ODD_REACH * device.peak_flops["fp32"]
            slowed = np.where(odd, roofline.sustained_flops(device, rate) / vector_peak, slowed)
            fed = np.where(odd, vector, fed)
    elif single:
        if "tf32" in device.peak_flops:
            fed = np.where(np.asarray(table.op_class) == _CONVOLUTION, roofline.fed_flops(device, "tf32"), vector)
        else:
            fed = np.where(roof.group == _CONV3X3, vector * roofline.WINOGRAD_JOULES, vector)
    compiled = way.runtime == "torch.compile"
    if compiled or way.layout == "nhwc":
        beyond = (roof.group == _DEPTHWISE_LARGE) & (np.asarray(table.kernel_area) > _CHANNELS_LAST_AREA)
        slowed = np.where(beyond, _COMPILED_BEYOND if compiled else _EAGER_BEYOND, slowed)
    least_s = np.where(products, flops / fed, 0.0)
    clocked = device.compute_capability is not None and device.clock_hz > 0
    if clocked:
        moving_s = roof.bytes / (device.sm_count * device.clock_hz * _SM_BYTES * _NUMBER_BYTES[rate] / 2.0)
    else:
        moving_s = MOVED_SHARE * roof.memory_s
    if rate not in ("fp16", "bf16") and way.layout == "nchw" and clocked:
        depthwise = (roof.group == _DEPTHWISE3) | (roof.group == _DEPTHWISE)
        instructions = _OUTPUT_INSTRUCTIONS + _TAP_INSTRUCTIONS * np.asarray(table.kernel_area, dtype=np.float64)
        issued = instructions * np.asarray(table.output_elements, dtype=np.float64)
        issue_s = 1.0 / (device.sm_count * device.clock_hz * _lanes(device))
        least_s = np.where(depthwise, issued * issue_s, least_s)
    least_s = np.maximum(least_s, roofline.interpolating_s(table, way))
    kept = (roof.compute_s, roof.memory_s, roof.bytes, roof.launched, roof.group, products)
    return roofline.Bound(*kept, slowed, moving_s, least_s)


def _lanes(device: Device) -> int:
    """Threads of which a multiprocessor issues one instruction in a cycle."""
    return _P100_LANES if device.compute_capability == _P100 else _LANES


def graph_sums(tables: Tables, batch: np.ndarray, way: Way, byte_scale: float = 1.0) -> Sums:
    """The sums of N graphs that run in one way, stacked, which no efficiency changes; ``batch`` [N]."""
    return _sums(tables, batch, way, byte_scale, _roof(tables.table, way, byte_scale))


def _sums(tables: Tables, batch: np.ndarray, way: Way, byte_scale: float, roof: roofline.Bound) -> Sums:
    """The sums of N graphs, stacked."""
    return RATIOS.sums(
        tables, batch, way, roof,
        log_weights=np.log(np.maximum(tables.sums(tables.table.weight_bytes * tables.count), 1.0) * byte_scale),
        software=np.array([_software(way)], dtype=np.float64).repeat(len(tables), axis=0),
        issued=UNSTATED_HOST if way.torch_version == UNSTATED_TORCH else 1.0,
    )  # fmt: skip


def graph_vectors(
    tables: Tables, batch: np.ndarray, way: Way, efficiency: np.ndarray, byte_scale: float = 1.0
) -> Vectors:
    """All features of N graphs that run in one way; ``batch`` [N].

    ``efficiency`` [len(SOFTWARE), len(GROUPS)]: measured time over roofline time, by kind of software.
    """
    roof = _roof(tables.table, way, byte_scale)
    sums = _sums(tables, batch, way, byte_scale, roof)
    return RATIOS.vectors(sums, roof, tables, efficiency[roofline.software_index(way)])
