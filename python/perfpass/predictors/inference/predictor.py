"""The predictor of inference in PyTorch: time by `RatioTrees`, power by use of the roofs, memory by the plan.

On GPUs the time of networks that are unlike every measured one is that of their operators (inference/operators.py).
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from perfpass.graph.table import Tables
from perfpass.prediction import SUPPORT_LEVELS
from perfpass.predictors.energy.power import PowerModel
from perfpass.predictors.estimate import Columns, Estimate, Estimates, Notes, Runs, shares
from perfpass.predictors.inference.features import RATIOS, SCHEMA_VERSION, UNSTATED_HOST, graph_vectors
from perfpass.predictors.learned import time_lacks
from perfpass.predictors.learned.ratio_trees import (
    LEAST_DEVICE_ROWS,
    UNMEASURED,
    Kinds,
    RatioTrees,
    Settings,
    TimePrediction,
    fade,
)
from perfpass.predictors.learned.recorded import FASTER_FP32, UNSTATED_TORCH, learned_in
from perfpass.predictors.memory import allocation, process
from perfpass.predictors.roofline import (
    GEMM_RATE,
    GROUPS,
    ISSUE_S,
    RATES,
    WRAPPER_HOST,
    issue_share,
    of_before_ampere,
    on_matrix_units,
    slower_host,
    sustained_flops,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perfpass.devices import Device
    from perfpass.graph.table import OperatorColumns
    from perfpass.predictors.estimate import Run
    from perfpass.predictors.inference.operators import OperatorTimes
    from perfpass.predictors.learned.ratios import Vectors
    from perfpass.predictors.way import Way


_AUTOCAST = ("amp", "amp_bf16")
# Distances at which trees begin and end to fade. Chosen on families set aside (perfpass.training.inference.choose).
_FADE = {"gpu": (0.35, 0.6), "cpu": (0.6, 1.0)}
# Beside boards from before Ampere, and others' launched before it: 40 us an operator, which HELP's boards of 2016 to
# 2018 take. Clouds keep them beside processors of their time (V100: a Broadwell of 2.3 GHz, T4: a Cascade Lake of 2.5).
_OLDER_HOST = (2.0, 2.0)
# How much slower the host may be, when what waits for it is counted: a run waits for a host at the upper end of its
# width (1.7) where it does not for the one that is assumed. From 1.25 on no upper bound rises as a device gets faster.
# Chosen with the coverage of sources left out in sight.
_SLOWER_HOST = 2.0
# A compiled graph's host, in squares, over an eager one's: its wrapper has become faster by as much again. From 9 us an
# operator (releases and processors of 2026) to near 40 (torch 2.0 in a cloud) are inside; the assumed host takes 18.
_WRAPPER_LACK = 2.4
_COMPILED = "torch.compile"
_WRAPPER_REASON = (
    "bound by the host: by default torch.compile launches kernel by kernel from Python, as slowly as its release and "
    "the processor are old; cuda_graph asks for its mode reduce-overhead"
)
_REPLAYED_REASON = "replayed as a CUDA graph (mode reduce-overhead), which one laboratory ran on one board"
# What a measured board lacks where operators are priced one by one, over an unmeasured one, by hand: no laboratory left
# out ran on it. Its runs tell its memory and its clock, and nothing of its products.
_PRICED = 0.5
# Shares of the time that operators of no measured network take. Trees that know all others of it answer as before for
# what takes little: one more operator would else make a network as much faster or slower as the two answers differ.
_STRANGE = (0.05, 0.25)
_FASTER_REASON = "as in fp32, whose kernels TF32 allows, with its products faster"
# Groups of operators with a weight, which autocast casts.
_WEIGHED = np.array([g.startswith("conv") or g in ("dense", "recurrent") for g in GROUPS])
# What a compiled graph's host takes in each group over what is counted: of recurrent layers cuDNN launches the kernels.
_WRAPPED = np.where(np.array(GROUPS) == "recurrent", 1.0, WRAPPER_HOST * ISSUE_S["torch"] / ISSUE_S[_COMPILED])


def evidence_key(way: Way) -> str:
    """Which records speak of this software on other devices; the 16-bit types that modern runs use count as one.

    So do halves on boards with matrix units, which multiply them as fast; on others these are software of their own.
    """
    halves = way.precision == "fp16" and on_matrix_units(way.device, "fp16")
    precision = "amp/bf16" if halves or way.precision in ("amp", "amp_bf16", "bf16") else way.precision
    return f"{precision} {way.runtime} {way.layout}"


def counted_distance(distance: np.ndarray) -> np.ndarray:
    """What a network on a GPU lacks by its distance from those learned from: no more than where trees begin to fade."""
    return np.minimum(distance, _FADE["gpu"][0])


def assumed_host(way: Way) -> float:
    """What the host that is assumed takes to issue operators over what the features count (``log_issue``).

    Records that state no release have it counted there (`UNSTATED_HOST`).
    """
    if way.torch_version == UNSTATED_TORCH:
        return 1.0
    return InferencePredictor.host_of(way.device)[0]


def as_it_waits(lacks: Mapping[str, np.ndarray], issue: np.ndarray) -> dict[str, np.ndarray]:
    """`time_lacks.as_it_waits` of N runs on GPUs, at a slower host (`_SLOWER_HOST`) than the one that is assumed.

    ``issue`` [N]: time of the host that is assumed (`assumed_host`) over that of the device.
    """
    return time_lacks.as_it_waits(lacks, issue_share(_SLOWER_HOST * issue))


class InferencePredictor(RatioTrees):
    """Latency, power and memory of inference in PyTorch, from a trained artefact."""

    name = "inference"
    settings: ClassVar[Settings] = Settings(
        area="inference",
        ratios=RATIOS,
        feature_version=SCHEMA_VERSION,
        fade=_FADE,
        # A device with fewer is predicted as an unseen one; its records still teach both ensembles.
        known_rows=LEAST_DEVICE_ROWS,
        # 27 us an operator, which ParvaGPU takes; timm and ByteTransformer are near 20, kernl at 33, torchvision at 34,
        # HELP at 40, FasterTransformer at 22 to 55, DeepLearningExamples at 39 to 60 (33 made more laboratories worse).
        host=(1.35, 1.35),
        reference=None,
        trees_need_evidence=False,
        nothing="no run",
        where="",
        network="network learned from",
        networks="networks learned from",
    )

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        super().__init__(folder)
        self._times: OperatorTimes | None = None
        self._evidence: dict[str, dict[str, str]] = self.manifest["evidence"]
        self._power = PowerModel.from_dict(self.manifest["power"])

    def priced(self, times: OperatorTimes) -> InferencePredictor:
        """The same with other times of operators than those that ship."""
        other = copy(self)
        other._times = times
        return other

    @staticmethod
    def covers(way: Way) -> bool:
        """Whether the precision and the runtime are ones this predictor speaks of at all."""
        spoken = way.precision in GEMM_RATE or (way.precision == FASTER_FP32 and way.device.kind == "gpu")
        return spoken and way.runtime in ISSUE_S

    def _heard(self, way: Way, kinds: Kinds, distance: np.ndarray) -> np.ndarray:
        heard = self._fade(way, distance)
        return heard * kinds.convolves if way.device.kind == "gpu" else heard  # operators answer for what has none

    def _support(self, tables: Tables, batch: np.ndarray, way: Way, distance: np.ndarray, kinds: Kinds) -> Notes:
        notes = super()._support(tables, batch, way, distance, kinds)
        notes.add(1, way.precision == FASTER_FP32, _FASTER_REASON, vouched=True)
        notes.add(1, way.cuda_graph, _REPLAYED_REASON, vouched=True)
        return notes

    def _looked_at(self, networks: Tables, kinds: Kinds, heard: np.ndarray) -> Tables:
        """Trees do not look at operators that no network had: what these take is in the base, and moves no correction.

        So by what was learned one more of them never makes a network faster; `_beyond_trees` may, as it hands over.
        """
        if not np.logical_or.reduce(kinds.strange & (heard > 0.0)):
            return networks
        return networks.without(self._unlearned(networks))

    def knows(self, device: Device) -> bool:
        """Whether records of the device, or of the GPU that it is a slice of, are in the corpus."""
        return (device.parent or device.id) in self.manifest["measured"]

    def evidence(self, way: Way) -> str:
        """By the kind of device and `evidence_key`."""
        return self._evidence.get(way.device.kind, {}).get(evidence_key(learned_in(way)), UNMEASURED)

    def columns(self, runs: Runs, way: Way, threads: int = 1) -> tuple[Columns, Notes]:
        """What is known of N runs before they are scored, and how far measurements stand behind them."""
        return self.columns_of(runs, way, threads)[:2]

    def columns_of(self, runs: Runs, way: Way, threads: int = 1) -> tuple[dict[str, np.ndarray], Notes, np.ndarray]:
        """What is known of N runs before they are scored, the notes, and [R] parts of the base per row."""
        way = self._released(way)

        def at(tables: Tables, batch: np.ndarray, way: Way) -> Vectors:
            return graph_vectors(tables, batch, way, self._efficiency["known"])

        found, notes, row_s = self._known(at, runs.tables, runs.batch, way, threads)
        found |= {
            "weight_bytes": runs.weight_bytes,
            "activation_bytes": runs.activation_bytes,
            "reserved_bytes": runs.reserved_bytes,
            "input_elements": runs.input_elements,
            "convolutional": allocation.convolutional(runs.tables),
        }
        return found, notes, row_s

    def _host(self, way: Way) -> tuple[float, float]:
        return (1.0, 1.0) if way.cuda_graph else self.host_of(way.device)

    @classmethod
    def host_of(cls, device: Device) -> tuple[float, float]:
        """What the hosts assumed beside a device, the quickest and the slowest, take over what features count."""
        quickest, slowest = _OLDER_HOST if of_before_ampere(device) else cls.settings.host
        scale = slower_host(device)
        return scale * quickest, scale * slowest

    def _issue_without(
        self, issue: np.ndarray, beside: np.ndarray, way: Way, again: Callable[[], Vectors]
    ) -> np.ndarray:
        return issue / UNSTATED_HOST if way.torch_version == UNSTATED_TORCH else issue

    def _issued_beside(self, vectors: Vectors, way: Way) -> np.ndarray:
        """Under autocast, the cast of each weight: a context keeps casts, and every run opens one (torch.autocast).

        In a compiled graph, whose casts are kernels like others, what its wrapper takes over what is counted
        (`roofline.WRAPPER_HOST`).
        """
        launches = vectors.sums.kernels
        whole = np.maximum(launches.sum(axis=1), 1.0)
        if way.runtime == _COMPILED and way.device.kind == "gpu":
            return np.zeros_like(whole) if way.cuda_graph else np.log(np.maximum(launches @ _WRAPPED, 1.0) / whole)
        if way.precision not in _AUTOCAST:
            return super()._issued_beside(vectors, way)
        return np.asarray(np.log1p(launches[:, _WEIGHED].sum(axis=1) / whole))

    def _where(self, way: Way) -> Way:
        return super()._where(replace(way, cuda_graph=False) if way.cuda_graph else way)

    def _bound_by_host(self, way: Way) -> str:
        return _WRAPPER_REASON if way.runtime == _COMPILED else super()._bound_by_host(way)

    def _beyond_trees(
        self, seconds: np.ndarray, kinds: Kinds, networks: Tables, way: Way, distance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        handed_over = np.zeros_like(seconds)
        trees = self._heard(way, kinds, distance)
        priced = np.flatnonzero((trees < 1.0) | kinds.strange)
        if way.device.kind != "gpu" or not len(priced):
            return seconds, handed_over
        steps = seconds.shape[1]
        if len(priced) < len(trees):
            networks = networks.take((priced[:, None] * steps + np.arange(steps)).ravel())
        from perfpass.predictors.inference.operators import OperatorTimes

        times = self._times or OperatorTimes.load()
        # Shares are those of what the trees look at: with a leave that makes products faster no other share is theirs.
        found = times.seconds(networks, learned_in(way))
        total = found.total
        if way.precision == FASTER_FP32:
            total = np.minimum(total, times.seconds(networks, way).total)
        # Of the whole GPU, as the correction is: a share of each slice's own would make one faster than a larger one.
        apart = way.device.parent is not None and np.logical_or.reduce(kinds.strange)
        of = times.seconds(networks, learned_in(self.whole(way))) if apart else found
        unlearned = networks.sums(of.row * self._unlearned(networks)) / of.total
        kept = fade(unlearned, _STRANGE).reshape(-1, steps)
        share = trees[priced, None] * kept
        handed_over[priced] = trees[priced, None] - share
        seconds = seconds.copy()
        seconds[priced] = share * seconds[priced] + (1.0 - share) * np.log(total).reshape(-1, steps)
        return seconds, handed_over

    def _lacks(
        self, tables: Tables, grown: np.ndarray, sizes: np.ndarray, kinds: Kinds, way: Way, distance: np.ndarray
    ) -> dict[str, np.ndarray]:
        """As far as operators are priced one by one neither measured networks vouch, nor those that the board ran.

        So a network's distance counts up to where trees begin to fade: beyond it errors of operators take their place.
        """
        found = super()._lacks(tables, grown, sizes, kinds, way, distance)
        if way.device.kind != "gpu":
            return found
        convolves = kinds.convolves.repeat(sizes.shape[1])
        trees = self._heard(way, kinds, distance).repeat(sizes.shape[1])
        found["network"] = counted_distance(found["network"]) * convolves
        found["device"] = np.maximum(found["device"], _PRICED * (1.0 - trees))
        if way.cuda_graph:
            found["rare software"] = np.ones_like(found["device"])
        return found

    def _waiting(self, lacks: dict[str, np.ndarray], issue: np.ndarray, way: Way) -> dict[str, np.ndarray]:
        if way.device.kind != "gpu":
            return super()._waiting(lacks, issue, way)
        if way.cuda_graph:
            return lacks | {"host": np.zeros_like(issue)}
        found = as_it_waits(lacks, issue * assumed_host(way))
        return found | {"host": _WRAPPER_LACK * found["host"]} if way.runtime == _COMPILED else found

    def _instead(self, way: Way) -> tuple[int, str]:
        if way.device.kind != "gpu":
            return super()._instead(way)
        return 1, "; its operators are priced one by one, and errors on other laboratories' networks make the interval"

    def predict(self, table: OperatorColumns, batch: int, way: Way) -> TimePrediction:
        """Latency of one operator table, counted at the width of ``way``."""
        runs = Runs(Tables.one(table), np.array([batch]), *(np.zeros(1) for _ in range(7)))  # time alone
        return self._first(*self.columns_of(runs, way), way)

    def estimates(self, columns: Columns, way: Way, threads: int = 1) -> Estimates:
        """All metrics of N runs (perfpass.predictors.estimate)."""
        device, rate = way.device, RATES[way.precision]
        seconds = self.latency_s(columns)
        # Against the plain peak, not the sustained one: the power model was fitted so.
        to_peak = sustained_flops(device, rate) / device.peak_flops.get(rate, device.peak_flops["fp32"])
        parts, memory = process.inference(columns, way)
        return Estimates(
            latency_ms=seconds.scaled(1e3),
            power_w=self._power.predict(
                device, columns["compute_s"] / seconds.median * to_peak, columns["memory_s"] / seconds.median
            ),
            memory=memory,
            memory_bytes=parts,
            level=columns["level"].astype(np.int8),
        )

    def estimate(self, run: Run) -> Estimate:
        """All metrics of one run (perfpass.predictors.estimate)."""
        columns, notes, row_s = self.columns_of(allocation.runs_of(run), run.way)
        found = self.estimates(columns, run.way)
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
                "ensemble": self.ensemble(run.way),
                "beyond_measured": SUPPORT_LEVELS[columns["beyond"][0]],
                "nearest_network_distance": float(columns["distance"][0]),
                "handed_over": float(columns["handed_over"][0]),
                "power": self.manifest["power"]["source"],
                "memory": process.SOURCE,
            },
            partial(self.wide_by, columns, self.whole(run.way).device),
        )

    def traits(self, tables: Tables, batch: np.ndarray, way: Way) -> np.ndarray:
        """[N, F] what the time of runs is made of, under this predictor's efficiencies."""
        return graph_vectors(tables, batch, way, self._efficiency["known"]).values
