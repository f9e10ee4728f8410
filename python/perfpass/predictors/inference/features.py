"""The features of a whole graph on a device: what its time is made of, at the roofline's scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.graph.table import Tables
from perfpass.predictors import roofline
from perfpass.predictors.roofline import GROUPS, Workload

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph.table import OperatorColumns

SCHEMA_VERSION = 3
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
    "depthwise": (
        ("conv_depthwise3", "conv_depthwise", "conv_depthwise_large"),
        ("area", "stride", "groups", "output", "cache"),
    ),
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
_COMPUTE_GROUPS = np.array([GROUPS.index(g) for g in _COMPUTE_SHARES])
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
        workload.copied_bytes > 0,
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


@dataclass(frozen=True)
class GraphSums:
    """A graph on a device before any efficiency is known: what its features are made of, summed by operator group.

    Every array may have a leading axis of graphs (`stacked`); G = len(GROUPS), S: the sizes of `_columns`.
    """

    seconds: np.ndarray  # [G] roofline seconds
    compute: np.ndarray  # [G] FLOPs over the sustained rate, seconds
    memory: np.ndarray  # [G] bytes over the sustained bandwidth, seconds
    kernels: np.ndarray  # [G] number of launches
    weighted: np.ndarray  # [S, G] sums of roofline seconds x a size of the operator
    issue_s: np.ndarray
    copy_s: np.ndarray
    small_kernels: np.ndarray  # share of kernels that are all launch
    log_batch: np.ndarray
    log_weights: np.ndarray
    context: np.ndarray  # [len(SOFTWARE_FEATURES) + len(DEVICE_FEATURES)]

    @classmethod
    def stacked(cls, graphs: Sequence[GraphSums]) -> GraphSums:
        """N graphs as one, every array with a leading axis of length N."""
        return cls(*(np.stack([getattr(g, f.name) for g in graphs]) for f in fields(cls)))


def graph_sums(table: OperatorColumns, device: Device, workload: Workload, byte_scale: float = 1.0) -> GraphSums:
    """The sums of one graph, which no efficiency changes."""
    roof = roofline.bound(table, device, workload, byte_scale)
    sums = _sums(Tables.one(table), device, workload, np.array([workload.batch]), byte_scale, roof)
    return GraphSums(*(getattr(sums, f.name)[0] for f in fields(GraphSums)))


def _sums(
    tables: Tables, device: Device, workload: Workload, batch: np.ndarray, byte_scale: float, roof: roofline.Bound
) -> GraphSums:
    """The sums of N graphs, stacked; ``batch`` [N] stands for the workload's own."""
    count = tables.count
    seconds, launched = roof.roof_s * count, roof.launched * count
    by_group = partial(tables.sums_by_group, group=roof.group, groups=len(GROUPS))
    kernels = np.maximum(tables.sums(launched), 1.0)
    context = np.array(_software(device, workload) + _device(device, workload), dtype=np.float64)
    copy_s = workload.copied_bytes / roofline.PAGEABLE_COPY_BYTES_S
    return GraphSums(
        seconds=by_group(seconds),
        compute=by_group(roof.compute_s * count),
        memory=by_group(roof.memory_s * count),
        kernels=by_group(launched),
        weighted=by_group(_columns(tables.table, device, roof) * seconds),
        issue_s=roofline.issue_seconds(kernels, device, workload),
        copy_s=np.full(len(tables), copy_s),
        small_kernels=tables.sums(launched * (roof.roof_s <= roofline.KERNEL_S)) / kernels,
        log_batch=np.log(batch.astype(np.float64)),
        log_weights=np.log(np.maximum(tables.sums(tables.table.weight_bytes * count), 1.0) * byte_scale),
        context=np.tile(context, (len(tables), 1)),
    )


def _columns(table: Any, device: Device, roof: roofline.Bound) -> np.ndarray:
    """[S, R] sizes that are averaged over time, then the bins of the histograms as 0 and 1."""
    sizes = _sizes(table, device, roof)
    gemm = _GEMM_GROUPS[roof.group]
    bins = [
        *(_bins(sizes["k"], _WIDTH_EDGES) * gemm),
        *(_bins(sizes["n"], _WIDTH_EDGES) * gemm),
        *_bins(sizes["cache"], _CACHE_EDGES),
    ]
    return np.stack([*(sizes[name] for name in _SIZES), *bins])


def _bins(values: np.ndarray, edges: tuple[float, ...]) -> np.ndarray:
    """[len(edges), R] whether a value lies from one edge up to the next, from the last without end."""
    return np.searchsorted(edges[1:], values, side="right") == np.arange(len(edges))[:, None]


