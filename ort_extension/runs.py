"""Runs of a session, timed: by input shape, beside what was predicted for that shape.

A run costs the session two readings of the clock and one append; everything else happens about once a second, in the
run after which it is due.
"""

from __future__ import annotations

import threading
import warnings
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import numpy as np

from ort_extension.forecast import Shapes
from ort_extension.verdict import outside
from perfpass.errors import ArgumentError
from perfpass.prediction import Interval
from perfpass.text import digits, shown_value

WARM_UP_RUNS = 5  # of each shape: arenas grow and caches fill
WINDOW_RUNS = 31  # the fewest whose median is compared
KEPT_RUNS = 4096  # the latest of each shape, for percentiles and records
MOST_SHAPES = 64  # of which runs are kept apart
_SETTLE_NS = 1_000_000_000
_MOST_PENDING = 1024
_UNKNOWN: Shapes = (("inputs whose shapes are not known", ()),)


class DriftWarning(UserWarning):
    """Runs take longer or shorter than predicted."""


@dataclass(frozen=True)
class Runs:
    """Runs with the same input shapes, beside the prediction for them.

    ``count``: runs that were timed, of which ``warm_up`` were left out, as were ``overlapping`` ones, which other runs
    of the session slowed down. ``median_ms``, ``p10_ms``, ``p90_ms``: of the latest window, None before there is one of
    WINDOW_RUNS. ``ratio``: measured over predicted median. ``inside``: whether the measured median is within the
    predicted interval. ``not_compared`` says why there is nothing to compare with.
    """

    shapes: Shapes
    count: int
    warm_up: int
    overlapping: int
    median_ms: float | None
    p10_ms: float | None
    p90_ms: float | None
    predicted_ms: Interval | None
    not_compared: str | None

    @property
    def ratio(self) -> float | None:
        """Measured over predicted; None where one of them is missing."""
        if self.median_ms is None or self.predicted_ms is None:
            return None
        return self.median_ms / self.predicted_ms.median

    @property
    def inside(self) -> bool | None:
        """Whether the measured median is within the predicted interval; None where one of them is missing."""
        if self.median_ms is None or self.predicted_ms is None:
            return None
        return self.predicted_ms.low <= self.median_ms <= self.predicted_ms.high

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} {list(shape)}" for name, shape in self.shapes)
        if self.median_ms is None:
            return f"{self.count} runs of {shapes}: too few to tell"
        text = f"{digits(self.median_ms)} ms measured (median of the latest of {self.count} runs) for {shapes}"
        if self.predicted_ms is None:
            return f"{text}; not compared: {self.not_compared}"
        p = self.predicted_ms
        return (
            f"{text}; {digits(p.median)} ms predicted ({digits(p.low)} to {digits(p.high)}), {self.ratio:.2f} times as "
            f"predicted, {'inside' if self.inside else 'outside'} the interval"
        )


@dataclass(frozen=True, eq=False)
class Recordable:
    """Runs of one shape for a record: ``laps_ms`` [N] after ``warm_up`` runs, the first of which took ``first_ms``."""

    shapes: Shapes
    laps_ms: np.ndarray
    first_ms: float
    warm_up: int
    index: int
    seen: int


@dataclass
class _Shape:
    """What is kept of one shape."""

    shapes: Shapes
    seen: int = 0
    overlapping: int = 0
    first_ms: float = 0.0
    laps_ms: np.ndarray = field(default_factory=lambda: np.empty(0))
    window: int = WINDOW_RUNS
    predicted: Interval | None = None
    not_compared: str | None = None
    asked: bool = False
    drifted: bool = False
    recorded: int = 0  # of `seen`, at the last record

    def add(self, laps_ms: np.ndarray, overlapping: np.ndarray) -> None:
        if self.seen == 0:
            self.first_ms = float(laps_ms[0])
        cold = max(0, WARM_UP_RUNS - self.seen)
        self.seen += len(laps_ms)
        self.overlapping += int(overlapping[cold:].sum())
        warm = laps_ms[cold:][~overlapping[cold:]]
        self.laps_ms = np.concatenate((self.laps_ms, warm))[-KEPT_RUNS:]
        self.window = min(max(WINDOW_RUNS, len(warm)), KEPT_RUNS)

    def latest_ms(self) -> np.ndarray | None:
        return self.laps_ms[-self.window :] if len(self.laps_ms) >= WINDOW_RUNS else None


