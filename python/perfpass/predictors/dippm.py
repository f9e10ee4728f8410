"""DIPPM: a GraphSAGE network over the operator graph (docs/predictors.md, docs/model-card-dippm.md).

It says how long a run takes, and of a training step also the peak of memory, for that is what our records measured.
What it does not say stays that of our own predictor, and the support names it. NumPy alone is needed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass import features
from perfpass.deploy.mig import dippm_rule, hint
from perfpass.errors import ArtefactError
from perfpass.prediction import Interval, MigHint, Prediction, Support
from perfpass.predictors import artefacts, weights
from perfpass.predictors.graph_classes import classes
from perfpass.predictors.graph_network import GraphNetwork, Scaling, Spec
from perfpass.predictors.run_features import RUN_FEATURES, run_features

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph import OpGraph
    from perfpass.prediction import SupportLevel

OUTPUTS = ("latency_ms", "peak_memory_bytes", "energy_j")
# Log widths grow by these factors where no held-out error stands behind the bounds; set by hand.
WIDENING: dict[SupportLevel, float] = {"in range": 1.0, "near": 1.5, "outside": 2.5}
# Predictions of a network far from its data may be anything; exp of more than this is no time, size or energy.
_LARGEST_LOG = 60.0
# The published rule knows one GPU.
_MIG_RULE_GPU = "a100-sxm4-40gb"


class DippmPredictor:
    """The network of an artefact, with its scalings and bounds."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        artefact = artefacts.Artefact(folder or artefacts.shipped("dippm"))
        self.manifest = artefact.manifest
        expected = {"schema": "dippm", "run_features": list(RUN_FEATURES), "outputs": list(OUTPUTS)}
        for name, value in expected.items():
            if self.manifest.get(name) != value:
                raise ArtefactError(
                    f"{artefact.folder}: {name} is not what this version computes; "
                    "run `perfpass train --predictor dippm`"
                )
        stored = weights.unpack(artefact.read("weights.safetensors"), f"{artefact.folder}/weights.safetensors")
        arrays = {name: values.astype(np.float32) for name, values in stored.items()}
        try:
            self.network = GraphNetwork(Spec.from_dict(self.manifest["spec"]), arrays)
            self._nodes = Scaling(True, arrays["nodes.mean"], arrays["nodes.factor"])
            self._statics = Scaling(False, arrays["statics.mean"], arrays["statics.factor"])
            self._targets = arrays["targets.mean"], arrays["targets.scale"]
            self.tasks: dict[str, dict[str, Any]] = self.manifest["tasks"]
        except KeyError as error:
            raise ArtefactError(f"{artefact.folder}: {error} is missing; run `perfpass train` again") from error

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> DippmPredictor:
        """The shipped predictor, read once per process."""
        return DippmPredictor()

    def outputs(self, graph: OpGraph, runs: np.ndarray) -> np.ndarray:
        """[R, 3] OUTPUTS of ``graph`` run in R ways, given by their run features [R, K]; one embedding serves all."""
        found = features.extract(graph, "dippm")
        embedding = np.zeros((1, 0), dtype=np.float32)
        if self.network.spec.graph:
            on = classes(found.nodes, found.edge_index, self.network.spec.rounds)
            embedding = self.network.readout(replace(on, nodes=self._nodes(on.nodes)))
        statics = np.hstack([np.tile(np.log1p(np.maximum(found.statics, 0.0)), (len(runs), 1)), runs])
        mean, scale = self._targets
        raw = self.network.head(np.repeat(embedding, len(runs), axis=0), self._statics(statics))
        return np.exp(np.clip(raw.astype(np.float64) * scale + mean, -_LARGEST_LOG, _LARGEST_LOG))

    def support(self, task: str, workload: dict[str, Any]) -> Support:
        """How far the records of ``task`` that the network learned from stand behind a workload."""
        run = [workload[name] for name in ("device", "precision", "runtime", "layout")]
        measured = self.tasks[task]["measured"]
        if run[0] not in {row[0] for row in measured}:
            return Support("outside", (f"DIPPM learned nothing of {task.replace('_', ' ')} on {run[0]}",))
        same = [row for row in measured if row[:4] == run]
        if not same:
            software = ", ".join(run[1:])
            return Support("outside", (f"DIPPM learned nothing of {task.replace('_', ' ')} in {software} on {run[0]}",))
        low, high = min(row[4] for row in same), max(row[5] for row in same)
        if not low <= workload["batch"] <= high:
            return Support("near", (f"batch {workload['batch']}; DIPPM learned from {low} to {high} there",))
        return Support("in range")

    def interval(self, task: str, median: float, level: SupportLevel, unit: str) -> Interval:
        """Bounds from the errors on what the network did not learn from, wider where nothing stands behind them."""
        bounds = self.tasks[task]
        low, high = (bounds[side] * WIDENING[level] for side in ("low", "high"))
        return Interval(median, median * float(np.exp(low)), median * float(np.exp(high)), unit)


