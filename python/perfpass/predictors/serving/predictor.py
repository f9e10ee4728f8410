"""The serving predictor: times of language-model serving from counts, a physical base, trees and measured neighbours.

What is learned and how: docs/predictors/serving.md. Scoring needs NumPy and the compiled core.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArtefactError
from perfpass.llm import assumed as assumed_load
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import Parallelism, Quantization, in_format
from perfpass.llm.memory import served, with_room
from perfpass.llm.precision import quantization
from perfpass.llm.serving import Serving, beyond_positions, check_gpu, check_runtime, check_split
from perfpass.llm.versions import check_version
from perfpass.prediction import COVERAGE, Interval, Support
from perfpass.predictors import layer_kinds
from perfpass.predictors.estimate import Bounds
from perfpass.predictors.learned import artefacts, lattice, width_words
from perfpass.predictors.learned.spread import Spread
from perfpass.predictors.relative.question import AskedServing, kept
from perfpass.predictors.serving import base, widths
from perfpass.predictors.serving.base import CONSTANTS, Sizes, times
from perfpass.predictors.serving.features import (
    NEAREST,
    Neighbours,
    Workloads,
    alike,
    beside,
    counted,
    describe,
    known,
    with_trees,
)
from perfpass.predictors.serving.order import Alone, ordered
from perfpass.predictors.serving.prediction import LlmPrediction, Transformation, prediction_of
from perfpass.text import figure

TARGETS = ("tpot", "ttft")
# What is known of a workload: model and device measured together; both, but not together; only the one or the other;
# neither. The held-out errors of each make its bounds.
EVIDENCE = ("measured", "apart", "model unseen", "device unseen", "both unseen")
# What answers for each of EVIDENCE, by target and mode of serving: trees on what the base leaves, or the base alone.
# Chosen on the rows set aside: of what was not measured together, trees made nearly all worse than the base is.
_BASE = {"agg": "base", "disagg": "base"}
_KNOWN = {"agg": "known", "disagg": "known"}
METHOD: dict[str, dict[str, dict[str, str]]] = {
    "measured": {"tpot": _KNOWN, "ttft": _KNOWN},
    "apart": {"tpot": {"agg": "base", "disagg": "known"}, "ttft": _BASE},
    "model unseen": {"tpot": _BASE, "ttft": _BASE},
    "device unseen": {"tpot": _BASE, "ttft": _BASE},
    "both unseen": {"tpot": _BASE, "ttft": _BASE},
}
# Prompts and loads on which known trees are put in order: those of the records and powers of two between them, as far
# as they were measured; then what lies below and above, where the base alone says how times grow.
INPUTS = (128, 256, 512, 1000, 1024, 2000, 2048, 4000, 4096, 8000, 8192, 15_000)
LOADS = (1, 2, 3, *(k * 2**i for i in range(2, 10) for k in (1, 1.5)), *(2**i for i in range(10, 15)))
ALL_INPUTS = (1, 16, 64, *INPUTS, 32_768, 131_072, 10**7)
ALL_LOADS = (*LOADS, 65_536, 10**7)
_EDGES = (3, 3), (0, 2)
# Prompts, loads and tokens of an answer on which two boards are compared by their bases.
USUAL = (128, 1024, 8192), (1, 8, 64, 512), 256.0
_OUT_OF_RANGE = np.pad(np.zeros((len(INPUTS), len(LOADS))), _EDGES, constant_values=100.0)
# A point of the lattice counts by its distance to measured workloads (features.position): by hand.
_REACH, _LEAST_WEIGHT = 0.3, 1e-3
# Of the time to the first token, where the load bounds it. By hand.
_LEAST_SHARE = 0.1


def predict_llm(
    model: str | os.PathLike[str] | Mapping[str, Any] | LanguageModel,
    device: str | Device,
    *,
    input_length: int | None = None,
    output_length: int | None = None,
    concurrency: float | None = None,
    runtime: str | None = None,
    runtime_version: str = "",
    precision: str | Quantization | None = None,
    kv_precision: str | None = None,
    tp: int | None = None,
    pp: int = 1,
    dp: int = 1,
    ep: int = 1,
    workers: int = 1,
    prefill: Parallelism | None = None,
    prefill_workers: int = 0,
    decode_batch: int = 0,
    equal_answers: bool = False,
    switches: Transformation | None = None,
) -> LlmPrediction:
    """What serving a language model costs: times, throughput, energy and power with intervals, memory, support.

    ``model``: a config.json, its folder or content, a known name (`configuration_names`), or a LanguageModel.
    ``device``: a GPU of the catalogue. ``input_length``, ``output_length``: mean tokens of a request; ``concurrency``:
    requests in flight over the whole deployment. ``runtime``: vllm, trtllm or sglang, or tgis as it was in 2023,
    from other records. ``precision``: one of PRECISIONS (a file type of llama.cpp among them, as
    q4_k_m), of FORMATS (awq, gptq, nf4: their methods' bytes), a Quantization, or None for what the checkpoint stores.
    ``tp``, ``pp``, ``dp``, ``ep``: tensor, pipeline, attention-data and expert parallelism of one replica, ``workers``
    replicas; without ``tp`` the fewest GPUs that hold the model, up to 8. ``prefill`` with ``prefill_workers``:
    disaggregated, with prefill on replicas of their own; ``decode_batch``: requests that a decode rank then runs at
    most, by its settings (TensorRT-LLM's max_batch_size, vLLM's max_num_seqs), while others wait for their first token;
    0: as many as its cache holds. ``equal_answers``: every answer has this length, as benchmarks ask for, so that
    SGLang serves in waves. ``switches``: what is switched on beside a plain engine
    (`perfpass.Switches`). What is None is assumed, and ``assumed`` of the prediction
    says what was taken: 1,024 tokens in and 128 out (fewer where the model has fewer positions), one request in
    flight, vllm.

    Raises ArgumentError, DeviceError, and what reading a configuration raises (FileError, FormatError,
    UnsupportedError).
    """
    read = model if isinstance(model, LanguageModel) else language_model(model)
    target = find_device(device) if not isinstance(device, Device) else device
    check_gpu(target)
    check_version(runtime_version)
    stack = assumed_load.RUNTIME if runtime is None else runtime
    check_runtime(stack, target)
    read = in_format(read, precision)
    used, changed = quantization(read, precision, kv_precision, target, stack)
    prompt, answer = assumed_load.lengths(read, input_length, output_length)
    added = switches.prompt_tokens if switches else 0
    serving = Serving(
        input_length=prompt + added,
        output_length=answer,
        concurrency=assumed_load.CONCURRENCY if concurrency is None else concurrency,
        runtime=stack,
        runtime_version=runtime_version,
        mode="disagg" if prefill is not None or prefill_workers else "agg",
        parallelism=Parallelism.of(1 if tp is None else tp, pp, dp, 1 if tp is None else ep),
        workers=workers,
        prefill=prefill,
        prefill_workers=prefill_workers,
        decode_batch=decode_batch,
        equal_answers=equal_answers,
        quantization=used,
    )
    if tp is None:
        ranks = assumed_load.fewest_serving(read, target, serving, ep)
        serving = replace(serving, parallelism=Parallelism.of(ranks, pp, dp, ep))
    for split in (serving.parallelism, serving.prefill):
        if split:
            check_split(read, split.tensor, split.pipeline)
            assumed_load.check_together(target, split.gpus)
    # Imported here: they bring two more artefacts.
    from perfpass.predictors.serving import loaded
    from perfpass.predictors.serving.energy import with_energy

    known, asked_for = serving.runtime in base.RUNTIMES, AskedServing(read, target, serving)
    with kept(asked_for):
        found = (ServingPredictor.load() if known else loaded).predict(read, target, serving)
    if read.is_encoder_decoder:
        said = "no run of an encoder-decoder to learn from; the encoder is counted as a pass over the prompt"
        found = replace(found, support=Support("outside", (said, *found.support.reasons)))
    if also := (*read.notes, *([changed] if changed else [])):
        found = replace(found, support=Support(found.support.level, (*found.support.reasons, *also)))
    if target.unread:
        found = replace(found, support=found.support.at_most("near", target.unread))
    if long := beyond_positions(read, prompt + added, answer):
        found = replace(found, support=found.support.at_most("outside", long))
    asked: dict[str, Any] = {"input_length": input_length, "output_length": output_length, "concurrency": concurrency}
    asked |= {"runtime": runtime, "precision": precision, "tp": tp}
    taken: dict[str, Any] = {name: getattr(serving, name) for name in ("output_length", "concurrency", "runtime")}
    taken |= {"precision": assumed_load.precision_name(serving.quantization), "tp": serving.parallelism.tensor}
    taken = {"input_length": prompt, **taken}
    assumed = {name: value for name, value in taken.items() if asked[name] is None}
    if kv_precision is None and not isinstance(precision, Quantization) and used.is_narrow:
        assumed["kv_precision"] = used.kv_cache
    if switches is not None:
        found = switches.applied(found, read, target)
    return with_energy(replace(found, assumed=assumed, asked=asked_for), read, target)


class ServingPredictor:
    """Times of serving from a trained artefact."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        self._artefact = artefacts.Artefact(folder or artefacts.shipped("serving"))
        manifest = self._artefact.manifest
        self.constants: dict[str, float] = manifest["constants"]
        if set(self.constants) != set(CONSTANTS):
            raise ArtefactError(f"{self._artefact.folder}: constants of another version; run `perfpass train` again")
        self.manifest = manifest
        self.known = widths.Measured.of(manifest)
        self.spread = {target: Spread.from_dict(manifest["spread"][target]) for target in TARGETS}
        self._trees: dict[str, Any] = {}

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> ServingPredictor:
        """The shipped predictor, read once per process."""
        return ServingPredictor()

    def family(self, model: LanguageModel) -> str:
        """The measured architecture that has exactly this model's counts, or the model's own name."""
        for name, counts in self.manifest["families"].items():
            if counts == [model.parameters, model.active_parameters, model.layer_count]:
                return str(name)
        return model.name

    def evidence(self, family: str, device: Device) -> str:
        """Which of EVIDENCE holds for a model on a device."""
        pairs = self.manifest["measured"]
        model_seen = any(family in families for families in pairs.values())
        if model_seen and device.id in pairs:
            return "measured" if family in pairs[device.id] else "apart"
        if model_seen or device.id in pairs:
            return "device unseen" if model_seen else "model unseen"
        return "both unseen"

    def seconds(self, w: Workloads, method: str) -> dict[str, np.ndarray]:
        """Medians [N] in seconds by target, as one ``method`` of METHOD finds them for each workload by itself."""
        found = times(w.terms, self.constants)
        logarithms = {target: np.log(found[target]) for target in (*TARGETS, "steady")}
        if method == "known":
            corrections, distance = self.corrections(w)
            apart = np.array(self._neighbours.set_up_apart(w))
            learned = with_trees(w, logarithms, corrections, distance, apart)
        else:
            learned = {**logarithms, "ttft": counted(logarithms["ttft"], logarithms["steady"], alike(w))}
        return {target: np.exp(learned[target]) for target in TARGETS}

    def corrections(self, w: Workloads) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Logarithms [N] that the known trees add to the base, by target, and distances [N] to measured workloads."""
        columns, near = known(w, self.constants), self._neighbours.features(w)
        found = {
            target: self._ensemble(f"{target}-known").predict(np.hstack([columns, own])).astype(np.float64)
            for target, own in zip(TARGETS, near, strict=True)
        }
        return found, near[0, :, NEAREST].astype(np.float64)

    def predict(self, model: LanguageModel, device: Device, serving: Serving) -> LlmPrediction:
        """All metrics of one workload. Raises ArgumentError for a CPU."""
        check_gpu(device)
        memory = served(model, device, serving)
        # Of a device that cannot run it: no queue of one request at a time, which nobody would see either.
        holds = device if memory.fits else with_room(model, device, serving)
        own = self.alone(model, holds, serving, Sizes.of(serving))
        found = ordered(self, own)
        tpot, ttft = _first(found["tpot"]), _first(found["ttft"])
        support = _support(own.family, device, own.evidence, self._beyond(model, device, serving, memory.fits))
        support = replace(support, reasons=(*support.reasons, *layer_kinds.reasons(model)))
        for what, value, target in (("time per output token", tpot, "tpot"), ("time to first token", ttft, "ttft")):
            lacks = widths.of_tokens(own.lacks) if target == "tpot" else own.lacks
            said = width_words.reason(what, value, self.spread[target], lacks, widths.WORDS)
            support = replace(support, reasons=(*support.reasons, *said))
        # Not by the first token: it waits for what others sent, which every laboratory does in its own way.
        support = replace(support, level=width_words.level_of(tpot, support.level))
        base = times(own.terms, self.constants)
        parts = {name: float(base[name][0]) * 1e3 for name in ("step", "prompt", "queue")}
        return prediction_of(
            model,
            device,
            serving,
            ttft,
            tpot,
            memory=memory,
            support=support,
            breakdown={f"base_{name}_ms": value for name, value in parts.items()},
            provenance={"kind": "learned", "evidence": own.evidence, "corpus": self.manifest["corpus"]},
            measured_as=own.family,
        )

    def alone(self, model: LanguageModel, device: Device, serving: Serving, sizes: Sizes) -> Alone:
        """What is found of N loads (``sizes``) of one deployment, before it is compared with other devices and models;
        the load of ``serving`` itself says nothing.
        """
        family = self.family(model)
        evidence = self.evidence(family, device)
        rows, asked = len(sizes.concurrency), sizes
        queued = bool((sizes.concurrency > 1).any())
        if queued:  # a request alone is asked with them
            asked = sizes.beside(Sizes(sizes.input_length, sizes.output_length, np.minimum(sizes.concurrency, 1.0)))
        described = describe(model, family, device, serving, sizes=asked)
        found, distance = self._medians(model, family, device, serving, asked, described, evidence)
        medians = {target: median[:rows] for target, median in found.items()}
        w = described.take(np.arange(rows))
        lacks = self._lacks(model, family, device, serving, sizes, w)
        beyond = widths.doublings(self.known, model, serving, sizes)
        least = {"tpot": None, "ttft": found["ttft"][rows:] if queued else medians["ttft"]}
        # Of trees the base's queues say nothing: their order over loads is their own.
        by_base = METHOD[evidence]["ttft"][serving.mode] == "base"
        queues = {"ttft": partial(base.first_token_bounds, w.terms, self.constants)} if by_base else {}
        bounds = {t: widths.bounds(medians[t], self.spread[t], lacks, beyond, least[t], queues.get(t)) for t in TARGETS}
        bounds = {target: layer_kinds.wider_bounds(found, model) for target, found in bounds.items()}
        waits = w.terms.waiting > 0
        one = replace(serving, input_length=1, output_length=1, concurrency=1)
        usual = partial(_usual, self, model, family, device, one)
        return Alone(model, family, device, serving, sizes, evidence, bounds, w.terms, waits, distance, lacks, usual)

    def judged(
        self,
        model: LanguageModel,
        device: Device,
        serving: Serving,
        target: str,
        *,
        year: float | None = None,
        at_rate: bool = False,
        server: bool = True,
    ) -> tuple[float, dict[str, float]]:
        """The median (ms) of a workload by itself and its lacks, ``year`` that of its software where it is known.

        ``at_rate``: requests arrive by themselves, as many as ``serving`` has in flight on average. ``server``: whether
        they come through one; where trees answer, they always do.
        """
        family, sizes = self.family(model), Sizes.of(serving)
        w = describe(model, family, device, serving, server=server, at_rate=at_rate)
        medians, _ = self._medians(model, family, device, serving, sizes, w, self.evidence(family, device))
        if at_rate and target == "ttft":
            medians[target] = 1e3 * times(w.terms, self.constants)["steady"]
        elif not server:
            # Trees learned from servers; what one adds is told by the base.
            served = describe(model, family, device, serving, at_rate=at_rate)
            alone_s, served_s = (times(found.terms, self.constants)[target] for found in (w, served))
            by_trees = METHOD[self.evidence(family, device)][target][serving.mode] == "known"
            medians[target] = medians[target] * np.where(by_trees, alone_s / served_s, 1.0)
        lacks = self._lacks(model, family, device, serving, sizes, w, year)
        return float(medians[target][0]), {cause: float(np.ravel(lack)[0]) for cause, lack in lacks.items()}

    def step_bounds(
        self, model: LanguageModel, device: Device, serving: Serving, sizes: Sizes, median: np.ndarray
    ) -> tuple[Bounds, list[str]]:
        """Bounds of steps [N] of which ``median`` [N] is known, with requests of ``sizes`` in flight: as wide as those
        of a time per token, which a step is; and what makes them wide, in words.
        """
        family = self.family(model)
        w = describe(model, family, device, serving, sizes=sizes)
        lacks = {**self._lacks(model, family, device, serving, sizes, w), "waiting": 0.0}
        beyond = widths.doublings(self.known, model, serving, sizes)
        found = layer_kinds.wider_bounds(widths.bounds(median, self.spread["tpot"], lacks, beyond), model)
        first = Interval(float(median[0]), float(found.low[0]), float(found.high[0]), "s", COVERAGE)
        said = width_words.reason("time of a step", first, self.spread["tpot"], widths.of_tokens(lacks), widths.WORDS)
        return found, [*layer_kinds.reasons(model), *said]

    def _medians(
        self,
        model: LanguageModel,
        family: str,
        device: Device,
        serving: Serving,
        sizes: Sizes,
        w: Workloads,
        evidence: str,
    ) -> tuple[dict[str, np.ndarray], float]:
        """Ms [N] by target, and the distance to the nearest measured set-up where known trees answer."""
        by_trees = [target for target in TARGETS if METHOD[evidence][target][serving.mode] == "known"]
        out = self._read(model, family, device, serving, sizes, by_trees)
        if len(by_trees) < len(TARGETS):
            out = {target: found * 1e3 for target, found in self.seconds(w, "base").items()} | out
        return out, self._neighbours.apart(w) if by_trees else math.inf

    def _read(
        self,
        model: LanguageModel,
        family: str,
        device: Device,
        serving: Serving,
        sizes: Sizes,
        targets: Sequence[str],
    ) -> dict[str, np.ndarray]:
        """Ms [N] of some targets by the known trees, from the lattice of every length of answers."""
        out = {target: np.empty(len(sizes.output_length)) for target in targets}
        for answer in np.unique(sizes.output_length) if targets else ():
            rows = sizes.output_length == answer
            one = replace(serving, input_length=1, output_length=int(answer), concurrency=1)
            logarithms = _in_order(self, model, family, device, one)
            places = sizes.input_length[rows], sizes.concurrency[rows]
            for target, found in out.items():
                found[rows] = np.exp(lattice.read(logarithms[target], (ALL_INPUTS, ALL_LOADS), places)) * 1e3
        return out

    def _lacks(
        self,
        model: LanguageModel,
        family: str,
        device: Device,
        serving: Serving,
        sizes: Sizes,
        w: Workloads,
        year: float | None = None,
    ) -> dict[str, np.ndarray | float]:
        (apart,) = self._neighbours.set_up_apart(w.take(np.arange(1)))
        waiting, others = w.terms.waiting, beside(w.terms)
        return widths.lacks(
            self.known, family, model, device, serving, sizes, apart=apart, waiting=waiting, others=others, year=year
        )

    def _beyond(self, model: LanguageModel, device: Device, serving: Serving, fits: bool) -> list[str]:
        """What of the workload lies outside of all that was measured."""
        out = []
        for name, (value, *_) in widths.sizes_of(model, serving, Sizes.of(serving)).items():
            low, high = self.manifest["ranges"][name]
            if not low <= value <= high:
                said = f"{name.replace('_', ' ')} {figure(value)}"
                out.append(f"{said} is outside of {figure(low)} to {figure(high)}, which were learned from")
        out += self._kinds_beyond(device, serving)
        if not fits:
            out.append("the weights and one request do not fit into memory: the times are those of a larger device")
        return out

    def _kinds_beyond(self, device: Device, serving: Serving) -> list[str]:
        """What of a deployment, whatever its load, is of no kind that was measured."""
        out = []
        if device.vendor == "Apple":
            out.append(f"{serving.runtime} itself has no kernels for Apple's GPUs, which plugins of others bring")
        if serving.parallelism.pipeline > 1:
            out.append("no run with pipeline parallelism to learn from")
        if device.id not in self.manifest["measured"] and device.architecture not in self.manifest["architectures"]:
            out.append(f"no device of architecture {device.architecture} to learn from")
        used = f"{serving.quantization.gemm}/{serving.quantization.moe}"
        if used not in self.manifest["quantizations"]:
            out.append(f"no run in precision {used} (dense/experts) to learn from")
        return out

    def is_beyond(self, model: LanguageModel, device: Device, serving: Serving, sizes: Sizes) -> np.ndarray:
        """[N] whether loads of a deployment lie outside of all that was measured, room in memory apart."""
        out = np.full(len(sizes.concurrency), bool(self._kinds_beyond(device, serving)))
        for name, value in widths.sizes_of(model, serving, sizes).items():
            low, high = self.manifest["ranges"][name]
            out = out | (value < low) | (value > high)
        return out

    @cached_property
    def _neighbours(self) -> Neighbours:
        place = self._artefact.array("place.npy").astype(np.float32)
        labels = np.array(self.manifest["words"], dtype=object)[self._artefact.array("labels.npy")]
        weight, *residuals = self._artefact.array("residuals.npy").astype(np.float64).T.copy()
        return Neighbours(place, labels, weight, np.array(residuals))

    def _ensemble(self, name: str) -> Any:
        if name not in self._trees:
            self._trees[name] = self._artefact.trees(name)
        return self._trees[name]


def _first(found: Bounds) -> Interval:
    low, median, high = (float(part[0]) for part in (found.low, found.median, found.high))
    return Interval(median, low, high, "ms", COVERAGE)


@lru_cache(maxsize=1024)
def _usual(
    predictor: ServingPredictor, model: LanguageModel, family: str, device: Device, serving: Serving
) -> dict[str, np.ndarray]:
    """Seconds of the base by target under every one of USUAL prompts and loads, NaN where requests wait for room."""
    w = describe(model, family, device, serving, sizes=_lattice(*USUAL))
    found = predictor.seconds(w, "base")
    return {target: np.where(w.terms.waiting > 0, np.nan, value) for target, value in found.items()}


@lru_cache(maxsize=1024)
def _in_order(
    predictor: ServingPredictor, model: LanguageModel, family: str, device: Device, serving: Serving
) -> dict[str, np.ndarray]:
    """Logarithms of seconds by the known trees, by target: [ALL_INPUTS, ALL_LOADS], in order over both.

    The trees correct the base on sizes that were measured; beyond them the nearest correction holds.
    """
    answer = np.clip(serving.output_length, *predictor.manifest["ranges"]["output_length"])
    inner = describe(model, family, device, serving, sizes=_lattice(INPUTS, LOADS, float(answer)))
    sizes = _lattice(ALL_INPUTS, ALL_LOADS, serving.output_length)
    loads = describe(model, family, device, serving, sizes=sizes)
    everywhere = times(loads.terms, predictor.constants)
    corrections, near = predictor.corrections(inner)
    distance = _spread_out(near)
    # Where nothing was measured the base alone grows: what lies further out is known less.
    weight = np.exp(-(distance + _OUT_OF_RANGE) / _REACH) + _LEAST_WEIGHT
    logarithms = {target: np.log(everywhere[target]) for target in (*TARGETS, "steady")}
    spread_out = {target: _spread_out(correction).ravel() for target, correction in corrections.items()}
    (apart,) = predictor._neighbours.set_up_apart(loads.take(np.arange(1)))
    learned = with_trees(loads, logarithms, spread_out, distance.ravel(), apart)
    out = {target: lattice.settled(found.reshape(weight.shape), weight) for target, found in learned.items()}
    # A full server runs as many requests under more load, whatever is known of it.
    busy = (loads.terms.waiting > 0).reshape(out["tpot"].shape)
    full = np.take_along_axis(out["tpot"], busy.argmax(axis=1)[:, None], axis=1)
    out["tpot"] = np.where(busy, np.minimum(out["tpot"], full), out["tpot"])
    # Under more load a server answers no fewer tokens a second: a request takes at most as much longer as the load is.
    first, rest = np.exp(out["ttft"]), (serving.output_length - 1) * np.exp(out["tpot"])
    most = np.minimum.accumulate((first + rest) / ALL_LOADS, axis=1) * ALL_LOADS - rest
    out["ttft"] = lattice.from_below(np.log(np.clip(most, _LEAST_SHARE * first, first)))
    return out


def _spread_out(values: np.ndarray) -> np.ndarray:
    """Of [INPUTS x LOADS] on the lattice [ALL_INPUTS, ALL_LOADS]: beyond its edges as at them."""
    return np.pad(values.reshape(len(INPUTS), len(LOADS)), _EDGES, mode="edge")


def _lattice(inputs: Sequence[float], loads: Sequence[float], answer: float) -> Sizes:
    """Every prompt with every load."""
    prompts, requests = np.meshgrid(np.array(inputs, dtype=np.float64), loads, indexing="ij")
    return Sizes(prompts.ravel(), np.full(prompts.size, float(answer)), requests.ravel().astype(np.float64))


def _support(family: str, device: Device, evidence: str, beyond: list[str]) -> Support:
    said = {
        "measured": f"learned from runs of {family} on {device.id}",
        "apart": f"learned from runs of {family} and runs on {device.id}, but of none of both",
        "model unseen": f"no run of a model with the counts of {family} to learn from",
        "device unseen": f"no run on {device.id} to learn from",
        "both unseen": f"no run of a model with the counts of {family}, nor one on {device.id}, to learn from",
    }[evidence]
    if beyond:
        return Support("outside", (said, *beyond))
    return Support("in range" if evidence == "measured" else "near", (said,))
