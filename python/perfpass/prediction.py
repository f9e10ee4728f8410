"""What a prediction is: every metric with an interval, and what it rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from perfpass.errors import ArgumentError

SCHEMA_VERSION = 1
COVERAGE = 0.9

SupportLevel = Literal["in range", "near", "outside"]
SUPPORT_LEVELS: tuple[SupportLevel, ...] = ("in range", "near", "outside")


@dataclass(frozen=True)
class Interval:
    """A median and the bounds that hold the measured value with probability ``coverage``."""

    median: float
    low: float
    high: float
    unit: str
    coverage: float = COVERAGE

    def __post_init__(self) -> None:
        if not all(math.isfinite(v) for v in (self.median, self.low, self.high)):
            raise ArgumentError(f"an interval must be finite, got {self.low}, {self.median}, {self.high} {self.unit}")
        if not 0 <= self.low <= self.median <= self.high:
            raise ArgumentError(
                f"an interval needs 0 <= low <= median <= high, got {self.low}, {self.median}, {self.high} {self.unit}"
            )
        if not 0 < self.coverage < 1:
            raise ArgumentError(f"coverage must be between 0 and 1, got {self.coverage}")

    def scaled(self, factor: float, unit: str) -> Interval:
        """The interval of ``factor`` (> 0) times the value, in another unit."""
        return Interval(self.median * factor, self.low * factor, self.high * factor, unit, self.coverage)

    def inverse(self, numerator: float, unit: str) -> Interval:
        """The interval of ``numerator`` over the value: the bounds change places. The value must be above 0."""
        return Interval(numerator / self.median, numerator / self.high, numerator / self.low, unit, self.coverage)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "median": self.median,
            "low": self.low,
            "high": self.high,
            "unit": self.unit,
            "coverage": self.coverage,
        }


@dataclass(frozen=True)
class MigHint:
    """The MIG profile to rent or create for this workload; None where there is none, with the reason in words."""

    profile: str | None
    instances_per_gpu: int
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"profile": self.profile, "instances_per_gpu": self.instances_per_gpu, "reason": self.reason}


@dataclass(frozen=True)
class Support:
    """How far measurements stand behind the prediction, and what is missing where they do not."""

    level: SupportLevel
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.level not in SUPPORT_LEVELS:
            raise ArgumentError(f"support level {self.level!r}; allowed are {', '.join(SUPPORT_LEVELS)}")

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"level": self.level, "reasons": list(self.reasons)}


@dataclass(frozen=True)
class Prediction:
    """What a workload costs on a device. ``print(prediction)`` gives a table, ``to_dict()`` strict JSON.

    ``latency_ms`` is one run of the whole batch, ``throughput_per_s`` samples per second, ``energy_j`` joules per run,
    ``power_w`` the device's mean power during it. ``breakdown`` holds ``latency_ms`` and ``memory_bytes`` by class,
    the ``operators`` that take longest and the tensors alive at the ``peak``.
    """

    latency_ms: Interval
    throughput_per_s: Interval
    peak_memory_bytes: Interval
    energy_j: Interval
    power_w: Interval
    mig: MigHint
    support: Support
    breakdown: dict[str, Any] = field(hash=False)
    provenance: dict[str, Any] = field(hash=False)
    workload: dict[str, Any] = field(hash=False)

    def to_dict(self) -> dict[str, Any]:
        """The prediction as strict JSON (no NaN, no infinity), with its ``schema_version``."""
        return {
            "schema_version": SCHEMA_VERSION,
            "workload": self.workload,
            "latency_ms": self.latency_ms.to_dict(),
            "throughput_per_s": self.throughput_per_s.to_dict(),
            "peak_memory_bytes": self.peak_memory_bytes.to_dict(),
            "energy_j": self.energy_j.to_dict(),
            "power_w": self.power_w.to_dict(),
            "mig": self.mig.to_dict(),
            "support": self.support.to_dict(),
            "breakdown": self.breakdown,
            "provenance": self.provenance,
        }

    def __str__(self) -> str:
        from perfpass.report import prediction_table

        return prediction_table(self)
