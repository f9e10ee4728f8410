"""The vision predictor: roofline, learned group efficiencies, gradient-boosted trees on what is left, conformal bounds.

Two ensembles stand behind it. The one for known devices sees the device's figures and learns each device's habits; the
portable one never sees them, so that on a device without records only the roofline tells devices apart. Predicting
needs NumPy and the compiled core.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass import _core
from perfpass.errors import ArtefactError
from perfpass.features import Tables
from perfpass.graph import OPERATORS
from perfpass.prediction import SUPPORT_LEVELS, Support
from perfpass.predictors.energy.power import PowerModel
from perfpass.predictors.estimate import Bounds, Columns, Estimate, Estimates, Notes, Runs, Way, shares
from perfpass.predictors.inference.features import FEATURES, fingerprints, graph_vector, graph_vectors
from perfpass.predictors.inference.features import SCHEMA_VERSION as FEATURE_VERSION
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.intervals import ConformalTable, nearest_to
from perfpass.predictors.memory import allocation
from perfpass.predictors.memory.terms import MemoryModel
from perfpass.predictors.roofline import GEMM_RATE, GROUPS, ISSUE_S, SOFTWARE, Workload, sustained_flops

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph.table import OperatorColumns
    from perfpass.prediction import SupportLevel
    from perfpass.predictors.estimate import Inputs, Planned

# Where trees would extrapolate (a network unlike all of the corpus), their correction fades between these distances.
# Chosen on families set aside for it (perfpass.training.inference.choose).
TREES_FADE = {"gpu": (0.35, 0.6), "cpu": (0.6, 1.0)}
# Where no held-out error stands behind the bounds (batch sizes, operators and networks beyond the measured), log widths
# grow by these factors, and are at least the minima. Set by hand: no data vouches for them
# (docs/predictors/inference.md).
WIDENING = {"in range": 1.0, "near": 1.5, "outside": 2.5}
LEAST_WIDTH = {"in range": 0.0, "near": 0.15, "outside": 0.7}
# A device with fewer records than this is predicted as an unseen one: a few dozen rows of one kind of network at one
# batch size say little about others. Its records still teach both ensembles.
LEAST_DEVICE_ROWS = 1000
# Issue time over device time from which on the host counts. No record states its host, so such a run is no better known
# than one on a board with few records.
HOST_BOUND_ISSUE = 0.5
_LOG_ISSUE = FEATURES.index("log_issue")
_HOST_REASON = "bound by the host, which issues the operators one by one; its speed is not known"
CONVOLUTIONS = (OPERATORS.index("conv"), OPERATORS.index("conv_transpose"))
_WIDENING = np.array([WIDENING[level] for level in SUPPORT_LEVELS])
_LEAST_WIDTH = np.array([LEAST_WIDTH[level] for level in SUPPORT_LEVELS])


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

    name = "inference"

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        artefact = artefacts.Artefact(folder or artefacts.shipped("inference"))
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
        self._columns_of = {name: np.array(manifest["columns"][name]) for name in ("known", "portable")}
        self._artefact = artefact
        self._trees: dict[str, _core.TreeEnsemble] = {}
        self._fingerprints = _core.Neighbours(artefact.array("fingerprints.npy").astype(np.float32))
        self._known_operators = np.isin(OPERATORS, manifest["support"]["operators"])
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
    def covers(inputs: Planned | Way) -> bool:
        """Whether the precision and the runtime are ones this predictor speaks of at all."""
        return inputs.precision in GEMM_RATE and inputs.runtime in ISSUE_S

    def columns(self, runs: Runs, way: Way, threads: int = 1) -> tuple[Columns, Notes]:
        """What is known of N runs before they are scored, and how far measurements stand behind them."""
        found, notes, _ = self.columns_of(runs, way.device, _workload(way), threads)
        return found, notes

    def columns_of(
        self, runs: Runs, device: Device, workload: Workload, threads: int = 1
    ) -> tuple[dict[str, np.ndarray], Notes, np.ndarray]:
        """What is known of N runs before they are scored, the notes, and [R] parts of the base per row."""
        measured = self._measured(device, workload)
        if workload.torch_version is None and measured:
            workload = replace(workload, torch_version=measured["torch_version"])
        vectors = graph_vectors(runs.tables, device, workload, runs.batch, self._efficiency)
        prints = fingerprints(runs.tables, runs.batch)
        distance = nearest_to(self._fingerprints, prints, threads)
        notes = self._support(runs, device, workload, distance, measured)
        beyond = notes.beyond  # by what is known before the time is: the host's speed has a width of its own
        notes.add(1, _host_bound(vectors.values), _HOST_REASON, vouched=True)
        found = {
            "features": vectors.values,
            "base_s": vectors.base_s,
            "compute_s": vectors.sums.compute.sum(axis=1),
            "memory_s": vectors.sums.memory.sum(axis=1),
            "distance": distance,
            "level": notes.level,
            "beyond": beyond,
            "batch": runs.batch,
            "weight_bytes": runs.weight_bytes,
            "activation_bytes": runs.activation_bytes,
            "reserved_bytes": runs.reserved_bytes,
            "group_s": vectors.sums.seconds,
            "kernels": vectors.sums.kernels.sum(axis=1),
            "input_elements": runs.input_elements,
        }
        return found, notes, vectors.row_s

    def latency_s(self, columns: Columns, device: Device, workload: Workload, threads: int = 1) -> Bounds:
        """Seconds of N runs."""
        features, distance = columns["features"], columns["distance"]
        ensemble = self.ensemble(device, workload)
        x = np.ascontiguousarray(features[:, self._columns_of[ensemble]], dtype=np.float32)
        first, last = TREES_FADE[device.kind]
        fade = np.clip((last - distance) / (last - first), 0.0, 1.0)
        learned = self._trees_of(ensemble).predict(x, threads).astype(np.float64)
        median = columns["base_s"] * np.exp(fade * learned)
        beyond = columns["beyond"].astype(np.intp)
        low, high = self._bounds(device, workload, ensemble, distance, _host_bound(features))
        low = np.minimum(low * _WIDENING[beyond], -_LEAST_WIDTH[beyond])
        high = np.maximum(high * _WIDENING[beyond], _LEAST_WIDTH[beyond])
        return Bounds.around(median, low, high)

    def predict(self, table: OperatorColumns, device: Device, workload: Workload) -> LatencyPrediction:
        """Latency of one operator table (counted at the workload's width) on a device."""
        runs = Runs(Tables.one(table), np.array([workload.batch]), *(np.zeros(1) for _ in range(7)))  # time alone
        columns, notes, row_s = self.columns_of(runs, device, workload)
        seconds = self.latency_s(columns, device, workload)
        median = float(seconds.median[0])
        return LatencyPrediction(
            median,
            float(seconds.low[0]),
            float(seconds.high[0]),
            shares(row_s) * median,
            float(columns["distance"][0]),
            self.ensemble(device, workload),
            notes.support(0),
            SUPPORT_LEVELS[columns["beyond"][0]],
        )

    def memory(self, columns: Columns, way: Way) -> tuple[dict[str, Any], Bounds]:
        """Bytes by part, and the peak with its bounds."""
        parts = allocation.parts(columns, way, self._memory)
        return parts, self._memory.bounds(way.device, parts)

    def estimates(self, columns: Columns, way: Way, threads: int = 1) -> Estimates:
        """All metrics of N runs (perfpass.predictors.estimate)."""
        device, rate = way.device, GEMM_RATE[way.precision]
        seconds = self.latency_s(columns, device, _workload(way), threads)
        # Against the plain peak, not the sustained one: the power model was fitted so.
        to_peak = sustained_flops(device, rate) / device.peak_flops.get(rate, device.peak_flops["fp32"])
        parts, peak = self.memory(columns, way)
        return Estimates(
            latency_ms=seconds.scaled(1e3),
            power_w=self._power.predict(
                device, columns["compute_s"] / seconds.median * to_peak, columns["memory_s"] / seconds.median
            ),
            peak_memory_bytes=peak,
            memory_bytes=parts,
            level=columns["level"].astype(np.int8),
        )

    def estimate(self, inputs: Inputs) -> Estimate:
        """All metrics of one run (perfpass.predictors.estimate)."""
        way = Way.of(inputs)
        columns, notes, row_s = self.columns_of(allocation.runs_of(inputs), way.device, _workload(way))
        found = self.estimates(columns, way)
        corpus = self.manifest["corpus"]
        return Estimate.first(
            found,
            columns,
            shares(row_s) * float(found.latency_ms.median[0]),
            notes.reasons(0),
            {
                "predictor": self.name,
                "artefact_schema": self.manifest["schema_version"],
                "corpus": corpus["name"],
                "corpus_rows": corpus["rows"],
                "ensemble": self.ensemble(way.device, _workload(way)),
                "beyond_measured": SUPPORT_LEVELS[columns["beyond"][0]],
                "nearest_network_distance": float(columns["distance"][0]),
                "power": self.manifest["power"]["source"],
                "memory": self.manifest["memory"]["source"],
            },
        )

    def widened(self, device: Device, width: np.ndarray, distance: np.ndarray, beyond: np.ndarray) -> np.ndarray:
        """[N] log half-widths of a calibrated device: ``width`` for a known network, what distance and novelty add."""
        around = self._conformal[device.kind].around(width, distance)
        beyond = beyond.astype(np.intp)
        return np.maximum(around * _WIDENING[beyond], _LEAST_WIDTH[beyond])

    def traits_of(self, tables: Tables, device: Device, workload: Workload, batch: np.ndarray) -> np.ndarray:
        """[N, len(FEATURES)] what the time of runs is made of, under this predictor's efficiencies."""
        return graph_vectors(tables, device, workload, batch, self._efficiency).values

    def traits(self, table: Any, device: Device, workload: Workload) -> np.ndarray:
        """[len(FEATURES)] what the time of a run is made of, under this predictor's efficiencies."""
        return graph_vector(table, device, workload, self._efficiency).values

    def _bounds(
        self, device: Device, workload: Workload, ensemble: str, distance: np.ndarray, host_bound: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Log bounds that held-out errors vouch for: those of the network, and of the device where it is unseen."""
        known = self._conformal[device.kind]
        unseen = self._unseen_width[device.kind]
        least = np.where(host_bound, unseen["rare"], 0.0)
        if ensemble == "known":
            low, high = known.bounds(distance)
            return np.minimum(low, -least), np.maximum(high, least)
        evidence = self._evidence.get(device.kind, {}).get(evidence_key(workload), "unmeasured")
        width = known.around(np.maximum(unseen[evidence], least), distance)
        return -width, width

    def ensemble(self, device: Device, workload: Workload) -> str:
        """Which ensemble speaks: "known" where the device was measured widely in this software, else "portable"."""
        widely = self._measured(device, workload) is not None and self._rows(device) >= LEAST_DEVICE_ROWS
        return "known" if widely else "portable"

    def _trees_of(self, name: str) -> _core.TreeEnsemble:
        """One of the two ensembles; read when it is first needed, because a process mostly needs one."""
        if name not in self._trees:
            self._trees[name] = self._artefact.trees(name)
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
        self, runs: Runs, device: Device, workload: Workload, distance: np.ndarray, measured: dict[str, Any] | None
    ) -> Notes:
        """How far measurements stand behind each run."""
        notes, batch, tables = Notes(len(runs.batch)), runs.batch, runs.tables
        known = self.manifest["measured"].get(device.id)
        if known and self._rows(device) < LEAST_DEVICE_ROWS:
            few = f"only {self._rows(device)} records on {device.name}; predicted as if it had none"
            notes.add(1, True, few, vouched=True)
        if not known:
            reason = f"no measurement on {device.name}; the roofline carries over what was learned on other devices"
            notes.add(1, True, reason, vouched=True)
        elif measured is None:
            what = sorted({f"{e['precision']} {e['runtime']} {e['layout']}" for e in known})
            asked = f"{workload.precision} {workload.runtime} {workload.layout}"
            reason = f"{asked} was not measured on {device.name}; measured: {', '.join(what)}"
            notes.add(1, True, reason, vouched=True)
        else:
            low, high = measured["batch"]
            on = f"on {device.name} ({low} to {high})"
            notes.add(1, (batch < low) | (batch > high), lambda i: f"batch {batch[i]} is beside those measured {on}")
        if measured is None:
            least, most = self.manifest["support"]["batch"]["cpu" if device.kind == "cpu" else "gpu"]
            beside = (batch < least) | (batch > most)
            notes.add(1, beside, lambda i: f"batch {batch[i]} is beside those measured ({least} to {most})")
        near, far = (self.manifest["support"]["distance"][edge] for edge in ("near", "far"))
        notes.add(
            2, distance > far, lambda i: f"unlike every measured network (distance {distance[i]:.2f}, over {far:.2f})"
        )
        notes.add(
            1,
            (distance > near) & (distance <= far),
            lambda i: f"no close relative among the measured networks (distance {distance[i]:.2f})",
            vouched=True,
        )
        operators = np.asarray(tables.table.op)
        no_convolution = ~tables.any(np.isin(operators, CONVOLUTIONS))
        notes.add(
            2, no_convolution, "no convolution or patch embedding: not a vision model, and only vision models were "
            "measured",
        )  # fmt: skip
        note_operators(notes, tables, self._known_operators, "operators that no measured network has")
        macs = tables.sums(tables.table.macs * tables.count) / batch
        lowest, highest = self.manifest["support"]["macs_per_sample"]
        notes.add(
            1,
            (macs < lowest) | (macs > highest),
            lambda i: f"{macs[i]:.3g} MACs per sample; measured networks have {lowest:.3g} to {highest:.3g}",
        )
        return notes


def note_operators(notes: Notes, tables: Tables, known: np.ndarray, what: str) -> None:
    """Adds that a run has operators which are not among the ``known`` [len(OPERATORS)], and names some."""
    operators = np.asarray(tables.table.op)
    strange = ~known[operators]

    def named(run: int) -> str:
        rows = slice(tables.offset[run], tables.offset[run + 1])
        names = sorted({OPERATORS[i] for i in np.unique(operators[rows][strange[rows]])})
        return f"{what}: {', '.join(names[:6])}"

    notes.add(1, tables.any(strange), named)


def _workload(way: Way) -> Workload:
    """How runs are made; their batch stands beside it."""
    return Workload(1, way.precision, way.runtime, way.layout)


def _host_bound(features: np.ndarray) -> np.ndarray:
    """[N] whether the host, which issues the operators, takes a good part of the time."""
    return np.asarray(np.exp(features[:, _LOG_ISSUE].astype(np.float64)) > HOST_BOUND_ISSUE)