def answer(found: Prediction, graph: OpGraph, device: Device) -> Prediction:
    """``found`` with what DIPPM says of the same workload in its place."""
    predictor, workload = DippmPredictor.load(), found.workload
    training = workload["mode"] == "training"
    how = {name: workload[name] for name in ("precision", "runtime", "layout", "mode")}
    runs = run_features(device, **how, optimizer=workload.get("optimizer"))[None]
    latency, memory, _ = (float(value) for value in predictor.outputs(graph, runs)[0])
    task = "training_step" if training else "latency"
    support = predictor.support(task, workload)
    reasons = list(support.reasons)
    latency_ms = predictor.interval(task, latency, support.level, "ms")
    processes = workload.get("processes", 1)
    if processes > 1:
        reasons.append("DIPPM knows of no other processes on the device: its latency is that of one alone")
    said: dict[str, Any] = {"latency_ms": latency_ms}
    said["throughput_per_s"] = latency_ms.inverse(workload["batch"] * processes * 1e3, "1/s")
    ours = ["peak memory", "energy", "power"]
    if training:
        # Few networks were measured, so the memory of any other is outside of what was learned. Energy was measured of
        # whole epochs, so what the network says of it is no energy of a step.
        said["peak_memory_bytes"] = predictor.interval("memory", memory, "outside", "byte")
        reasons.append(f"DIPPM learned memory from {', '.join(predictor.tasks['memory']['networks'])} alone")
        ours = ["energy", "power"]
    said["energy_j"] = energy_of(found.power_w, latency_ms)
    reasons.append(f"not said by DIPPM but by perfpass: {', '.join(ours)}, breakdown")
    level = support.level if found.support.level != "outside" else "outside"
    answered = replace(found, **said)
    return replace(
        answered,
        mig=_mig(answered, device),
        support=Support(level, (*reasons, *found.support.reasons)),
        breakdown=stretched(found.breakdown, latency / found.latency_ms.median),
        provenance={
            **found.provenance,
            "predictor": "dippm",
            "corpus": predictor.manifest["corpus"]["name"],
            "corpus_rows": predictor.manifest["corpus"]["rows"],
            "beside": found.provenance["predictor"],
        },
    )


def energy_of(power: Interval, latency: Interval) -> Interval:
    """Joules = watts x seconds; the errors of the two are taken as independent."""
    median = power.median * latency.median * 1e-3

    def spread(side: str) -> float:
        return float(
            np.hypot(np.log(getattr(power, side) / power.median), np.log(getattr(latency, side) / latency.median))
        )

    return Interval(median, median * float(np.exp(-spread("low"))), median * float(np.exp(spread("high"))), "J")


def _mig(found: Prediction, device: Device) -> MigHint:
    """The published rule on the GPU that it knows, ours elsewhere."""
    memory = found.peak_memory_bytes.median
    if device.id != _MIG_RULE_GPU:
        ours = hint(found.peak_memory_bytes.high, device)
        return replace(ours, reason=f"{ours.reason}; by perfpass, as DIPPM's rule knows the A100 40 GB alone")
    profile = dippm_rule(memory)
    if profile is None:
        return MigHint(None, 0, f"DIPPM's rule has no profile for {memory / 2**30:.2f} GiB")
    assert device.mig is not None
    instances = device.mig.profile(profile).max_instances
    return MigHint(profile, instances, f"DIPPM's rule: {memory / 2**30:.2f} GiB is below the {profile} profile's size")


def stretched(breakdown: dict[str, Any], factor: float) -> dict[str, Any]:
    """Our breakdown of the time, stretched to the time that another predictor says."""
    times: dict[str, Any] = {
        key: {name: value * factor for name, value in breakdown[key].items()}
        for key in ("latency_ms", "phase_ms")
        if key in breakdown
    }
    return {**breakdown, **times, "operators": [{**row, "ms": row["ms"] * factor} for row in breakdown["operators"]]}
