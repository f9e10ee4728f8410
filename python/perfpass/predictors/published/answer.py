"""What predictors that learn from graphs share: arrays of an artefact, support and bounds by task, and the answer.

Their manifests have ``tasks``: for each task of the comparison the bounds of log(measured / predicted) and what was
measured, as [device, precision, runtime, layout, least batch, largest batch, rows].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import ArtefactError
from perfpass.prediction import SUPPORT_LEVELS, Interval, MemoryFigures, Prediction, Support
from perfpass.predictors.learned import arrays as weights
from perfpass.predictors.published.run_features import run_features

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.prediction import SupportLevel
    from perfpass.predictors.learned.artefacts import Artefact

WEIGHTS = "weights.safetensors"
# Log widths grow by these factors where no held-out error stands behind the bounds; set by hand.
WIDENING: dict[SupportLevel, float] = {"in range": 1.0, "near": 1.5, "outside": 2.5}
# Predictions of a network far from its data may be anything; exp of more than this is no time, size or energy.
_LARGEST_LOG = 60.0


def arrays(artefact: Artefact, name: str, expected: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The artefact's arrays as float32. Raises ArtefactError where its manifest says otherwise than ``expected``."""
    for key, value in expected.items():
        if artefact.manifest.get(key) != value:
            raise ArtefactError(
                f"{artefact.folder}: {key} is not what this version computes; run `perfpass train --predictor {name}`"
            )
    stored = weights.unpack(artefact.read(WEIGHTS), f"{artefact.folder}/{WEIGHTS}")
    return {key: values.astype(np.float32) for key, values in stored.items()}


def measured(raw: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """What a network says of scaled logarithms, in the unit of what was measured."""
    return from_log(raw.astype(np.float64) * scale + mean)


def from_log(value: np.ndarray) -> np.ndarray:
    """The value behind a logarithm that a network says: finite, whatever it says."""
    found: np.ndarray = np.exp(np.clip(value, -_LARGEST_LOG, _LARGEST_LOG))
    return found


@dataclass(frozen=True, eq=False)
class Learned:
    """What the predictor ``title`` learned from, by task."""

    title: str
    tasks: Mapping[str, Mapping[str, Any]]

    def support(self, task: str, workload: Mapping[str, Any]) -> Support:
        """How far the records of ``task`` that the network learned from stand behind a workload."""
        run = [workload[name] for name in ("device", "precision", "runtime", "layout")]
        rows = self.tasks[task]["measured"]
        said = f"{self.title} learned nothing of {task.replace('_', ' ')}"
        if run[0] not in {row[0] for row in rows}:
            return Support("outside", (f"{said} on {run[0]}",))
        same = [row for row in rows if row[:4] == run]
        if not same:
            return Support("outside", (f"{said} in {', '.join(run[1:])} on {run[0]}",))
        low, high = min(row[4] for row in same), max(row[5] for row in same)
        if not low <= workload["batch"] <= high:
            return Support("near", (f"batch {workload['batch']}; {self.title} learned from {low} to {high} there",))
        return Support("in range")

    def interval(self, task: str, median: float, level: SupportLevel, unit: str) -> Interval:
        """Bounds from the errors on what the network did not learn from, wider where nothing stands behind them."""
        low, high = (self.tasks[task][side] * WIDENING[level] for side in ("low", "high"))
        return Interval(median, median * float(np.exp(low)), median * float(np.exp(high)), unit)


def runs_of(workload: Mapping[str, Any], device: Device) -> np.ndarray:
    """[1, K] the run features of a workload."""
    how = {name: workload[name] for name in ("precision", "runtime", "layout", "mode")}
    return run_features(device, **how, optimizer=workload.get("optimizer"))[None]


def answered(
    found: Prediction, learned: Learned, manifest: Mapping[str, Any], latency_ms: float, memory_bytes: float | None
) -> Prediction:
    """``found`` with a predictor's time in its place, and of a training step its memory, where it says one.

    Everything else stays ours, and the support says so.
    """
    workload, title = found.workload, learned.title
    training = workload["mode"] == "training"
    support = learned.support("training_step" if training else "latency", workload)
    reasons = list(support.reasons)
    # What is unlike all that we measured is unlike what the network learned from: they are the same records.
    level = worse(support.level, found.support.level)
    latency = learned.interval("training_step" if training else "latency", latency_ms, level, "ms")
    latency = as_wide(latency, found)
    processes = workload.get("processes", 1)
    if processes > 1:
        reasons.append(f"{title} knows of no other processes on the device: its latency is that of one alone")
    said: dict[str, Any] = {"latency_ms": latency}
    said["throughput_per_s"] = latency.inverse(workload["batch"] * processes * 1e3, "1/s")
    ours = ["peak memory", "energy", "power"]
    if training and memory_bytes is not None:
        # Few networks were measured, so the memory of any other is outside of what was learned.
        said["memory"] = MemoryFigures(learned.interval("memory", memory_bytes, "outside", "byte"))
        reasons.append(f"{title} learned memory from {', '.join(learned.tasks['memory']['networks'])} alone")
        ours = ["energy", "power"]
    said["energy_j"] = energy_of(found.power_w, latency)
    reasons.append(f"not said by {title} but by perfpass: {', '.join(ours)}, breakdown")
    return replace(
        found,
        **said,
        support=Support(level, (*reasons, *found.support.reasons)),
        breakdown=stretched(found.breakdown, latency_ms / found.latency_ms.median),
        provenance={
            **found.provenance,
            "predictor": manifest["predictor"],
            "corpus": manifest["corpus"]["name"],
            "corpus_rows": manifest["corpus"]["rows"],
            "beside": found.provenance["predictor"],
        },
    )


def worse(one: SupportLevel, other: SupportLevel) -> SupportLevel:
    """The level with less behind it."""
    return max(one, other, key=SUPPORT_LEVELS.index)


def as_wide(latency: Interval, found: Prediction) -> Interval:
    """``latency`` with bounds no nearer, as ratios, than those of ``found`` where that one is not in range."""
    if found.support.level == "in range":
        return latency
    ours, median = found.latency_ms, latency.median
    low = min(latency.low, median * ours.low / ours.median)
    return replace(latency, low=low, high=max(latency.high, median * ours.high / ours.median))


def energy_of(power: Interval, latency: Interval) -> Interval:
    """Joules = watts x seconds; the errors of the two are taken as independent."""
    median = power.median * latency.median * 1e-3

    def spread(side: str) -> float:
        return float(
            np.hypot(np.log(getattr(power, side) / power.median), np.log(getattr(latency, side) / latency.median))
        )

    return Interval(median, median * float(np.exp(-spread("low"))), median * float(np.exp(spread("high"))), "J")


def stretched(breakdown: dict[str, Any], factor: float) -> dict[str, Any]:
    """Our breakdown of the time, stretched to the time that the predictor says."""
    times: dict[str, Any] = {
        key: {name: value * factor for name, value in breakdown[key].items()}
        for key in ("latency_ms", "phase_ms")
        if key in breakdown
    }
    return {**breakdown, **times, "operators": [{**row, "ms": row["ms"] * factor} for row in breakdown["operators"]]}
