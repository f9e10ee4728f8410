"""One way of running models, and what predicts it: N graphs at once, of which one graph is the case N = 1.

The predictor's estimate, the correction by the device's calibration, the sharing of the device, and the metrics that
follow: `score` gives them as arrays, `estimate` those of one graph in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perfpass.errors import ArgumentError, PerfPassError
from perfpass.late import dataclass
from perfpass.prediction import SUPPORT_LEVELS, Support
from perfpass.predictors.calibration import device_file
from perfpass.predictors.estimate import (
    STEP_WATTS_FALL,
    Bounds,
    Columns,
    Estimate,
    Estimates,
    ManyPredictor,
    Predictor,
    Run,
    Runs,
    energy_j,
)
from perfpass.predictors.inference.features import FEATURES
from perfpass.predictors.learned.time_lacks import CAUSES
from perfpass.predictors.memory import allocation
from perfpass.predictors.roofline import GROUPS

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.calibration.correction import Correction
    from perfpass.predictors.calibration.posterior import Calibration
    from perfpass.predictors.calibration.schedules import Schedules
    from perfpass.predictors.mig.latency import MigPredictor
    from perfpass.predictors.way import Way

UNITS = {"latency_ms": "ms", "throughput_per_s": "1/s", "peak_memory_bytes": "byte", "energy_j": "J", "power_w": "W"}
_OUTSIDE = SUPPORT_LEVELS.index("outside")
# Columns that only the sharing of a device reads.
_SHARING = ("group_s", "kernels", "input_elements")


def predictor_of(way: Way) -> Predictor:
    """For inference: the learned predictor where it speaks of such runs at all, else the analytic one.

    That of CPUs speaks of what the learned one does not, of CPUs without records, and of 16 bits on all.
    """
    from perfpass.predictors.inference.predictor import InferencePredictor

    learned = InferencePredictor.covers(way)
    if way.device.kind == "cpu":
        from perfpass.predictors.inference.cpu import CpuPredictor

        recorded = learned and way.precision in ("fp32", "fp64") and InferencePredictor.load().knows(way.device)
        if CpuPredictor.covers(way) and not recorded:
            return CpuPredictor.load()
    if learned:
        return InferencePredictor.load()
    from perfpass.predictors.inference.analytic import AnalyticPredictor

    return AnalyticPredictor.load()


def level_of_graphs(unknown: np.ndarray, assumed: np.ndarray, counted_once: np.ndarray) -> np.ndarray:
    """[N] int8, the best support level that graphs allow: near with operators without a cost model or with a load that
    nobody stated, outside where a body that runs as often as only a run knows is counted once.
    """
    near = (unknown != 0) | (assumed != 0)
    return np.where(counted_once != 0, np.int8(_OUTSIDE), near.astype(np.int8))


def _correction(device: Device, predictor: str, calibration: bool | Calibration) -> Correction | str | None:
    """As `perfpass.predictors.calibration.correction`, which is imported where there is a calibration at all."""
    if calibration is True and device_file.find(device.id, device_file.SUFFIX) is None:
        return None
    from perfpass.predictors.calibration.correction import correction

    return correction(device, predictor, calibration)


def _sharing() -> MigPredictor:
    # Imported here: most devices are not shared.
    from perfpass.predictors.mig.latency import MigPredictor

    return MigPredictor.load()


def _step_predictor() -> ManyPredictor:
    # Imported here: most questions are of inference.
    from perfpass.predictors.training_step.predictor import StepPredictor

    return StepPredictor.load()


@dataclass(frozen=True, eq=False)
class Counted:
    """N items: those that could be counted as runs, and where they stand among the items."""

    runs: Runs
    at: np.ndarray  # [len(runs)] index of the item
    level: np.ndarray  # [len(runs)] int8, the best support level that its graph allows
    problems: list[PerfPassError | None]  # [N]


@dataclass(frozen=True, eq=False)
class Refined:
    """Estimates of N runs as calibration and sharing change them, and how they did.

    ``factor`` [N] of the correction, ``corrected_ms`` [N] the time after it, ``measured`` [N] whether the time is that
    of the model of sharing, ``ratio`` [N] the time over that of one process alone.
    """

    found: Estimates
    factor: np.ndarray
    corrected_ms: np.ndarray
    measured: np.ndarray
    ratio: np.ndarray


@dataclass(frozen=True, eq=False)
class Scored:
    """Metrics of N models on one device, their support levels, and what is wrong with some, by index."""

    metrics: dict[str, Bounds]
    level: np.ndarray
    problems: dict[int, PerfPassError]


class Lane:
    """How models run on one device, and what predicts it."""

    def __init__(
        self, way: Way, training: bool, calibration: bool | Calibration | Schedules, processes: int | None
    ) -> None:  # fmt: skip
        """Raises ArgumentError for training processes that are to share a device, what `MigPredictor.check` does, and
        what reading a calibration raises.
        """
        if training and processes is not None:
            raise ArgumentError(
                "processes: sharing a device is predicted for inference, not for training; leave it out"
            )
        self._way, self._processes = way, processes
        self._watts_fall = STEP_WATTS_FALL if training else 0.0
        self.device = way.device
        self._predictor: ManyPredictor = _step_predictor() if training else predictor_of(way)
        self._schedules: Schedules | None = None
        if not isinstance(calibration, bool):
            from perfpass.predictors.calibration.schedules import Schedules

            if isinstance(calibration, Schedules):
                calibration.check(way.device, way.runtime)
                self._schedules, calibration = calibration, False
                self._predictor = self._of_a_run()
        found = None if training else _correction(way.device, self._predictor.name, calibration)
        self._correction: Correction | None = None if isinstance(found, str) else found
        self._not_corrected: str | None = found if isinstance(found, str) else None
        if processes is not None:
            _sharing().check(way, processes)
        self._layout: list[tuple[str, int]] = []
        self.names: tuple[str, ...] = ()

    def prepare(self, counted: Counted) -> None:
        """Learns the columns from an example."""
        from perfpass.predictors.calibration.posterior import TRAITS
        from perfpass.predictors.inference import analytic, cpu

        columns = self.columns(counted, 1)
        self._layout = [(name, 1 if column.ndim == 1 else column.shape[1]) for name, column in columns.items()]
        features: tuple[str, ...] = FEATURES
        if self._predictor.name == "training_step":
            from perfpass.predictors.training_step.features import FEATURES as features
        wide = {"features": features, "group_s": tuple(f"roofline_s_{g}" for g in GROUPS), "traits": TRAITS}
        causes = {"analytic": analytic.CAUSES, "cpu": cpu.CAUSES}.get(self._predictor.name, CAUSES)
        wide["lacks"] = tuple(f"lack_{name}" for name in causes)
        self.names = tuple(n for name, _ in self._layout for n in wide.get(name, (name,)))
        self.score(columns, 1)

    def columns(self, counted: Counted, threads: int) -> Columns:
        """What is known of the models that could be counted, before they are scored."""
        runs = counted.runs
        if allocation.allocator(self.device, self._way.runtime) == "none":  # counted for another device of the scorer
            runs = replace(runs, reserved_bytes=np.zeros(len(runs.batch)))
        runs = allocation.with_beside_plan(runs, self._way)
        found, _ = self._predictor.columns(runs, self._way, threads)
        extra = {"graph_level": counted.level.astype(np.float64), **self._for_correction(runs)}
        kept = {name: column for name, column in found.items() if self._processes is not None or name not in _SHARING}
        return {**kept, **extra}

    def _for_correction(self, runs: Runs) -> dict[str, np.ndarray]:
        """Columns that only the correction reads."""
        if self._correction is None:
            return {}
        from perfpass.predictors.calibration.correction import extra_columns

        return extra_columns(self._predictor.name, runs, self._way)

    def packed(self, columns: Columns) -> np.ndarray:
        """[N, K] all columns side by side; float32 keeps its value."""
        return np.column_stack([columns[name] for name, _ in self._layout]).astype(np.float64)

    def unpacked(self, values: np.ndarray) -> Columns:
        """The inverse."""
        columns, start = {}, 0
        for name, width in self._layout:
            part = values[:, start : start + width]
            start += width
            columns[name] = part.astype(np.float32) if name == "features" else part[:, 0] if width == 1 else part
        return columns

    def score(self, columns: Columns, threads: int) -> Scored:
        """The metrics of N models."""
        found = self._refined(self._predictor.estimates(columns, self._way, threads), columns).found
        metrics = self.metrics(found, columns["batch"])
        return Scored(metrics, self.level(found, columns["graph_level"]), _problems(metrics))

    def estimate(self, run: Run) -> Estimate:
        """The same of one run of inference, and what is to be said of it."""
        alone = self._of_a_run().estimate(run)
        if self._correction is None and self._not_corrected is None and self._processes is None:
            return alone
        columns = alone.columns
        if self._correction is not None:
            columns = {**columns, **self._for_correction(allocation.runs_of(run))}
        refined = self._refined(alone.arrays(), columns)
        found = refined.found
        reasons, provenance, row_ms = list(alone.support.reasons), dict(alone.provenance), alone.row_ms
        if self._not_corrected is not None:
            reasons.append(self._not_corrected)
        if self._correction is not None:
            factor = float(refined.factor[0])
            reason, provenance["calibration"] = self._correction.words(self.device, factor)
            reasons.append(reason)
            row_ms = row_ms * factor
        if self._processes is not None:
            reason, provenance["sharing"] = _sharing().words(
                self.device, self._processes, bool(refined.measured[0]), float(refined.ratio[0])
            )
            reasons.append(reason)
            row_ms = row_ms * float(found.latency_ms.median[0] / refined.corrected_ms[0])
        return replace(
            alone,
            latency_ms=found.latency_ms.interval(0, "ms"),
            row_ms=row_ms,
            support=Support(SUPPORT_LEVELS[found.level[0]], tuple(reasons)),
            provenance=provenance,
            wide_by=tuple if self._correction is not None else alone.wide_by,
            found=found,
        )

    def _of_a_run(self) -> Predictor:
        """What answers for inference."""
        predictor = predictor_of(self._way)
        if self._schedules is None:
            return predictor
        from perfpass.predictors.inference.analytic import AnalyticPredictor
        from perfpass.predictors.inference.cpu import CpuPredictor

        assert isinstance(predictor, CpuPredictor | AnalyticPredictor)  # what knows TVM
        return predictor.scheduled(self._schedules)

    def _refined(self, found: Estimates, columns: Columns) -> Refined:
        """What the predictor found, corrected by the device's calibration and as one of the processes that share it."""
        one = np.ones(len(found.level))
        factor, measured, ratio = one, one < 1, one
        if self._correction is not None:
            found, factor = self._correction.apply(found, columns, self._way)
        corrected_ms = found.latency_ms.median
        if self._processes is not None:
            corrected = self._correction is not None
            found, measured, ratio = _sharing().shared(found, columns, self._way, self._processes, corrected)
        return Refined(found, factor, corrected_ms, measured, ratio)

    def level(self, found: Estimates, of_graph: np.ndarray) -> np.ndarray:
        """[N] support levels of ``found``, lowered for wide times, what the graphs allow [N] and a device too small."""
        level = np.maximum(np.maximum(found.level, found.latency_ms.level), of_graph.astype(np.int8))
        return np.where(found.peak_memory_bytes.low > self.device.usable_bytes, np.int8(_OUTSIDE), level)

    def metrics(self, found: Estimates, batch: np.ndarray) -> dict[str, Bounds]:
        """The five metrics of N runs, of ``batch`` [N] samples each; the throughput is that of all processes."""
        return {
            "latency_ms": found.latency_ms,
            "throughput_per_s": found.latency_ms.inverse(batch * (self._processes or 1) * 1e3),
            "peak_memory_bytes": found.peak_memory_bytes,
            "energy_j": energy_j(found.latency_ms, found.power_w, self._watts_fall),
            "power_w": found.power_w,
        }


def _problems(metrics: Mapping[str, Bounds]) -> dict[int, PerfPassError]:
    """What `perfpass.prediction.Interval` refuses: bounds that are not finite, or not in order."""
    problems: dict[int, PerfPassError] = {}
    for name, bounds in metrics.items():
        ordered = (bounds.low >= 0) & (bounds.low <= bounds.median) & (bounds.median <= bounds.high)
        for i in np.flatnonzero(~(ordered & np.isfinite(bounds.high))).tolist():
            try:
                bounds.interval(i, UNITS[name])
            except PerfPassError as error:
                problems.setdefault(i, error)
    return problems
