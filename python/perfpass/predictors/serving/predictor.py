"""The serving predictor: times of language-model serving from counts, a physical base, trees and measured neighbours.

What is learned and how: docs/predictors/serving.md. Scoring needs NumPy and the compiled core.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArtefactError
from perfpass.llm import assumed as assumed_load
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import Parallelism, Quantization, named_precision
from perfpass.llm.memory import served
from perfpass.llm.serving import Serving, check_arithmetic, check_gpu, check_split, check_version, usable
from perfpass.prediction import COVERAGE, Interval, Support
from perfpass.predictors.learned import artefacts
from perfpass.predictors.serving import base
from perfpass.predictors.serving.base import CONSTANTS, times
from perfpass.predictors.serving.features import Neighbours, Workloads, describe, known, portable
from perfpass.predictors.serving.prediction import LlmPrediction, prediction_of
from perfpass.text import figure

TARGETS = ("tpot", "ttft")
# What is known of a workload: model and device measured together; both, but not together; only the one or the other;
# neither. The held-out errors of each make its bounds.
EVIDENCE = ("measured", "apart", "model unseen", "device unseen", "both unseen")
# What answers for each of EVIDENCE: trees of one kind, or the base alone. Chosen on the rows set aside, where portable
# trees made TPOT worse than the base is, and known ones the TTFT of pairs that were not measured together.
_UNSEEN = {"tpot": "base", "ttft": "portable"}
METHOD: dict[str, dict[str, str]] = {
    "measured": {"tpot": "known", "ttft": "known"},
    "apart": {"tpot": "known", "ttft": "portable"},
    **dict.fromkeys(("model unseen", "device unseen", "both unseen"), _UNSEEN),
}
TREES_OF = {"tpot": ("known",), "ttft": ("known", "portable")}
# Beyond the measured ranges no held-out error speaks for the bounds: log bounds grow so much. By hand.
BEYOND = 1.5
# Precisions behind whose measured runs the cache was at 8 bits.
_CACHE_8_BITS = ("fp8", "fp8_block", "nvfp4")


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
    tp: int | None = 1,
    pp: int = 1,
    dp: int = 1,
    ep: int = 1,
    workers: int = 1,
    prefill: Parallelism | None = None,
    prefill_workers: int = 0,
) -> LlmPrediction:
    """What serving a language model costs: times, throughput, energy and power with intervals, memory, support.

    ``model``: a config.json, its folder or content, a known name (`configuration_names`), or a LanguageModel.
    ``device``: a GPU of the catalogue. ``input_length``, ``output_length``: mean tokens of a request; ``concurrency``:
    requests in flight over the whole deployment. ``runtime``: vllm, trtllm or sglang, or tgis as it was in 2023,
    from other records. ``precision``: one of PRECISIONS (a file type of llama.cpp among them, as
    q4_k_m), a Quantization, or None for what the checkpoint stores.
    ``tp``, ``pp``, ``dp``, ``ep``: tensor, pipeline, attention-data and expert parallelism of one replica, ``workers``
    replicas; ``tp=None`` takes the fewest GPUs that hold the model, up to 8. ``prefill`` with ``prefill_workers``:
    disaggregated, with prefill on replicas of their own. What is None is assumed, and ``assumed`` of the prediction
    says what was taken: 1,024 tokens in and 128 out (fewer where the model has fewer positions), one request in
    flight, vllm.

    Raises ArgumentError, DeviceError, and what reading a configuration raises (FileError, FormatError,
    UnsupportedError).
    """
    read = model if isinstance(model, LanguageModel) else language_model(model)
    target = find_device(device) if not isinstance(device, Device) else device
    check_gpu(target)
    check_version(runtime_version)
    used, said = quantization(read, precision, kv_precision, target)
    prompt, answer = assumed_load.lengths(read, input_length, output_length)
    serving = Serving(
        input_length=prompt,
        output_length=answer,
        concurrency=assumed_load.CONCURRENCY if concurrency is None else concurrency,
        runtime=assumed_load.RUNTIME if runtime is None else runtime,
        runtime_version=runtime_version,
        mode="disagg" if prefill is not None or prefill_workers else "agg",
        parallelism=Parallelism.of(1 if tp is None else tp, pp, dp, 1 if tp is None else ep),
        workers=workers,
        prefill=prefill,
        prefill_workers=prefill_workers,
        quantization=used,
    )
    if tp is None:
        ranks = assumed_load.fewest_serving(read, target, serving, ep)
        serving = replace(serving, parallelism=Parallelism.of(ranks, pp, dp, ep))
    for split in (serving.parallelism, serving.prefill):
        if split:
            check_split(read, split.tensor, split.pipeline)
    # Imported here: they bring two more artefacts.
    from perfpass.predictors.serving import loaded
    from perfpass.predictors.serving.energy import with_energy

    known = serving.runtime in base.RUNTIMES
    found = (ServingPredictor.load() if known else loaded).predict(read, target, serving)
    if said:
        found = replace(found, support=Support(found.support.level, (*found.support.reasons, said)))
    asked: dict[str, Any] = {"input_length": input_length, "output_length": output_length, "concurrency": concurrency}
    asked |= {"runtime": runtime, "precision": precision, "tp": tp}
    taken: dict[str, Any] = {
        name: getattr(serving, name) for name in ("input_length", "output_length", "concurrency", "runtime")
    }
    taken |= {"precision": assumed_load.precision_name(serving.quantization), "tp": serving.parallelism.tensor}
    assumed = {name: value for name, value in taken.items() if asked[name] is None}
    return with_energy(replace(found, assumed=assumed), read, target)


def quantization(
    model: LanguageModel, precision: str | Quantization | None, kv: str | None, device: Device
) -> tuple[Quantization, str]:
    """The precisions of matrices, experts and cache on a device, and a sentence where they are not what is stored.

    A precision that is asked for must be one that the device computes in. What the checkpoint stores is served as
    runtimes do on a device without it: 16 bits as the other type of 16 bits or as fp32, fp8 and nvfp4 as weights alone.
    Without ``kv`` the cache is at 8 bits where the dense matrices are in fp8 or nvfp4, the default behind the measured
    runs, else as wide as activations.

    Raises ArgumentError for a name that is none, DeviceError for a precision that the device has no arithmetic for.
    """
    said = ""
    if isinstance(precision, Quantization):
        check_arithmetic(device, precision.gemm, precision.moe)
        return (replace(precision, kv_cache=kv) if kv else precision), said
    if precision is None:
        stored = model.stored_as, model.experts_stored_as
        gemm, moe = (usable(device, part) for part in stored)
        check_arithmetic(device, gemm, moe)
        changed = [f"{old} as {new}" for old, new in dict(zip(stored, (gemm, moe), strict=True)).items() if old != new]
        if changed:
            said = f"{device.name} lacks the arithmetic of what the checkpoint stores; served {', '.join(changed)}"
    else:
        gemm, moe = named_precision(precision)
        if gemm != moe:  # of the experts alone: the rest is in whichever 16 bits the device has
            gemm = usable(device, gemm)
        check_arithmetic(device, gemm, moe, asked=precision)
    found = Quantization(gemm, moe)
    return replace(found, kv_cache=kv or ("fp8" if gemm in _CACHE_8_BITS else found.activations)), said


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

    def seconds(self, w: Workloads, evidence: str) -> dict[str, np.ndarray]:
        """Medians [N] of ``tpot`` and ``ttft`` in seconds, and of the base's parts."""
        physical = times(w.terms, self.constants)
        out = dict(physical)
        for target in TARGETS:
            method = METHOD[evidence][target]
            if method == "known":
                x = np.hstack([known(w, self.constants), self._neighbours(target).features(w)])
                correction = self._ensemble(f"{target}-known").predict(x)
            elif method == "portable":
                correction = self._ensemble(f"{target}-portable").predict(portable(w, self.constants))
            else:
                correction = np.zeros(len(w))
            out[target] = physical[target] * np.exp(np.asarray(correction, dtype=np.float64))
        return out

    def predict(self, model: LanguageModel, device: Device, serving: Serving) -> LlmPrediction:
        """All metrics of one workload. Raises ArgumentError for a CPU."""
        check_gpu(device)
        family = self.family(model)
        evidence = self.evidence(family, device)
        w = describe(model, family, device, serving)
        found = self.seconds(w, evidence)
        memory = served(model, device, serving)
        beyond = self._beyond(model, device, serving, memory.fits)
        widen = BEYOND if beyond else 1.0
        tpot = self._interval(found["tpot"], "tpot", evidence, serving.mode, widen)
        ttft = self._interval(found["ttft"], "ttft", evidence, serving.mode, widen)
        parts = {name: float(found[name][0]) * 1e3 for name in ("step", "prompt", "queue")}
        return prediction_of(
            model,
            device,
            serving,
            ttft,
            tpot,
            memory=memory,
            support=_support(family, device, evidence, beyond),
            breakdown={f"base_{name}_ms": value for name, value in parts.items()},
            provenance={"kind": "learned", "evidence": evidence, "corpus": self.manifest["corpus"]},
            measured_as=family,
        )

    def _interval(self, seconds: np.ndarray, target: str, evidence: str, mode: str, widen: float) -> Interval:
        low, high = self.manifest["bounds"][target][evidence][mode]
        median = float(seconds[0]) * 1e3
        return Interval(median, median * math.exp(widen * low), median * math.exp(widen * high), "ms", COVERAGE)

    def _beyond(self, model: LanguageModel, device: Device, serving: Serving, fits: bool) -> list[str]:
        """What of the workload lies outside of all that was measured."""
        per_gpu = serving.concurrency / serving.gpus
        values = {
            "input_length": serving.input_length,
            "output_length": serving.output_length,
            "concurrency per GPU": per_gpu,
            "GPUs per replica": serving.parallelism.gpus,
            "parameters": model.parameters,
        }
        out = []
        for name, value in values.items():
            low, high = self.manifest["ranges"][name]
            if not low <= value <= high:
                said = f"{name.replace('_', ' ')} {figure(value)}"
                out.append(f"{said} is outside of {figure(low)} to {figure(high)}, which were measured")
        if serving.parallelism.pipeline > 1:
            out.append("no run with pipeline parallelism was measured")
        if device.id not in self.manifest["measured"] and device.architecture not in self.manifest["architectures"]:
            out.append(f"no device of architecture {device.architecture} was measured")
        used = f"{serving.quantization.gemm}/{serving.quantization.moe}"
        if used not in self.manifest["quantizations"]:
            out.append(f"precision {used} (dense/experts) was not measured")
        if not fits:
            out.append("the weights and one request do not fit into memory: the times are those of a larger device")
        return out

    def _neighbours(self, target: str) -> Neighbours:
        if "place" not in self._trees:
            self._trees["place"] = self._artefact.array("place.npy").astype(np.float32)
            words = np.array(self.manifest["words"], dtype=object)
            self._trees["labels"] = words[self._artefact.array("labels.npy")]
            self._trees["residuals"] = self._artefact.array("residuals.npy").astype(np.float64)
        rows = self._trees["residuals"]
        return Neighbours(self._trees["place"], self._trees["labels"], rows[:, 0], rows[:, 1 + TARGETS.index(target)])

    def _ensemble(self, name: str) -> Any:
        if name not in self._trees:
            self._trees[name] = self._artefact.trees(name)
        return self._trees[name]


def _support(family: str, device: Device, evidence: str, beyond: list[str]) -> Support:
    said = {
        "measured": f"{family} was measured on {device.id}",
        "apart": f"{family} and {device.id} were measured, but not together",
        "model unseen": f"no model with the counts of {family} was measured",
        "device unseen": f"{device.id} was not measured",
        "both unseen": f"neither a model with the counts of {family} nor {device.id} was measured",
    }[evidence]
    if beyond:
        return Support("outside", (said, *beyond))
    return Support("in range" if evidence == "measured" else "near", (said,))
