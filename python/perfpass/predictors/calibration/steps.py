"""Training steps of a device, learned from 1 to 512 of its own: time, memory and power.

The posterior of `perfpass.predictors.calibration.posterior`: log(measured / predicted) = constant + model + shares . w.
The shares say where a step's time goes (by operator class, or by cause of a step on many devices) and what holds its
memory: a share that takes twice its predicted time moves the whole by its part. Of priors and bounds
`perfpass evaluate --area step_calibration` says what devices and laboratories left out show.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.declared import Anything, Choice, Exactly, Items, Named, Number, Table, Text
from perfpass.interval import Interval
from perfpass.prediction import MemoryFigures
from perfpass.predictors.calibration import correction, device_file
from perfpass.predictors.calibration.posterior import MOST_POINTS, Posterior, Prior, learn, log_evidence
from perfpass.predictors.estimate import STEP_WATTS_FALL, Bounds, energy_j

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.prediction import Prediction
    from perfpass.predictors.llm_training.predict import Run

SCHEMA_VERSION = 1
SUFFIX = ".steps.json"
PREDICTORS = ("training_step", "llm_training")
METRICS = ("step_s", "memory_bytes", "power_w")
LEAST_POINTS = 1
_LARGEST_RATIO, _MOST_SHARES = 20.0, 64
# Deviations of a device of one's own, and of a model on it. The middles of devices of laboratories left out differ by
# 0.12 (language models) and 0.15 (networks) in time, by 0.06 in watts (Zeus' four boards). A model is off in time by as
# much again (0.1 made one and two own steps move all other models too far).
_DEVIATIONS = {"step_s": (0.15, 0.15), "memory_bytes": (0.4, 0.1), "power_w": (0.06, 0.06)}
# How far a share of a step may differ from what is predicted of it, and single steps from all that: chosen by
# likelihood.
_LEVELS = ((0.05, 0.06), (0.2, 0.1), (0.4, 0.1), (0.8, 0.1))
# Networks of many kinds may scatter about what is predicted of them with no share to blame, as on a CPU: else a few of
# them that lie apart would bend the shares.
_SCATTERED = (0.05, 0.25)
# Deviations that hold nine in ten errors of devices of laboratories left out; of memory, which is planned for, those of
# the laboratory that asks for most.
_BOUNDS = {
    ("llm_training", "step_s"): 1.8,
    ("llm_training", "memory_bytes"): 1.8,
    ("training_step", "step_s"): 1.9,
    ("training_step", "power_w"): 2.0,
}
_OTHER_BOUND = 2.4  # where nothing left out vouches for it
_POINT = Table(
    {
        "predictor": Choice(PREDICTORS),
        "metric": Choice(METRICS),
        "model": Text(4096, empty=True),
        "log_ratio": Number(-_LARGEST_RATIO, _LARGEST_RATIO, hint=", as no step is further off"),
        "shares": Named(Number(0, 1), _MOST_SHARES),
    },
    ("predictor", "metric", "model", "log_ratio", "shares"),
)
_FILE = Table(
    {
        "schema_version": Exactly(SCHEMA_VERSION),
        "device": Text(),
        "predictors": Named(Text(empty=True)),
        "points": Items(_POINT, 3 * MOST_POINTS, LEAST_POINTS),
        "provenance": Named(Anything()),
    },
    ("schema_version", "device", "predictors", "points", "provenance"),
)


def prior_of(predictor: str, metric: str) -> Prior:
    """How a device may differ from what is predicted of it."""
    scale, model = _DEVIATIONS[metric]
    levels = (*_LEVELS, _SCATTERED) if (predictor, metric) == ("training_step", "step_s") else _LEVELS
    return Prior(scale, model, levels, _BOUNDS.get((predictor, metric), _OTHER_BOUND))


@dataclass(frozen=True)
class StepPoint:
    """One figure of one own step: log(measured / predicted), of which model, and where the time or memory is."""

    predictor: str
    metric: str
    model: str
    log_ratio: float
    shares: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class StepCalibration:
    """What own steps on one device took, beside what was predicted; ``predictors``: a digest of each that predicted."""

    device: str
    predictors: dict[str, str]
    points: tuple[StepPoint, ...]
    provenance: dict[str, Any] = field(default_factory=dict)

    def of(self, predictor: str, metric: str) -> tuple[StepPoint, ...]:
        """The points of one predictor and figure."""
        return tuple(p for p in self.points if p.predictor == predictor and p.metric == metric)

    def corrected(
        self, predictor: str, metric: str, found: Interval, model: str, shares: Mapping[str, float]
    ) -> tuple[Interval, float]:
        """The corrected figure, and the factor; ``found`` and 1 where no point speaks of it."""
        points = self.of(predictor, metric)
        if not points or found.median <= 0:
            return found, 1.0
        names, learned = _learned(prior_of(predictor, metric), points)
        mean, deviation = learned.predict(traits(names, [shares]), [model])
        factor, half = math.exp(float(mean[0])), learned.prior.bound * float(deviation[0])
        median = found.median * factor
        return Interval(median, median * math.exp(-half), median * math.exp(half), found.unit, found.coverage), factor

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON, with the digest of its content."""
        content = {
            "schema_version": SCHEMA_VERSION,
            "device": self.device,
            "predictors": self.predictors,
            "provenance": self.provenance,
            "points": [
                {
                    "predictor": p.predictor,
                    "metric": p.metric,
                    "model": p.model,
                    "log_ratio": round(p.log_ratio, 6),
                    "shares": {name: round(float(v), 5) for name, v in p.shares.items()},
                }
                for p in self.points
            ],
        }
        return device_file.digested(content)


