"""The vision predictor: roofline, learned group efficiencies, gradient-boosted trees on what is left, conformal bounds.

Two ensembles stand behind it. The one for known devices sees the device's figures and learns each device's habits; the
portable one never sees them, so that on a device without records only the roofline tells devices apart. Predicting
needs NumPy and the compiled core.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass import _core
from perfpass.errors import ArtefactError
from perfpass.graph import OPERATORS
from perfpass.prediction import Interval, Support
from perfpass.predictors import allocation, artefacts
from perfpass.predictors.estimate import Estimate
from perfpass.predictors.intervals import ConformalTable, nearest
from perfpass.predictors.memory_model import MemoryModel
from perfpass.predictors.power import PowerModel
from perfpass.predictors.roofline import GEMM_RATE, GROUPS, ISSUE_S, SOFTWARE, Workload, bound, sustained_flops
from perfpass.predictors.roofline_features import FEATURES, fingerprint, graph_vector
from perfpass.predictors.roofline_features import SCHEMA_VERSION as FEATURE_VERSION

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.prediction import SupportLevel
    from perfpass.predictors.estimate import Inputs, Planned

# Where trees would extrapolate (a network unlike all of the corpus), their correction fades between these distances.
# Chosen on families set aside for it (perfpass.training.vision.choose).
TREES_FADE = {"gpu": (0.35, 0.6), "cpu": (0.6, 1.0)}
# Where no held-out error stands behind the bounds (batch sizes, operators and networks beyond the measured), log widths
# grow by these factors, and are at least the minima. Set by hand: no data vouches for them (docs/prediction.md).
WIDENING = {"in range": 1.0, "near": 1.5, "outside": 2.5}
LEAST_WIDTH = {"in range": 0.0, "near": 0.15, "outside": 0.7}
# A device with fewer records than this is predicted as an unseen one: a few dozen rows of one kind of network at one
# batch size say little about others. Its records still teach both ensembles.
LEAST_DEVICE_ROWS = 1000
# Issue time over device time from which on the host counts. No record states its host, so such a run is no better known
# than one on a board with few records.
HOST_BOUND_ISSUE = 0.5
_LEVELS: tuple[SupportLevel, ...] = ("in range", "near", "outside")
_LOG_ISSUE = FEATURES.index("log_issue")


def evidence_key(workload: Workload) -> str:
    """Which records speak of this software on other devices; the 16-bit types that modern runs use count as one."""
    precision = "amp/bf16" if workload.precision in ("amp", "amp_bf16", "bf16") else workload.precision
    return f"{precision} {workload.runtime} {workload.layout}"


@dataclass(frozen=True)
class LatencyPrediction:
    """Seconds: the median and bounds of one run, and its parts per row of the operator table."""

    median_s: float
    low_s: float
    high_s: float
    row_s: np.ndarray
    distance: float
    ensemble: str
    support: Support
    beyond: SupportLevel  # the level by what no held-out error vouches for


class VisionPredictor:
    """Latency, power and memory of vision inference in PyTorch, from a trained artefact."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        artefact = artefacts.Artefact(folder or artefacts.shipped("vision"))
        manifest = artefact.manifest
        expected = {"features": list(FEATURES), "groups": list(GROUPS), "feature_version": FEATURE_VERSION}
        for name, value in expected.items():
            if manifest.get(name) != value:
                raise ArtefactError(
                    f"{artefact.folder}: {name} is not what this version computes; run `perfpass train`"
                )
        self.manifest = manifest
        self._efficiency = np.array(manifest["efficiency"], dtype=np.float64)
        if self._efficiency.shape != (len(SOFTWARE), len(GROUPS)):
            raise ArtefactError(f"{artefact.folder}: efficiency has shape {self._efficiency.shape}")
        self._columns = {name: np.array(manifest["columns"][name]) for name in ("known", "portable")}
        self._artefact = artefact
        self._trees: dict[str, _core.TreeEnsemble] = {}
        self._fingerprints = artefact.array("fingerprints.npy").astype(np.float32)
        self._conformal = {name: ConformalTable.from_dict(t) for name, t in manifest["conformal"].items()}
        self._evidence: dict[str, dict[str, str]] = manifest["evidence"]
        self._unseen_width: dict[str, dict[str, float]] = manifest["unseen_device"]
        self._power = PowerModel.from_dict(manifest["power"])
        self._memory = MemoryModel.from_dict(manifest["memory"])

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> VisionPredictor:
        """The shipped predictor, read once per process."""
        return VisionPredictor()

    @staticmethod
    def covers(inputs: Planned) -> bool:
        """Whether the precision and the runtime are ones this predictor speaks of at all."""
        return inputs.precision in GEMM_RATE and inputs.runtime in ISSUE_S

    def predict(self, table: Any, device: Device, workload: Workload) -> LatencyPrediction:
        """Latency of one operator table (counted at the workload's width) on a device."""
        measured = self._measured(device, workload)
        if workload.torch_version is None and measured:
            newest = measured["torch_version"]
            workload = Workload(workload.batch, workload.precision, workload.runtime, workload.layout, newest)
        vector = graph_vector(table, device, workload, self._efficiency)
        distance = float(nearest(fingerprint(table, workload.batch)[None], self._fingerprints)[0])
        support, beyond = self._support(table, device, workload, distance, measured)
        ensemble = "known" if measured and self._rows(device) >= LEAST_DEVICE_ROWS else "portable"
        x = np.ascontiguousarray(vector.values[None, self._columns[ensemble]])
        first, last = TREES_FADE[device.kind]
        fade = float(np.clip((last - distance) / (last - first), 0.0, 1.0))
        median = vector.base_s * float(np.exp(fade * self._ensemble(ensemble).predict(x)[0]))
        host_bound = float(np.exp(vector.values[_LOG_ISSUE])) > HOST_BOUND_ISSUE
        if host_bound:
            reason = "bound by the host, which issues the operators one by one; its speed is not known"
            level: SupportLevel = "near" if support.level == "in range" else support.level
            support = Support(level, (*support.reasons, reason))
        low, high = self._bounds(device, workload, ensemble, distance, host_bound)
        low = min(low * WIDENING[beyond], -LEAST_WIDTH[beyond])
        high = max(high * WIDENING[beyond], LEAST_WIDTH[beyond])
        row_s = vector.row_s * (median / max(float(vector.row_s.sum()), 1e-12))
        return LatencyPrediction(
            median,
            median * float(np.exp(low)),
            median * float(np.exp(high)),
            row_s,
            distance,
            ensemble,
            support,
            beyond,
        )

    def estimate(self, inputs: Inputs) -> Estimate:
        """All metrics of one run (perfpass.predictors.estimate)."""
        device, precision = inputs.device, inputs.precision
        workload = Workload(inputs.batch, precision, inputs.runtime, inputs.layout)
        latency = self.predict(inputs.table, device, workload)
        roof = bound(inputs.table, device, workload)
        count = np.asarray(inputs.table.count, dtype=np.float64)
        # Against the plain peak, not the sustained one: the power model was fitted so.
        to_peak = sustained_flops(device, GEMM_RATE[precision]) / device.peak_flops.get(
            GEMM_RATE[precision], device.peak_flops["fp32"]
        )
        compute_use = float(roof.compute_s @ count) / latency.median_s * to_peak
        memory_use = float(roof.memory_s @ count) / latency.median_s
        parts, peak = self.memory(inputs)
        corpus = self.manifest["corpus"]
        return Estimate(
            latency_ms=Interval(latency.median_s * 1e3, latency.low_s * 1e3, latency.high_s * 1e3, "ms"),
            power_w=self._power.predict(device, compute_use, memory_use),
            peak_memory_bytes=peak,
            row_ms=latency.row_s * 1e3,
            memory_bytes=parts,
            support=latency.support,
            provenance={
                "predictor": "vision",
                "artefact_schema": self.manifest["schema_version"],
                "corpus": corpus["name"],
                "corpus_rows": corpus["rows"],
                "ensemble": latency.ensemble,
                "beyond_measured": latency.beyond,
                "nearest_network_distance": latency.distance,
                "power": self.manifest["power"]["source"],
                "memory": self.manifest["memory"]["source"],
            },
        )

    def memory(self, planned: Planned) -> tuple[dict[str, float], Interval]:
        """Bytes by part, and the peak with its bounds."""
        parts = allocation.parts(planned, self._memory)
        return parts, self._memory.interval(planned.device, parts)

    def widened(self, device: Device, width: float, distance: float, beyond: SupportLevel) -> float:
        """Log half-width of a calibrated device: ``width`` for a known network, what distance and novelty add to it."""
        width = self._conformal[device.kind].around(width, distance)
        return max(width * WIDENING[beyond], LEAST_WIDTH[beyond])

    def traits(self, table: Any, device: Device, workload: Workload) -> np.ndarray:
        """[len(FEATURES)] what the time of a run is made of, under this predictor's efficiencies."""
        return graph_vector(table, device, workload, self._efficiency).values

    def _bounds(
        self, device: Device, workload: Workload, ensemble: str, distance: float, host_bound: bool
    ) -> tuple[float, float]:
        """Log bounds that held-out errors vouch for: those of the network, and of the device where it is unseen."""
        known = self._conformal[device.kind]
        unseen = self._unseen_width[device.kind]
        low, high = (float(v) for v in known.bounds(distance))
        if ensemble == "known":
            least = unseen["rare"] if host_bound else 0.0
            return min(low, -least), max(high, least)
        evidence = self._evidence.get(device.kind, {}).get(evidence_key(workload), "unmeasured")
        width = max(unseen[evidence], unseen["rare"] if host_bound else 0.0)
        width = known.around(width, distance)
        return -width, width

    def _ensemble(self, name: str) -> _core.TreeEnsemble:
        """One of the two ensembles; read when it is first needed, because a process mostly needs one."""
        if name not in self._trees:
            self._trees[name] = _core.TreeEnsemble.from_xgboost(self._artefact.read(f"{name}.ubj"))
        return self._trees[name]

    def _rows(self, device: Device) -> int:
        """Number of records on the device."""
        return sum(entry["rows"] for entry in self.manifest["measured"].get(device.id, ()))

    def _measured(self, device: Device, workload: Workload) -> dict[str, Any] | None:
        """What the corpus has on this device at this precision, runtime and layout; None where it has nothing."""
        for entry in self.manifest["measured"].get(device.id, ()):
            if (entry["precision"], entry["runtime"], entry["layout"]) == (
                workload.precision,
                workload.runtime,
                workload.layout,
            ):
                return entry
        return None

    def _support(
        self, table: Any, device: Device, workload: Workload, distance: float, measured: dict[str, Any] | None
    ) -> tuple[Support, SupportLevel]:
        """The support, and its level by what no held-out error vouches for."""
        level = beyond = 0
        reasons: list[str] = []

        def note(at_least: int, reason: str, *, vouched: bool = False) -> None:
            nonlocal level, beyond
            level = max(level, at_least)
            beyond = beyond if vouched else max(beyond, at_least)
            reasons.append(reason)

        known = self.manifest["measured"].get(device.id)
        if known and self._rows(device) < LEAST_DEVICE_ROWS:
            note(1, f"only {self._rows(device)} records on {device.name}; predicted as if it had none", vouched=True)
        if not known:
            reason = f"no measurement on {device.name}; the roofline carries over what was learned on other devices"
            note(1, reason, vouched=True)
        elif measured is None:
            what = sorted({f"{e['precision']} {e['runtime']} {e['layout']}" for e in known})
            asked = f"{workload.precision} {workload.runtime} {workload.layout}"
            note(1, f"{asked} was not measured on {device.name}; measured: {', '.join(what)}", vouched=True)
        elif not measured["batch"][0] <= workload.batch <= measured["batch"][1]:
            low, high = measured["batch"]
            note(1, f"batch {workload.batch} is beside those measured on {device.name} ({low} to {high})")
        if (known and measured is None) or not known:
            low, high = self.manifest["support"]["batch"]["cpu" if device.kind == "cpu" else "gpu"]
            if not low <= workload.batch <= high:
                note(1, f"batch {workload.batch} is beside those measured ({low} to {high})")
        edges = self.manifest["support"]["distance"]
        if distance > edges["far"]:
            note(
                2,
                f"unlike every measured network (distance {distance:.2f}, over {edges['far']:.2f})",
            )
        elif distance > edges["near"]:
            note(1, f"no close relative among the measured networks (distance {distance:.2f})", vouched=True)
        classes = np.asarray(table.op)
        convolution = np.isin(classes, [OPERATORS.index("conv"), OPERATORS.index("conv_transpose")])
        if not convolution.any():
            note(2, "no convolution or patch embedding: not a vision model, and only vision models were measured")
        unmeasured = sorted({OPERATORS[i] for i in np.unique(classes)} - set(self.manifest["support"]["operators"]))
        if unmeasured:
            note(1, f"operators that no measured network has: {', '.join(unmeasured[:6])}")
        macs = float(np.dot(table.macs, table.count)) / workload.batch
        low, high = self.manifest["support"]["macs_per_sample"]
        if not low <= macs <= high:
            note(1, f"{macs:.3g} MACs per sample; measured networks have {low:.3g} to {high:.3g}")
        return Support(_LEVELS[level], tuple(reasons)), _LEVELS[beyond]
