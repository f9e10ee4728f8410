"""The analytic predictor, for engines and precisions that trees have not learned; its support is "near" at best.

On GPUs a graph takes the time of its operators (inference/engines.py in TensorRT and ONNX Runtime, else
inference/operators.py), on CPUs that of a roofline with fixed efficiencies. The widths of its intervals are what it is
off on networks that other laboratories ran in TensorRT and ONNX Runtime, each laboratory left out in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.devices import device as find_device
from perfpass.graph import OPERATOR_CLASSES
from perfpass.predictors.calibration import schedules as tuned
from perfpass.predictors.estimate import Bounds, Columns, Estimate, Estimates, Notes, Runs
from perfpass.predictors.inference import cpu_halves
from perfpass.predictors.inference.cpu_operators import CpuTimes, on_cores
from perfpass.predictors.inference.engines import ENGINES, EngineTimes
from perfpass.predictors.inference.operators import (
    FAMILIES,
    OperatorTimes,
    families,
    families_for_core,
    work,
)
from perfpass.predictors.learned import artefacts, width_words
from perfpass.predictors.learned.spread import Spread
from perfpass.predictors.memory import allocation, process
from perfpass.predictors.roofline import ISSUE_S, halved
from perfpass.predictors.workload import PRECISIONS

if TYPE_CHECKING:
    from perfpass.features import Tables
    from perfpass.predictors.calibration.schedules import Schedules
    from perfpass.predictors.estimate import Run
    from perfpass.predictors.inference.predictor import InferencePredictor
    from perfpass.predictors.way import Way

# Shares of the two roofs. Fitted by least mean |log error|, with the issue times of `roofline`, on up to 80 records of
# each device, precision and runtime of data/records/vision.parquet (1,159 on GPUs, 159 on CPUs).
COMPUTE_EFFICIENCY = {"gpu": 0.6, "cpu": 0.25}
MEMORY_EFFICIENCY = {"gpu": 0.85, "cpu": 1.0}
# Runtimes other than PyTorch issue from a graph, not from Python, as torch.compile does.
_COMPILED_S = ISSUE_S["torch.compile"]
# What may not be known of a question (`perfpass.predictors.learned.spread`): the share of the time that issuing takes,
# operators that run one by one and not in an engine, the share of the time in operators beside `_USUAL`, an engine of
# which no network was measured, a precision that was not in it, another vendor, what a slice lacks, and in TensorRT
# whether halves are summed in halves, at twice the rate, on boards that sum them in fp32 at half of it.
WORDS: Mapping[str, str] = {
    "measurement": "how laboratories' figures of one engine differ",
    "host": "the host, which issues the operators",
    "eager": "operators that run one by one",
    "rare": "operators over whose kernels laboratories differ most",
    "engine": "a runtime of which no network was measured",
    "precision": "a precision that was not measured in it",
    "vendor": "another vendor's kernels",
    "slice": "what a slice lacks of its GPU",
    "sums": "whether halves are summed in halves",
}
CAUSES = tuple(WORDS)
# Families whose kernels every engine has and has long tuned; over the others laboratories differ most.
_USUAL = np.isin(FAMILIES, ("dense", "conv", "conv3x3", "attention"))
# TVM's default schedules were measured on CPUs alone. On a GPU their classes are taken to stay behind libraries by this
# share of the logarithm that they stay behind there; the interval holds all of it, and none (the quickest engine).
_COMPILED, _CARRIED, _QUICKEST = ("tvm", "relax"), 0.5, "tensorrt"
_TENSOR_CORE_CLASSES = np.isin(
    np.arange(len(OPERATOR_CLASSES)), [OPERATOR_CLASSES.index(c) for c in ("convolution", "matmul", "attention")]
)


class AnalyticPredictor:
    """Time by operators; on a CPU issue + the slower of FLOPs / (peak x share) and bytes / (bandwidth x share)."""

    name = "analytic"

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped widths, or those in ``folder``. Raises ArtefactError."""
        self._times: OperatorTimes | None = None
        self._engines: EngineTimes | None = None
        self._learned: InferencePredictor | None = None
        self._schedules: Schedules | None = None
        manifest = artefacts.Artefact(folder or artefacts.shipped(self.name)).manifest
        self._spread = {kind: Spread.from_dict(values) for kind, values in manifest["spread"].items()}
        self._measured: dict[str, list[str]] = manifest["measured"]

    def priced(self, times: OperatorTimes, engines: EngineTimes, learned: InferencePredictor) -> AnalyticPredictor:
        """The same with other times of operators, and of them in engines, and another predictor of PyTorch."""
        other = copy(self)
        other._times, other._engines, other._learned = times, engines, learned
        return other

    def scheduled(self, schedules: Schedules) -> AnalyticPredictor:
        """The same for networks that were tuned as ``schedules`` were."""
        other = copy(self)
        other._schedules = schedules
        return other

    @staticmethod
    @cache
    def load() -> AnalyticPredictor:
        """The shipped predictor, read once per process."""
        return AnalyticPredictor()

    def columns(self, runs: Runs, way: Way, threads: int = 1) -> tuple[Columns, Notes]:
        """What is known of N runs before they are scored, and that no measurement stands behind them."""
        return self._columns(runs, way)[:2]

    def _columns(self, runs: Runs, way: Way) -> tuple[Columns, Notes, np.ndarray]:
        """The columns, the notes and [R] milliseconds per row."""
        tables, table = runs.tables, runs.tables.table
        notes, behind = Notes(len(tables)), dict[str, np.ndarray]()
        vouched = self._vouched(way)
        notes.add(1 if vouched else 2, True, self._said(way), vouched=vouched)
        traffic = np.add(table.bytes_read, table.bytes_written, dtype=np.float64)
        if way.device.kind == "gpu":
            times = self._engine(way) or self._times or OperatorTimes.load()
            seconds = times.seconds(tables, way)
            row_ms, latency, issue_ms = 1e3 * seconds.row, 1e3 * seconds.total, 1e3 * seconds.host
            if _outdoes_halves(way):
                learned = np.minimum(latency, self._learned_ms(runs, replace(way, precision="fp16")))
                row_ms, latency = row_ms * (learned / latency)[tables.graph], learned
            if way.runtime in _COMPILED:
                engine = (self._engines or EngineTimes.load()).seconds(tables, replace(way, runtime=_QUICKEST))
                plain = latency
                row_ms, latency = _carried(tables, way, row_ms, plain)
                quickest = np.minimum(plain, 1e3 * engine.total)
                behind = {"behind_engine": np.log(latency / quickest), "behind": np.log(latency / plain)}
        else:
            row_ms = _row_ms(tables, way)
            # A graph of nothing but views still costs its call.
            latency = np.maximum(tables.sums(row_ms), _COMPILED_S * 1e3)
            issue_ms = tables.sums(_issue_ms(tables, way))
        rare = tables.sums(np.where(_USUAL[families(table, way)], 0.0, row_ms)) / latency
        scheduled: dict[str, np.ndarray] = {}
        if self._schedules is not None:
            row, family = self._priced(tables, way)
            applied = self._schedules.learned(partial(self._priced, way=way)).apply(
                tables, family, row * tables.count, np.zeros(len(tables))
            )
            before = tables.sums(row * tables.count)
            # What the host or a copy takes beside the operators stays as it is.
            rest = np.maximum(1e-3 * latency - before, 0.0)
            slower = (applied.total + rest) / np.maximum(before + rest, 1e-300)
            latency, row_ms, scheduled = latency * slower, row_ms * slower[tables.graph], applied.columns
            notes.add(0, True, partial(applied.words, self._schedules))
        found = {
            "latency_ms": latency,
            "lacks": self._lacks(way, issue_ms / latency, rare),
            "flops": tables.sums(np.asarray(table.flops, dtype=np.float64) * tables.count),
            "traffic": tables.sums(traffic * tables.count),
            "level": notes.level,
            "batch": runs.batch,
            "weight_bytes": runs.weight_bytes,
            "activation_bytes": runs.activation_bytes,
            "reserved_bytes": runs.reserved_bytes,
            "convolutional": allocation.convolutional(runs.tables),
            **behind,
            **scheduled,
        }
        return found, notes, row_ms

    def _learned_ms(self, runs: Runs, way: Way) -> np.ndarray:
        """[N] milliseconds by the predictor of PyTorch."""
        from perfpass.predictors.inference.predictor import InferencePredictor

        columns, _ = (self._learned or InferencePredictor.load()).columns(runs, way)
        return 1e3 * np.asarray(columns["median_s"])

    def _priced(self, tables: Tables, way: Way) -> tuple[np.ndarray, np.ndarray]:
        """Seconds of one execution of every row without its issuing [R], and its family [R]."""
        if way.device.kind == "cpu":
            count = np.maximum(tables.count, 1e-300)
            return 1e-3 * (_row_ms(tables, way) - _issue_ms(tables, way)) / count, families(tables.table, way)
        done = work(tables.table, way)
        row = done.seconds * (self._times or OperatorTimes.load()).factors(way)[done.family]
        return row * np.exp(_CARRIED * CpuTimes.load().behind_libraries())[done.family], done.family

    def _engine(self, way: Way) -> EngineTimes | None:
        """The times in an engine whose networks were measured; None for other runtimes."""
        return (self._engines or EngineTimes.load()) if way.runtime in ENGINES else None

    def _vouched(self, way: Way) -> bool:
        """Whether errors of other laboratories' networks in this engine and precision make the interval."""
        return way.device.kind == "gpu" and way.precision in self._measured.get(way.runtime, ())

    def _said(self, way: Way) -> str:
        time = "roofline with fixed efficiencies" if way.device.kind == "cpu" else "time by its operators"
        if way.device.kind == "gpu" and way.runtime in _COMPILED:
            return (
                f"{time}; there was no run of {way.runtime} on a GPU to learn from: its operator classes stay behind "
                "libraries half as far (in logarithms) as TVM's default schedules do on a CPU; the interval holds both"
            )
        if way.device.kind == "cpu" or way.runtime not in self._measured:
            return f"{time}; there was no run of {way.runtime} to learn from"
        if way.precision not in self._measured[way.runtime]:
            return f"{time}; there was no run in {way.precision} to learn from in {way.runtime}"
        replayed = ", replayed as a CUDA graph" if way.cuda_graph else ""
        return f"{time}{replayed}; its errors on networks in {way.runtime} make the interval"

    def _lacks(self, way: Way, host: np.ndarray, rare: np.ndarray) -> np.ndarray:
        """[N, CAUSES]; ``host`` and ``rare`` [N] shares of the time: that issuing takes, and of rare operators."""
        measured, whole = self._measured.get(way.runtime, ()), way.device
        if way.device.parent is not None:
            whole = find_device(way.device.parent)
        lacks = {
            "measurement": 1.0,
            "host": np.minimum(host, 1.0),
            "eager": float(way.runtime in ISSUE_S),
            "rare": np.minimum(rare, 1.0) if way.device.kind == "gpu" else 0.0,
            "engine": float(not measured),
            "precision": float(bool(measured) and way.precision not in measured),
            "vendor": float(way.device.kind == "gpu" and way.device.vendor != "NVIDIA"),
            "slice": (1.0 - way.device.sm_count / whole.sm_count) ** 2,
            "sums": float(way.runtime == "tensorrt" and PRECISIONS[way.precision][1] == "fp16" and halved(way.device)),
        }
        return np.column_stack([np.broadcast_to(np.asarray(lacks[c], dtype=np.float64), host.shape) for c in CAUSES])

    def for_core(self, way: Way) -> dict[str, Any] | None:
        """Time, widths and words of ``way`` as numbers and texts (cpp_kernels/src/prediction); None where the core has
        not the formulas: of other runtimes than engines, and of CPUs.
        """
        times = self._engine(way)
        if times is None or way.device.kind != "gpu":
            return None
        # Attention counts as usual where it runs on matrix units, as asked and not as the engine runs it.
        usual = _USUAL | (np.isin(FAMILIES, "attention_vector") & ~families_for_core(way)[1])
        lacks = self._lacks(way, np.zeros(1), np.zeros(1))[0]
        return {
            "time": {"kind": "engine", "usual": usual, **times.for_core(way)},
            "spread": self._spread[way.device.kind].for_core(dict(zip(CAUSES, lacks.tolist(), strict=True))),
            "support": {"level": 1 if self._vouched(way) else 2, "said": self._said(way)},
        }

    def _wide_by(self, columns: Columns, way: Way) -> tuple[str, ...]:
        """What makes the first run's interval wide, in words, the largest share first."""
        lacks = dict(zip(CAUSES, columns["lacks"].T, strict=True))
        return width_words.wide_by(self._spread[way.device.kind], lacks, WORDS)

    def estimates(self, columns: Columns, way: Way, threads: int = 1) -> Estimates:
        """The metrics of N runs."""
        latency = columns["latency_ms"]
        own = self._spread[way.device.kind].bounds(dict(zip(CAUSES, columns["lacks"].T, strict=True)))
        if "behind" in columns:
            own = -np.hypot(own[0], columns["behind_engine"]), np.hypot(own[1], columns["behind"])
        bounds = tuned.bounds(columns, *own)
        return self.around(Bounds.around(latency, *bounds), columns, way)

    def around(self, latency_ms: Bounds, columns: Columns, way: Way) -> Estimates:
        """The metrics of N runs whose time is known."""
        parts, memory = process.inference(columns, way)
        return Estimates(
            latency_ms=latency_ms,
            power_w=power_w(way, columns["flops"], columns["traffic"], latency_ms.median * 1e-3),
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
            partial(self._wide_by, columns, way),
        )


