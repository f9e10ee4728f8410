"""The training-step predictor: the step derived from the forward graph, roofline with learned group efficiencies,
gradient-boosted trees on what is left, conformal bounds (docs/predictors/training_step.md).

Two models, as for inference: the one for known devices sees the device's figures; the portable one never does, and has
learned from records of inference too, because what other devices are good at shows there.
Predicting needs NumPy and the compiled core.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass import _core
from perfpass.errors import ArtefactError, UnsupportedError
from perfpass.features import Tables
from perfpass.graph import OPERATORS
from perfpass.graph.step import OPTIMIZERS, StepOptions, Steps, StepTable
from perfpass.prediction import SUPPORT_LEVELS, Support
from perfpass.predictors.estimate import Bounds, Columns, Notes, shares
from perfpass.predictors.inference.features import fingerprints
from perfpass.predictors.inference.predictor import CONVOLUTIONS, note_operators
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.intervals import ConformalTable, nearest_to
from perfpass.predictors.roofline import ISSUE_S, Workload
from perfpass.predictors.training_step.features import (
    FEATURES,
    RATES,
    SCHEMA_VERSION,
    SOFTWARE,
    STEP_GROUPS,
    step_vectors,
)

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph.table import OperatorColumns

# Where trees would extrapolate, their correction fades between these distances of networks, as for inference.
TREES_FADE = (0.35, 0.6)
# Log widths grow by these factors where no held-out error stands behind the bounds, and are at least the minima. Set by
# hand; what newer software and devices show of them: docs/predictors/training_step.md, "Outside the corpus".
WIDENING = {"in range": 1.0, "near": 1.5, "outside": 2.5}
LEAST_WIDTH = {"in range": 0.0, "near": 0.2, "outside": 0.7}
# A device with as many records has bounds of its own; those with fewer share theirs.
LEAST_DEVICE_ROWS = 1000
# What is known of a precision on devices other than the asked one: measured on several, on one, or on none.
EVIDENCE = ("common", "rare", "unmeasured")
_LOG_ISSUE = FEATURES.index("log_issue")
HOST_BOUND_ISSUE = 0.5
_HOST_REASON = "bound by the host, which issues the operators; its speed is not known"
_WIDENING = np.array([WIDENING[level] for level in SUPPORT_LEVELS])
_LEAST_WIDTH = np.array([LEAST_WIDTH[level] for level in SUPPORT_LEVELS])


@dataclass(frozen=True)
class StepPrediction:
    """Seconds: median and bounds of one step, and its parts per row of the step table."""

    median_s: float
    low_s: float
    high_s: float
    row_s: np.ndarray
    distance: float
    ensemble: str
    support: Support


class StepPredictor:
    """Time of a training step in PyTorch, from a trained artefact."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        artefact = artefacts.Artefact(folder or artefacts.shipped("training_step"))
        manifest = artefact.manifest
        expected = {"features": list(FEATURES), "groups": list(STEP_GROUPS), "feature_version": SCHEMA_VERSION}
        for name, value in expected.items():
            if manifest.get(name) != value:
                raise ArtefactError(
                    f"{artefact.folder}: {name} is not what this version computes; "
                    "run `perfpass train --area training_step`"
                )
        self.manifest = manifest
        self._efficiency = {name: np.array(manifest["efficiency"][name]) for name in ("known", "portable")}
        for name, values in self._efficiency.items():
            if values.shape != (len(SOFTWARE), len(STEP_GROUPS)):
                raise ArtefactError(f"{artefact.folder}: efficiency {name} has shape {values.shape}")
        self._columns_of = {name: np.array(manifest["columns"][name]) for name in ("known", "portable")}
        self._artefact = artefact
        self._trees: dict[str, _core.TreeEnsemble] = {}
        self._fingerprints = _core.Neighbours(artefact.array("fingerprints.npy").astype(np.float32))
        self._known_operators = np.isin(OPERATORS, manifest["support"]["operators"])
        self._conformal = {name: ConformalTable.from_dict(t) for name, t in manifest["conformal"].items()}
        self._unseen: dict[str, dict[str, float]] = manifest["unseen_device"]

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> StepPredictor:
        """The shipped predictor, read once per process."""
        return StepPredictor()

    @staticmethod
    def check(precision: str, runtime: str) -> None:
        """Raises UnsupportedError for a precision or runtime of which no training is predicted."""
        if precision not in RATES:
            raise UnsupportedError(f"training in {precision} is not predicted; {', '.join(RATES)} are")
        if runtime not in ISSUE_S:
            raise UnsupportedError(f"training with {runtime} is not predicted; {', '.join(ISSUE_S)} are")

    @staticmethod
    def options(device: Device, precision: str, optimizer: str) -> StepOptions:
        """How present PyTorch runs a step: lists of tensors on GPUs, fused attention, fresh gradients."""
        return StepOptions(optimizer=optimizer, foreach=device.kind == "gpu", autocast=precision.startswith("amp"))

    def columns(
        self, steps: Steps, forward: Tables, batch: np.ndarray, device: Device, workload: Workload, threads: int = 1,
        byte_scale: float = 1.0,
    ) -> tuple[dict[str, np.ndarray], Notes, np.ndarray]:  # fmt: skip
        """What is known of N steps derived from the tables ``forward`` before they are scored.

        ``batch`` [N] stands for the workload's own. Also the notes, and [R] parts of the base per row.
        """
        measured = self._measured(device, workload)
        efficiency = self._efficiency[self.ensemble(device, workload)]
        vectors = step_vectors(steps, device, workload, batch, efficiency, byte_scale)
        distance = nearest_to(self._fingerprints, fingerprints(forward, batch), threads)
        notes = self._support(forward, batch, device, workload, distance, measured)
        beyond = notes.beyond  # by what is known before the time is: the host's speed has a width of its own
        notes.add(1, _host_bound(vectors.values), _HOST_REASON, vouched=True)
        found = {
            "features": vectors.values,
            "base_s": vectors.base_s,
            "compute_s": vectors.compute_s,
            "memory_s": vectors.memory_s,
            "distance": distance,
            "level": notes.level,
            "beyond": beyond,
            "batch": batch,
        }
        return found, notes, vectors.row_s

    def latency_s(self, columns: Columns, device: Device, workload: Workload, threads: int = 1) -> Bounds:
        """Seconds of N steps."""
        features, distance = columns["features"], columns["distance"]
        measured, ensemble = self._measured(device, workload), self.ensemble(device, workload)
        x = np.ascontiguousarray(features[:, self._columns_of[ensemble]], dtype=np.float32)
        first, last = TREES_FADE
        fade = np.clip((last - distance) / (last - first), 0.0, 1.0)
        if device.kind == "cpu" or (self.evidence(device, workload.precision) == "unmeasured" and not measured):
            fade = np.zeros_like(fade)  # trees have nothing to say of a precision or device that no record has
        learned = self._trees_of(ensemble).predict(x, threads).astype(np.float64)
        median = columns["base_s"] * np.exp(fade * learned)
        beyond = columns["beyond"].astype(np.intp)
        low, high = self._bounds(device, workload, measured, distance, _host_bound(features))
        low = np.minimum(low * _WIDENING[beyond], -_LEAST_WIDTH[beyond])
        high = np.maximum(high * _WIDENING[beyond], _LEAST_WIDTH[beyond])
        return Bounds.around(median, low, high)

    def predict(
        self, step: StepTable, forward: OperatorColumns, device: Device, workload: Workload, byte_scale: float = 1.0
    ) -> StepPrediction:
        """Time of a step derived from the table ``forward``; ``byte_scale`` corrects one counted at another width."""
        batch = np.array([workload.batch])
        columns, notes, row_s = self.columns(
            Steps.one(step), Tables.one(forward), batch, device, workload, 1, byte_scale
        )
        seconds = self.latency_s(columns, device, workload)
        median = float(seconds.median[0])
        return StepPrediction(
            median,
            float(seconds.low[0]),
            float(seconds.high[0]),
            shares(row_s) * median,
            float(columns["distance"][0]),
            self.ensemble(device, workload),
            notes.support(0),
        )

    def ensemble(self, device: Device, workload: Workload) -> str:
        """Which model speaks: "known" where the device was measured in this software, else "portable"."""
        return "known" if self._measured(device, workload) else "portable"

    def evidence(self, device: Device, precision: str) -> str:
        """Of EVIDENCE, for a device without records at a precision; bf16 and its autocast run as fp16 and its."""
        name = {"bf16": "fp16", "amp_bf16": "amp", "tf32": "fp32"}.get(precision, precision)
        known = {d for d, entries in self.manifest["measured"].items() for e in entries if e["precision"] == name}
        if device.kind == "cpu" or device.vendor not in self.manifest["support"]["vendors"]:
            return EVIDENCE[2]
        return EVIDENCE[0] if len(known) > 1 else EVIDENCE[1] if known else EVIDENCE[2]

    def _bounds(
        self,
        device: Device,
        workload: Workload,
        measured: dict[str, Any] | None,
        distance: np.ndarray,
        host_bound: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        known = self._conformal["many" if self._rows(device) >= LEAST_DEVICE_ROWS else "few"]
        if measured:
            low, high = known.bounds(distance)
            least = np.where(host_bound & (workload.copied_bytes == 0), self._unseen["gpu"]["common"], 0.0)
            return np.minimum(low, -least), np.maximum(high, least)
        unseen = self._unseen[device.kind][self.evidence(device, workload.precision)]
        width = self._conformal["few"].around(unseen, distance)
        return -width, width

    def _trees_of(self, name: str) -> _core.TreeEnsemble:
        if name not in self._trees:
            self._trees[name] = self._artefact.trees(name)
        return self._trees[name]

    def _rows(self, device: Device) -> int:
        return sum(entry["rows"] for entry in self.manifest["measured"].get(device.id, ()))

    def _measured(self, device: Device, workload: Workload) -> dict[str, Any] | None:
        for entry in self.manifest["measured"].get(device.id, ()):
            asked = (workload.precision, workload.runtime, workload.layout)
            if (entry["precision"], entry["runtime"], entry["layout"]) == asked:
                return entry
        return None

    def _support(
        self,
        tables: Tables,
        batch: np.ndarray,
        device: Device,
        workload: Workload,
        distance: np.ndarray,
        measured: dict[str, Any] | None,
    ) -> Notes:
        """How far measurements stand behind each step."""
        notes = Notes(len(batch))
        support = self.manifest["support"]
        newest = support["newest_torch"]
        notes.add(1, True, f"learned from steps with torch {newest} and older; newer releases were not measured")
        if device.id not in self.manifest["measured"]:
            # Our own records of a CPU lie within the width of what is unmeasured; nothing vouches for other vendors.
            vendor = device.kind == "cpu" or device.vendor in support["vendors"]
            notes.add(
                1 if vendor and device.kind != "cpu" else 2,
                True,
                f"no training step was measured on {device.name}; the roofline carries over what others showed",
                vouched=vendor,
            )
        elif measured is None:
            asked = f"{workload.precision} {workload.runtime} {workload.layout}"
            notes.add(1, True, f"{asked} was not measured in training on {device.name}", vouched=True)
        least, most = measured["batch"] if measured else support["batch"]
        beside = (batch < least) | (batch > most)
        notes.add(1, beside, lambda i: f"batch {batch[i]} is beside those measured ({least} to {most})")
        compiled = workload.runtime == "torch.compile"
        notes.add(2, compiled, "no compiled training step was measured")
        near, far = (support["distance"][edge] for edge in ("near", "far"))
        notes.add(
            2,
            distance > far,
            lambda i: f"unlike every network measured in training (distance {distance[i]:.2f}, over {far:.2f})",
        )
        notes.add(
            1,
            (distance > near) & (distance <= far),
            lambda i: f"no close relative among the networks measured in training ({distance[i]:.2f})",
            vouched=True,
        )
        no_convolution = ~tables.any(np.isin(np.asarray(tables.table.op), CONVOLUTIONS))
        notes.add(2, no_convolution, "no convolution or patch embedding: only vision models were measured in training")
        note_operators(notes, tables, self._known_operators, "operators that no network measured in training has")
        macs = tables.sums(np.asarray(tables.table.macs) * tables.count) / batch
        lowest, highest = support["macs_per_sample"]
        notes.add(
            1,
            (macs < lowest) | (macs > highest),
            lambda i: f"{macs[i]:.3g} MACs per sample forward; measured networks have {lowest:.3g} to {highest:.3g}",
        )
        return notes


def _host_bound(features: np.ndarray) -> np.ndarray:
    """[N] whether the host, which issues the operators, takes a good part of the time."""
    return np.asarray(np.exp(features[:, _LOG_ISSUE].astype(np.float64)) > HOST_BOUND_ISSUE)


def state_bytes(optimizer: str, parameters: np.ndarray) -> np.ndarray:
    """Bytes of gradients and optimizer states, 4 per element."""
    return 4.0 * parameters * (1 + OPTIMIZERS[optimizer].states)
