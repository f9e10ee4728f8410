"""What the time of a graph is made of, as ratios to its roofline: features that inference and training steps share.

An area (`RatioFeatures`) says which groups of operators it has, which sizes count in which of them, and what it adds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from perfpass.graph.table import OperatorColumns, Tables
from perfpass.late import dataclass
from perfpass.predictors import roofline
from perfpass.predictors.roofline import GROUPS

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.way import Way

_TILE = 128  # rows and columns of a usual GEMM thread block tile (CUTLASS's default)
_WIDTH_EDGES = (0, 5.01, 6.01, 7.01, 8.01, 9.01)  # log2 of k or n: up to 32, 64, 128, 256, 512, more
DEVICE_FEATURES: tuple[str, ...] = (
    "log_sms", "log_machine_balance", "log_cache", "log_bandwidth", "log_power", "launch_year",
)  # fmt: skip
# Groups of operators of which k and n are known.
PRODUCTS = tuple(g for g in GROUPS if g.startswith("conv") or g in ("dense", "matmul", "attention", "recurrent"))


@dataclass(frozen=True)
class Sums:
    """A graph on a device before any efficiency is known: what its features are made of, summed by operator group.

    Every array may have a leading axis of graphs (`stacked`); G groups, S sizes and bins of the area's features.
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
    own: np.ndarray  # [K] numbers that the area adds
    context: np.ndarray  # [C] software and device
    least: (
        np.ndarray
    )  # [G] seconds that no kernel is faster than: FLOPs over what watts feed, instructions over their rate

    @classmethod
    def stacked(cls, graphs: Sequence[Sums]) -> Sums:
        """N graphs as one, every array with a leading axis of length N."""
        return cls(*(np.stack([getattr(g, name) for g in graphs]) for name in _SUMS))

    def take(self, rows: np.ndarray | int) -> Sums:
        """Some of the graphs, by index or mask; one of them, by number."""
        return Sums(*[getattr(self, name)[rows] for name in _SUMS])

    def beside(self, *others: Sums) -> Sums:
        """These graphs and the others."""
        return Sums(*(np.concatenate([getattr(s, name) for s in (self, *others)]) for name in _SUMS))


_SUMS = tuple(field.name for field in fields(Sums))


@dataclass(frozen=True, eq=False)
class Vectors:
    """N graphs on one device: features, and the time by roofline and learned group efficiencies with its parts."""

    values: np.ndarray  # [N, F] float32
    base_s: np.ndarray  # [N]
    row_s: np.ndarray  # [R] parts of the base, count included
    row_graph: np.ndarray  # [R] the graph of each
    sums: Sums


# What an area adds to the features of every graph: columns from the sums, [N, G] shares of time, [N] seconds on the
# device and [N] launches.
Own = Callable[[Sums, np.ndarray, np.ndarray, np.ndarray], list[np.ndarray]]


