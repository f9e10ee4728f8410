"""Roofline: the least time each operator of a table can take on a device.

The bound of one operator is max(FLOPs / peak, bytes / bandwidth) (Williams, Waterman, Patterson: Roofline, CACM 52(4),
2009). Everything here is counted or read from the device; what is learned is a factor per operator group and what the
trees add (learned/ratio_trees.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.graph import OPERATOR_CLASSES, OPERATORS
from perfpass.late import dataclass

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.way import Way

# The rate of the device that matrix products of a precision run at.
GEMM_RATE = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "fp64": "fp64", "amp": "fp16", "amp_bf16": "bf16"}
# The same with what was measured in no run of inference.
RATES = {**GEMM_RATE, "tf32": "tf32"}
# Energy of one floating-point operation of a 16-bit matrix product at full load, data movement included: (power limit -
# idle) over the best sustained rate. It caps boards whose power limit is low for their peak (RTX PRO 6000 Max-Q, L4).
# HBM boards: measured GEMMs of aiconfigurator (H200: 690 of 989 TFLOP/s at 700 W; B200: 1,395 of 2,250 at 1,000 W).
# GDDR boards: the RTX PRO 6000 Max-Q of the vision records, 300 W, whose matrix products run at some 55 % of the peak.
FLOP_JOULES = {"hbm": 0.85e-12, "hbm blackwell": 0.6e-12, "gddr": 1.1e-12}
# Energy of one byte moved at full bandwidth by memory-bound kernels on a GDDR board, set by the same board, whose
# memory-bound operators run some tenth below what its bandwidth promises. No other board of the catalogue is held back.
BYTE_JOULES_GDDR = 160e-12
_JOULES_SCALE = {"fp16": 1.0, "bf16": 1.0, "tf32": 2.0}
# Under this time a kernel's duration is its launch and its ramps (an empty kernel takes about 2 us on the queue).
KERNEL_S = 2e-6
# Time the host needs to issue one operator: eager PyTorch with its modules (the torchvision records at batch 12 need 25
# to 50 us, on older hosts and releases), and a compiled graph (4.5 us a kernel in recurrent networks, all launches).
ISSUE_S = {"torch": 20e-6, "torch.compile": 5e-6}
# What a compiled graph takes of the host for an operator, over eager PyTorch beside the same board. Its mode "default"
# has no CUDA graph: Python launches each kernel, two for three operators. 0.59 to 0.72 in ResNet-50 at batch 1 on T4,
# V100 and A100 and 0.5 to 0.9 in transformers (torch 2.0.1, Hugging Face's guide to torch.compile), 1.2 in Stable
# Diffusion (ort_stable_diffusion). timm's EfficientViT-M0 to M3 take 7.1 to 8.4 ms on an RTX 4090 whatever their size,
# 16 to 18 us an operator; a Triton kernel takes 7 to 9 us on a GB200 in 2026 (tritonbench's pull request 1017).
WRAPPER_HOST = 0.65
# An operator of a compiled graph that is replayed as a CUDA graph, whose kernels start one after another and have
# little to do: 1.8 to 2.0 ms for the 237 of BERT over 16 to 64 tokens on an RTX 3090 (kernl's Inductor).
REPLAYED_S = 7.5e-6
# Frameworks of records alone, which nobody can ask for: they issue operator by operator, as another does.
RECORDED_AS = {"tensorflow": "torch"}
# Pageable host memory to device, the usual PCIe 3.0 x16 figure; only the torchvision records contain such a copy.
PAGEABLE_COPY_BYTES_S = 5e9
# cuDNN's and PyTorch's depthwise kernels for GPUs are made for sides of 1, 3 and 5; larger ones take a generic kernel
# (aten/src/ATen/native/cuda/DepthwiseConv2d.cu), whose time grows with the taps, not with the bytes.
_OWN_KERNEL = 25
GENERIC_DEPTHWISE = 1 / 32
_CONVOLUTION_GROUPS = (
    "conv_depthwise3",
    "conv_depthwise",
    "conv_depthwise_large",
    "conv_grouped",
    "conv1x1",
    "conv3x3",
)
SMOOTHNESS = 4.0  # exponent of the smooth maximum between device time and issue time

# A tensor is read again by the operator that follows. What the last-level cache holds of it comes this many times
# faster than from memory: a CPU socket's L3 about four times. On GPUs with GDDR a factor of 4 takes unseen boards from
# 10.1 to 9.6 % and unseen families from 9.6 to 10.1 %, so it is left out (docs/research/inference.md);
# HBM boards gain nothing.
CACHE_SPEED = {"cpu": 4.0, "gpu": 1.0}

# Groups of operators that share an efficiency. Order is part of the artefact.
GROUPS: tuple[str, ...] = (
    "conv1x1", "conv3x3", "conv_large", "conv_grouped", "conv_depthwise3", "conv_depthwise", "conv_depthwise_large",
    "dense", "matmul", "attention", "recurrent", "batch_norm", "layer_norm", "other_norm", "softmax", "relu",
    "activation", "add", "elementwise", "reduction", "pooling", "copy", "concat", "gather", "resize", "other",
)  # fmt: skip
_G = {name: i for i, name in enumerate(GROUPS)}
_BY_CLASS = {
    "matmul": "matmul", "attention": "attention", "recurrent": "recurrent", "normalization": "other_norm",
    "softmax": "softmax", "activation": "activation", "elementwise": "elementwise", "reduction": "reduction",
    "pooling": "pooling", "data_movement": "copy", "gather": "gather", "resize": "resize",
}  # fmt: skip
_BY_OPERATOR = {
    "dense": "dense", "batch_norm": "batch_norm", "layer_norm": "layer_norm", "relu": "relu", "clip": "relu",
    "hard_swish": "relu", "hard_sigmoid": "relu", "leaky_relu": "relu", "add": "add", "concat": "concat",
    "split": "concat", "slice": "concat", "pad": "concat", "roll": "concat",
}  # fmt: skip
# Joules of one floating-point operation of a large product, data movement included: (power limit - idle) over the best
# sustained rate, by compute capability. fp32 on vector units: NeuSight's products on P4, T4, A100, L4 and H100.
# 16-bit products: the A100, H200 and B200 of aiconfigurator; elsewhere by hand, between these and data sheets.
FP32_JOULES = {6: 19e-12, 7: 15e-12, 7.5: 16e-12, 8: 13e-12, 8.6: 10e-12, 8.9: 7.5e-12, 9: 12e-12, 10: 9e-12, 12: 6e-12}
HALF_JOULES = {7: 1.8e-12, 7.5: 1.6e-12, 8: 1e-12, 8.6: 1.4e-12, 8.9: 1.1e-12, 9: 0.7e-12, 10: 0.5e-12, 12: 0.9e-12}
_FULL_RATE = {
    (7, 5): 8.0,
    (8, 6): 4.0,
    (8, 9): 4.0,
    (12, 0): 4.0,
}  # halves on matrix units over fp32, where nothing is held back
HALVED_REACH = 1.25
DENSE_REACH = 0.8  # of what watts feed matrix units, in products with weights
_JOULES_OVER_HALF = {"fp16": 1.0, "bf16": 1.0, "tf32": 2.0, "int8": 0.5, "fp8": 0.5}
# From Ada on, boards with fewer watts an SM run at lower voltage: an L4 (1.2 W) feeds a third more than its watts say.
_WATTS_PER_SM, _VOLTAGE_EXPONENT = 2.4, 0.45
# The same of fp32 where `FP32_JOULES` are of a board with more watts: the H100 SXM's 700 W. Its sister on PCIe has half
# of them for nearly as many SMs, and was else told slower than an RTX 3090. By hand: no record shows one in fp32.
_WATTS_PER_SM_FP32 = {(9, 0): 4.5}
WINOGRAD_JOULES = 1.35
_AMPERE = (8, 0), "2020"
_MATRIX_UNITS_FROM = (7, 0)  # the compute capability
# A Jetson's host is its own Arm cores, at half the clock of processors beside boards: 1.4 to 2.3 GHz up to Orin's.
OWN_CORES, _OWN_CORES_BEFORE = 2.0, (9, 0)
# Turing's boards without matrix units (TU116, TU117: GTX 16) have the capability of those with them, by which cuBLAS
# and cuDNN choose kernels for halves, and emulate their instructions (pytorch's issue 121957; lc0's pull request 849: a
# GTX 1650 at 0.23 of fp32 with them, at 1.8 without). On one board users' Stable Diffusion in halves takes 2.9 to 3.1
# times what it takes in fp32.
_WITHOUT_UNITS, _EMULATED = (7, 5), 0.3


# Eager PyTorch interpolates in kernels of a thread a pixel of the result, 1,024 a block (UpSampleBilinear2d.cu; of
# channels-last there is another), in which an image's channel takes the latency of its reads: 264 (RTX 3090), 256
# (RTX 4090) and 383 ns (RTX PRO 6000) are what EfficientFormerV2's attention takes in eager runs beyond compiled ones.
_OWN_KERNELS = ("torch", "torchscript")
_PLANE_S, _RESIZE_THREADS = 0.3e-6, 1024
_RESIZE = OPERATORS.index("resize")


def _group_of_operators() -> np.ndarray:
    from perfpass.graph import OPERATOR_CLASS_OF

    out = np.full(len(OPERATORS), _G["other"])
    for i, name in enumerate(OPERATORS):
        group = _BY_OPERATOR.get(name) or _BY_CLASS.get(OPERATOR_CLASSES[OPERATOR_CLASS_OF[i]], "other")
        out[i] = _G[group]
    return out


_OPERATOR_GROUP = _group_of_operators()
_CONVOLUTION = OPERATOR_CLASSES.index("convolution")
_GEMM = np.array([c in ("convolution", "matmul", "attention", "recurrent") for c in OPERATOR_CLASSES])

SOFTWARE: tuple[str, ...] = ("eager", "nhwc", "compiled", "cpu")


def software_index(way: Way) -> int:
    """Row of the efficiency table that applies: a CPU has its own."""
    return SOFTWARE.index("cpu" if way.device.kind == "cpu" else way.software)


@dataclass(frozen=True)
class Bound:
    """Roofline of every row of an operator table. All arrays have length R; times are of one execution, in seconds.

    ``slowed``: what the kernels of a row take over ``compute_s``. ``moving_s``: what multiprocessors take to move the
    bytes, beside the memory. ``least_s``: what no kernel is faster than, however well kernels of its group do; 0 where
    nobody counts it.
    """

    compute_s: np.ndarray
    memory_s: np.ndarray
    bytes: np.ndarray
    launched: np.ndarray  # 0 for views
    group: np.ndarray  # index into GROUPS, or into those of the caller
    product: np.ndarray  # whether matrix units run it where a board has them
    slowed: np.ndarray | float = 1.0
    moving_s: np.ndarray | float = 0.0
    least_s: np.ndarray | float = 0.0

    @property
    def roof_s(self) -> np.ndarray:
        """The bound with the least duration of a kernel."""
        bound = np.maximum(self.compute_s * self.slowed, self.memory_s + self.moving_s)
        return np.asarray(np.maximum(bound, KERNEL_S) * self.launched)


def sustained_flops(device: Device, precision: str) -> float:
    """Dense FLOP/s at a precision that the power limit allows.

    Where the device has no rate, or a token one (fp16 on Pascal), that of fp32 counts, as libraries choose.
    """
    fp32 = device.peak_flops["fp32"]
    if precision == "fp64":
        return float(device.peak_flops.get("fp64", fp32))
    if emulated(device, precision):
        return _EMULATED * fp32
    peak = max(device.peak_flops.get(precision, fp32), fp32)
    scale = _JOULES_SCALE.get(precision)
    if scale is None or device.kind == "cpu" or device.power_limit_w <= device.idle_power_w:
        return float(peak)
    kind = "hbm" if device.memory_type.upper().startswith("HBM") else "gddr"
    if kind == "hbm" and (device.compute_capability or (0, 0))[0] == 10:
        kind = "hbm blackwell"
    joules = scale * FLOP_JOULES[kind]
    return float(min(peak, max(fp32, (device.power_limit_w - device.idle_power_w) / joules)))


# Rates that every board has units for.
UNITS_EVERYWHERE = ("fp32", "fp64")


def has_units(device: Device, precision: str) -> bool:
    """Whether a board multiplies at a precision of `RATES` in units for it, and not in those of fp32, as libraries
    choose where it has none or a token few (fp16 on Pascal, a 64th of fp32's rate; `sustained_flops`).
    """
    rate = RATES.get(precision, precision)
    return rate in UNITS_EVERYWHERE or device.peak_flops.get(rate, 0.0) >= device.peak_flops["fp32"]


def fed_flops(device: Device, precision: str) -> float:
    """Dense FLOP/s that the power limit allows by the joules of operators; what a board lacks runs at fp32's rate."""
    fp32 = device.peak_flops["fp32"]
    if precision == "fp64":
        return float(device.peak_flops.get("fp64", fp32))
    peak = max(device.peak_flops.get(precision, fp32), fp32)
    budget = device.power_limit_w - device.idle_power_w
    if device.kind == "cpu" or budget <= 0 or device.compute_capability is None:
        return float(peak)
    capability, watts = device.compute_capability, budget / (device.sm_count or 1)
    joules = _joules(False, capability)
    if capability in _WATTS_PER_SM_FP32:
        joules *= min(1.0, watts / _WATTS_PER_SM_FP32[capability]) ** _VOLTAGE_EXPONENT
    vector = min(fp32, budget / joules)
    if emulated(device, precision):
        return _EMULATED * vector
    if precision not in _JOULES_OVER_HALF or device.peak_flops.get(precision, 0.0) < fp32:
        return vector
    joules = _joules(True, capability) * _JOULES_OVER_HALF[precision]
    if capability >= (8, 9):
        joules *= min(1.0, watts / _WATTS_PER_SM) ** _VOLTAGE_EXPONENT
    return min(peak, max(vector, budget / joules))


def halved(device: Device) -> bool:
    """Whether matrix units sum halves in fp32 at half the rate of the professional sisters' (GeForce: 71 TFLOP/s of an
    RTX 3090 beside 155 of an A6000).
    """
    usual = _FULL_RATE.get((device.compute_capability or (0, 0)), 0.0)
    return device.peak_flops.get("fp16", 0.0) < 0.75 * usual * device.peak_flops["fp32"]


def reached(device: Device, precision: str) -> float:
    """What kernels reach of matrix units over `EFFICIENCY`: more of those that are held to half their rate, as boards
    feed them as fast.
    """
    return HALVED_REACH if halved(device) and precision in ("fp16", "bf16", "tf32") else 1.0


@lru_cache(maxsize=64)
def _joules(of_halves: bool, capability: tuple[int, int]) -> float:
    table = HALF_JOULES if of_halves else FP32_JOULES
    at = capability[0] + capability[1] / 10
    return table[max((c for c in table if c <= at), default=min(table))]


def of_before_ampere(device: Device) -> bool:
    """Whether a GPU is of before 2020, as the hosts are that clouds and laboratories keep it beside."""
    capability, launched = device.compute_capability, device.launch_date or "9"
    older = launched < _AMPERE[1] if capability is None else capability < _AMPERE[0]
    return older and device.kind == "gpu"


def slower_host(device: Device) -> float:
    """How much longer the host beside a GPU takes to issue an operator, by what is known of the host: the module's."""
    module = device.architecture.startswith("jetson-") and (device.compute_capability or (0, 0)) < _OWN_CORES_BEFORE
    return OWN_CORES if module else 1.0


def generations_before_ampere(device: Device) -> float:
    """How many generations a GPU is older than Ampere, for whose boards present libraries are written: 0 from there on.

    Of NVIDIA by the compute capability (Volta and Turing 1, Pascal 2); of others by the date, two years each.
    """
    if device.kind != "gpu":
        return 0.0
    if device.compute_capability is not None:
        return float(max(0, _AMPERE[0][0] - device.compute_capability[0]))
    year, month = (int(part) for part in (device.launch_date or "9999-01").split("-")[:2])
    return max(0.0, (int(_AMPERE[1]) - (year + (month - 1) / 12)) / 2)


def on_matrix_units(device: Device, rate: str) -> bool:
    """Whether products at ``rate`` run in halves on matrix units."""
    faster = rate in ("fp16", "bf16") and device.peak(rate) > device.peak_flops["fp32"]
    return faster and not packed(device, rate) and not emulated(device, rate)


def emulated(device: Device, rate: str) -> bool:
    """Whether libraries' products in halves run kernels for matrix units on a board that has none."""
    turing = device.compute_capability == _WITHOUT_UNITS and rate in ("fp16", "bf16")
    return turing and device.peak_flops.get("fp16", 0.0) <= 2.01 * device.peak_flops["fp32"]


def packed(device: Device, rate: str) -> bool:
    """Whether halves run two at a time on vector units: on boards that have them, and no matrix units."""
    older = device.compute_capability is not None and device.compute_capability < _MATRIX_UNITS_FROM
    return older and rate in ("fp16", "bf16") and device.peak(rate) > device.peak_flops["fp32"]


def summed_in_fp32(way: Way) -> bool:
    """Whether eager PyTorch runs products of halves at fp32's rate, although vector units could take two at a time."""
    return way.runtime != "torch.compile" and packed(way.device, RATES[way.precision])


def interpolating_s(table: Any, way: Way) -> np.ndarray | float:
    """[R] seconds that PyTorch's own kernels take to interpolate, eager and in the usual layout: 0 for all else.

    A thread for each pixel of the result goes through all images and channels (`_PLANE_S`), so that few pixels
    leave most multiprocessors idle. More pixels than the multiprocessors have threads for come in waves.
    """
    device, ops = way.device, np.asarray(table.op)
    own = (ops == _RESIZE) & (np.asarray(table.flops) > 0)  # the nearest pixel is chosen by a kernel of another kind
    eager = way.runtime in _OWN_KERNELS and way.layout == "nchw"
    if not eager or device.kind != "gpu" or not np.logical_or.reduce(own):
        return 0.0
    blocks = np.ceil(np.asarray(table.m, dtype=np.float64) / _RESIZE_THREADS)
    waves = np.maximum(blocks / max(device.sm_count, 1), 1.0)
    return np.where(own, _PLANE_S * np.asarray(table.b, dtype=np.float64) * waves, 0.0)


def sustained_bandwidth(device: Device) -> float:
    """Byte/s of device memory that the power limit allows."""
    bandwidth = device.memory_bandwidth_bytes_s
    budget = device.power_limit_w - device.idle_power_w
    if device.kind == "cpu" or not device.memory_type.upper().startswith("GDDR") or budget <= 0:
        return bandwidth
    return min(bandwidth, budget / BYTE_JOULES_GDDR)


def operator_groups(table: Any) -> np.ndarray:
    """[R] index into GROUPS; convolutions by kernel and groups."""
    group = _OPERATOR_GROUP[np.asarray(table.op)]
    convolution = np.asarray(table.op_class) == _CONVOLUTION
    if not np.logical_or.reduce(convolution):
        return group
    area, groups = np.asarray(table.kernel_area), np.asarray(table.groups)
    depthwise = _depthwise(table)
    kind = first_of(
        [depthwise & (area <= 9), depthwise & (area <= _OWN_KERNEL), depthwise, groups > 1, area <= 1, area <= 9],
        [_G[g] for g in _CONVOLUTION_GROUPS],
        _G["conv_large"],
    )
    return np.where(convolution, kind, group)


def first_of(conditions: Sequence[np.ndarray], choices: Sequence[Any], default: Any) -> np.ndarray:
    """As `numpy.select`, which takes ten times as long for a few rows."""
    found = default
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        found = np.where(condition, choice, found)
    return np.asarray(found)


def _depthwise(table: Any) -> np.ndarray:
    """[R] whether an operator is a convolution of single channels, which no matrix unit can run."""
    return (np.asarray(table.op_class) == _CONVOLUTION) & (np.asarray(table.groups) > 1) & (np.asarray(table.n) <= 2)


def bound(
    table: Any, way: Way, byte_scale: float | np.ndarray = 1.0, *, group: np.ndarray | None = None, cached: bool = True,
) -> Bound:  # fmt: skip
    """The roofline of every row of ``table`` (perfpass.graph.table.OperatorColumns, counted at the width of ``way``).

    As PyTorch runs it (`summed_in_fp32`).
    ``byte_scale``, a number or [R], corrects a table that was counted at another width. ``group`` [R] are other groups
    than `operator_groups`. ``cached``: whether a row may find its input in the last-level cache.
    """
    classes = np.asarray(table.op_class)
    device, rate = way.device, RATES[way.precision]
    vector = sustained_flops(device, "fp64" if rate == "fp64" else "fp32")
    depthwise = _depthwise(table)
    product = _GEMM[classes] & ~depthwise
    peak = np.where(product & (not summed_in_fp32(way)), sustained_flops(device, rate), vector)
    if rate == "fp32" and "tf32" in device.peak_flops:
        # cuDNN convolutions use TF32 by default, matrix products do not (torch.backends.cudnn.allow_tf32).
        peak = np.where(product & (classes == _CONVOLUTION), sustained_flops(device, "tf32"), peak)
    if device.kind == "gpu":
        generic = depthwise & (np.asarray(table.kernel_area) > _OWN_KERNEL)
        peak = np.where(generic, peak * GENERIC_DEPTHWISE, peak)
    launched = (np.asarray(table.view) == 0).astype(np.float64)
    traffic = np.add(table.bytes_read, table.bytes_written, dtype=np.float64) * (byte_scale * launched)
    return Bound(
        compute_s=np.asarray(table.flops, dtype=np.float64) / peak,
        memory_s=traffic * (_missed(traffic, device) if cached else 1.0) / sustained_bandwidth(device),
        bytes=traffic,
        launched=launched,
        group=operator_groups(table) if group is None else group,
        product=product,
    )


def _missed(traffic: np.ndarray, device: Device) -> np.ndarray:
    """[R] time of an operator's bytes over their time from memory: some are still in the last-level cache."""
    cache = device.l2_bytes + (device.l3_bytes if device.kind == "cpu" else 0)
    resident = np.minimum(1.0, cache / np.maximum(traffic, 1.0))
    return np.asarray(1.0 - resident * (1.0 - 1.0 / CACHE_SPEED[device.kind]))


def smooth_maximum(a: np.ndarray, b: np.ndarray, smoothness: float = SMOOTHNESS) -> np.ndarray:
    """A little above the larger where both are close: device work and its issue overlap, but not perfectly."""
    larger = np.maximum(a, b)
    return larger * ((a / larger) ** smoothness + (b / larger) ** smoothness) ** (1 / smoothness)


def issue_share(issue: np.ndarray, smoothness: float = SMOOTHNESS) -> np.ndarray:
    """The host's part of `smooth_maximum` to its power; ``issue``: the host's time over that of the device."""
    # Of large ratios the power overflows, and its share is 1.
    return 1.0 - 1.0 / (1.0 + np.minimum(issue, 1e6) ** smoothness)


def issue_seconds(kernels: np.ndarray, way: Way) -> np.ndarray:
    """Time of the host to issue all kernels of one run, or of a CUDA graph to start them; 0 on a CPU, which issues to
    itself.
    """
    runtime = RECORDED_AS.get(way.runtime, way.runtime)
    each = REPLAYED_S if way.cuda_graph else ISSUE_S[runtime]
    return kernels * (0.0 if way.device.kind == "cpu" else each)
