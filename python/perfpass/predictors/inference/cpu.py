"""ONNX Runtime, TVM and PyTorch on a CPU in single precision: the time of the graph's operators (cpu_operators.py).

PyTorch on CPUs of the vision records is the trees' (`perfpass.predictors.lane.predictor_of`).
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.predictors.calibration import schedules as tuned
from perfpass.predictors.estimate import Bounds, Columns, Estimate, Estimates, Notes, Runs
from perfpass.predictors.inference import analytic, cpu_halves
from perfpass.predictors.inference.cpu_operators import EIGHT_BITS, ON_ONE_CORE, RUNTIMES, CpuTimes, Seconds
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.spread import Spread
from perfpass.predictors.memory import allocation
from perfpass.predictors.way import STANDING_IN

if TYPE_CHECKING:
    from perfpass.graph.table import Tables
    from perfpass.predictors.calibration.schedules import Schedules
    from perfpass.predictors.estimate import Run
    from perfpass.predictors.way import Way

NAME = "cpu"
# What may not be known of a question (`perfpass.predictors.learned.spread`): the network, the share of the time that
# the runtime itself takes, that of products without a schedule, whether cores beside the first were free, the CPU, and
# more cores than were measured.
CAUSES = ("network", "host", "unscheduled", "parallel", "machine", "cores")
MEASURED_CORES = 2
# What a runtime without measurements may be quicker or slower than the one that stands in for it: a factor of 2, by
# hand. PyTorch's eager operators, which fuse nothing, take 1.6 to 4.2 times ONNX Runtime's time on 80 % of networks.
_UNMEASURED = float(np.log(2.0))
_AS_WIDE = "products with weights in 8 bits: by those in fp32, since none in 8 bits was timed in this runtime"
_OF_8_BITS = "products with weights in 8 bits: by single ones in ONNX Runtime on one core, beside those in fp32"


class CpuPredictor:
    """Latency by operators, memory from the runtime's arena, power from use of the roofs."""

    name = NAME

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        manifest = artefacts.Artefact(folder or artefacts.shipped(self.name)).manifest
        self.times = CpuTimes.from_dict(manifest["constants"])
        self._spread = {name: Spread.from_dict(values) for name, values in manifest["spread"].items()}
        self._machines: list[str] = manifest["machines"]
        self._corpus: dict[str, int] = manifest["corpus"]
        self._schedules: Schedules | None = None

    @staticmethod
    @cache
    def load() -> CpuPredictor:
        """The shipped predictor, read once per process. Raises ArtefactError."""
        return CpuPredictor()

    def scheduled(self, schedules: Schedules) -> CpuPredictor:
        """The same for networks that were tuned as ``schedules`` were."""
        other = copy(self)
        other._schedules = schedules
        return other

    @staticmethod
    def covers(way: Way) -> bool:
        """Whether it speaks of the run: on a CPU, in a runtime that was measured in single precision, and in
        PyTorch in 8, 16 and 64 bits and ONNX Runtime in 8, which follow from that.
        """
        if way.device.kind != "cpu":
            return False
        runtime = way.timed_as.runtime
        follows = (runtime == "torch" and way.precision in cpu_halves.FOLLOWING) or (
            runtime in ("torch", "onnxruntime") and way.precision == "int8"
        )
        return follows or (runtime in RUNTIMES and way.precision == "fp32")

    def columns(self, runs: Runs, way: Way, threads: int = 1) -> tuple[Columns, Notes]:
        """What is known of N runs before they are scored, and how far measurements stand behind them."""
        return self._columns(runs, way)[:2]

    def _columns(self, runs: Runs, way: Way) -> tuple[dict[str, np.ndarray], Notes, np.ndarray]:
        """The columns, the notes and [R] milliseconds per row."""
        tables, table = runs.tables, runs.tables.table
        asked, way = way, way.timed_as
        notes, found = Notes(len(tables)), self.times.seconds(tables, runs.batch, way)
        known = way.device.name in self._machines and asked is way
        notes.add(1, True, self._said(way), vouched=known, first=True)
        if asked is not way:
            here = "" if asked.runtime in STANDING_IN else " on such a CPU"
            said = (
                f"there was no run of {asked.runtime} to learn from{here}: {way.runtime} stands in for it, bounds of "
                "the time allow for a factor of 2 between them and memory is as it is"
            )
            notes.add(1, True, said, first=True)
        narrow = _OF_8_BITS if way.runtime == "onnxruntime" else _AS_WIDE
        notes.add(1, tables.any(np.isin(table.op, EIGHT_BITS)), narrow)
        if (follows := cpu_halves.said(way)) is not None:
            notes.add(1, True, follows, first=True)
        total, row, learned = found.total, found.row, {}
        if follows is not None and (over := self._learned_over_own(runs, way)) is not None:
            total, row = total * over, row * over[tables.graph]
        if self._schedules is not None:
            applied = self._scheduled(runs, way, found.total, self._schedules)
            total, row, learned = applied.total, applied.row, applied.columns
            notes.add(0, True, partial(applied.words, self._schedules))
        traffic = np.add(table.bytes_read, table.bytes_written, dtype=np.float64)
        columns = {
            "latency_ms": 1e3 * total,
            "lacks": self.lacks(found, way, self._machines),
            "flops": tables.sums(np.asarray(table.flops, dtype=np.float64) * tables.count),
            "traffic": tables.sums(traffic * tables.count),
            "level": notes.level,
            "batch": runs.batch,
            "weight_bytes": runs.weight_bytes,
            "activation_bytes": runs.activation_bytes,
            "reserved_bytes": runs.reserved_bytes,
            "convolutional": allocation.convolutional(runs.tables),
            **learned,
        }
        return columns, notes, 1e3 * row

    def _learned_over_own(self, runs: Runs, way: Way) -> np.ndarray | None:
        """[N] what trees say of single precision over what operators say of it; None on CPUs without records of theirs.

        Trees answer for single precision there, and their records take about twice what operators say: numbers of 16
        bits that the CPU has to emulate would else be told faster.
        """
        from perfpass.predictors.inference.predictor import InferencePredictor

        trees, plain = InferencePredictor.load(), replace(way, precision="fp32")
        if not trees.covers(plain) or not trees.knows(way.device):
            return None
        columns, _ = trees.columns(runs, plain)
        return np.asarray(columns["median_s"] / self.times.seconds(runs.tables, runs.batch, plain).total)

    def _scheduled(self, runs: Runs, way: Way, total: np.ndarray, schedules: Schedules) -> tuned.Applied:
        """What tuned operators make of the time ``total`` [N]."""

        def priced(tables: Tables) -> tuple[np.ndarray, np.ndarray]:
            # A schedule sees shapes alone, not how many of the rows are samples.
            return self.times.rows(tables, np.ones(len(tables), dtype=np.int64), way)

        own, _ = self.times.rows(runs.tables, runs.batch, way)
        row, family = priced(runs.tables)
        rest = np.maximum(total - runs.tables.sums(own), 0.0)
        return schedules.learned(priced).apply(runs.tables, family, row, rest)

    def _said(self, way: Way) -> str:
        known = way.on_measured_cpu(self._machines)
        rest = "one machine of 2 cores" if known else "another CPU alone"
        said = f"{way.runtime} on a CPU: time by its operators, as {self._corpus['networks']} networks took on {rest}"
        if way.runtime in ON_ONE_CORE or (cores := way.device.sm_count) <= MEASURED_CORES:
            return said
        return (
            f"{said}; {cores} threads, one a core of one socket, by a law of how they wait for each other: no run "
            f"had more than {MEASURED_CORES}, and the bounds allow for less with every doubling beyond"
        )

    def for_core(self, way: Way) -> dict[str, Any]:
        """Time, widths and words of ``way`` as numbers and texts (cpp_kernels/src/prediction)."""
        nothing = np.zeros(1)
        lacks = self.lacks(Seconds(np.ones(1), nothing, nothing, nothing), way, self._machines)[0]
        return {
            "time": {"kind": "cpu", **self.times.for_core(way)},
            "spread": self._spread[way.runtime].for_core(dict(zip(CAUSES, lacks.tolist(), strict=True))),
            "support": {"level": 1, "said": self._said(way)},
        }

    @staticmethod
    def lacks(found: Seconds, way: Way, machines: list[str] | tuple[str, ...]) -> np.ndarray:
        """[N, CAUSES]; ``cores``: doublings beyond those of any run, each with a width of its own."""
        one = np.ones(len(found.total))
        doublings = max(0.0, float(np.log2(max(way.device.sm_count, 1) / MEASURED_CORES)))
        parallel = float(way.device.sm_count > 1 and way.runtime not in ON_ONE_CORE)
        unknown = float(not way.on_measured_cpu(machines))
        return np.column_stack(
            [one, found.host / found.total, found.unscheduled] + [one * lack for lack in (parallel, unknown, doublings)]
        )

    def estimates(self, columns: Columns, way: Way, threads: int = 1) -> Estimates:
        """All metrics of N runs (perfpass.predictors.estimate)."""
        way, asked = way.timed_as, way
        unmeasured = float(np.hypot(0.0 if way is asked else _UNMEASURED, cpu_halves.further(way)))
        low, high = self._spread[way.runtime].bounds(dict(zip(CAUSES, columns["lacks"].T, strict=True)))
        bounds = tuned.bounds(columns, -np.hypot(low, unmeasured), np.hypot(high, unmeasured))
        return analytic.AnalyticPredictor.load().around(Bounds.around(columns["latency_ms"], *bounds), columns, asked)

    def estimate(self, run: Run) -> Estimate:
        """All metrics of one run (perfpass.predictors.estimate)."""
        columns, notes, row_ms = self._columns(allocation.runs_of(run), run.way)
        provenance = {"predictor": self.name, "corpus": self._machines[0], "corpus_rows": self._corpus["rows"]}
        return Estimate.first(self.estimates(columns, run.way), columns, row_ms, notes.reasons(0), provenance)