@dataclass(frozen=True, eq=False)
class RatioFeatures:
    """The features of one area, in order: those of every graph, its ``own``, averaged sizes, bins, software, device.

    ``groups``: its operator groups, G. ``weights`` names what stands for the size of the weights. ``averaged``: by
    name, the groups over which sizes are averaged, weighted by time, and these sizes. ``binned``: of sizes beside k and
    n, the edges of a histogram over time.
    """

    groups: tuple[str, ...]
    weights: str
    own: tuple[str, ...]
    own_of: Own
    averaged: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
    binned: Mapping[str, tuple[float, ...]]
    software: tuple[str, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """[F] in the order of the artefact."""
        first = ("log_base", "compute_share", "memory_share", "log_balance", "log_kernels", "log_issue", "log_batch")
        second = (self.weights, "log_per_kernel", "small_kernels", "log_copy")
        averages = (f"{part}_{size}" for part, (_, sizes) in self.averaged.items() for size in sizes)
        bins = (f"{size}_from_{edge}" for size, edges in self._histograms.items() for edge in edges)
        return (*first, *second, *self.own, *averages, *bins, *self.software, *DEVICE_FEATURES)

    @cached_property
    def _histograms(self) -> dict[str, tuple[float, ...]]:
        return {"k": _WIDTH_EDGES, "n": _WIDTH_EDGES, **self.binned}

    @cached_property
    def _bins(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """By size, the upper edges of all bins but the last, and [bins, 1] the number of each."""
        return {name: (np.array(edges[1:]), np.arange(len(edges))[:, None]) for name, edges in self._histograms.items()}

    @cached_property
    def _products(self) -> np.ndarray:
        """[G] groups of the forward pass whose k and n are known."""
        return np.isin(self.groups, PRODUCTS)

    @cached_property
    def _members(self) -> np.ndarray:
        """[G, sets]"""
        return np.stack([np.isin(self.groups, groups) for groups, _ in self.averaged.values()], 1).astype(np.float64)

    @cached_property
    def _sizes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for _, names in self.averaged.values() for name in names))

    @cached_property
    def _averages(self) -> tuple[np.ndarray, np.ndarray]:
        """Number of the size and of the set of each average."""
        pairs = [(self._sizes.index(n), i) for i, (_, names) in enumerate(self.averaged.values()) for n in names]
        size, part = np.array(pairs).T
        return size, part

    def sums(
        self, tables: Tables, batch: np.ndarray, way: Way, roof: roofline.Bound, *,
        log_weights: np.ndarray, software: np.ndarray, own: np.ndarray | None = None, issued: np.ndarray | float = 1.0,
    ) -> Sums:  # fmt: skip
        """The sums of N graphs, stacked; ``batch`` [N].

        ``issued`` [R]: time of the host to issue a row, over that of a forward operator; ``software`` [N, software].
        """
        count, number = tables.count, len(tables)
        seconds, launched = roof.roof_s * count, roof.launched * count
        groups = len(self.groups)
        keys = tables.keys(roof.group, groups)
        by_group = partial(tables.by_keys, keys=keys, groups=groups)
        kernels = np.maximum(tables.sums(launched), 1.0)
        to_issue = np.maximum(tables.sums(launched * issued), 1.0)
        return Sums(
            seconds=by_group(seconds),
            compute=by_group(roof.compute_s * count),
            memory=by_group(roof.memory_s * count),
            kernels=by_group(launched),
            weighted=tables.weighted_by_keys(self._columns(tables.table, way.device, roof), seconds, keys, groups),
            issue_s=roofline.issue_seconds(to_issue, way),
            copy_s=np.full(number, way.copied_bytes / roofline.PAGEABLE_COPY_BYTES_S),
            small_kernels=tables.sums(launched * (roof.roof_s <= roofline.KERNEL_S)) / kernels,
            log_batch=np.log(batch.astype(np.float64)),
            log_weights=log_weights,
            own=np.empty((number, 0)) if own is None else own,
            context=np.concatenate([software, np.array([_device(way)]).repeat(number, axis=0)], axis=1),
            least=by_group(roof.least_s * roof.launched * count),
        )

    def of(self, sums: Sums, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[N, F] float32 and the base time [N] in seconds of stacked graphs.

        ``factor`` [N, G]: measured time over roofline time, by each graph's row of the efficiencies.
        """
        factor = _held(factor, sums)
        time = sums.seconds * factor
        device_s = np.maximum(time.sum(axis=1), 1e-9)
        kernels = np.maximum(sums.kernels.sum(axis=1), 1.0)
        compute_s, memory_s = sums.compute.sum(axis=1), sums.memory.sum(axis=1)
        base_s = roofline.smooth_maximum(device_s, np.maximum(sums.issue_s, 1e-12)) + sums.copy_s
        by_set = (time[:, None, :] @ self._members)[:, 0, :]  # one product per graph: none depends on the others
        # [N, S, G] times [G, sets]: every average that a set may need in one product.
        weighted, sizes = sums.weighted * factor[:, None, :], len(self._sizes)
        averages = (weighted[:, :sizes] @ self._members) / np.maximum(by_set, 1e-30)[:, None, :]
        averages = np.where((by_set < 1e-9 * device_s[:, None])[:, None, :], np.nan, averages)
        size, part = self._averages
        columns = [
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
            *self.own_of(sums, time / device_s[:, None], device_s, kernels),
            averages[:, size, part],
            weighted[:, sizes:].sum(axis=2) / device_s[:, None],
            sums.context,
        ]
        columns = [column if column.ndim == 2 else column[:, None] for column in columns]
        return np.concatenate(columns, axis=1).astype(np.float32), base_s

    def vectors(self, sums: Sums, roof: roofline.Bound, tables: Tables, factor: np.ndarray) -> Vectors:
        """All features of the N graphs ``tables`` of one kind of software, whose efficiencies are ``factor`` [G]."""
        values, base_s = self.of(sums, np.array([factor]).repeat(len(sums.log_batch), axis=0))
        held = _held(factor, sums)[tables.graph, roof.group]
        return Vectors(values, base_s, roof.roof_s * held * tables.count, tables.graph, sums)

    def _columns(self, table: OperatorColumns, device: Device, roof: roofline.Bound) -> np.ndarray:
        """[S, R] sizes that are averaged over time, then the bins of the histograms as 0 and 1."""
        sizes = _sizes(table, device, roof)
        product = self._products[roof.group]
        out = np.empty((len(self._sizes) + sum(len(bins) for _, bins in self._bins.values()), len(product)))
        for row, name in enumerate(self._sizes):
            out[row] = sizes[name]
        first = len(self._sizes)
        for size, (edges, bins) in self._bins.items():
            found = edges.searchsorted(sizes[size], side="right") == bins
            out[first : first + len(bins)] = found & product if size in "kn" else found
            first += len(bins)
        return out


def _held(factor: np.ndarray, sums: Sums) -> np.ndarray:
    """[N, G] ``factor`` on roofline time, or what the board makes of it at least where that is more."""
    return np.maximum(factor, sums.least / np.maximum(sums.seconds, 1e-30))


def _device(way: Way) -> list[float]:
    """Values of DEVICE_FEATURES."""
    device = way.device
    rate = roofline.sustained_flops(device, roofline.RATES[way.precision])
    bandwidth = device.memory_bandwidth_bytes_s
    return [
        np.log2(device.sm_count),
        np.log2(rate / bandwidth),
        np.log2(max(device.l2_bytes, device.l3_bytes, 1)),
        np.log2(bandwidth),
        np.log2(device.power_limit_w),
        float(device.launch_date[:4]) if device.launch_date else np.nan,
    ]


def _sizes(table: OperatorColumns, device: Device, roof: roofline.Bound) -> dict[str, np.ndarray]:
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
        "balance": _within(log(roof.compute_s / np.maximum(roof.memory_s, 1e-15), 2.0**-8), 8),
        "cache": _within(log(roof.bytes / cache, 2.0**-12), 12),
        "stride": np.minimum(np.asarray(table.stride, dtype=np.float64), 4.0),
        "groups": log(np.asarray(table.groups, dtype=np.float64)),
        "area": log(np.asarray(table.kernel_area, dtype=np.float64)),
        "output": log(output),
        "shrink": _within(np.log2(output / inputs), 8),
    }  # fmt: skip


def _within(values: np.ndarray, most: float) -> np.ndarray:
    """As `numpy.clip`, which takes several times as long for a few rows."""
    return np.minimum(np.maximum(values, -most), most)


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
    keys = tables.keys(roofline.operator_groups(table), len(GROUPS))
    by_group = partial(tables.by_keys, keys=keys, groups=len(GROUPS))
    macs = by_group(np.asarray(table.macs, dtype=np.float64) * count)
    traffic = by_group(np.add(table.bytes_read, table.bytes_written, dtype=np.float64) * count)
    traffic[:, GROUPS.index("batch_norm")] = 0.0
    all_macs, all_traffic = (np.maximum(v.sum(axis=1, keepdims=True), 1.0) for v in (macs, traffic))
    size = np.log2(np.maximum(macs.sum(axis=1) / batch, 1.0)) / 8.0
    return np.concatenate([np.sqrt(macs / all_macs), np.sqrt(traffic / all_traffic), size[:, None]], axis=1).astype(
        np.float32
    )