def features(sums: GraphSums, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[N, len(FEATURES)] float32 and the base time [N] in seconds of stacked graphs.

    ``factor`` [N, len(GROUPS)]: measured time over roofline time, by each graph's row of the efficiencies.
    """
    time = sums.seconds * factor
    device_s = np.maximum(time.sum(axis=1), 1e-9)
    kernels = np.maximum(sums.kernels.sum(axis=1), 1.0)
    compute_s, memory_s = sums.compute.sum(axis=1), sums.memory.sum(axis=1)
    base_s = roofline.smooth_maximum(device_s, np.maximum(sums.issue_s, 1e-12)) + sums.copy_s
    by_set = (time[:, None, :] @ _MEMBERS)[:, 0, :]  # one product per graph, so that none depends on the others
    # [N, S, G] times [G, sets]: every average that a set may need in one product.
    weighted = sums.weighted * factor[:, None, :]
    averages = (weighted[:, : len(_SIZES)] @ _MEMBERS) / np.maximum(by_set, 1e-30)[:, None, :]
    averages = np.where((by_set < 1e-9 * device_s[:, None])[:, None, :], np.nan, averages)
    parts = [
        np.log(base_s),
        compute_s / device_s,
        memory_s / device_s,
        np.log(np.maximum(compute_s, 1e-12) / np.maximum(memory_s, 1e-12)),
        np.log(kernels),
        np.log(np.maximum(sums.issue_s, 1e-9) / device_s),
        sums.log_batch,
        sums.log_weights,
        np.log(device_s / kernels),
        sums.small_kernels,
        np.log(np.maximum(sums.copy_s, 1e-9) / base_s),
        time / device_s[:, None],
        sums.kernels / kernels[:, None],
        sums.compute[:, _COMPUTE_GROUPS] / device_s[:, None],
        averages[:, _AVERAGED_SIZE, _AVERAGED_SET],
        weighted[:, len(_SIZES) :].sum(axis=2) / device_s[:, None],
        sums.context,
    ]
    return np.column_stack(parts).astype(np.float32), base_s


@dataclass(frozen=True, eq=False)
class GraphVectors:
    """N graphs on one device: features, and the time by roofline and learned group efficiencies with its parts."""

    values: np.ndarray  # [N, len(FEATURES)] float32
    base_s: np.ndarray  # [N]
    row_s: np.ndarray  # [R] parts of the base, count included
    sums: GraphSums


def graph_vectors(
    tables: Tables, device: Device, workload: Workload, batch: np.ndarray, efficiency: np.ndarray,
    byte_scale: float = 1.0,
) -> GraphVectors:  # fmt: skip
    """All features of N graphs on one device; ``batch`` [N] stands for the workload's own.

    ``efficiency`` [len(SOFTWARE), len(GROUPS)]: measured time over roofline time, by kind of software.
    """
    roof = roofline.bound(tables.table, device, workload, byte_scale)
    factor = efficiency[roofline.software_index(device, workload)]
    sums = _sums(tables, device, workload, batch, byte_scale, roof)
    values, base_s = features(sums, np.tile(factor, (len(tables), 1)))
    return GraphVectors(values, base_s, roof.roof_s * factor[roof.group] * tables.count, sums)


def graph_vector(
    table: OperatorColumns, device: Device, workload: Workload, efficiency: np.ndarray, byte_scale: float = 1.0
) -> GraphVector:
    """The features of one graph on one device."""
    found = graph_vectors(
        Tables.one(table), device, workload, np.array([workload.batch]), efficiency, byte_scale
    )  # fmt: skip
    return GraphVector(found.values[0], float(found.base_s[0]), found.row_s)


def fingerprint(table: OperatorColumns, batch: int) -> np.ndarray:
    """[2 x groups + 1] the fingerprint of one network; see `fingerprints`."""
    return fingerprints(Tables.one(table), np.array([batch]))[0]


def fingerprints(tables: Tables, batch: np.ndarray) -> np.ndarray:
    """[N, 2 x groups + 1] what networks are made of, apart from any device: roots of shares of MACs and bytes, size.

    The distance between two fingerprints is that of Hellinger over operator groups, plus an eighth of the difference in
    log2 MACs per sample. Batch normalization does not count, so that a network and its folded export are the same.
    """
    table = tables.table
    count = tables.count * (np.asarray(table.view) == 0)
    by_group = partial(tables.sums_by_group, group=roofline.operator_groups(table), groups=len(GROUPS))
    macs = by_group(np.asarray(table.macs, dtype=np.float64) * count)
    traffic = by_group(np.add(table.bytes_read, table.bytes_written, dtype=np.float64) * count)
    traffic[:, GROUPS.index("batch_norm")] = 0.0
    all_macs, all_traffic = (np.maximum(v.sum(axis=1, keepdims=True), 1.0) for v in (macs, traffic))
    size = np.log2(np.maximum(macs.sum(axis=1) / batch, 1.0)) / 8.0
    return np.column_stack([np.sqrt(macs / all_macs), np.sqrt(traffic / all_traffic), size]).astype(np.float32)
