"""A predictor of time: roofline, learned group efficiencies, gradient-boosted trees on what is left, conformal bounds.

Two ensembles stand behind it. The one for known devices sees the device's figures and learns each device's habits; the
portable one never sees them, so that on a device without records only the roofline tells devices apart. Predicting
needs NumPy and the compiled core. Inference and training steps are areas of it: what differs is in their `Settings`,
and in the methods that they replace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from perfpass import _core
from perfpass.errors import ArtefactError
from perfpass.graph import OPERATORS
from perfpass.graph.table import Tables
from perfpass.prediction import SUPPORT_LEVELS, Support
from perfpass.predictors.estimate import Bounds, Columns, Notes, Way, shares
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.intervals import EVIDENCE, ConformalTable, nearest_to
from perfpass.predictors.learned.ratios import RatioFeatures, Vectors, fingerprints
from perfpass.predictors.roofline import SOFTWARE, Workload

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.prediction import SupportLevel

# A device with fewer records than this lends no bounds of its own: a few dozen rows of one kind of network at one batch
# size say little about others.
LEAST_DEVICE_ROWS = 1000
# Issue time over device time from which on the host counts. No record states its host, so such a run is no better known
# than one on a board with few records.
HOST_BOUND_ISSUE = 0.5
_HOST_REASON = "bound by the host, which issues the operators one by one; its speed is not known"
# Where no held-out error stands behind the bounds (batch sizes, operators and networks beyond the measured), log widths
# grow by these factors, and are at least the area's minima. Set by hand: no data vouches for them
# (docs/predictors/inference.md).
WIDENING = {"in range": 1.0, "near": 1.5, "outside": 2.5}
_WIDENING = np.array([WIDENING[level] for level in SUPPORT_LEVELS])
_CONVOLUTIONS = (OPERATORS.index("conv"), OPERATORS.index("conv_transpose"))
UNMEASURED = EVIDENCE[-1]

_Area = TypeVar("_Area", bound="RatioTrees")


@dataclass(frozen=True)
class Settings:
    """What one area differs in from another, beside its features.

    ``fade``: by kind of device, the distances of networks between which the trees' correction fades, as they would
    extrapolate beyond; a kind that is absent has no trees. ``known_rows``: records from which on a device is known.
    ``least_width``: of the log half-width, by support level. ``host_bound``: the evidence whose width is the least
    where the host counts. ``trees_need_evidence``: whether trees say nothing of software that was not measured.
    """

    area: str
    ratios: RatioFeatures
    feature_version: int
    fade: Mapping[str, tuple[float, float]]
    known_rows: int
    least_width: Mapping[str, float]
    host_bound: str
    trees_need_evidence: bool
    # Words of reasons: "..." on a device, ... was not measured "...", unlike every "...", among the "...".
    nothing: str
    where: str
    network: str
    networks: str


@dataclass(frozen=True)
class TimePrediction:
    """Seconds: the median and bounds of one run, and its parts per row of the operator table."""

    median_s: float
    low_s: float
    high_s: float
    row_s: np.ndarray
    distance: float
    ensemble: str
    support: Support
    beyond: SupportLevel  # the level by what no held-out error vouches for


class RatioTrees(ABC):
    """Time of N runs from a trained artefact; every area is a subclass with its own `settings`."""

    settings: ClassVar[Settings]

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        s = self.settings
        artefact = artefacts.Artefact(folder or artefacts.shipped(s.area))
        manifest = artefact.manifest
        expected = {
            "features": list(s.ratios.names), "groups": list(s.ratios.groups), "feature_version": s.feature_version
        }  # fmt: skip
        for name, value in expected.items():
            if manifest.get(name) != value:
                raise ArtefactError(
                    f"{artefact.folder}: {name} is not what this version computes; run `perfpass train --area {s.area}`"
                )
        self.manifest = manifest
        self._efficiency = {}
        for name in ("known", "portable"):
            found = manifest["efficiency"]  # of each ensemble, or one for both
            values = np.array(found[name] if isinstance(found, dict) else found, dtype=np.float64)
            if values.shape != (len(SOFTWARE), len(s.ratios.groups)):
                raise ArtefactError(f"{artefact.folder}: efficiency has shape {values.shape}")
            self._efficiency[name] = values
        self._columns_of = {name: np.array(manifest["columns"][name]) for name in ("known", "portable")}
        self._artefact = artefact
        self._trees: dict[str, _core.TreeEnsemble] = {}
        self._fingerprints = _core.Neighbours(artefact.array("fingerprints.npy").astype(np.float32))
        self._known_operators = np.isin(OPERATORS, manifest["support"]["operators"])
        self._conformal = {name: ConformalTable.from_dict(t) for name, t in manifest["conformal"].items()}
        self._unseen_width: dict[str, dict[str, float]] = manifest["unseen_device"]
        self._least_width = np.array([s.least_width[level] for level in SUPPORT_LEVELS])

    @classmethod
    @cache
    def load(cls: type[_Area]) -> _Area:
        """The shipped predictor, read once per process."""
        return cls()

    @abstractmethod
    def evidence(self, device: Device, workload: Workload) -> str:
        """Of EVIDENCE: how well this software was measured on other devices."""

    @abstractmethod
    def conformal(self, device: Device, ensemble: str) -> ConformalTable:
        """The bounds by network distance that count on this device."""

    def unseen(self, device: Device) -> tuple[int, bool]:
        """Support level of a device without records, and whether held-out errors vouch for the bounds there."""
        return 1, True

    def latency_s(self, columns: Columns, device: Device, workload: Workload, threads: int = 1) -> Bounds:
        """Seconds of N runs."""
        features, distance = columns["features"], columns["distance"]
        ensemble = self.ensemble(device, workload)
        x = np.ascontiguousarray(features[:, self._columns_of[ensemble]], dtype=np.float32)
        fade = self._fade(device, workload, distance)
        learned = self._trees_of(ensemble).predict(x, threads).astype(np.float64)
        median = columns["base_s"] * np.exp(fade * learned)
        beyond = columns["beyond"].astype(np.intp)
        low, high = self._bounds(device, workload, ensemble, distance, self._host_bound(features))
        low = np.minimum(low * _WIDENING[beyond], -self._least_width[beyond])
        high = np.maximum(high * _WIDENING[beyond], self._least_width[beyond])
        return Bounds.around(median, low, high)

    def widened(self, device: Device, width: np.ndarray, distance: np.ndarray, beyond: np.ndarray) -> np.ndarray:
        """[N] log half-widths of a calibrated device: ``width`` for a known network, what distance and novelty add."""
        around = self.conformal(device, "known").around(width, distance)
        beyond = beyond.astype(np.intp)
        return np.maximum(around * _WIDENING[beyond], self._least_width[beyond])

    def ensemble(self, device: Device, workload: Workload) -> str:
        """Which ensemble speaks: "known" where the device was measured widely in this software, else "portable"."""
        widely = self.measured(device, workload) is not None and self._rows(device) >= self.settings.known_rows
        return "known" if widely else "portable"

    def measured(self, device: Device, workload: Workload) -> dict[str, Any] | None:
        """What the corpus has on this device at this precision, runtime and layout; None where it has nothing."""
        asked = (workload.precision, workload.runtime, workload.layout)
        for entry in self.manifest["measured"].get(device.id, ()):
            if (entry["precision"], entry["runtime"], entry["layout"]) == asked:
                found: dict[str, Any] = entry
                return found
        return None

    def _known(
        self, vectors: Vectors, tables: Tables, batch: np.ndarray, device: Device, workload: Workload, threads: int
    ) -> tuple[dict[str, np.ndarray], Notes]:
        """What is known of N runs of the networks ``tables`` before they are scored, and what stands behind it."""
        distance = nearest_to(self._fingerprints, fingerprints(tables, batch), threads)
        notes = self._support(tables, batch, device, workload, distance)
        beyond = notes.beyond  # by what is known before the time is: the host's speed has a width of its own
        notes.add(1, self._host_bound(vectors.values), _HOST_REASON, vouched=True)
        found = {
            "features": vectors.values,
            "base_s": vectors.base_s,
            "compute_s": vectors.sums.compute.sum(axis=1),
            "memory_s": vectors.sums.memory.sum(axis=1),
            "distance": distance,
            "level": notes.level,
            "beyond": beyond,
            "batch": batch,
        }
        return found, notes

    def _first(
        self, columns: Columns, notes: Notes, row_s: np.ndarray, device: Device, workload: Workload
    ) -> TimePrediction:
        """The first of N runs; ``row_s`` [R] parts of its base."""
        seconds = self.latency_s(columns, device, workload)
        median = float(seconds.median[0])
        return TimePrediction(
            median,
            float(seconds.low[0]),
            float(seconds.high[0]),
            shares(row_s) * median,
            float(columns["distance"][0]),
            self.ensemble(device, workload),
            notes.support(0),
            SUPPORT_LEVELS[columns["beyond"][0]],
        )

    def _fade(self, device: Device, workload: Workload, distance: np.ndarray) -> np.ndarray:
        """[N] weight of the trees' correction."""
        between = self.settings.fade.get(device.kind)
        unmeasured = self.evidence(device, workload) == UNMEASURED and self.measured(device, workload) is None
        if between is None or (self.settings.trees_need_evidence and unmeasured):
            return np.zeros_like(distance)
        return fade(distance, between)

    def _bounds(
        self, device: Device, workload: Workload, ensemble: str, distance: np.ndarray, host_bound: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Log bounds that held-out errors vouch for: those of the network, and of the device where it is unseen."""
        known, unseen = self.conformal(device, ensemble), self._unseen_width[device.kind]
        least = np.where(host_bound, unseen[self.settings.host_bound], 0.0)
        if ensemble == "known":
            low, high = known.bounds(distance)
            return np.minimum(low, -least), np.maximum(high, least)
        width = known.around(np.maximum(unseen[self.evidence(device, workload)], least), distance)
        return -width, width

    def _host_bound(self, features: np.ndarray) -> np.ndarray:
        """[N] whether the host, which issues the operators, takes a good part of the time."""
        issue = features[:, self.settings.ratios.names.index("log_issue")].astype(np.float64)
        return np.asarray(np.exp(issue) > HOST_BOUND_ISSUE)

    def _trees_of(self, name: str) -> _core.TreeEnsemble:
        """One of the two ensembles; read when it is first needed, because a process mostly needs one."""
        if name not in self._trees:
            self._trees[name] = self._artefact.trees(name)
        return self._trees[name]

    def _rows(self, device: Device) -> int:
        """Number of records on the device."""
        return sum(entry["rows"] for entry in self.manifest["measured"].get(device.id, ()))

    def _support(
        self, tables: Tables, batch: np.ndarray, device: Device, workload: Workload, distance: np.ndarray
    ) -> Notes:
        """How far measurements stand behind each run."""
        notes, s, support = Notes(len(batch)), self.settings, self.manifest["support"]
        known, measured = self.manifest["measured"].get(device.id), self.measured(device, workload)
        if known and self._rows(device) < s.known_rows:
            few = f"only {self._rows(device)} records on {device.name}; predicted as if it had none"
            notes.add(1, True, few, vouched=True)
        if not known:
            level, vouched = self.unseen(device)
            reason = f"{s.nothing} on {device.name}; the roofline carries over what was learned on other devices"
            notes.add(level, True, reason, vouched=vouched)
        elif measured is None:
            what = sorted({f"{e['precision']} {e['runtime']} {e['layout']}" for e in known})
            asked = f"{workload.precision} {workload.runtime} {workload.layout}"
            reason = f"{asked} was not measured{s.where} on {device.name}; measured: {', '.join(what)}"
            notes.add(1, True, reason, vouched=True)
        least, most = measured["batch"] if measured else support["batch"][device.kind]
        on = f"on {device.name} ({least} to {most})" if measured else f"({least} to {most})"
        beside = (batch < least) | (batch > most)
        notes.add(1, beside, lambda i: f"batch {batch[i]} is beside those measured {on}")
        near, far = (support["distance"][edge] for edge in ("near", "far"))
        notes.add(2, distance > far, lambda i: f"unlike every {s.network} (distance {distance[i]:.2f}, over {far:.2f})")
        notes.add(
            1,
            (distance > near) & (distance <= far),
            lambda i: f"no close relative among the {s.networks} (distance {distance[i]:.2f})",
            vouched=True,
        )
        no_convolution = ~tables.any(np.isin(np.asarray(tables.table.op), _CONVOLUTIONS))
        notes.add(
            2, no_convolution, "no convolution or patch embedding: not a vision model, and only vision models were "
            f"measured{s.where}",
        )  # fmt: skip
        _note_operators(notes, tables, self._known_operators, f"operators that no {s.network} has")
        macs = tables.sums(tables.table.macs * tables.count) / batch
        lowest, highest = support["macs_per_sample"]
        notes.add(
            1,
            (macs < lowest) | (macs > highest),
            lambda i: f"{macs[i]:.3g} MACs per sample; {s.networks} have {lowest:.3g} to {highest:.3g}",
        )
        return notes


def fade(distance: np.ndarray, between: tuple[float, float]) -> np.ndarray:
    """[N] weight of the trees' correction, which falls from 1 to 0 between two distances."""
    first, last = between
    return np.clip((last - distance) / (last - first), 0.0, 1.0)


def workload_of(way: Way) -> Workload:
    """How runs are made; their batch stands beside it."""
    return Workload(1, way.precision, way.runtime, way.layout)


def _note_operators(notes: Notes, tables: Tables, known: np.ndarray, what: str) -> None:
    """Adds that a run has operators which are not among the ``known`` [len(OPERATORS)], and names some."""
    operators = np.asarray(tables.table.op)
    strange = ~known[operators]

    def named(run: int) -> str:
        rows = slice(tables.offset[run], tables.offset[run + 1])
        names = sorted({OPERATORS[i] for i in np.unique(operators[rows][strange[rows]])})
        return f"{what}: {', '.join(names[:6])}"

    notes.add(1, tables.any(strange), named)
