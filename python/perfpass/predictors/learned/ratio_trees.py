"""A predictor of time: roofline, learned group efficiencies, gradient-boosted trees on what is left, conformal bounds.

Two ensembles stand behind it. The one for known devices sees the device's figures and learns each device's habits; the
portable one never sees them, so that on a device without records only the roofline tells devices apart. Predicting
needs NumPy and the compiled core. Inference and training steps are areas of it: what differs is in their `Settings`,
and in the methods that they replace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from perfpass import _core
from perfpass.devices import device as find_device
from perfpass.errors import ArtefactError
from perfpass.graph import OPERATORS
from perfpass.graph.table import Tables
from perfpass.late import dataclass
from perfpass.prediction import SUPPORT_LEVELS, Support
from perfpass.predictors import roofline
from perfpass.predictors.estimate import Bounds, Columns, Notes, shares
from perfpass.predictors.learned import artefacts, ladder, time_lacks, width_words
from perfpass.predictors.learned.intervals import EVIDENCE, distinct, nearest_to
from perfpass.predictors.learned.ratios import RatioFeatures, Vectors, fingerprints
from perfpass.predictors.learned.recorded import UNSTATED_TORCH, Recorded, count, learned_in, usual_batch
from perfpass.predictors.learned.spread import Spread
from perfpass.predictors.learned.time_lacks import CAUSES
from perfpass.predictors.roofline import SOFTWARE

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.prediction import SupportLevel
    from perfpass.predictors.way import Way

# A device with fewer records than this lends no bounds of its own: a few dozen rows of one kind of network at one batch
# size say little about others.
LEAST_DEVICE_ROWS = 1000
_HOST_REASON = "bound by the host, which issues the operators one by one; its speed is not known"
_OLD_HOST_REASON = (
    "timed with PyTorch of 2018 to 2020 on the host of its laboratory, which is in the figure: not to be compared with "
    "other boards, for which one host is assumed"
)
_AS_IF_NONE = "predicted as if there were none"
# Distances that are kept: a sweep asks the same of every device, and of a network's batches much alike.
_MOST_KEPT = 1 << 16
# Of OPERATORS, those that are.
_CONVOLUTIONS = np.array([name in ("conv", "conv_transpose") for name in OPERATORS])
_UNKNOWN = OPERATORS.index("unknown")
UNMEASURED = EVIDENCE[-1]

_Area = TypeVar("_Area", bound="RatioTrees")
# The features of N networks, each at its batch, on the device of a way.
VectorsAt = Callable[[Tables, np.ndarray, "Way"], Vectors]


@dataclass(frozen=True)
class Settings:
    """What one area differs in from another, beside its features.

    ``fade``: by kind of device, the distances of networks between which the trees' correction fades, as they would
    extrapolate beyond; a kind that is absent has no trees. ``known_rows``: records from which on a device is known.
    ``host``: the least and the most that a host takes to issue operators, over `perfpass.predictors.roofline.ISSUE_S`.
    ``reference``: the board on which trees look at networks for an unmeasured one; None: on that one itself.
    ``trees_need_evidence``: whether trees say nothing of software that was not measured.
    """

    area: str
    ratios: RatioFeatures
    feature_version: int
    fade: Mapping[str, tuple[float, float]]
    known_rows: int
    host: tuple[float, float]
    reference: str | None
    trees_need_evidence: bool
    # Words of reasons: "..." on a device to learn from, ... to learn from "...", unlike every "...", among the "...".
    # They speak of what the predictor learned from, and never of what was measured: evidence has more records.
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


@dataclass(frozen=True, eq=False)
class Kinds:
    """What N networks are made of, as far as it tells whether trees may speak of them.

    ``unlearned`` [R]: whether a row's operator is in no measured network; ``strange`` [N]: whether a network has one;
    ``convolves`` [N]: whether it has a convolution (or patch embedding).
    """

    unlearned: np.ndarray
    strange: np.ndarray
    convolves: np.ndarray


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
        self._recorded = Recorded(manifest["measured"], manifest["support"]["batch"], s.known_rows)
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
        self._distances: dict[bytes, float] = {}
        known = set(manifest["support"]["operators"])
        self._known_operators = np.array([name in known for name in OPERATORS])
        self._spread = {name: Spread.from_dict(values) for name, values in manifest["spread"].items()}

    @classmethod
    @cache
    def load(cls: type[_Area]) -> _Area:
        """The shipped predictor, read once per process."""
        return cls()

    @abstractmethod
    def evidence(self, way: Way) -> str:
        """Of EVIDENCE: how well this software was measured on other devices."""

    def spread(self, device: Device) -> Spread:
        """The widths of intervals on this device."""
        return self._spread[device.kind]

    def knows_vendor(self, device: Device) -> bool:
        """Whether the corpus has devices of this kind by this vendor: of its GPUs a vendor's CPUs say nothing."""
        return _makes(tuple(self.manifest["measured"]), device.kind, device.vendor)

    def unseen(self, device: Device) -> tuple[int, bool]:
        """Support level of a device without records, and whether held-out errors vouch for the bounds there."""
        return 1, True

    def latency_s(self, columns: Columns) -> Bounds:
        """Seconds of N runs."""
        return Bounds(*(columns[name] for name in ("median_s", "low_s", "high_s")))

    def of_network(self, device: Device, lacks: np.ndarray) -> np.ndarray:
        """[N] log half-widths that networks and their sizes add on a device that is known; ``lacks`` [N, CAUSES]."""
        spread = self.spread(device)
        squares = np.maximum(np.square(spread.low), np.square(spread.high))
        return np.asarray(np.sqrt(lacks[:, time_lacks.OF_NETWORK] @ squares[list(time_lacks.OF_NETWORK)]))

    def wide_by(self, columns: Columns, device: Device) -> tuple[str, ...]:
        """What makes the first run's interval wide, in words, the largest share first."""
        lacks = dict(zip(CAUSES, columns["lacks"].T, strict=True))
        return width_words.wide_by(self.spread(device), lacks, time_lacks.WORDS)

    def ensemble(self, way: Way) -> str:
        """Which ensemble speaks: "known" where the device was measured widely in this software, else "portable"."""
        widely = self.measured(way) is not None and self._recorded.rows(way.device) >= self.settings.known_rows
        return "known" if widely else "portable"

    def measured(self, way: Way) -> dict[str, Any] | None:
        """What the corpus has on this device at this precision, runtime and layout; None where it has nothing."""
        return self._recorded.of(way)

    def whole(self, way: Way) -> Way:
        """The same on the GPU that a slice is of; itself where the device is none."""
        return way if way.device.parent is None else replace(way, device=find_device(way.device.parent))

    def _released(self, way: Way) -> Way:
        """The same with the torch release that was measured on the device, where none is asked."""
        if way.torch_version is not None:
            return way
        measured = self.measured(self.whole(way))
        return way if measured is None else replace(way, torch_version=measured["torch_version"])

    def _known(
        self, at: VectorsAt, tables: Tables, batch: np.ndarray, way: Way, threads: int
    ) -> tuple[dict[str, np.ndarray], Notes, np.ndarray]:
        """What is known of N runs of the networks ``tables`` before they are scored, what stands behind it, and [R]
        parts of the time's base per row.

        The time is nondecreasing in the batch and in what a slice has of its GPU: the trees' correction is that of the
        whole GPU at the nearest batch that was measured, and the roofline tells what is beyond, and what a slice lacks.
        Between the rungs of a ladder of batch sizes it is held to what is monotone on them (learned/ladder.py), and so
        are its bounds.
        """
        whole = self.whole(way)
        least, most = self._recorded.batches(whole)
        sizes = np.empty((len(batch), len(ladder.RUNGS) + 3), dtype=np.result_type(batch, np.int64))
        sizes[:, :-3], sizes[:, -3], sizes[:, -2], sizes[:, -1] = ladder.RUNGS, least, most, batch
        networks = ladder.at_batches(tables, batch, sizes)
        prints = fingerprints(networks, sizes.ravel()).reshape(*sizes.shape, -1)
        distance = self._distance(prints, sizes, (least, most), threads)
        kinds = self._kinds(tables)
        notes = self._support(tables, batch, way, distance, kinds)
        vectors = at(networks, sizes.ravel(), way)
        heard = self._heard(whole, kinds, distance)
        if np.logical_or.reduce(heard > 0.0):
            where, looked_at = self._where(whole), self._looked_at(networks, kinds, heard)
            seen = vectors if where is way and looked_at is networks else at(looked_at, sizes.ravel(), where)
            learned = self._learned(seen.values, sizes, whole, heard, threads)
        else:
            learned = np.zeros(sizes.shape)
        issue = self._issue(vectors.values).reshape(sizes.shape)
        beside = self._issued_beside(vectors, way).reshape(sizes.shape)
        by_trees = self._log_seconds(vectors.base_s, learned, issue, beside, way)
        seconds, handed_over = self._beyond_trees(by_trees, kinds, networks, way, distance)
        rungs = ladder.isotonic(seconds[:, : len(ladder.RUNGS)])
        issue = issue * np.exp(beside)
        lacking = partial(self._lacking, tables, sizes / batch[:, None], sizes, kinds)
        lacks = lacking(way, distance, issue)
        unrecorded = None  # as if no record were of the board, where it has few of them or is asked beside them
        few = way.torch_version == UNSTATED_TORCH or np.logical_or.reduce(lacks["beside"] > 0.0)
        if few and self.measured(whole) is not None:
            away = self._distance(prints, sizes, self._recorded.batch[way.device.kind], threads)
            without = _without_records(way)
            again = partial(at, networks, sizes.ravel(), without)
            unrecorded = lacking(without, away, self._issue_without(issue, beside, way, again))
        low, high, unknown = time_lacks.bounds(self.spread(whole.device), lacks, unrecorded)
        low, high = low.reshape(sizes.shape), high.reshape(sizes.shape)
        self._note_batch(notes, batch, way)
        asked = np.arange(1, len(batch) + 1) * sizes.shape[1] - 1
        sums, features = vectors.sums, vectors.values[asked]
        bound = (issue[:, -1] > time_lacks.HOST_BOUND_ISSUE) & (not way.cuda_graph)
        notes.add(1, bound, self._bound_by_host(way), vouched=True)
        notes.add(1, bound & (way.torch_version == UNSTATED_TORCH), _OLD_HOST_REASON, vouched=True)
        found = {
            "features": features,
            "base_s": vectors.base_s[asked],
            **ladder.seconds(seconds[:, -1], rungs, low, high, batch),
            "compute_s": sums.compute[asked].sum(axis=1),
            "memory_s": sums.memory[asked].sum(axis=1),
            "group_s": sums.seconds[asked],
            "kernels": sums.kernels[asked].sum(axis=1),
            "distance": distance,
            "handed_over": handed_over[:, -1],
            "lacks": unknown.reshape(*sizes.shape, -1)[:, -1],
            "level": notes.level,
            "beyond": notes.beyond,
            "batch": batch,
        }
        own = np.zeros(sizes.size, dtype=bool)
        own[asked] = True
        return found, notes, vectors.row_s[own[vectors.row_graph]]

    def _distance(
        self, prints: np.ndarray, sizes: np.ndarray, measured: tuple[int, int], threads: int
    ) -> np.ndarray:  # fmt: skip
        """[N] distance to the nearest measured network, at the batch asked or the usual one, whichever is nearer.

        What a network is made of depends on the batch, because weights move once; what it is does not. ``prints``
        [N, K, P]: fingerprints at the batch ``sizes`` [N, K], of which the last is asked and the others are the same
        for all; the usual one of those that were ``measured`` is among them, or else the nearest to it is taken.
        """
        usual = int(np.abs(sizes[0, :-1] - usual_batch(measured)).argmin())
        asked = np.ascontiguousarray(prints[:, (-1, usual)])
        nearer: np.ndarray = self._nearest(asked.reshape(-1, asked.shape[2]), threads).reshape(-1, 2).min(axis=1)
        return nearer

    def _nearest(self, asked: np.ndarray, threads: int) -> np.ndarray:
        """[N] distances of fingerprints [N, P] float32 to the nearest measured, each kept for whoever asks next."""
        kept, keys = self._distances, [row.tobytes() for row in asked]
        new = {key: i for i, key in enumerate(keys) if key not in kept}
        found = dict(zip(new, nearest_to(self._fingerprints, asked[list(new.values())], threads), strict=True))
        if len(kept) + len(found) > _MOST_KEPT:
            kept = self._distances = {key: kept[key] for key in keys if key in kept}
        kept.update(found)
        return np.array([kept[key] for key in keys])

    def _where(self, way: Way) -> Way:
        """Where the trees look at the networks: on the board itself, or on the area's reference where it is unmeasured.

        What they say is then of the network and its software, and the roofline alone tells unmeasured boards apart.
        They look at a network that is asked in TF32 as at one in fp32, and its base takes TF32's rate: what runs on
        matrix units either way (convolutions) takes the same time, and products take less.
        """
        way, reference = learned_in(way), self.settings.reference
        if reference is None or way.device.kind != "gpu" or self.ensemble(way) == "known":
            return way
        return replace(way, device=find_device(reference))

    def _looked_at(self, networks: Tables, kinds: Kinds, heard: np.ndarray) -> Tables:
        """What trees look at of ``networks`` (N at K batch sizes), each of which they are ``heard`` [N] of."""
        return networks

    def _heard(self, way: Way, kinds: Kinds, distance: np.ndarray) -> np.ndarray:
        """[N] weight of what trees say of each network, 0 to 1; they are not asked where it is 0."""
        return self._fade(way, distance)

    def _learned(
        self, features: np.ndarray, sizes: np.ndarray, way: Way, heard: np.ndarray, threads: int
    ) -> np.ndarray:  # fmt: skip
        """[N, K] what the trees say of ``features`` [N * K, F] at the batch ``sizes`` [N, K], times ``heard`` [N].

        Beside the batch sizes that were measured in this way, what they say of the nearest that was.
        """
        least, most = self._recorded.batches(way)
        wanted, ensemble = (sizes >= least) & (sizes <= most) & (heard > 0.0)[:, None], self.ensemble(way)
        x = np.ascontiguousarray(features[wanted.ravel()][:, self._columns_of[ensemble]], dtype=np.float32)
        found = np.zeros(sizes.shape)
        once, back = distinct(x)
        found[wanted] = self._trees_of(ensemble).predict(x[once], threads)[back]
        every = np.arange(len(sizes))
        first = found[every, np.where(wanted, sizes, np.inf).argmin(axis=1)][:, None]
        last = found[every, np.where(wanted, sizes, -np.inf).argmax(axis=1)][:, None]
        return np.where(sizes < least, first, np.where(sizes > most, last, found)) * heard[:, None]

    def _log_seconds(
        self, base_s: np.ndarray, learned: np.ndarray, issue: np.ndarray, beside: np.ndarray, way: Way
    ) -> np.ndarray:
        """[N, K] log seconds under the trees' correction ``learned`` [N, K], learned where the device is busy.

        ``base_s`` [N * K]; ``issue`` and ``beside`` [N, K] as `_issue` and `_issued_beside` have them.
        So it corrects the time of the device. The host, which issues the operators, takes the same time for every
        device (`Settings.host`): trees speak of it between these two bounds alone. Records that state no release ran
        on their laboratory's host, which is in the base or in the correction.
        """
        base = np.log(base_s).reshape(learned.shape)
        if way.torch_version == UNSTATED_TORCH:
            return base + learned
        host = roofline.issue_share(issue)
        quickest, slowest = np.log(self._host(way))
        issued = np.minimum(np.maximum(learned, quickest), slowest) + beside
        device, issued = (np.exp(roofline.SMOOTHNESS * v) for v in (learned, issued))
        found: np.ndarray = base + np.log((1.0 - host) * device + host * issued) / roofline.SMOOTHNESS
        return found

    def _host(self, way: Way) -> tuple[float, float]:
        """As `Settings.host`, of the host that is assumed beside a device."""
        return self.settings.host

    def _bound_by_host(self, way: Way) -> str:
        """What is said of a run that waits for its host."""
        return _HOST_REASON

    def _issued_beside(self, vectors: Vectors, way: Way) -> np.ndarray:
        """[N * K] log of what the host issues over the operators of the graphs."""
        return np.zeros(len(vectors.base_s))

    def _beyond_trees(
        self, seconds: np.ndarray, kinds: Kinds, networks: Tables, way: Way, distance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """[N, K] log ``seconds`` of N networks at K batch sizes, ``networks``, where trees do not know the network.

        And [N, K] the share, 0 to 1, of what trees would say that operators which nothing was learned of take away.
        """
        return seconds, np.zeros_like(seconds)

    def _instead(self, way: Way) -> tuple[int, str]:
        """The support level of networks that trees do not know, and what answers for them, if anything does."""
        return 2, ""

    def _first(self, columns: Columns, notes: Notes, row_s: np.ndarray, way: Way) -> TimePrediction:
        """The first of N runs; ``row_s`` [R] parts of its base."""
        seconds = self.latency_s(columns)
        median = float(seconds.median[0])
        return TimePrediction(
            median,
            float(seconds.low[0]),
            float(seconds.high[0]),
            shares(row_s) * median,
            float(columns["distance"][0]),
            self.ensemble(way),
            notes.support(0),
            SUPPORT_LEVELS[columns["beyond"][0]],
        )

    def _fade(self, way: Way, distance: np.ndarray) -> np.ndarray:
        """[N] weight of the trees' correction."""
        between = self.settings.fade.get(way.device.kind)
        silent = self.settings.trees_need_evidence and self.evidence(way) == UNMEASURED and self.measured(way) is None
        if between is None or silent:
            return np.zeros_like(distance)
        return fade(distance, between)

    def _lacking(
        self, tables: Tables, grown: np.ndarray, sizes: np.ndarray, kinds: Kinds, way: Way, distance: np.ndarray,
        issue: np.ndarray,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """[N * K] what is not known of N networks at the batch ``sizes`` [N, K], by CAUSES; the rest as for `_lacks`.

        ``issue`` [N, K]: the host's time over the device's.
        """
        return self._waiting(self._lacks(tables, grown, sizes, kinds, way, distance), issue.ravel(), way)

    def _waiting(self, lacks: dict[str, np.ndarray], issue: np.ndarray, way: Way) -> dict[str, np.ndarray]:
        """``lacks`` [N * K] with what is not known of the host, by its time over the device's."""
        return lacks | {"host": time_lacks.host_lack(issue)}

    def _lacks(
        self, tables: Tables, grown: np.ndarray, sizes: np.ndarray, kinds: Kinds, way: Way, distance: np.ndarray
    ) -> dict[str, np.ndarray]:
        """As `_lacking`, of all but the host, whose place is kept.

        ``grown`` [N, K]: the size over that of the tables. ``distance`` [N] to the nearest measured network.
        """
        whole = self.whole(way)
        evidence = EVIDENCE.index(self.evidence(whole))
        least, most = self._recorded.batches(whole)
        batches = np.abs(np.log2(np.minimum(np.maximum(sizes, least), most) / sizes))
        macs = tables.sums(tables.table.macs * tables.count)[:, None] * grown / sizes
        fewest, largest = self.manifest["support"]["macs_per_sample"]
        work = np.abs(np.log10(np.minimum(np.maximum(macs, fewest), largest) / np.maximum(macs, 1.0)))
        unseen = self.ensemble(whole) != "known"
        found = {
            "measurement": 1.0,
            "laboratory": 1.0,
            "network": np.minimum(distance, 1.0)[:, None],
            # Of a kind that was not measured: without a convolution, or of other operators.
            "domain": (kinds.strange | ~kinds.convolves).astype(np.float64)[:, None],
            "device": 1.0 if unseen else time_lacks.scarcity(self._recorded.rows(whole.device)),
            "vendor": float(unseen and not self.knows_vendor(way.device)),
            "generation": roofline.generations_before_ampere(whole.device) if unseen else 0.0,
            "rare software": float(unseen and evidence == 1),
            "unmeasured software": float(unseen and evidence == len(EVIDENCE) - 1),
            "host": 0.0,
            "slice": (1.0 - way.device.sm_count / whole.device.sm_count) ** 2,
            "beside": batches + work,
        }
        values = np.empty((len(found), *sizes.shape))
        for i, value in enumerate(found.values()):
            values[i] = value
        return dict(zip(found, values.reshape(len(found), -1), strict=True))

    def _kinds(self, tables: Tables) -> Kinds:
        """What N networks are made of."""
        unlearned = self._unlearned(tables)
        return Kinds(unlearned, tables.any(unlearned), tables.any(_CONVOLUTIONS[np.asarray(tables.table.op)]))

    def _unlearned(self, tables: Tables) -> np.ndarray:
        """[R] whether a row's operator is in no measured network."""
        return np.asarray(~self._known_operators[np.asarray(tables.table.op)])

    def _issue(self, features: np.ndarray) -> np.ndarray:
        """[N] time of the host to issue the operators over that of the device."""
        return np.exp(features[:, self.settings.ratios.names.index("log_issue")].astype(np.float64))

    def _issue_without(
        self, issue: np.ndarray, beside: np.ndarray, way: Way, again: Callable[[], Vectors]
    ) -> np.ndarray:
        """``issue`` [N, K] as it would be beside a board without records, on the host that is assumed there.

        ``again``: the features of the same on such a board; ``beside`` as `_issued_beside` has it.
        """
        return issue

    def _trees_of(self, name: str) -> _core.TreeEnsemble:
        """One of the two ensembles; read when it is first needed, because a process mostly needs one."""
        if name not in self._trees:
            self._trees[name] = self._artefact.trees(name)
        return self._trees[name]

    def read_beforehand(self) -> None:
        """Both ensembles: for a process that answers many questions."""
        for name in self._columns_of:
            self._trees_of(name)

    def _support(
        self, tables: Tables, batch: np.ndarray, way: Way, distance: np.ndarray, kinds: Kinds
    ) -> Notes:  # fmt: skip
        """How far measurements stand behind each run."""
        device = way.device
        notes, s, support = Notes(len(batch)), self.settings, self.manifest["support"]
        known, measured = self.manifest["measured"].get(device.id, ()), self.measured(way)
        alike = self._recorded.as_twin(device) if known else ()
        if known and count(known) < s.known_rows:
            few = f"only {count(known)} runs on {device.name} to learn from"
            why = f"answered as {' and '.join(alike[:2])}, the same chip with none" if alike else _AS_IF_NONE
            notes.add(1, True, f"{few}; {why}", vouched=True)
        if not known:
            level, vouched = self.unseen(device)
            on, taught = device.name, "other devices"
            if device.kind == "cpu" and device.parent in self.manifest["measured"]:
                on, taught = f"{device.sm_count} cores of {device.name} alone", "runs on all of its cores"
            reason = f"{s.nothing} on {on} to learn from; the roofline carries over what {taught} taught"
            notes.add(level, True, reason, vouched=vouched)
        elif measured is None and not alike:
            what = sorted({f"{e['precision']} {e['runtime']} {e['layout']}" for e in known})
            asked = f"{way.precision} {way.runtime} {way.layout}"
            reason = f"nothing in {asked} to learn from{s.where} on {device.name}; there was {', '.join(what)}"
            notes.add(1, True, reason, vouched=True)
        near, far = (support["distance"][edge] for edge in ("near", "far"))
        beyond, instead = self._instead(way)
        notes.add(
            beyond,
            distance > far,
            lambda i: f"unlike every {s.network} (distance {distance[i]:.2f}, over {far:.2f}){instead}",
            vouched=beyond < 2,
        )
        notes.add(
            1,
            (distance > near) & (distance <= far),
            lambda i: f"no close relative among the {s.networks} (distance {distance[i]:.2f})",
            vouched=True,
        )
        only = instead or f", and only vision models were learned from{s.where}"
        reason = f"no convolution or patch embedding: not a vision model{only}"
        notes.add(beyond, ~kinds.convolves, reason, vouched=beyond < 2)
        _note_operators(notes, tables, kinds, f"operators that no {s.network} has")
        macs = tables.sums(tables.table.macs * tables.count) / batch
        lowest, highest = support["macs_per_sample"]
        notes.add(
            1,
            (macs < lowest) | (macs > highest),
            lambda i: f"{macs[i]:.3g} MACs per sample; {s.networks} have {lowest:.3g} to {highest:.3g}",
        )
        return notes

    def _note_batch(self, notes: Notes, batch: np.ndarray, way: Way) -> None:
        """Whether each batch size lies beside those that were measured."""
        least, most = self._recorded.batches(way)
        on = f"on {way.device.name} ({least} to {most})" if self.measured(way) else f"({least} to {most})"
        beside = (batch < least) | (batch > most)
        notes.add(1, beside, lambda i: f"batch {batch[i]} is beside those learned from {on}")


@cache
def _makes(measured: tuple[str, ...], kind: str, vendor: str) -> bool:
    """Whether one of these devices is of this kind by this vendor; none is looked up beyond the first that is."""
    return any((found.kind, found.vendor) == (kind, vendor) for found in map(find_device, measured))


def _without_records(way: Way) -> Way:
    """The same on a board like it that nobody measured, in today's release."""
    return replace(way, device=replace(way.device, id=f"{way.device.id}, unmeasured", parent=None), torch_version=None)


def fade(distance: np.ndarray, between: tuple[float, float]) -> np.ndarray:
    """[N] weight of the trees' correction, which falls from 1 to 0 between two distances."""
    first, last = between
    return np.minimum(np.maximum((last - distance) / (last - first), 0.0), 1.0)


def _note_operators(notes: Notes, tables: Tables, kinds: Kinds, what: str) -> None:
    """Adds that a run has operators that nothing was learned of, and names some."""

    def named(run: int) -> str:
        rows = slice(tables.offset[run], tables.offset[run + 1])
        operators = np.asarray(tables.table.op)[rows]
        names = sorted({OPERATORS[i] for i in operators[kinds.unlearned[rows]].tolist()})
        return f"{what}: {', '.join(names[:6])}"

    uncosted = tables.any(np.asarray(tables.table.op) == _UNKNOWN)  # of these not even the work is known
    notes.add(1, kinds.strange & ~uncosted, named)
    notes.add(2, uncosted, named)