def left_out(points: Sequence[StepPoint]) -> np.ndarray:
    """[N] log errors of each point predicted from the others; of one alone, of no prediction at all."""
    if not points:
        return np.empty(0)
    return _learned(prior_of(points[0].predictor, points[0].metric), points)[1].left_out


def _learned(prior: Prior, points: Sequence[StepPoint]) -> tuple[tuple[str, ...], Posterior]:
    names = tuple(sorted({name for p in points for name in p.shares}))
    z = traits(names, [p.shares for p in points])
    return names, learned_from(prior, z, [p.model for p in points], np.array([p.log_ratio for p in points]))


def learned_from(prior: Prior, z: np.ndarray, model: Sequence[str] | np.ndarray, log_ratio: np.ndarray) -> Posterior:
    """The posterior of N own steps, as `perfpass.predictors.calibration.posterior.learn`.

    A device whose middle is over three of the prior's deviations away is unlike all that were measured, and believed:
    its scale is what of the middle lies beyond two. Its level is the mean of the prior's, in logarithms, each counted
    by how likely it makes the steps: a few can hardly tell them apart, and the likeliest alone would bend the shares.
    """
    beyond = abs(float(np.median(log_ratio))) - 2.0 * prior.scale
    prior = replace(prior, scale=max(prior.scale, beyond))
    if len(log_ratio) > 1:
        told = log_evidence(prior, z, model, log_ratio)
        share = np.exp(told - told.max())
        traits, noise = np.exp(share @ np.log(prior.levels) / share.sum()).tolist()
        prior = replace(prior, levels=((traits, noise),))
    return learn(prior, z, model, log_ratio, LEAST_POINTS)


def traits(names: Sequence[str], shares: Sequence[Mapping[str, float]]) -> np.ndarray:
    """[N, T] by ``names``, so that the mean of products of two rows is the sum over shares.

    The last column is what is not among the names.
    """
    rows = [[one.get(name, 0.0) for name in names] for one in shares]
    rest = [math.sqrt(sum(v * v for name, v in one.items() if name not in names)) for one in shares]
    return np.column_stack([np.array(rows, dtype=np.float64).reshape(len(shares), len(names)), rest]) * math.sqrt(
        len(names) + 1
    )


def shares_of(parts: Mapping[str, float]) -> dict[str, float]:
    """Parts of a whole over it."""
    whole = sum(value for value in parts.values() if value > 0)
    return {name: value / whole for name, value in parts.items() if value > 0} if whole > 0 else {}


@cache
def digest_of(predictor: str) -> str:
    """What tells one version of a predictor from another."""
    if predictor != "llm_training":
        return correction.digest_of(predictor)
    from perfpass.predictors.llm_training import constants

    told = [getattr(constants, name) for name in ("STEP", "FRAMEWORKS", "MEMORY")]
    return hashlib.sha256(repr(told).encode()).hexdigest()


def found_for(device: Device, predictor: str, wanted: bool) -> StepCalibration | str | None:
    """What is stored of a device, where it speaks of ``predictor``; a sentence where it is of another version."""
    found = find(device) if wanted else None
    if found is None or predictor not in found.predictors:
        return None
    if found.predictors[predictor] != digest_of(predictor):
        return (
            f"the steps learned on {device.name} were predicted by another version and are not used; run "
            "`perfpass calibrate` again"
        )
    return found


