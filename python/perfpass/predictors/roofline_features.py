"""The features of a whole graph on a device: what its time is made of, at the roofline's scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.predictors import roofline
from perfpass.predictors.roofline import GROUPS, Workload

if TYPE_CHECKING:
    from perfpass.devices import Device

SCHEMA_VERSION = 1
_TILE = 128  # rows and columns of a usual GEMM thread block tile (CUTLASS's default)
_GEMM_GROUPS = np.array([g.startswith("conv") or g in ("dense", "matmul", "attention", "recurrent") for g in GROUPS])
_COMPUTE_SHARES = ("conv1x1", "conv3x3", "conv_large", "conv_grouped", "dense", "matmul", "attention")
_WIDTH_EDGES = (0, 5.01, 6.01, 7.01, 8.01, 9.01)  # log2 of k or n: up to 32, 64, 128, 256, 512, more
_CACHE_EDGES = (-12, -2, 0, 2, 4)  # log2 of bytes over cache

# Sets of groups over which sizes are averaged, weighted by time, and the sizes that matter there.
_AVERAGED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "gemm": (
        ("conv1x1", "conv3x3", "conv_large", "conv_grouped", "dense", "matmul", "attention"),
        (
            "m",
            "n",
            "k",
            "waves",
            "wave_fill",
            "n_by_8",
            "k_by_8",
            "n_by_64",
            "k_by_64",
            "m_by_8",
            "balance",
            "cache",
            "stride",
        ),
    ),
    "conv": (
        ("conv1x1", "conv3x3", "conv_large", "conv_grouped"),
        ("n", "k", "groups", "area", "n_by_8", "k_by_8", "m"),
    ),
    "linear": (("dense", "matmul"), ("n", "k", "m", "b")),
    "attention": (("attention",), ("m", "k", "b", "m_by_8", "k_by_8", "n")),
    "depthwise": (("conv_depthwise3", "conv_depthwise"), ("area", "stride", "groups", "output", "cache")),
    "norm": (("layer_norm", "batch_norm", "other_norm"), ("cache", "output")),
    "memory": (
        ("relu", "activation", "add", "elementwise", "reduction", "pooling", "copy", "concat", "gather", "resize"),
        ("cache", "output", "shrink"),
    ),
}

SOFTWARE_FEATURES: tuple[str, ...] = (
    "compiled", "nhwc", "autocast", "bfloat16", "fp32", "fp64", "torch_age", "cpu", "copies_input",
)  # fmt: skip
DEVICE_FEATURES: tuple[str, ...] = (
    "log_sms",
    "log_machine_balance",
    "log_cache",
    "log_bandwidth",
    "log_power",
    "launch_year",
)


def _names() -> tuple[str, ...]:
    names = [
        "log_base",
        "compute_share",
        "memory_share",
        "log_balance",
        "log_kernels",
        "log_issue",
        "log_batch",
        "log_weights",
    ]
    names += ["log_per_kernel", "small_kernels", "log_copy"]
    names += [f"time_{g}" for g in GROUPS] + [f"kernels_{g}" for g in GROUPS]
    names += [f"compute_{g}" for g in _COMPUTE_SHARES]
    names += [f"{part}_{size}" for part, (_, sizes) in _AVERAGED.items() for size in sizes]
    names += [f"k_from_{e}" for e in _WIDTH_EDGES] + [f"n_from_{e}" for e in _WIDTH_EDGES]
    names += [f"cache_from_{e}" for e in _CACHE_EDGES]
    return (*names, *SOFTWARE_FEATURES, *DEVICE_FEATURES)


FEATURES: tuple[str, ...] = _names()

_MEMBERS = np.stack([np.isin(GROUPS, members) for members, _ in _AVERAGED.values()], axis=1).astype(np.float64)
_SIZES = tuple(dict.fromkeys(name for _, names in _AVERAGED.values() for name in names))
_AVERAGED_SIZE = np.array([_SIZES.index(name) for _, names in _AVERAGED.values() for name in names])
_AVERAGED_SET = np.array([i for i, (_, names) in enumerate(_AVERAGED.values()) for _ in names])


@dataclass(frozen=True)
class GraphVector:
    """``base_s`` is the time by roofline and learned group efficiencies, ``row_s`` [R] its parts, count included."""

    values: np.ndarray  # [len(FEATURES)] float32
    base_s: float
    row_s: np.ndarray


def torch_age(version: str | None) -> float:
    """Distance to the newest measured release (2.9), in releases over 12; 1 for the 1.x series."""
    parts = (version or "2.9").split(".")
    if not parts[0].isdigit() or int(parts[0]) < 2:
        return 1.0
    minor = int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 9
    return min(max((9 - minor) / 12.0, 0.0), 0.67)


def _software(device: Device, workload: Workload) -> list[float]:
    precision = workload.precision
    return [
        workload.runtime == "torch.compile",
        workload.layout == "nhwc",
        precision in ("amp", "amp_bf16"),
        precision in ("bf16", "amp_bf16"),
        precision == "fp32",
        precision == "fp64",
        torch_age(workload.torch_version),
        device.kind == "cpu",
        workload.copies_input,
    ]


def _device(device: Device, workload: Workload) -> list[float]:
    rate = roofline.sustained_flops(device, roofline.GEMM_RATE[workload.precision])
    year = float(device.launch_date[:4]) if device.launch_date else np.nan
    cache = max(device.l2_bytes, device.l3_bytes, 1)
    bandwidth = device.memory_bandwidth_bytes_s
    return [
        np.log2(device.sm_count),
        np.log2(rate / bandwidth),
        np.log2(cache),
        np.log2(bandwidth),
        np.log2(device.power_limit_w),
        year,
    ]


def _sizes(table: Any, device: Device, roof: roofline.Bound) -> dict[str, np.ndarray]:
    """[R] each; logarithms to base 2."""
    b, m, n, k = (np.asarray(getattr(table, name), dtype=np.float64) for name in "bmnk")
    waves = b * np.ceil(m / _TILE) * np.ceil(n / _TILE) / device.sm_count
    output = np.maximum(np.asarray(table.output_elements, dtype=np.float64), 1)
    inputs = np.maximum(np.asarray(table.input_elements, dtype=np.float64), 1)
    cache = max(device.l2_bytes, device.l3_bytes, 1)
    log = lambda v, floor=1.0: np.log2(np.maximum(v, floor))  # noqa: E731
    return {
        "m": log(m), "n": log(n), "k": log(k), "b": log(b),
        "waves": log(waves, 2.0**-8),
        "wave_fill": waves / np.maximum(np.ceil(waves), 1.0),
        "n_by_8": n % 8 == 0, "k_by_8": k % 8 == 0, "n_by_64": n % 64 == 0, "k_by_64": k % 64 == 0,
        "m_by_8": m % 8 == 0,
        "balance": np.clip(log(roof.compute_s / np.maximum(roof.memory_s, 1e-15), 2.0**-8), -8, 8),
        "cache": np.clip(log(roof.bytes / cache, 2.0**-12), -12, 12),
        "stride": np.minimum(np.asarray(table.stride, dtype=np.float64), 4.0),
        "groups": log(np.asarray(table.groups, dtype=np.float64)),
        "area": log(np.asarray(table.kernel_area, dtype=np.float64)),
        "output": log(output),
        "shrink": np.clip(np.log2(output / inputs), -8, 8),
    }  # fmt: skip


def graph_vector(
    table: Any, device: Device, workload: Workload, efficiency: np.ndarray, byte_scale: float = 1.0
) -> GraphVector:
    """All features of one graph on one device.

    ``efficiency`` [len(SOFTWARE), len(GROUPS)]: measured time over roofline time, by kind of software.
    """
    roof = roofline.bound(table, device, workload, byte_scale)
    count = np.asarray(table.count, dtype=np.float64)
    factor = efficiency[roofline.software_index(device, workload)]
    row_s = roof.roof_s * factor[roof.group] * count
    device_s = max(float(row_s.sum()), 1e-9)
    kernels = max(float(count @ roof.launched), 1.0)
    issue_s = roofline.issue_seconds(kernels, device, workload)
    copy_s = 0.0
    if workload.copies_input:
        copy_s = float(np.max(table.input_elements, initial=0)) * 4.0 / roofline.PAGEABLE_COPY_BYTES_S
    base_s = roofline.smooth_maximum(device_s, max(issue_s, 1e-12)) + copy_s

    share = row_s / device_s
    launched = count * roof.launched / kernels
    compute = roof.compute_s * count
    memory = roof.memory_s * count
    groups = len(GROUPS)
    time_by_group = np.bincount(roof.group, share, groups)
    compute_by_group = np.bincount(roof.group, compute, groups) / device_s
    sizes = _sizes(table, device, roof)

    values: list[float] = [
        np.log(base_s),
        compute.sum() / device_s,
        memory.sum() / device_s,
        np.log(max(compute.sum(), 1e-12) / max(memory.sum(), 1e-12)),
        np.log(kernels),
        np.log(max(issue_s, 1e-9) / device_s),
        np.log(workload.batch),
        np.log(max(float(np.dot(table.weight_bytes, count)), 1.0) * byte_scale),
        np.log(device_s / kernels),
        float(launched[roof.roof_s <= roofline.KERNEL_S].sum()),
        np.log(max(copy_s, 1e-9) / base_s),
    ]
    values += time_by_group.tolist()
    values += np.bincount(roof.group, launched, groups).tolist()
    values += [compute_by_group[GROUPS.index(g)] for g in _COMPUTE_SHARES]
    # [sizes, R] times [R, sets]: every average that a set may need in one product.
    weights = share[:, None] * _MEMBERS[roof.group]
    totals = np.maximum(weights.sum(axis=0), 1e-30)
    averages = (np.stack([sizes[name] for name in _SIZES]) @ weights) / totals
    averages[:, totals < 1e-9] = np.nan
    values += averages[_AVERAGED_SIZE, _AVERAGED_SET].tolist()
    gemm = share * _GEMM_GROUPS[roof.group]
    for name in ("k", "n"):
        values += _histogram(sizes[name], _WIDTH_EDGES, gemm)
    values += _histogram(sizes["cache"], _CACHE_EDGES, share)
    values += _software(device, workload) + _device(device, workload)
    return GraphVector(np.array(values, dtype=np.float32), base_s, row_s)


def _histogram(values: np.ndarray, edges: tuple[float, ...], weight: np.ndarray) -> list[float]:
    """Weight from each edge up to the next, from the last without end."""
    bins = np.searchsorted(edges[1:], values, side="right")
    return np.bincount(bins, weight, len(edges)).tolist()


def fingerprint(table: Any, batch: int) -> np.ndarray:
    """[2 x groups + 1] what a network is made of, apart from any device: roots of shares of MACs and bytes, and size.

    The distance between two fingerprints is that of Hellinger over operator groups, plus an eighth of the difference in
    log2 MACs per sample. Batch normalization does not count, so that a network and its folded export are the same.
    """
    group = roofline.operator_groups(table)
    count = np.asarray(table.count, dtype=np.float64) * (np.asarray(table.view) == 0)
    macs = np.bincount(group, np.asarray(table.macs, dtype=np.float64) * count, len(GROUPS))
    traffic = np.add(table.bytes_read, table.bytes_written, dtype=np.float64) * count
    traffic = np.bincount(group, traffic, len(GROUPS))
    traffic[GROUPS.index("batch_norm")] = 0.0
    size = np.log2(max(macs.sum() / batch, 1.0)) / 8.0
    return np.concatenate(
        [np.sqrt(macs / max(macs.sum(), 1.0)), np.sqrt(traffic / max(traffic.sum(), 1.0)), [size]]
    ).astype(np.float32)
