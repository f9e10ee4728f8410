"""One device among those of a scorer: from counted models to columns, from columns to metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from perfpass.errors import PerfPassError
from perfpass.prediction import SUPPORT_LEVELS
from perfpass.predictors.assemble import predictor_of
from perfpass.predictors.calibration import correction as calibrated
from perfpass.predictors.calibration.posterior import TRAITS
from perfpass.predictors.estimate import Bounds, Columns, ManyPredictor, Way, energy_j
from perfpass.predictors.inference.features import FEATURES
from perfpass.predictors.memory import allocation
from perfpass.predictors.mig.latency import MigPredictor
from perfpass.predictors.roofline import GROUPS
from perfpass.predictors.training_step.features import FEATURES as STEP_FEATURES
from perfpass.predictors.training_step.predictor import StepPredictor

if TYPE_CHECKING:
    from perfpass.predictors.calibration.posterior import Calibration
    from perfpass.search.items import Counted

UNITS = {"latency_ms": "ms", "throughput_per_s": "1/s", "peak_memory_bytes": "byte", "energy_j": "J", "power_w": "W"}
_OUTSIDE = SUPPORT_LEVELS.index("outside")
# Columns that only the sharing of a device reads.
_SHARING = ("group_s", "kernels", "input_elements")


@dataclass(frozen=True, eq=False)
class Scored:
    """Metrics of N models on one device, their support levels, and what is wrong with some, by index."""

    metrics: dict[str, Bounds]
    level: np.ndarray
    problems: dict[int, PerfPassError]


class Lane:
    """How models run on one device, and what predicts it."""

    def __init__(
        self, way: Way, training: bool, calibration: bool | Calibration, processes: int | None
    ) -> None:  # fmt: skip
        """Raises what `MigPredictor.check` does, and what reading a calibration raises."""
        self._way, self._processes = way, processes
        self.device = way.device
        self._predictor: ManyPredictor = StepPredictor.load() if training else predictor_of(way)
        found = None if training else calibrated.correction(way.device, self._predictor.name, calibration)
        self._correction = found if isinstance(found, calibrated.Correction) else None
        self._shares = not training and (processes is not None or way.device.parent is not None)
        if self._shares:
            MigPredictor.load().check(way, processes)
        self._layout: list[tuple[str, int]] = []
        self.names: tuple[str, ...] = ()

    def prepare(self, counted: Counted) -> None:
        """Learns the columns from an example, and reads what is read on first use."""
        columns = self.columns(counted, 1)
        self._layout = [(name, 1 if column.ndim == 1 else column.shape[1]) for name, column in columns.items()]
        features = STEP_FEATURES if self._predictor.name == "training_step" else FEATURES
        wide = {"features": features, "group_s": tuple(f"roofline_s_{g}" for g in GROUPS), "traits": TRAITS}
        self.names = tuple(n for name, _ in self._layout for n in wide.get(name, (name,)))
        self.score(columns, 1)

    def columns(self, counted: Counted, threads: int) -> Columns:
        """What is known of the models that could be counted, before they are scored."""
        runs = counted.runs
        if allocation.allocator(self.device, self._way.runtime) == "none":  # counted for another device of the scorer
            runs = replace(runs, reserved_bytes=np.zeros(len(runs.batch)))
        found, _ = self._predictor.columns(runs, self._way, threads)
        extra: dict[str, np.ndarray] = {"unknown": counted.unknown.astype(np.float64)}
        if self._correction is not None:
            extra |= calibrated.extra_columns(self._predictor.name, runs, self._way)
        kept = {name: column for name, column in found.items() if self._shares or name not in _SHARING}
        return {**kept, **extra}

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
        device, way = self._way.device, self._way
        found = self._predictor.estimates(columns, way, threads)
        if self._correction is not None:
            found, _ = self._correction.apply(found, columns, way)
        if self._shares:
            corrected = self._correction is not None
            found, _, _ = MigPredictor.load().shared(found, columns, way, self._processes, corrected)
        memory = found.peak_memory_bytes
        level = np.maximum(found.level, (columns["unknown"] > 0).astype(np.int8))
        level = np.where(memory.low > device.memory_bytes, np.int8(_OUTSIDE), level)
        samples = columns["batch"] * (self._processes or 1) * 1e3
        metrics = {
            "latency_ms": found.latency_ms,
            "throughput_per_s": found.latency_ms.inverse(samples),
            "peak_memory_bytes": memory,
            "energy_j": energy_j(found.latency_ms, found.power_w),
            "power_w": found.power_w,
        }
        return Scored(metrics, level, _problems(metrics))


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
