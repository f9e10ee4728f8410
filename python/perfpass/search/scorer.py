"""Scoring of many models: one scorer per way of running them, made once and used from any number of threads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from perfpass import _core
from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError, PerfPassError, UnsupportedError
from perfpass.graph import OpGraph
from perfpass.graph.single import keeps
from perfpass.predictors.calibration.posterior import Calibration
from perfpass.predictors.calibration.schedules import Schedules
from perfpass.predictors.estimate import Bounds
from perfpass.predictors.inference import fusion
from perfpass.predictors.lane import Counted, Lane, Scored
from perfpass.predictors.memory import allocation
from perfpass.predictors.workload import check
from perfpass.search.items import Candidate, Counting, chunks, count

# Models that are counted before Python looks again (for Ctrl-C), and rows of features that are scored at once. Large
# enough that NumPy's cost per call is small beside the work, small enough that memory is some megabytes. (A model of
# 1,024 took 0.77 ms of the processor by 64 at once, 0.72 by 128, 0.82 by 256 and 0.87 by 512.)
CHUNK = 128
ROWS = 8192


@dataclass(frozen=True, eq=False)
class Scores:
    """Metrics of N models: arrays [N] for one device, [N, D] where a sequence of D devices was asked.

    ``latency_ms`` is one run of the whole batch, ``throughput_per_s`` samples per second, ``energy_j`` joules per run,
    ``power_w`` mean watts; each has ``median``, ``low`` and ``high`` (90 %) as float64, NaN where there is no score.
    ``support``: int8 index into `perfpass.prediction.SUPPORT_LEVELS`, -1 where there is no score. ``problems`` [N]: why
    a model has no score, else None.
    """

    latency_ms: Bounds
    throughput_per_s: Bounds
    peak_memory_bytes: Bounds
    energy_j: Bounds
    power_w: Bounds
    support: np.ndarray
    problems: tuple[PerfPassError | None, ...]

    def __len__(self) -> int:
        return len(self.problems)

    @property
    def ok(self) -> np.ndarray:
        """[N] whether a model has scores."""
        return np.array([problem is None for problem in self.problems], dtype=bool)

    @classmethod
    def joined(cls, parts: Sequence[Scores]) -> Scores:
        """The models of all parts, in order."""
        bounds = {
            metric: Bounds(*(np.concatenate([getattr(getattr(p, metric), b) for p in parts]) for b in _BOUNDS))
            for metric in METRICS
        }
        support = np.concatenate([p.support for p in parts])
        return cls(**bounds, support=support, problems=tuple(x for p in parts for x in p.problems))


@dataclass(frozen=True, eq=False)
class Features:
    """What a scorer reads of N models: ``values`` [N, K] float64, the columns named by `Scorer.feature_names`; rows of
    NaN where ``problems`` [N] has one.
    """

    values: np.ndarray
    problems: tuple[PerfPassError | None, ...]


METRICS: tuple[str, ...] = tuple(f.name for f in fields(Scores) if f.name not in ("support", "problems"))
_BOUNDS = ("median", "low", "high")


class Scorer:
    """Predicts many models on one device or several, as `perfpass.predict` does one: the same figures, as arrays.

    A scorer never changes after it is made, and may be used from many threads at the same time; results depend neither
    on the number of threads nor on what else is scored beside a model. Counting, trees and distances run in the core
    without Python's lock.
    """

    def __init__(
        self,
        device: str | Device | Sequence[str | Device],
        *,
        precision: str = "fp32",
        mode: str = "inference",
        runtime: str = "torch",
        layout: str = "nchw",
        optimizer: str | None = None,
        cuda_graph: bool = False,
        calibration: bool | Calibration | Schedules = True,
        processes: int | None = None,
        threads: int | None = None,
    ) -> None:
        """Loads what predicts on the devices; the arguments are those of `perfpass.predict`.

        ``device``: one, for arrays [N], or a sequence of D, for arrays [N, D]. ``calibration`` True takes what is
        stored of each device now. ``threads``: of the core in one call, by default all processors of the process, at
        most 8. Raises ArgumentError, DeviceError, UnsupportedError and ArtefactError.
        """
        single = isinstance(device, (str, Device))
        asked = [device] if isinstance(device, (str, Device)) else list(device)
        if not asked:
            raise ArgumentError("no device; name at least one")
        self._single = single
        self._threads = _thread_count(threads)
        targets = [find_device(d) for d in asked]
        how: dict[str, Any] = {"precision": precision, "mode": mode, "runtime": runtime, "layout": layout}
        checked = [check(target, batch=None, optimizer=optimizer, cuda_graph=cuda_graph, **how) for target in targets]
        if checked[0].quantised is not None:
            raise UnsupportedError(f"{precision} is predicted for one model at a time (perfpass.predict), not scored")
        ways = [workload.on(target) for target, workload in zip(targets, checked, strict=True)]
        kinds = {allocation.allocator(way.device, runtime) for way in ways}
        counting = Counting(
            float_as=checked[0].float_as,
            strided=True,
            folds=fusion.folds(runtime),
            fuses=False,
            narrows=False,
            alignment_bytes=allocation.alignment_bytes(runtime),
            allocator=max(kinds - {"none"}, default="none"),
            weight_copies=allocation.weight_copies(ways[0].precision, ways[0].runtime),
            training=mode == "training",
            autocast=allocation.autocasts(ways[0].precision),
            keeps_single=keeps(checked[0].precision, runtime, mode),
        )
        # Files are read otherwise for CPUs than for GPUs (`fusion.strided`); lanes of one kind share what is counted.
        of_kind = {
            kind: replace(
                counting,
                strided=fusion.strided(runtime, kind),
                fuses=fusion.fuses(runtime, kind),
                narrows=allocation.narrows(kind, runtime),
            )
            for kind in {way.device.kind for way in ways}
        }
        self._countings = [of_kind[way.device.kind] for way in ways]
        self._lanes = [Lane(way, mode == "training", calibration, processes) for way in ways]
        self.devices: tuple[Device, ...] = tuple(targets)

    @cached_property
    def _columned(self) -> list[Lane]:
        """The lanes, which know their columns: one small network shows them."""
        for lane, runs in zip(self._lanes, self._counted([_smallest()], Candidate(None), 1), strict=True):
            lane.prepare(runs)
        return self._lanes

    @property
    def feature_names(self) -> tuple[str, ...]:
        """[K] names of the columns that `features` gives and `score_features` takes; of several devices, one's columns
        stand after the other's, each with the device's id before its name.
        """
        if self._single:
            return self._columned[0].names
        return tuple(f"{lane.device.id} {name}" for lane in self._columned for name in lane.names)

    def score(
        self,
        models: Iterable[Any],
        *,
        batch: int | None = None,
        dims: Mapping[str, int] | None = None,
        input_shape: Any = None,
    ) -> Scores:
        """Scores of all models. One bad model does not fail the others: it gets a problem.

        ``models``: any iterable, generators included, of what `perfpass.predict` takes or of `Candidate`; ``batch``,
        ``dims`` and ``input_shape`` are for those that bring none. (A torch module's training memory is planned from
        its graph here; `predict` records two of its steps, which takes seconds.)
        """
        found = list(self.stream(models, batch=batch, dims=dims, input_shape=input_shape))
        return Scores.joined(found) if found else self._scores(0, [])

    def stream(
        self,
        models: Iterable[Any],
        *,
        batch: int | None = None,
        dims: Mapping[str, int] | None = None,
        input_shape: Any = None,
    ) -> Iterator[Scores]:
        """The same in parts of up to `CHUNK` models as they are ready, so that memory stays small for any number."""
        defaults = Candidate(None, batch, dims, input_shape)
        for part in chunks(models, CHUNK):
            counted = self._counted(part, defaults, self._threads)
            of_lane = [lane.columns(runs, self._threads) for lane, runs in zip(self._lanes, counted, strict=True)]
            scored = [lane.score(columns, self._threads) for lane, columns in zip(self._lanes, of_lane, strict=True)]
            yield self._scores(len(part), counted[0].problems, scored, counted[0].at)

    def features(
        self,
        models: Iterable[Any],
        *,
        batch: int | None = None,
        dims: Mapping[str, int] | None = None,
        input_shape: Any = None,
    ) -> Features:
        """What `score_features` needs of all models; arguments as for `score`."""
        defaults = Candidate(None, batch, dims, input_shape)
        values, problems = [], []
        for part in chunks(models, CHUNK):
            counted = self._counted(part, defaults, self._threads)
            rows = np.full((len(part), len(self.feature_names)), np.nan)
            of_lane = zip(self._columned, counted, strict=True)
            rows[counted[0].at] = np.concatenate(
                [lane.packed(lane.columns(runs, self._threads)) for lane, runs in of_lane], axis=1
            )
            values.append(rows)
            problems += counted[0].problems
        return Features(np.concatenate([np.empty((0, len(self.feature_names))), *values]), tuple(problems))

    def _counted(self, models: Sequence[Any], defaults: Candidate, threads: int) -> list[Counted]:
        """The models as each lane counts them."""
        found = {how: count(models, defaults, how, threads) for how in dict.fromkeys(self._countings)}
        return [found[how] for how in self._countings]

    def score_features(self, values: np.ndarray) -> Scores:
        """Scores of N rows of features: ``values`` [N, K] as `features` gives them.

        Rows may be changed, left out and put in any order. Raises ArgumentError for another shape.
        """
        x = np.asarray(values, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != len(self.feature_names):
            raise ArgumentError(f"features of shape {x.shape}; this scorer takes (rows, {len(self.feature_names)})")
        ends = np.cumsum([0, *(len(lane.names) for lane in self._columned)])
        found = []
        for start in range(0, len(x), ROWS):
            part = x[start : start + ROWS]
            good = np.flatnonzero(np.isfinite(part).any(axis=1))
            problems: list[PerfPassError | None] = [None] * len(part)
            for i in np.setdiff1d(np.arange(len(part)), good):
                problems[i] = ArgumentError("no features: the row has no number")
            rows = part if len(good) == len(part) else part[good]
            scored = [
                lane.score(lane.unpacked(rows[:, ends[d] : ends[d + 1]]), self._threads)
                for d, lane in enumerate(self._columned)
            ]
            found.append(self._scores(len(part), problems, scored, good))
        return Scores.joined(found) if found else self._scores(0, [])

    def _scores(
        self,
        size: int,
        problems: Sequence[PerfPassError | None],
        scored: Sequence[Scored] = (),
        at: np.ndarray | None = None,
    ) -> Scores:
        """The scores of lanes at their places among ``size`` items."""
        shape = (size, len(self._lanes))
        support = np.full(shape, -1, dtype=np.int8)
        bounds = {metric: {b: np.full(shape, np.nan) for b in _BOUNDS} for metric in METRICS}
        problems = list(problems)
        for d, lane_scores in enumerate(scored):
            assert at is not None
            for i, problem in lane_scores.problems.items():
                problems[at[i]] = problems[at[i]] or problem
            support[at, d] = lane_scores.level
            for metric, arrays in bounds.items():
                for b, array in arrays.items():
                    array[at, d] = getattr(lane_scores.metrics[metric], b)
        bad = [i for i, problem in enumerate(problems) if problem is not None]
        support[bad] = -1
        for arrays in bounds.values():
            for array in arrays.values():
                array[bad] = np.nan
        fit = (lambda a: a[:, 0]) if self._single else (lambda a: a)
        metrics = {metric: Bounds(**{b: fit(a) for b, a in arrays.items()}) for metric, arrays in bounds.items()}
        return Scores(**metrics, support=fit(support), problems=tuple(problems))


def _thread_count(threads: int | None) -> int:
    if threads is None:
        return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8)
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 1024:
        raise ArgumentError(f"threads must be a whole number from 1 to 1024, got {threads!r}")
    return threads


def _smallest() -> OpGraph:
    """A network of one operator."""
    builder = _core.GraphBuilder()
    x, y = (builder.add_tensor(n, "float32", [1, 8], r) for n, r in (("x", "input"), ("y", "activation")))
    builder.add_node("relu", "Relu", "relu", {}, [x], [y])
    return OpGraph(builder.finish([x], [y]))