class Meter:
    """Times the runs of one session.

    ``inputs``: names of the session's inputs, and ``fixed``: their shapes where none is open (then no run's inputs are
    looked at). ``expect`` gives the predicted latency for shapes, or a sentence on why there is none; it is asked once
    a shape. ``drift``: True warns outside the predicted interval, a factor above 1 beyond that factor instead, False
    never. ``drain``: times taken by the native provider ([n, 2] seconds: start, duration), taken instead of the clock
    around a call where the shapes are fixed.
    """

    def __init__(
        self,
        inputs: Iterable[str],
        fixed: Shapes | None,
        expect: Callable[[Shapes], Interval | str],
        drift: bool | float,
        drain: Callable[[], np.ndarray] | None = None,
    ) -> None:
        self._names = tuple(inputs)
        self._fixed = fixed
        self._expect = expect
        self._drift = drift
        self._drain = drain if fixed is not None else None
        self._pending = array("q")  # start, end (ns), index of the shape
        self._index: dict[Any, int] = {}
        self._shapes: list[_Shape] = []
        self._lock = threading.Lock()
        self._due_ns = perf_counter_ns() + _SETTLE_NS
        if fixed is not None:
            self._shapes.append(_Shape(fixed))
            self._index[fixed] = 0

    @property
    def native(self) -> bool:
        """Whether the native provider takes the times."""
        return self._drain is not None

    def lap(self, start_ns: int, end_ns: int, feed: Mapping[str, Any] | None) -> None:
        """One run, from ``start_ns`` to ``end_ns``; ``feed`` as `run` takes it, None where it cannot be looked at."""
        if self._drain is None:
            index = 0 if self._fixed is not None else self._index_of(feed)
            self._pending.extend((start_ns, end_ns, index))
        if end_ns > self._due_ns or len(self._pending) >= 3 * _MOST_PENDING:
            self.settle(wait=False)

    def _index_of(self, feed: Mapping[str, Any] | None) -> int:
        key: Any = None
        if feed is not None:
            try:
                key = tuple([feed[name].shape for name in self._names])
                return self._index[key]
            except (KeyError, AttributeError, TypeError):
                pass
        return self._new_index(key)

    def _new_index(self, key: Any) -> int:
        known = key is not None and all(isinstance(shape, tuple) for shape in key)
        with self._lock:
            if not known or len(self._shapes) >= MOST_SHAPES:
                key, shapes = None, _UNKNOWN
            else:
                shapes = tuple(zip(self._names, key, strict=True))
            if key not in self._index:
                self._index[key] = len(self._shapes)
                self._shapes.append(_Shape(shapes, not_compared=None if known else "the shapes are not known"))
                self._shapes[-1].asked = shapes is _UNKNOWN
            return self._index[key]

    def settle(self, wait: bool = True) -> None:
        """Sorts what was timed since the last time into shapes, and warns where runs drift.

        ``wait`` False returns at once where another thread is doing it.
        """
        if not self._lock.acquire(blocking=wait):
            return
        try:
            self._due_ns = perf_counter_ns() + _SETTLE_NS
            changed = self._sort(self._taken())
        finally:
            self._lock.release()
        for shape in changed:
            self._judge(shape)

    def _taken(self) -> np.ndarray:
        """[N, 3] start, end in ns, index of the shape, by start."""
        if self._drain is not None:
            seconds = np.asarray(self._drain(), dtype=np.float64).reshape(-1, 2)
            start = seconds[:, 0] * 1e9
            laps = np.stack([start, start + seconds[:, 1] * 1e9, np.zeros(len(start))], axis=1)
        else:
            pending, self._pending = self._pending, array("q")
            laps = np.array(pending, dtype=np.int64)[: len(pending) // 3 * 3].reshape(-1, 3).astype(np.float64)
        return laps[np.argsort(laps[:, 0], kind="stable")]

    def _sort(self, laps: np.ndarray) -> list[_Shape]:
        if not len(laps):
            return []
        start, end, index = laps.T
        overlapping = np.zeros(len(laps), dtype=bool)
        overlapping[1:] |= start[1:] < np.maximum.accumulate(end)[:-1]
        overlapping[:-1] |= start[1:] < end[:-1]
        changed = []
        for which in np.unique(index).astype(int).tolist():
            inside = index == which
            self._shapes[which].add((end[inside] - start[inside]) / 1e6, overlapping[inside])
            changed.append(self._shapes[which])
        return changed

    def _judge(self, shape: _Shape) -> None:
        latest = shape.latest_ms()
        if latest is None:
            return
        self._ask(shape)
        if shape.predicted is None or self._drift is False:
            return
        median, predicted = float(np.median(latest)), shape.predicted
        low, high = predicted.low, predicted.high
        if self._drift is not True:
            low, high = predicted.median / self._drift, predicted.median * self._drift
        drifted = not low <= median <= high
        crossed, shape.drifted = drifted and not shape.drifted, drifted
        if crossed:
            text = f"the runs of a session drift from their prediction: {self._runs(shape)}"
            warnings.warn(
                f"{text}; `perfpass calibrate` learns this device from the session's records (records=FILE)",
                DriftWarning,
                stacklevel=outside(),
            )

    def _ask(self, shape: _Shape) -> None:
        if shape.asked:
            return
        shape.asked = True
        found = self._expect(shape.shapes)
        if isinstance(found, Interval):
            shape.predicted = found
        else:
            shape.not_compared = found

    def _runs(self, shape: _Shape) -> Runs:
        latest = shape.latest_ms()
        p10, median, p90 = (None, None, None) if latest is None else np.percentile(latest, (10, 50, 90)).tolist()
        return Runs(
            shapes=shape.shapes,
            count=shape.seen,
            warm_up=min(shape.seen, WARM_UP_RUNS),
            overlapping=shape.overlapping,
            median_ms=median,
            p10_ms=p10,
            p90_ms=p90,
            predicted_ms=shape.predicted,
            not_compared=shape.not_compared,
        )

    def runs(self) -> tuple[Runs, ...]:
        """What was timed until now, the most frequent shape first."""
        self.settle()
        kept = sorted((s for s in self._shapes if s.seen), key=lambda s: -s.seen)
        for shape in kept:
            if shape.latest_ms() is not None:
                self._ask(shape)
        return tuple(self._runs(shape) for shape in kept)

    def to_record(self, least_runs: int) -> list[Recordable]:
        """What has ``least_runs`` runs since the last record, by shape."""
        self.settle()
        found = []
        for index, shape in enumerate(self._shapes):
            new = min(shape.seen - shape.recorded, len(shape.laps_ms))
            if shape.shapes is not _UNKNOWN and new >= least_runs:
                laps = shape.laps_ms[-new:]
                found.append(Recordable(shape.shapes, laps, shape.first_ms, WARM_UP_RUNS, index, shape.seen))
        return found

    def recorded(self, written: Iterable[Recordable]) -> None:
        """Says that these were written, or never can be."""
        for one in written:
            self._shapes[one.index].recorded = one.seen


def check_drift(drift: object) -> None:
    """Raises ArgumentError for what is neither True, False nor a factor above 1."""
    if isinstance(drift, bool):
        return
    if not isinstance(drift, (int, float)) or not 1.0 < drift < 1e6:
        found = shown_value(drift)
        raise ArgumentError(f"drift {found}; give True (the predicted interval), False, or a factor above 1")
