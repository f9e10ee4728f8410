"""What every predictor takes and gives: the boundary between counting and predicting.

Predictors work on N runs at once (`Runs` in, `Estimates` out); one run (`Run` in, `Estimate` out) is the same with
N = 1, so there is one set of formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from perfpass.late import dataclass
from perfpass.prediction import COVERAGE, LEVEL_WIDTHS, SUPPORT_LEVELS, Interval, MemoryFigures, Support

if TYPE_CHECKING:
    from perfpass.features import OperatorTable, Tables
    from perfpass.graph import OpGraph
    from perfpass.graph.costs import Costs
    from perfpass.graph.liveness import MemoryPlan
    from perfpass.graph.quantised import Quantised
    from perfpass.predictors.way import Way

# What is known of N runs before they are scored, by name: arrays of length N, or [N, K].
Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False, kw_only=True)
class PlannedRun:
    """A graph whose memory is planned, and how it runs. ``float_as`` is the type that floating tensors count as.

    ``quantised``: what quantisation as a what-if made of the graph (`perfpass.predictors.quantisation`), else None.
    """

    graph: OpGraph
    plan: MemoryPlan
    batch: int
    way: Way
    float_as: str
    quantised: Quantised | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Run(PlannedRun):
    """The same, its operators counted: what a prediction of time needs beside one of memory."""

    costs: Costs
    table: OperatorTable


@dataclass(frozen=True, eq=False)
class Runs:
    """N counted graphs; what they are on any device. Arrays have length N."""

    tables: Tables
    batch: np.ndarray
    weight_bytes: np.ndarray
    activation_bytes: np.ndarray
    reserved_bytes: np.ndarray  # by the allocator of the runtime; of training steps 0
    input_elements: np.ndarray  # of all inputs
    first_input_elements: np.ndarray
    backward_bytes: np.ndarray  # of training steps (perfpass.graph.saved.SavedActivations), else 0
    gradient_bytes: np.ndarray
    by_description: np.ndarray | float = 1.0  # 0 where the graph says how its program computes attention (`OpGraph`)


class Notes:
    """How far measurements stand behind N runs: support levels, and reasons that are put into words when asked for.

    ``level`` [N] indexes SUPPORT_LEVELS; ``beyond`` [N] is the level by what no held-out error vouches for.
    """

    def __init__(self, count: int) -> None:
        self.level = np.zeros(count, dtype=np.int8)
        self.beyond = np.zeros(count, dtype=np.int8)
        self._said: list[tuple[np.ndarray, str | Callable[[int], str]]] = []

    def add(
        self,
        at_least: int,
        holds: np.ndarray | bool,
        reason: str | Callable[[int], str],
        *,
        vouched: bool = False,
        first: bool = False,
    ) -> None:
        """Where ``holds`` [N], the level is ``at_least`` this one, because of ``reason`` (of run i).

        ``vouched``: held-out errors stand behind it all the same; ``first``: said before all others.
        """
        if holds is False or (holds is not True and not np.logical_or.reduce(holds)):
            return
        where = holds if isinstance(holds, np.ndarray) else np.full(self.level.shape, True)
        raised = np.where(where, np.int8(at_least), np.int8(0))
        self.level = np.maximum(self.level, raised)
        self.beyond = self.beyond if vouched else np.maximum(self.beyond, raised)
        self._said.insert(0 if first else len(self._said), (where, reason))

    def reasons(self, run: int) -> tuple[str, ...]:
        """Everything that was said of one run, in order."""
        return tuple(r if isinstance(r, str) else r(run) for where, r in self._said if where[run])

    def support(self, run: int) -> Support:
        """The support of one run."""
        return Support(SUPPORT_LEVELS[self.level[run]], self.reasons(run))


@dataclass(frozen=True, eq=False)
class Bounds:
    """Medians and the bounds that hold the measured values with probability `COVERAGE`; arrays of length N."""

    median: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def around(cls, median: np.ndarray, low: np.ndarray | float, high: np.ndarray | float) -> Bounds:
        """From logarithms of the bounds over the median."""
        return cls(median, median * np.exp(low), median * np.exp(high))

    @classmethod
    def of(cls, interval: Interval) -> Bounds:
        """A single interval as N = 1."""
        return cls(np.array([interval.median]), np.array([interval.low]), np.array([interval.high]))

    def or_else(self, other: Bounds, where: np.ndarray) -> Bounds:
        """These, and ``other`` where the mask does not hold."""
        return Bounds(
            np.where(where, self.median, other.median),
            np.where(where, self.low, other.low),
            np.where(where, self.high, other.high),
        )

    def at_least(self, low: np.ndarray) -> Bounds:
        """These, the lower bounds at least ``low``, which is at most the medians."""
        return Bounds(self.median, np.maximum(self.low, low), self.high)

    def scaled(self, factor: float | np.ndarray) -> Bounds:
        """``factor`` (> 0) times the values."""
        return Bounds(self.median * factor, self.low * factor, self.high * factor)

    def inverse(self, numerator: float | np.ndarray) -> Bounds:
        """``numerator`` over the values: the bounds change places."""
        return Bounds(numerator / self.median, numerator / self.high, numerator / self.low)

    @property
    def level(self) -> np.ndarray:
        """[N] the best support level, an index into SUPPORT_LEVELS, that bounds so far apart allow."""
        return width_level(self.high, self.low)

    def interval(self, run: int, unit: str) -> Interval:
        """The interval of one run. Raises ArgumentError where it is not finite or not in order."""
        return Interval(float(self.median[run]), float(self.low[run]), float(self.high[run]), unit, COVERAGE)


def width_level(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """[N] the best support level, an index into SUPPORT_LEVELS, that bounds of a time so far apart allow."""
    return np.searchsorted(LEVEL_WIDTHS, high / np.maximum(low, 1e-300)).astype(np.int8)


@dataclass(frozen=True, eq=False)
class MemoryBounds:
    """The three figures of `perfpass.prediction.MemoryFigures` for N runs, in bytes."""

    alive: Bounds
    reserved: Bounds
    in_use: Bounds

    def figures(self, run: int) -> MemoryFigures:
        """Those of one run."""
        alive, reserved, in_use = (b.interval(run, "byte") for b in (self.alive, self.reserved, self.in_use))
        return MemoryFigures(in_use, alive, reserved)

    @classmethod
    def of(cls, figures: MemoryFigures) -> MemoryBounds:
        """Figures of one run as N = 1; what is not known of them counts as what is in use."""
        found = (figures.alive or figures.in_use, figures.reserved or figures.in_use, figures.in_use)
        return cls(*(Bounds.of(interval) for interval in found))


@dataclass(frozen=True, eq=False)
class Estimates:
    """What a predictor says of N runs.

    ``memory_bytes`` has the keys of `Estimate.memory_bytes`, with arrays of length N or numbers.
    """

    latency_ms: Bounds
    power_w: Bounds
    memory: MemoryBounds
    memory_bytes: dict[str, Any]
    level: np.ndarray  # [N] index into SUPPORT_LEVELS

    @property
    def peak_memory_bytes(self) -> Bounds:
        """Memory in use on the device."""
        return self.memory.in_use


@dataclass(frozen=True, eq=False)
class Estimate:
    """What a predictor says of one run.

    ``row_ms`` [R] is the time per row of the operator table, its count included; ``memory_bytes`` has the keys
    "weights", "activations", "workspace" and "runtime", and "allocator" where one was simulated; ``columns`` are what
    it was made from, with N = 1; ``wide_by`` gives what makes the bounds of the time wide, in words, the most first:
    it is asked where they are. ``found``: the figures as arrays with N = 1, where they were made as such.
    """

    latency_ms: Interval
    power_w: Interval
    memory: MemoryFigures
    row_ms: np.ndarray
    memory_bytes: dict[str, float]
    support: Support
    provenance: dict[str, Any]
    columns: Columns
    wide_by: Callable[[], tuple[str, ...]] = tuple
    found: Estimates | None = None

    @classmethod
    def first(
        cls,
        found: Estimates,
        columns: Columns,
        row_ms: np.ndarray,
        reasons: tuple[str, ...],
        provenance: dict[str, Any],
        wide_by: Callable[[], tuple[str, ...]] = tuple,
    ) -> Estimate:
        """The one run of ``found`` (N = 1), and what is said of one alone."""
        return cls(
            latency_ms=found.latency_ms.interval(0, "ms"),
            power_w=found.power_w.interval(0, "W"),
            memory=found.memory.figures(0),
            row_ms=row_ms,
            memory_bytes={name: float(size[0] if np.ndim(size) else size) for name, size in found.memory_bytes.items()},
            support=Support(SUPPORT_LEVELS[found.level[0]], reasons),
            provenance=provenance,
            columns=columns,
            wide_by=wide_by,
            found=found,
        )

    def arrays(self) -> Estimates:
        """The same as N = 1."""
        if self.found is not None:
            return self.found
        level = np.array([SUPPORT_LEVELS.index(self.support.level)], dtype=np.int8)
        latency, power = Bounds.of(self.latency_ms), Bounds.of(self.power_w)
        return Estimates(latency, power, MemoryBounds.of(self.memory), dict(self.memory_bytes), level)


# A training step that takes longer than predicted uses less of the board, which draws fewer watts: so much of the
# relative error of its time is none of its joules. By the law of `training_step.power` 0.17 to 0.40 in eight of ten of
# Zeus' steps, 0.25 in the middle.
STEP_WATTS_FALL = 0.2


def energy_j(latency_ms: Bounds, power_w: Bounds, watts_fall: float = 0.0) -> Bounds:
    """Joules = watts x seconds. The errors of the two are taken as independent: relative widths add in quadrature.

    ``watts_fall``: by how much of the relative error of the time the watts fall (`STEP_WATTS_FALL`), 0 to 1.
    """
    median = power_w.median * latency_ms.median * 1e-3

    def spread(time_bound: np.ndarray, power_bound: np.ndarray) -> np.ndarray:
        longer = (1.0 - watts_fall) * np.log(time_bound / latency_ms.median)
        return np.hypot(longer, np.log(power_bound / power_w.median))

    low = -spread(latency_ms.low, power_w.low)
    return Bounds.around(median, low, spread(latency_ms.high, power_w.high))


def shares(row_s: np.ndarray) -> np.ndarray:
    """[R] each row's share of the whole."""
    return row_s / max(float(row_s.sum()), 1e-12)


class ManyPredictor(Protocol):
    """A predictor of latency, power and memory."""

    name: str

    def columns(self, runs: Runs, way: Way, threads: int = 1) -> tuple[Columns, Notes]:
        """What is known of N runs before they are scored, and how far measurements stand behind them."""
        ...

    def estimates(self, columns: Columns, way: Way, threads: int = 1) -> Estimates:
        """The metrics of N runs."""
        ...


class Predictor(ManyPredictor, Protocol):
    """One that puts a single run into words, too."""

    def estimate(self, run: Run) -> Estimate:
        """The metrics of one run."""
        ...
