"""The features of a training step on a device: what its time is made of, at the roofline's scale.

As for inference (roofline_features.py), with groups of operators by what they do in a step: forward, gradients of
activations ("data"), gradients of parameters ("weight"), optimizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from perfpass.graph import OPERATOR_CLASSES
from perfpass.graph import step as backward
from perfpass.graph.step import StepColumns, Steps, StepTable
from perfpass.predictors import roofline
from perfpass.predictors.roofline import GROUPS, Workload

if TYPE_CHECKING:
    from perfpass.devices import Device

SCHEMA_VERSION = 1
_PRODUCTS = (
    "conv1x1", "conv3x3", "conv_large", "conv_grouped", "conv_depthwise3", "conv_depthwise", "conv_depthwise_large",
    "dense", "matmul", "attention", "recurrent",
)  # fmt: skip
# Order is part of the artefact.
STEP_GROUPS: tuple[str, ...] = (
    *GROUPS, *(f"{g}:data" for g in GROUPS), *(f"{g}:weight" for g in (*_PRODUCTS, "elementwise", "reduction")),
    "optimizer",
)  # fmt: skip
_G = {name: i for i, name in enumerate(STEP_GROUPS)}
_BASE = np.array([GROUPS.index(name.partition(":")[0]) if name != "optimizer" else -1 for name in STEP_GROUPS])
_PART = np.array(
    [3 if n == "optimizer" else 2 if n.endswith(":weight") else 1 if n.endswith(":data") else 0 for n in STEP_GROUPS]
)
SOFTWARE: tuple[str, ...] = ("eager", "nhwc", "compiled", "cpu")
# Time of the host to issue a kernel, by part of the step, over that of a forward operator (roofline.ISSUE_S): backward
# runs in C++ without modules; the optimizer's loop without foreach issues plain calls.
ISSUE_SHARE = np.array([1.0, 0.6, 0.6, 0.4])
_CONVOLUTION = OPERATOR_CLASSES.index("convolution")
_GEMM = np.isin(OPERATOR_CLASSES, ("convolution", "matmul", "attention", "recurrent"))
_TILE = 128  # rows and columns of a usual GEMM thread block tile (CUTLASS's default)
_SETS: dict[str, tuple[str, ...]] = {
    "products": ("conv1x1", "conv3x3", "conv_large", "conv_grouped", "dense", "matmul", "attention"),
    "grouped": ("conv_grouped",),
    "depthwise": ("conv_depthwise3", "conv_depthwise", "conv_depthwise_large"),
    "streams": (
        "relu", "activation", "add", "elementwise", "reduction", "pooling", "copy", "concat", "gather", "resize",
        "batch_norm", "layer_norm", "other_norm", "softmax",
    ),
}  # fmt: skip
_AVERAGED: dict[str, tuple[str, ...]] = {
    "products": (
        "m",
        "n",
        "k",
        "b",
        "waves",
        "wave_fill",
        "n_by_8",
        "k_by_8",
        "n_by_64",
        "k_by_64",
        "balance",
        "cache",
    ),
    "grouped": ("n", "k", "groups", "b"),
    "depthwise": ("area", "stride", "groups", "output", "cache"),
    "streams": ("cache", "output"),
}
_SIZES = tuple(dict.fromkeys(name for names in _AVERAGED.values() for name in names))
_AVERAGED_PARTS = (0, 1, 2)  # forward, data, weight
_EDGES = (0, 5.01, 6.01, 7.01, 8.01, 9.01)  # log2 of k or n: up to 32, 64, 128, 256, 512, more
# Shares of time are given by group in the forward pass, and by what the whole step spends on a group's operators.
_SHARES = ("forward", "backward")
SOFTWARE_FEATURES: tuple[str, ...] = (
    "nhwc", "compiled", "autocast", "bfloat16", "fp16", "fp32", "fp64", "cpu", "copies_input", "optimizes",
)  # fmt: skip
DEVICE_FEATURES: tuple[str, ...] = (
    "log_sms", "log_machine_balance", "log_cache", "log_bandwidth", "log_power", "launch_year",
)  # fmt: skip


def _names() -> tuple[str, ...]:
    names = ["log_base", "compute_share", "memory_share", "log_balance", "log_kernels", "log_issue", "log_batch"]
    names += ["log_parameters", "log_per_kernel", "small_kernels", "log_copy", "forward_share", "weight_share"]
    names += ["optimizer_share", "log_macs_per_byte"]
    names += [f"{part}_{g}" for part in _SHARES for g in GROUPS]
    names += [f"kernels_{g}" for g in GROUPS]
    for part in _AVERAGED_PARTS:
        for set_, sizes in _AVERAGED.items():
            names += [f"{backward.PARTS[part]}_{set_}_{size}" for size in sizes]
    names += [f"k_from_{e}" for e in _EDGES] + [f"n_from_{e}" for e in _EDGES]
    return (*names, *SOFTWARE_FEATURES, *DEVICE_FEATURES)


FEATURES: tuple[str, ...] = _names()
_MEMBERS = np.stack(
    [
        np.isin(_BASE, [GROUPS.index(g) for g in members]) & (p == _PART)
        for p in _AVERAGED_PARTS
        for members in _SETS.values()
    ],
    axis=1,
).astype(np.float64)
_TO_BASE = np.array([[b == g for g in range(len(GROUPS))] for b in _BASE], dtype=np.float64)


@dataclass(frozen=True)
class Bound:
    """Roofline of every row of a step. All arrays have length R; times are of one execution, in seconds."""

    compute_s: np.ndarray
    memory_s: np.ndarray
    bytes: np.ndarray
    launched: np.ndarray  # 0 for views
    group: np.ndarray  # index into STEP_GROUPS

    @property
    def roof_s(self) -> np.ndarray:
        """The bound with the least duration of a kernel."""
        return np.maximum(np.maximum(self.compute_s, self.memory_s), roofline.KERNEL_S) * self.launched


# Rate of the device that matrix products of a precision run at.
RATES = {**roofline.GEMM_RATE, "tf32": "tf32"}


def bound(table: StepColumns, device: Device, workload: Workload, byte_scale: float = 1.0) -> Bound:
    """The roofline of every row of a step; ``byte_scale`` corrects a table that was counted at another width.

    Unlike inference, no row finds its input in the cache: what it reads was written a whole pass before.
    """
    classes, rate = np.asarray(table.op_class), RATES[workload.precision]
    vector = roofline.sustained_flops(device, "fp64" if rate == "fp64" else "fp32")
    depthwise = (classes == _CONVOLUTION) & (np.asarray(table.groups) > 1) & (np.asarray(table.n) <= 2)
    products = _GEMM[classes] & ~depthwise
    peak = np.where(products, roofline.sustained_flops(device, rate), vector)
    if rate == "fp32" and "tf32" in device.peak_flops:
        # cuDNN convolutions use TF32 by default, matrix products do not (torch.backends.cudnn.allow_tf32).
        peak = np.where(products & (classes == _CONVOLUTION), roofline.sustained_flops(device, "tf32"), peak)
    launched = (np.asarray(table.view) == 0).astype(np.float64)
    # Parameters, their gradients and states are of 4 bytes at every precision.
    scale = np.where(table.part == backward.OPTIMIZER, 1.0, byte_scale)
    traffic = np.add(table.bytes_read, table.bytes_written, dtype=np.float64) * (scale * launched)
    return Bound(
        compute_s=np.asarray(table.flops, dtype=np.float64) / peak,
        memory_s=traffic / roofline.sustained_bandwidth(device),
        bytes=traffic,
        launched=launched,
        group=step_groups(table),
    )


@dataclass(frozen=True)
class StepSums:
    """A step on a device before any efficiency is known, summed by group; G = len(STEP_GROUPS).

    Every array may have a leading axis of steps (`stacked`).
    """

    seconds: np.ndarray  # [G] roofline seconds
    compute: np.ndarray  # [G]
    memory: np.ndarray  # [G]
    kernels: np.ndarray  # [G] launches
    weighted: np.ndarray  # [S, G] roofline seconds x size
    issue_s: np.ndarray
    copy_s: np.ndarray
    small_kernels: np.ndarray
    log_batch: np.ndarray
    log_parameters: np.ndarray
    log_macs_per_byte: np.ndarray
    context: np.ndarray

    @classmethod
    def stacked(cls, steps: Sequence[StepSums]) -> StepSums:
        """N steps as one, every array with a leading axis of length N."""
        return cls(*(np.stack([getattr(s, f.name) for s in steps]) for f in fields(cls)))


def step_groups(table: StepColumns) -> np.ndarray:
    """[R] index into STEP_GROUPS."""
    base = roofline.operator_groups(table)
    names = [GROUPS[g] for g in range(len(GROUPS))]
    lookup = np.array(
        [
            [_G[name] for name in names],
            [_G[f"{name}:data"] for name in names],
            [_G.get(f"{name}:weight", _G["elementwise:weight"]) for name in names],
            [_G["optimizer"]] * len(names),
        ]
    )
    return lookup[table.part, base]


def software_index(device: Device, workload: Workload) -> int:
    """Row of the efficiency table that applies."""
    return SOFTWARE.index("cpu" if device.kind == "cpu" else workload.software)


def _context(device: Device, workload: Workload, optimizes: bool) -> list[float]:
    precision = workload.precision
    rate = roofline.sustained_flops(device, RATES[precision])
    bandwidth = device.memory_bandwidth_bytes_s
    return [
        workload.layout == "nhwc",
        workload.runtime == "torch.compile",
        precision in ("amp", "amp_bf16"),
        precision in ("bf16", "amp_bf16"),
        precision == "fp16",
        precision == "fp32",
        precision == "fp64",
        device.kind == "cpu",
        workload.copied_bytes > 0,
        optimizes,
        np.log2(device.sm_count),
        np.log2(rate / bandwidth),
        np.log2(max(device.l2_bytes, device.l3_bytes, 1)),
        np.log2(bandwidth),
        np.log2(device.power_limit_w),
        float(device.launch_date[:4]) if device.launch_date else np.nan,
    ]


def _log(values: np.ndarray, floor: float = 1.0) -> np.ndarray:
    return np.log2(np.maximum(values, floor))


def _sizes(table: StepColumns, device: Device, roof: Bound) -> np.ndarray:
    """[S + bins, R]"""
    b, m, n, k = (np.asarray(getattr(table, name), dtype=np.float64) for name in "bmnk")
    waves = b * np.ceil(m / _TILE) * np.ceil(n / _TILE) / device.sm_count
    cache = max(device.l2_bytes, device.l3_bytes, 1)
    found = {
        "m": _log(m), "n": _log(n), "k": _log(k), "b": _log(b),
        "waves": _log(waves, 2.0**-8),
        "wave_fill": waves / np.maximum(np.ceil(waves), 1.0),
        "n_by_8": n % 8 == 0, "k_by_8": k % 8 == 0, "n_by_64": n % 64 == 0, "k_by_64": k % 64 == 0,
        "balance": np.clip(_log(roof.compute_s / np.maximum(roof.memory_s, 1e-15), 2.0**-8), -8, 8),
        "cache": np.clip(_log(roof.bytes / cache, 2.0**-12), -12, 12),
        "groups": _log(np.asarray(table.groups, dtype=np.float64)),
        "area": _log(np.asarray(table.kernel_area, dtype=np.float64)),
        "stride": np.minimum(np.asarray(table.stride, dtype=np.float64), 4.0),
        "output": _log(np.asarray(table.output_elements, dtype=np.float64)),
    }  # fmt: skip
    product = (k > 0) & (np.asarray(table.part) == backward.FORWARD)
    bins = [
        *(np.searchsorted(_EDGES[1:], found["k"], side="right") == np.arange(len(_EDGES))[:, None]) * product,
        *(np.searchsorted(_EDGES[1:], found["n"], side="right") == np.arange(len(_EDGES))[:, None]) * product,
    ]
    return np.stack([*(found[name] for name in _SIZES), *bins])


def step_sums(table: StepTable, device: Device, workload: Workload, byte_scale: float = 1.0) -> StepSums:
    """The sums of one step, which no efficiency changes."""
    roof = bound(table, device, workload, byte_scale)
    sums = _sums(Steps.one(table), device, workload, np.array([workload.batch]), roof)
    return StepSums(*(getattr(sums, f.name)[0] for f in fields(StepSums)))


def _sums(steps: Steps, device: Device, workload: Workload, batch: np.ndarray, roof: Bound) -> StepSums:
    """The sums of N steps, stacked; ``batch`` [N] stands for the workload's own."""
    tables, table = steps.tables, steps.columns
    count = tables.count
    seconds, launched = roof.roof_s * count, roof.launched * count
    by_group = partial(tables.sums_by_group, group=roof.group, groups=len(STEP_GROUPS))
    kernels = np.maximum(tables.sums(launched), 1.0)
    issued = tables.sums(launched * ISSUE_SHARE[table.part])
    macs = tables.sums(np.asarray(table.macs) * count)
    optimizes = tables.any(np.asarray(table.part) == backward.OPTIMIZER)
    context = np.array([_context(device, workload, known) for known in (False, True)], dtype=np.float64)
    return StepSums(
        seconds=by_group(seconds),
        compute=by_group(roof.compute_s * count),
        memory=by_group(roof.memory_s * count),
        kernels=by_group(launched),
        weighted=by_group(_sizes(table, device, roof) * seconds),
        issue_s=roofline.issue_seconds(issued, device, workload),
        copy_s=np.full(len(tables), workload.copied_bytes / roofline.PAGEABLE_COPY_BYTES_S),
        small_kernels=tables.sums(launched * (roof.roof_s <= roofline.KERNEL_S)) / kernels,
        log_batch=np.log(batch.astype(np.float64)),
        log_parameters=np.log(np.maximum(steps.parameters, 1.0)),
        log_macs_per_byte=np.log(np.maximum(macs, 1.0) / np.maximum(tables.sums(roof.bytes * count), 1.0)),
        context=context[optimizes.astype(np.intp)],
    )


