"""The analytic predictor: roofline with fixed efficiencies, for what no measurement stands behind.

It answers where the learned predictor has nothing to go by (a precision, device or runtime without records) and says
so: its support is always "outside" and its intervals are wide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfpass.graph import OPERATOR_CLASSES
from perfpass.predictors.estimate import Bounds, Columns, Estimate, Estimates, Notes, Runs
from perfpass.predictors.memory import allocation, process
from perfpass.predictors.roofline import ISSUE_S
from perfpass.predictors.workload import PRECISIONS

if TYPE_CHECKING:
    from perfpass.features import Tables
    from perfpass.predictors.estimate import Run
    from perfpass.predictors.way import Way

# Shares of the two roofs. Fitted by least mean |log error|, with the issue times of `roofline`, on up to 80 records of
# each device, precision and runtime of data/records/vision.parquet (1,159 on GPUs, 159 on CPUs).
COMPUTE_EFFICIENCY = {"gpu": 0.6, "cpu": 0.25}
MEMORY_EFFICIENCY = {"gpu": 0.85, "cpu": 1.0}
# Runtimes other than PyTorch issue from a graph, not from Python, as torch.compile does.
_COMPILED_S = ISSUE_S["torch.compile"]
# Factors below and above the median. Nine in ten of those records lie within a factor of 2.05 (GPU) and 1.66 (CPU);
# widened for devices without records; compiled runtimes on CPUs may be several times as fast: hence their lower bound.
SPREAD = {"gpu": (2.5, 2.5), "cpu": (6.0, 2.5)}
_TENSOR_CORE_CLASSES = np.isin(
    np.arange(len(OPERATOR_CLASSES)), [OPERATOR_CLASSES.index(c) for c in ("convolution", "matmul", "attention")]
)


class AnalyticPredictor:
    """Time per operator = issue + the slower of FLOPs / (peak x share) and bytes / (bandwidth x share)."""

    name = "analytic"

    def columns(self, runs: Runs, way: Way, threads: int = 1) -> tuple[Columns, Notes]:
        """What is known of N runs before they are scored, and that no measurement stands behind them."""
        return self._columns(runs, way)[:2]

    def _columns(self, runs: Runs, way: Way) -> tuple[Columns, Notes, np.ndarray]:
        """The columns, the notes and [R] milliseconds per row."""
        tables, table = runs.tables, runs.tables.table
        row_ms = _row_ms(tables, way)
        notes = Notes(len(tables))
        notes.add(2, True, "roofline with fixed efficiencies; no measurement stands behind it")
        traffic = np.add(table.bytes_read, table.bytes_written, dtype=np.float64)
        found = {
            # A graph of nothing but views still costs its call.
            "latency_ms": np.maximum(tables.sums(row_ms), _COMPILED_S * 1e3),
            "flops": tables.sums(np.asarray(table.flops, dtype=np.float64) * tables.count),
            "traffic": tables.sums(traffic * tables.count),
            "level": notes.level,
            "batch": runs.batch,
            "weight_bytes": runs.weight_bytes,
            "activation_bytes": runs.activation_bytes,
            "reserved_bytes": runs.reserved_bytes,
        }
        return found, notes, row_ms

    def estimates(self, columns: Columns, way: Way, threads: int = 1) -> Estimates:
        """The metrics of N runs."""
        kind, latency = way.device.kind, columns["latency_ms"]
        parts, memory = process.inference(columns, way)
        below, above = SPREAD[kind]
        return Estimates(
            latency_ms=Bounds(latency, latency / below, latency * above),
            power_w=power_w(way, columns["flops"], columns["traffic"], latency * 1e-3),
            memory=memory,
            memory_bytes=parts,
            level=columns["level"].astype(np.int8),
        )

    def estimate(self, run: Run) -> Estimate:
        """The metrics of one run; see the module for what they rest on."""
        way = run.way
        columns, notes, row_ms = self._columns(allocation.runs_of(run), way)
        return Estimate.first(
            self.estimates(columns, way),
            columns,
            row_ms,
            notes.reasons(0),
            {
                "predictor": self.name,
                "corpus": None,
                "compute_efficiency": COMPUTE_EFFICIENCY[way.device.kind],
                "memory_efficiency": MEMORY_EFFICIENCY[way.device.kind],
            },
        )


def load() -> AnalyticPredictor:
    """The predictor; it has nothing to read."""
    return AnalyticPredictor()


def _row_ms(tables: Tables, way: Way) -> np.ndarray:
    """[R] milliseconds per row of the operator tables, its count included."""
    device, table = way.device, tables.table
    rate = PRECISIONS[way.precision][1]
    vector = device.peak_flops["fp64" if rate == "fp64" else "fp32"]
    # Where the 16-bit rate is a fraction of fp32 (Pascal but the P100), libraries compute in fp32 and store halves.
    tensor = device.peak(rate) if rate == "fp64" else max(device.peak(rate), device.peak("fp32"))
    peak = np.where(_TENSOR_CORE_CLASSES[np.asarray(table.op_class)], tensor, vector)
    compute = np.asarray(table.flops, dtype=np.float64) / (peak * COMPUTE_EFFICIENCY[device.kind])
    traffic = np.add(table.bytes_read, table.bytes_written, dtype=np.float64)
    memory = traffic / (device.memory_bandwidth_bytes_s * MEMORY_EFFICIENCY[device.kind])
    issue = ISSUE_S.get(way.runtime, _COMPILED_S)
    issued = np.asarray(table.view) == 0
    seconds = np.where(issued, np.maximum(compute, memory) + issue, 0.0)
    return np.asarray(seconds * tables.count * 1e3)


def power_w(way: Way, flops: np.ndarray, traffic: np.ndarray, seconds: np.ndarray) -> Bounds:
    """[N] mean power: idle plus the shares of compute and bandwidth in use, up to the limit; seconds are above 0."""
    device, rate = way.device, PRECISIONS[way.precision][1]
    compute = flops / (device.peak(rate) * seconds)
    memory = traffic / (device.memory_bandwidth_bytes_s * seconds)
    busy = np.minimum(1.0, np.hypot(compute / COMPUTE_EFFICIENCY[device.kind], memory / MEMORY_EFFICIENCY[device.kind]))
    span = device.power_limit_w - device.idle_power_w
    one = np.ones_like(busy)
    return Bounds(device.idle_power_w + span * busy, device.idle_power_w * one, device.power_limit_w * one)
