"""The training-step predictor: the step derived from the forward graph, roofline with learned group efficiencies,
gradient-boosted trees on what is left, conformal bounds (docs/prediction-training.md).

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
from perfpass.backward import OPTIMIZERS, StepOptions, StepTable
from perfpass.errors import ArtefactError, UnsupportedError
from perfpass.graph import OPERATORS
from perfpass.prediction import Support
from perfpass.predictors import artefacts
from perfpass.predictors.intervals import ConformalTable, nearest
from perfpass.predictors.roofline import ISSUE_S, Workload
from perfpass.predictors.roofline_features import fingerprint
from perfpass.predictors.step_features import FEATURES, RATES, SCHEMA_VERSION, SOFTWARE, STEP_GROUPS, step_vector

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.features.table import OperatorColumns
    from perfpass.prediction import SupportLevel

# Where trees would extrapolate, their correction fades between these distances of networks, as for inference.
TREES_FADE = (0.35, 0.6)
# Log widths grow by these factors where no held-out error stands behind the bounds, and are at least the minima. Set by
# hand; what newer software and devices show of them: docs/prediction-training.md, "Outside".
WIDENING = {"in range": 1.0, "near": 1.5, "outside": 2.5}
LEAST_WIDTH = {"in range": 0.0, "near": 0.2, "outside": 0.7}
# A device with as many records has bounds of its own; those with fewer share theirs.
LEAST_DEVICE_ROWS = 1000
# What is known of a precision on devices other than the asked one: measured on several, on one, or on none.
EVIDENCE = ("common", "rare", "unmeasured")
_LEVELS: tuple[SupportLevel, ...] = ("in range", "near", "outside")
_LOG_ISSUE = FEATURES.index("log_issue")
HOST_BOUND_ISSUE = 0.5


@dataclass(frozen=True)
class StepPrediction:
    """Seconds: median and bounds of one step, its parts per row of the step table, and utilisations (0 to 1)."""

    median_s: float
    low_s: float
    high_s: float
    row_s: np.ndarray
    compute_use: float
    memory_use: float
    distance: float
    ensemble: str
    support: Support


class StepPredictor:
    """Time of a training step in PyTorch, from a trained artefact."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        artefact = artefacts.Artefact(folder or artefacts.shipped("steps"))
        manifest = artefact.manifest
        expected = {"features": list(FEATURES), "groups": list(STEP_GROUPS), "feature_version": SCHEMA_VERSION}
        for name, value in expected.items():
            if manifest.get(name) != value:
                raise ArtefactError(
                    f"{artefact.folder}: {name} is not what this version computes; run `perfpass train --area steps`"
                )
        self.manifest = manifest
        self._efficiency = {name: np.array(manifest["efficiency"][name]) for name in ("known", "portable")}
        for name, values in self._efficiency.items():
            if values.shape != (len(SOFTWARE), len(STEP_GROUPS)):
                raise ArtefactError(f"{artefact.folder}: efficiency {name} has shape {values.shape}")
        self._columns = {name: np.array(manifest["columns"][name]) for name in ("known", "portable")}
        self._artefact = artefact
        self._trees: dict[str, _core.TreeEnsemble] = {}
        self._fingerprints = artefact.array("fingerprints.npy").astype(np.float32)
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

    def predict(
        self,
        step: StepTable,
        forward: OperatorColumns,
        device: Device,
        workload: Workload,
        byte_scale: float = 1.0,
        newer_software: bool = True,
    ) -> StepPrediction:
        """Time of a step derived from the table ``forward``.

        ``newer_software`` False: the run is with the software of the records (torch 1.12 and older).
        """
        measured = self._measured(device, workload)
        ensemble = "known" if measured else "portable"
        vector = step_vector(step, device, workload, self._efficiency[ensemble], byte_scale)
        distance = float(nearest(fingerprint(forward, workload.batch)[None], self._fingerprints)[0])
        support, beyond = self._support(forward, device, workload, distance, measured, newer_software)
        x = np.ascontiguousarray(vector.values[None, self._columns[ensemble]])
        first, last = TREES_FADE
        fade = float(np.clip((last - distance) / (last - first), 0.0, 1.0))
        if device.kind == "cpu" or (self.evidence(device, workload.precision) == "unmeasured" and not measured):
            fade = 0.0  # trees have nothing to say of a precision or kind of device that no record has
        median = vector.base_s * float(np.exp(fade * self._ensemble(ensemble).predict(x)[0]))
        host_bound = float(np.exp(vector.values[_LOG_ISSUE])) > HOST_BOUND_ISSUE
        if host_bound:
            level: SupportLevel = "near" if support.level == "in range" else support.level
            support = Support(
                level, (*support.reasons, "bound by the host, which issues the operators; its speed is not known")
            )
        low, high = self._bounds(device, workload, measured, distance, host_bound)
        low = min(low * WIDENING[beyond], -LEAST_WIDTH[beyond])
        high = max(high * WIDENING[beyond], LEAST_WIDTH[beyond])
        row_s = vector.row_s * (median / max(float(vector.row_s.sum()), 1e-12))
        return StepPrediction(
            median,
            median * float(np.exp(low)),
            median * float(np.exp(high)),
            row_s,
            min(vector.compute_s / median, 1.0),
            min(vector.memory_s / median, 1.0),
            distance,
            ensemble,
            support,
        )

    def evidence(self, device: Device, precision: str) -> str:
        """Of EVIDENCE, for a device without records at a precision; bf16 and its autocast run as fp16 and its."""
        name = {"bf16": "fp16", "amp_bf16": "amp", "tf32": "fp32"}.get(precision, precision)
        known = {d for d, entries in self.manifest["measured"].items() for e in entries if e["precision"] == name}
        if device.kind == "cpu" or device.vendor not in self.manifest["support"]["vendors"]:
            return EVIDENCE[2]
        return EVIDENCE[0] if len(known) > 1 else EVIDENCE[1] if known else EVIDENCE[2]

    def _bounds(
        self, device: Device, workload: Workload, measured: dict[str, Any] | None, distance: float, host_bound: bool
    ) -> tuple[float, float]:
        known = self._conformal["many" if self._rows(device) >= LEAST_DEVICE_ROWS else "few"]
        low, high = (float(v) for v in known.bounds(distance))
        if measured:
            least = self._unseen["gpu"]["common"] if host_bound and workload.copied_bytes == 0 else 0.0
            return min(low, -least), max(high, least)
        width = self._unseen[device.kind][self.evidence(device, workload.precision)]
        width = self._conformal["few"].around(width, distance)
        return -width, width

    def _ensemble(self, name: str) -> _core.TreeEnsemble:
        if name not in self._trees:
            self._trees[name] = _core.TreeEnsemble.from_xgboost(self._artefact.read(f"{name}.ubj"))
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
        table: OperatorColumns,
        device: Device,
        workload: Workload,
        distance: float,
        measured: dict[str, Any] | None,
        newer_software: bool,
    ) -> tuple[Support, SupportLevel]:
        """The support, and its level by what no held-out error vouches for."""
        level = beyond = 0
        reasons: list[str] = []

        def note(at_least: int, reason: str, *, vouched: bool = False) -> None:
            nonlocal level, beyond
            level = max(level, at_least)
            beyond = beyond if vouched else max(beyond, at_least)
            reasons.append(reason)

        support = self.manifest["support"]
        if newer_software:
            note(
                1,
                f"learned from steps with torch {support['newest_torch']} and older; newer releases were not measured",
            )
        if device.id not in self.manifest["measured"]:
            # Our own records of a CPU lie within the width of what is unmeasured; nothing vouches for other vendors.
            vendor = device.kind == "cpu" or device.vendor in support["vendors"]
            note(
                1 if vendor and device.kind != "cpu" else 2,
                f"no training step was measured on {device.name}; the roofline carries over what others showed",
                vouched=vendor,
            )
        elif measured is None:
            asked = f"{workload.precision} {workload.runtime} {workload.layout}"
            note(1, f"{asked} was not measured in training on {device.name}", vouched=True)
        low, high = measured["batch"] if measured else support["batch"]
        if not low <= workload.batch <= high:
            note(1, f"batch {workload.batch} is beside those measured ({low} to {high})")
        if workload.runtime == "torch.compile":
            note(2, "no compiled training step was measured")
        edges = support["distance"]
        if distance > edges["far"]:
            note(2, f"unlike every network measured in training (distance {distance:.2f}, over {edges['far']:.2f})")
        elif distance > edges["near"]:
            note(1, f"no close relative among the networks measured in training ({distance:.2f})", vouched=True)
        operators = np.asarray(table.op)
        convolution = np.isin(operators, [OPERATORS.index("conv"), OPERATORS.index("conv_transpose")])
        if not convolution.any():
            note(2, "no convolution or patch embedding: only vision models were measured in training")
        unmeasured = sorted({OPERATORS[i] for i in np.unique(operators)} - set(support["operators"]))
        if unmeasured:
            note(1, f"operators that no network measured in training has: {', '.join(unmeasured[:6])}")
        macs = float(np.dot(table.macs, table.count)) / workload.batch
        low, high = support["macs_per_sample"]
        if not low <= macs <= high:
            note(1, f"{macs:.3g} MACs per sample forward; measured networks have {low:.3g} to {high:.3g}")
        return Support(_LEVELS[level], tuple(reasons)), _LEVELS[beyond]


def state_bytes(optimizer: str, parameters: float) -> float:
    """Bytes of gradients and optimizer states, 4 per element."""
    return 4.0 * parameters * (1 + OPTIMIZERS[optimizer].states)