def corrected_run(found: Run, device: Device, model: str, *, wanted: bool = True) -> tuple[Run, tuple[str, ...]]:
    """A step on many devices, corrected by what is stored of its device, and what is said of it."""
    learned = found_for(device, "llm_training", wanted)
    if not isinstance(learned, StepCalibration):
        return found, () if learned is None else (learned,)
    parts = {f.name: float(getattr(found.parts_s, f.name)) for f in fields(found.parts_s)}
    stage = found.memory.stages[found.memory.fullest]
    held = {f.name: float(getattr(stage, f.name)) for f in fields(stage)}
    step, factor = learned.corrected("llm_training", "step_s", found.step_s, model, shares_of(parts))
    memory, more = learned.corrected("llm_training", "memory_bytes", found.in_use, model, shares_of(held))
    power, drawn = learned.corrected("llm_training", "power_w", found.power_w, model, shares_of(parts))
    power = _within(power, device.power_limit_w)
    changed = replace(
        found,
        step_s=step,
        parts_s=replace(found.parts_s, **{name: value * factor for name, value in parts.items()}),
        in_use=memory,
        fits_probability=MemoryFigures(memory).probability_fits(device.usable_bytes),
        mfu=found.mfu / factor,
        power_w=power,
    )
    return changed, (_said(learned, "llm_training", device, (factor, more, drawn)),)


def corrected_prediction(found: Prediction, device: Device, model: str, *, wanted: bool = True) -> Prediction:
    """A step of any graph, corrected by what is stored of its device."""
    learned = found_for(device, "training_step", wanted)
    if learned is None:
        return found
    if isinstance(learned, str):
        return replace(found, support=replace(found.support, reasons=(*found.support.reasons, learned)))
    times, held = shares_of(found.breakdown["latency_ms"]), shares_of(found.breakdown["memory_bytes"])
    one = found.latency_ms
    time, factor = learned.corrected("training_step", "step_s", one, model, times)
    memory, more = learned.corrected("training_step", "memory_bytes", found.memory.in_use, model, held)
    power, drawn = learned.corrected("training_step", "power_w", found.power_w, model, times)
    power = _within(power, device.power_limit_w)
    joules = energy_j(Bounds.of(time), Bounds.of(power), STEP_WATTS_FALL)
    samples = found.throughput_per_s.median * one.median
    said = _said(learned, "training_step", device, (factor, more, drawn))
    return replace(
        found,
        latency_ms=time,
        throughput_per_s=time.inverse(samples, found.throughput_per_s.unit),
        memory=replace(found.memory, in_use=memory),
        power_w=power,
        energy_j=joules.interval(0, found.energy_j.unit),
        breakdown={
            **found.breakdown,
            "latency_ms": {name: ms * factor for name, ms in found.breakdown["latency_ms"].items()},
            "phase_ms": {name: ms * factor for name, ms in found.breakdown["phase_ms"].items()},
            "operators": [{**row, "ms": row["ms"] * factor} for row in found.breakdown["operators"]],
        },
        support=replace(found.support, reasons=(*found.support.reasons, said)),
        provenance={**found.provenance, "calibration": {"steps": len(learned.points), "factor": factor}},
    )


def _within(power: Interval, limit_w: float) -> Interval:
    """No board draws more than its limit for long."""
    low, median, high = (min(value, limit_w) for value in (power.low, power.median, power.high))
    return Interval(median, low, high, power.unit, power.coverage)


def _said(learned: StepCalibration, predictor: str, device: Device, factors: tuple[float, ...]) -> str:
    told = [
        f"{what} by a factor of {factor:.2f} ({len(learned.of(predictor, metric))})"
        for what, metric, factor in zip(("time", "memory", "power"), METRICS, factors, strict=True)
        if learned.of(predictor, metric)
    ]
    return f"corrected by own steps on {device.name}: {', '.join(told)}"


def write(calibration: StepCalibration, folder: Path | str | None = None) -> Path:
    """Write it to ``folder`` (default: the user's), in one step. Raises FileError."""
    return device_file.write(calibration.device, SUFFIX, calibration.to_dict(), folder)


def find(device: Device) -> StepCalibration | None:
    """What is stored of a device's steps: by the user, else in a folder that PERFPASS_DEVICES names.

    Raises FormatError for a damaged file, ArtefactError for one of another schema, LimitError for one too large.
    """
    found = device_file.find(device.id, SUFFIX)
    return None if found is None else _read_once(*found)


@lru_cache(maxsize=256)
def _read_once(path: Path, stamp: int) -> StepCalibration:
    return read(path)


def read(path: Path | str) -> StepCalibration:
    """One file. Raises FileError, FormatError, ArtefactError, LimitError."""
    path = Path(path)
    content = device_file.opened(path, "a calibration of steps", SCHEMA_VERSION)
    device_file.declared(content, _FILE, path)
    points = tuple(
        StepPoint(p["predictor"], p["metric"], p["model"], float(p["log_ratio"]), dict(p["shares"]))
        for p in content["points"]
    )
    return StepCalibration(content["device"], content["predictors"], points, content["provenance"])
