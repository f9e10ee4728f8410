"""What a compiler's tuned schedules reach on a device, learned from a user's tuning records.

Each record is one operator that was measured. Against the price of that operator by the predictor, its seconds say by
what factor operators of its class differ: log factor of a class ~ N(0, 0.9), of an operator in it ~ N(class, 0.45).
Operators that were tuned themselves take what was measured; others of their class its posterior mean; classes without
a record stay as they are. NumPy alone; what reads TVM's files is `tvm_perfpass.cost_model.tuning_records`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.graph.table import OperatorColumns, Tables
from perfpass.late import dataclass

if TYPE_CHECKING:
    from perfpass.devices import Device

# Deviations of log factors, by hand: default schedules are 3 times to 30 times slower than tuned ones by class (0.9),
# tuned operators of one class reach shares of the roof that differ by a factor of two and a half (0.45).
CLASS, OPERATOR = 0.9, 0.45
_MEASURED = 0.05  # of one record against the same kernel in a network
_WHOLE = 0.08  # of a sum of kernels against the network's time
_COVERED = 1.645  # deviations of a normal distribution that hold 90 %
_SAME = ("op", "b", "m", "n", "k", "kernel_area", "stride", "groups")

# Seconds [R] of one execution of every row, and the index [R] of its class.
Price = Callable[[Tables], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Schedules:
    """N tuned operators, one row each in ``tables``, and their measured ``seconds`` [N].

    ``kind``: of the device they ran on, "cpu" or "gpu". ``provenance``: where the records come from.
    """

    tables: Tables
    seconds: np.ndarray
    kind: str
    provenance: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ArgumentError."""
        if not len(self.tables) or len(self.tables.table) != len(self.tables) or len(self.seconds) != len(self.tables):
            raise ArgumentError("schedules need operators, one row each, and as many seconds; at least one is needed")
        if not (np.isfinite(self.seconds).all() and (self.seconds > 0).all()):
            raise ArgumentError("seconds of tuned operators must be finite and above 0")

    @classmethod
    def of(cls, tables: Sequence[OperatorColumns], seconds: Sequence[float], kind: str, **provenance: Any) -> Schedules:
        """From tables of one row each. Raises ArgumentError."""
        if not tables:
            raise ArgumentError("no tuned operator; at least one is needed")
        names = [f.name for f in fields(OperatorColumns)]
        columns = {name: np.concatenate([np.asarray(getattr(t, name)) for t in tables]) for name in names}
        whole = Tables(OperatorColumns(**columns), np.arange(len(tables) + 1))
        return cls(whole, np.asarray(seconds, dtype=np.float64), kind, provenance)

    def check(self, device: Device, runtime: str) -> None:
        """Raises ArgumentError where they say nothing of graphs in ``runtime`` on ``device``."""
        if runtime not in ("tvm", "relax"):
            raise ArgumentError(
                f"tuning records say what TVM's schedules reach, not {runtime}; use runtime='tvm' or 'relax'"
            )
        if device.kind != self.kind:
            raise ArgumentError(
                f"the tuning records are of a {self.kind}, {device.name} is a {device.kind}; "
                f"give the device that was tuned on, or records of a {device.kind}"
            )

    def learned(self, price: Price) -> Learned:
        """What they say of the prices of one predictor."""
        # As one graph: what surrounds an operator says whether its convolution is of one dimension.
        seconds, family = price(Tables(self.tables.table, np.array([0, len(self.tables)])))
        residual = np.log(self.seconds / np.maximum(seconds, 1e-12))
        count = np.bincount(family)
        # The mean of n operators, drawn to no change.
        weight = CLASS**2 / (CLASS**2 + OPERATOR**2 / np.maximum(count, 1))
        mean = weight * np.bincount(family, residual) / np.maximum(count, 1)
        apart: dict[tuple[int, ...], list[float]] = {}
        for key, value in zip(_keys(self.tables), self.seconds.tolist(), strict=True):
            apart.setdefault(key, []).append(value)
        own = {key: float(np.exp(np.mean(np.log(values)))) for key, values in apart.items()}
        return Learned(mean, CLASS**2 * (1.0 - weight), count > 0, own)


@dataclass(frozen=True, eq=False)
class Learned:
    """Posterior log factors by class, ``mean`` and ``variance`` [C], which classes were measured, and the seconds of
    single operators.
    """

    mean: np.ndarray
    variance: np.ndarray
    known: np.ndarray
    own: dict[tuple[int, ...], float]

    def apply(self, tables: Tables, family: np.ndarray, row: np.ndarray, rest: np.ndarray) -> Applied:
        """To graphs whose rows take ``row`` [R] seconds and which take ``rest`` [N] beside."""
        inside = family < len(self.mean)
        at = np.where(inside, family, 0)
        known = inside & self.known[at]
        found = [self.own.get(key) for key in _keys(tables)]
        same = np.array([value is not None for value in found], dtype=bool)
        known = known | same
        drawn = row * np.exp(np.where(known, self.mean[at], 0.0))
        new = np.where(same, np.array([value or 0.0 for value in found]) * tables.count, drawn)
        total = tables.sums(new) + rest
        share = new / total[tables.graph]
        shares = tables.by_keys(np.where(known & ~same, share, 0.0), tables.keys(at, len(self.mean)), len(self.mean))
        each = np.where(same, _MEASURED, OPERATOR) * np.where(known, share, 0.0)
        # The operators of a graph that share a class share its error; each has one of its own.
        variance = shares**2 @ self.variance + tables.sums(each**2)
        return Applied(
            new,
            total,
            tables.sums(np.where(known, share, 0.0)),
            tables.sums(np.where(same, share, 0.0)),
            np.sqrt(variance + _WHOLE**2),
        )


@dataclass(frozen=True, eq=False)
class Applied:
    """Seconds of rows [R] and graphs [N], the shares of the time that records of the class and of the very operator
    stand behind, and the deviation of the former's logarithm.
    """

    row: np.ndarray
    total: np.ndarray
    covered: np.ndarray
    same: np.ndarray
    deviation: np.ndarray

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """For `bounds`."""
        return {"scheduled": self.covered, "schedule_half_width": _COVERED * self.deviation}

    def words(self, schedules: Schedules, run: int) -> str:
        """What is said of one run."""
        return (
            f"{len(schedules.seconds)} tuned operators of the records given stand behind "
            f"{100 * self.covered[run]:.0f} % of the time, {100 * self.same[run]:.0f} % are those operators themselves"
        )


def bounds(columns: Any, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log bounds [N]: the predictor's own for what no record stands behind, those of the records for the rest."""
    if "scheduled" not in columns:
        return low, high
    own, half = 1.0 - columns["scheduled"], columns["schedule_half_width"]
    return -np.hypot(own * low, half), np.hypot(own * high, half)


def _keys(tables: Tables) -> list[tuple[int, ...]]:
    """What tells operators apart."""
    columns = [np.asarray(getattr(tables.table, name), dtype=np.int64).tolist() for name in _SAME]
    outputs = np.asarray(tables.table.output_elements, dtype=np.int64).tolist()
    return list(zip(*columns, outputs, strict=True))