def features(sums: StepSums, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[N, len(FEATURES)] float32 and the base time [N] in seconds of stacked steps.

    ``factor`` [N, len(STEP_GROUPS)]: measured time over roofline time, by each step's row of the efficiencies.
    """
    time = sums.seconds * factor
    device_s = np.maximum(time.sum(axis=1), 1e-9)
    kernels = np.maximum(sums.kernels.sum(axis=1), 1.0)
    compute_s, memory_s = sums.compute.sum(axis=1), sums.memory.sum(axis=1)
    base_s = roofline.smooth_maximum(device_s, np.maximum(sums.issue_s, 1e-12)) + sums.copy_s
    by_set = (time[:, None, :] @ _MEMBERS)[:, 0, :]  # one product per step, so that none depends on the others
    weighted = sums.weighted * factor[:, None, :]
    averages = (weighted[:, : len(_SIZES)] @ _MEMBERS) / np.maximum(by_set, 1e-30)[:, None, :]
    averages = np.where((by_set < 1e-9 * device_s[:, None])[:, None, :], np.nan, averages)
    chosen = [
        averages[:, _SIZES.index(size), p * len(_SETS) + s]
        for p in range(len(_AVERAGED_PARTS))
        for s, sizes in enumerate(_AVERAGED.values())
        for size in sizes
    ]
    share = time / device_s[:, None]
    forward, back = share * (_PART == 0), share * (_PART > 0)
    parts = [
        np.log(base_s),
        compute_s / device_s,
        memory_s / device_s,
        np.log(np.maximum(compute_s, 1e-12) / np.maximum(memory_s, 1e-12)),
        np.log(kernels),
        np.log(np.maximum(sums.issue_s, 1e-9) / device_s),
        sums.log_batch,
        sums.log_parameters,
        np.log(device_s / kernels),
        sums.small_kernels,
        np.log(np.maximum(sums.copy_s, 1e-9) / base_s),
        forward.sum(axis=1),
        (share * (_PART == 2)).sum(axis=1),
        share[:, _G["optimizer"]],
        sums.log_macs_per_byte,
        _by_base(forward),
        _by_base(back),
        _by_base(sums.kernels) / kernels[:, None],
        *chosen,
        weighted[:, len(_SIZES) :].sum(axis=2) / device_s[:, None],
        sums.context,
    ]
    return np.column_stack(parts).astype(np.float32), base_s


def _by_base(values: np.ndarray) -> np.ndarray:
    """[N, len(GROUPS)] sums of [N, len(STEP_GROUPS)] over the parts of a step."""
    found: np.ndarray = (values[:, None, :] @ _TO_BASE)[:, 0, :]
    return found


@dataclass(frozen=True, eq=False)
class StepVectors:
    """N steps: features, and the time by roofline and learned group efficiencies with its parts, count included."""

    values: np.ndarray  # [N, len(FEATURES)] float32
    base_s: np.ndarray  # [N]
    row_s: np.ndarray  # [R]
    compute_s: np.ndarray  # [N]
    memory_s: np.ndarray  # [N]


def step_vectors(
    steps: Steps, device: Device, workload: Workload, batch: np.ndarray, efficiency: np.ndarray,
    byte_scale: float = 1.0,
) -> StepVectors:  # fmt: skip
    """All features of N steps on one device; ``batch`` [N] stands for the workload's own.

    ``efficiency`` [len(SOFTWARE), len(STEP_GROUPS)].
    """
    roof = bound(steps.columns, device, workload, byte_scale)
    factor = efficiency[software_index(device, workload)]
    sums = _sums(steps, device, workload, batch, roof)
    values, base_s = features(sums, np.tile(factor, (len(batch), 1)))
    row_s = roof.roof_s * factor[roof.group] * steps.tables.count
    return StepVectors(values, base_s, row_s, sums.compute.sum(axis=1), sums.memory.sum(axis=1))