def _outdoes_halves(way: Way) -> bool:
    """Whether products of 8 bits run in PyTorch, on a board that is faster at them than at halves.

    No run of theirs was measured, and operators stay behind what was learned of halves, which nothing is slower than.
    """
    name, peaks = PRECISIONS[way.precision][1], way.device.peak_flops
    return way.runtime in ISSUE_S and name in ("int8", "fp8") and peaks[name] > peaks.get("fp16", peaks[name])


def _carried(tables: Tables, way: Way, row_ms: np.ndarray, latency: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Milliseconds of rows [R] and runs [N] with TVM's schedules."""
    behind = _CARRIED * CpuTimes.load().behind_libraries()[families(tables.table, way)]
    slower = row_ms * np.exp(behind)
    total = latency + tables.sums(slower - row_ms)
    return slower * (total / np.maximum(tables.sums(slower), 1e-300))[tables.graph], total


def _row_ms(tables: Tables, way: Way) -> np.ndarray:
    """[R] milliseconds per row of the operator tables, its count included."""
    device, table = way.device, tables.table
    rate = PRECISIONS[way.precision][1]
    vector = device.peak_flops["fp64" if rate == "fp64" else "fp32"]
    # Where the 16-bit rate is a fraction of fp32 (Pascal but the P100), libraries compute in fp32 and store halves.
    tensor = device.peak(rate) if rate == "fp64" else max(device.peak(rate), device.peak("fp32"))
    peak = np.where(_TENSOR_CORE_CLASSES[np.asarray(table.op_class)], tensor, vector)
    most = cpu_halves.MOST_OF_VECTORS * vector
    if device.kind == "cpu" and tensor > most:  # tiles, which run products alone and not at their peak
        tiles = max(cpu_halves.TILES_REACH * tensor, most)
        depthwise = families(table, way) == FAMILIES.index("conv_depthwise")
        peak = np.where(depthwise, np.minimum(peak, most), np.minimum(peak, tiles))
    compute = np.asarray(table.flops, dtype=np.float64) / (peak * COMPUTE_EFFICIENCY[device.kind])
    if device.kind == "cpu":
        compute = on_cores(compute * max(device.sm_count, 1), way)
    traffic = np.add(table.bytes_read, table.bytes_written, dtype=np.float64)
    memory = traffic / (device.memory_bandwidth_bytes_s * MEMORY_EFFICIENCY[device.kind])
    seconds = np.where(np.asarray(table.view) == 0, np.maximum(compute, memory), 0.0)
    return np.asarray(seconds * tables.count * 1e3) + _issue_ms(tables, way)


def _issue_ms(tables: Tables, way: Way) -> np.ndarray:
    """[R] milliseconds that the host takes to issue each row."""
    issued = np.asarray(tables.table.view) == 0
    return np.asarray(np.where(issued, ISSUE_S.get(way.runtime, _COMPILED_S), 0.0) * tables.count * 1e3)


def power_w(way: Way, flops: np.ndarray, traffic: np.ndarray, seconds: np.ndarray) -> Bounds:
    """[N] mean power: idle plus the shares of compute and bandwidth in use, up to the limit; seconds are above 0."""
    device, rate = way.device, PRECISIONS[way.precision][1]
    compute = flops / (device.peak(rate) * seconds)
    memory = traffic / (device.memory_bandwidth_bytes_s * seconds)
    busy = np.minimum(1.0, np.hypot(compute / COMPUTE_EFFICIENCY[device.kind], memory / MEMORY_EFFICIENCY[device.kind]))
    span = device.power_limit_w - device.idle_power_w
    one = np.ones_like(busy)
    return Bounds(device.idle_power_w + span * busy, device.idle_power_w * one, device.power_limit_w * one)


def power_for_core(way: Way) -> dict[str, float]:
    """What `power_w` reads of ``way`` (cpp_kernels/src/prediction/predictor.cpp)."""
    device = way.device
    return {
        "peak_flops": device.peak(PRECISIONS[way.precision][1]),
        "bandwidth": device.memory_bandwidth_bytes_s,
        "compute_share": COMPUTE_EFFICIENCY[device.kind],
        "memory_share": MEMORY_EFFICIENCY[device.kind],
        "idle_w": device.idle_power_w,
        "limit_w": device.power_limit_w,
    }
