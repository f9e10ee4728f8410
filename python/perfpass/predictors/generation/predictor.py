"""Offline generation: how long a batch of equal requests takes, prefill and all output tokens, on any accelerator."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError
from perfpass.llm import assumed
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import Parallelism, file_type, in_format, named_precision
from perfpass.llm.llama_cpp import check_file
from perfpass.llm.serving import beyond_positions, check_arithmetic, check_runtime, check_split, usable
from perfpass.llm.versions import check_version
from perfpass.prediction import Interval, MemoryVerdict, Support, SupportLevel
from perfpass.predictors.generation import long_prompts, old_hosts
from perfpass.predictors.generation.engines import ENGINES, PIECE_TOKENS, Engines, engine_of, split_of
from perfpass.predictors.generation.features import (
    ASKED_RUNTIMES,
    EAGER,
    FORM,
    ON_THE_HOST,
    ONE_SEQUENCE,
    Batch,
    Sizes,
    memory,
    rows_at,
    rows_of,
    vendors_of,
)
from perfpass.predictors.generation.order import BATCHES, TOKENS, alike, growing, ordered
from perfpass.predictors.generation.phases import with_phases
from perfpass.predictors.generation.prediction import Offline, costs_of, with_unknown_kernels
from perfpass.predictors.learned import lattice, width_words
from perfpass.predictors.learned.component_predictor import ComponentPredictor
from perfpass.predictors.learned.component_widths import WORDS, lacks, of_boards
from perfpass.predictors.learned.components import UNSEEN_MODEL, Adaptation, Form, Rows
from perfpass.predictors.relative.question import AskedBatch, kept
from perfpass.text import unknown

QUANTITY = "latency"
QUANTITIES: Mapping[str, tuple[Form, str]] = {QUANTITY: (FORM, "s")}
_16_BITS = ("fp16", "bf16")
# What an engine takes of a checkpoint in 16 bits where no precision is asked for.
_DEFAULT_FILES = {"ollama": "q4_k_m"}
# Whose releases are told apart.
_VERSIONED = ("vllm", "transformers")
# Runtimes that share attention heads out unevenly: Qwen2-7B with its 28 heads ran on 8 devices (LLM-Inference-Bench).
UNEVEN = frozenset({"deepspeed"})


def batch_of(
    model: str | os.PathLike[str] | Mapping[str, Any] | LanguageModel,
    device: str | Device,
    *,
    runtime: str = "vllm",
    devices: int = 1,
    batch: int = 1,
    input_tokens: int,
    output_tokens: int,
    precision: str | None = None,
    stack: str = "",
    host_layers: int = 0,
    host_experts: int = 0,
    host_bandwidth: float = 0.0,
    runtime_version: str = "",
) -> Batch:
    """A batch of equal requests from names.

    ``model``: a config.json, its content, a name of `configuration_names`, or a LanguageModel. ``runtime``: one of
    `ASKED_RUNTIMES`; in llama.cpp one sequence runs, and ``batch`` is the number of prompt tokens at a time (its
    option -b). ``precision``: of the weights, as `predict_llm` names it, else as the checkpoint stores them. ``stack``:
    "listed as Intel PVC GPU" asks for the slower of the two software stacks that were measured on the Intel Max 1550.
    ``host_layers``, and the experts of ``host_experts`` layers, are left to the host (llama.cpp, ktransformers), whose
    memory has ``host_bandwidth`` GB/s (0: two channels of DDR5 are assumed). ``runtime_version``: of vLLM, which
    issued its kernels one by one before 0.2.6, or of transformers, which held its cache twice before 4.42.

    Raises ArgumentError, DeviceError, and what reading a configuration raises (FileError, FormatError,
    UnsupportedError).
    """
    if runtime not in ASKED_RUNTIMES:
        raise ArgumentError(unknown("runtime", runtime, ASKED_RUNTIMES))
    read = model if isinstance(model, LanguageModel) else language_model(model)
    target = find_device(device)
    if target.kind == "cpu" and runtime not in ONE_SEQUENCE:
        raise ArgumentError(
            f"{target.id}: {runtime} was measured on accelerators only; choose one (`perfpass devices`), or ask for "
            "llama.cpp"
        )
    check_runtime(runtime, target)
    check_version(runtime_version)
    if runtime_version and runtime not in _VERSIONED:
        known = " and ".join(_VERSIONED)
        raise ArgumentError(f"without a server a version says something of {known}, not of {runtime}; leave it out")
    if runtime in ONE_SEQUENCE:
        check_file(precision, read.experts_stored_as)
    if precision is None:
        plain = read.stored_as in _16_BITS and read.experts_stored_as in _16_BITS
        own = file_type(read.stored_as, read.experts_stored_as) if runtime == "llama.cpp" else None
        precision = _DEFAULT_FILES.get(runtime) if plain else own
    used, read = _precision(target, precision, read), in_format(read, precision)
    sizes = (devices, batch, input_tokens, output_tokens)
    left = (host_layers, host_experts, host_bandwidth * 1e9)
    found = Batch(read, target, runtime, *sizes, used, stack, *left, runtime_version)
    _check_devices(found)
    return found


def assumed_batch(
    model: str | os.PathLike[str] | Mapping[str, Any] | LanguageModel,
    device: str | Device,
    *,
    runtime: str | None = None,
    tp: int | None = None,
    concurrency: int | None = None,
    input_length: int | None = None,
    output_length: int | None = None,
    precision: str | None = None,
    host_layers: int | None = None,
    host_experts: int | None = None,
    host_bandwidth: float | None = None,
    runtime_version: str = "",
) -> tuple[Batch, dict[str, Any]]:
    """`batch_of` by the names of `predict_llm`, where what is None is assumed; and what was, by its name.

    ``tp``: the fewest devices that hold the model. Raises as `batch_of`.
    """
    stack = assumed.RUNTIME if runtime is None else runtime
    read = model if isinstance(model, LanguageModel) else language_model(model)
    prompt, answer = assumed.lengths(read, input_length, output_length)
    at_once = PIECE_TOKENS if stack in ONE_SEQUENCE else assumed.CONCURRENCY
    batch = batch_of(
        read,
        device,
        runtime=stack,
        devices=1 if tp is None else tp,
        batch=at_once if concurrency is None else concurrency,
        input_tokens=prompt,
        output_tokens=answer,
        precision=precision,
        host_layers=host_layers or 0,
        host_experts=host_experts or 0,
        host_bandwidth=host_bandwidth or 0.0,
        runtime_version=runtime_version,
    )
    if tp is None:
        batch = replace(batch, devices=assumed.fewest(batch.device, lambda n: _holds(batch, n)))
    asked: dict[str, Any] = {"input_length": input_length, "output_length": output_length, "concurrency": concurrency}
    asked |= {"runtime": runtime, "precision": precision, "tp": tp}
    taken: dict[str, Any] = {"input_length": prompt, "output_length": answer, "concurrency": batch.batch}
    taken |= {"runtime": batch.runtime, "precision": assumed.option(batch.precision), "tp": batch.devices}
    return batch, {name: value for name, value in taken.items() if asked[name] is None}


def _precision(device: Device, name: str | None, model: LanguageModel) -> str:
    """Of the weights. Raises ArgumentError for a name that is none, DeviceError for one the device has no unit for."""
    if name is None:
        stored = next((p for p in (model.experts_stored_as, model.stored_as) if p not in _16_BITS), None)
        if stored is None:
            return "bf16" if "bf16" in device.peak_flops and "fp16" not in device.peak_flops else "fp16"
        found = usable(device, stored)
        check_arithmetic(device, found)
        return found
    found = named_precision(name)[1]
    check_arithmetic(device, found, asked=name)
    return found


def predict_offline(
    model: str | os.PathLike[str] | Mapping[str, Any] | LanguageModel,
    device: str | Device,
    *,
    runtime: str | None = None,
    tp: int | None = None,
    concurrency: int | None = None,
    input_length: int | None = None,
    output_length: int | None = None,
    precision: str | None = None,
    host_layers: int | None = None,
    host_experts: int | None = None,
    host_bandwidth: float | None = None,
    runtime_version: str = "",
) -> Offline:
    """One batch of equal requests without a server, as `perfpass llm --offline` asks for it.

    What is None is assumed, and named in the result's ``assumed``. ``runtime``: one of `ASKED_RUNTIMES`, else vllm.
    ``tp``: devices that share the model, else the fewest that hold it. ``concurrency``: requests in the batch; of
    llama.cpp, which runs one, prompt tokens at a time. ``input_length``, ``output_length``: tokens of a prompt and of
    an answer. ``host_layers``, ``host_experts``, ``host_bandwidth`` (GB/s), ``runtime_version``: as of `batch_of`.

    Raises as `batch_of`, and ArgumentError where the model does not fit.
    """
    batch, taken = assumed_batch(
        model,
        device,
        runtime=runtime,
        tp=tp,
        concurrency=concurrency,
        input_length=input_length,
        output_length=output_length,
        precision=precision,
        host_layers=host_layers,
        host_experts=host_experts,
        host_bandwidth=host_bandwidth,
        runtime_version=runtime_version,
    )
    return replace(offline(batch), assumed=taken)


def offline(batch: Batch) -> Offline:
    """What the shipped predictors say of a batch: its latency, and the phases of it.

    Engines by name, and llama.cpp in a file type or on a device that was not measured, are counted
    (`generation.engines`).
    """
    found = with_unknown_kernels(_offline(batch), batch)
    if notes := batch.model.notes:
        found = replace(found, support=Support(found.support.level, (*found.support.reasons, *notes)))
    long = beyond_positions(batch.model, batch.input_tokens, batch.output_tokens)
    return replace(found, support=found.support.at_most("outside", long)) if long else found


def _offline(batch: Batch) -> Offline:
    counted = Engines.load()
    if counted.answers(batch):
        check_fits(batch)
        return counted.predict(batch)
    predictor = GenerationPredictor.load()
    with kept(AskedBatch(batch)):
        found = predictor.predict(batch)
    return with_phases(found, batch, predictor.sizes, predictor.measured_on(QUANTITY, batch.runtime))


def check_fits(batch: Batch) -> None:
    """Raises ArgumentError where the weights and one sequence do not fit into memory, with what would be done then."""
    found = memory(batch)
    if found.fits:
        return
    verdict = MemoryVerdict(
        fits="no",
        needed_bytes=found.total_bytes,
        needed_high_bytes=found.total_bytes,
        available_bytes=found.usable_bytes,
        holder="usable on each device",
    )
    ranks = assumed.fewest(batch.device, lambda n: n > batch.devices and _holds(batch, n))
    at_once = f"{batch.sequences} sequences" if batch.runtime in EAGER and batch.sequences > 1 else "one sequence"
    raise ArgumentError(
        f"{verdict.headline}: {batch.model.name} in {batch.precision} with {at_once} of "
        f"{batch.input_tokens + batch.output_tokens} tokens does not fit into {batch.devices} x {batch.device.name}: "
        f"{found.reason}; take "
        + (f"{ranks} devices (--tp {ranks}), " if ranks > batch.devices and _holds(batch, ranks) else "")
        + "a lower precision or larger devices"
        + f", or leave {found.host_layers} layers to the host (--host-layers {found.host_layers})" * _may_leave(batch)
    )


def _may_leave(batch: Batch) -> bool:
    return batch.runtime in ON_THE_HOST and not batch.device.unified_memory


def _check_devices(batch: Batch) -> None:
    """Raises ArgumentError for a number of devices that a runtime does not split the model over."""
    assumed.check_together(batch.device, batch.devices)
    if batch.runtime in UNEVEN:
        return
    name = engine_of(batch)
    split = split_of(ENGINES[name], batch.devices) if name in ENGINES else Parallelism.of(batch.devices)
    check_split(batch.model, split.tensor, split.pipeline)


def _holds(batch: Batch, devices: int) -> bool:
    """Whether so many devices hold the model and one sequence. Raises as `_check_devices`."""
    asked = replace(batch, devices=devices)
    _check_devices(asked)
    return memory(asked).fits


class GenerationPredictor(ComponentPredictor):
    """Batch latency from a trained artefact; NumPy alone."""

    AREA = "generation"
    QUANTITIES = QUANTITIES

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> GenerationPredictor:
        """The shipped predictor, read once per process."""
        return GenerationPredictor()

    def adapted(self, batches: Sequence[Batch], latency_s: Sequence[float]) -> Adaptation:
        """What measured batches of one device or stack tell about its others; give it to `predict`.

        Needs SciPy. Raises ArgumentError for no measurement, unequal lengths, or a latency that is not above 0.
        """
        from perfpass.predictors.learned.adapt import adapt

        measured = np.asarray(latency_s, dtype=np.float64)
        if not len(batches) or len(batches) != len(measured) or not (np.isfinite(measured) & (measured > 0)).all():
            raise ArgumentError(f"{len(batches)} batches and {len(measured)} latencies; as many are needed, above 0 s")
        return adapt(self.fitted[QUANTITY], rows_of(batches), measured)

    def predict(self, batch: Batch, adaptation: Adaptation | None = None) -> Offline:
        """Latency and throughput of one batch. Raises ArgumentError where the weights do not fit into memory."""
        check_fits(batch)
        beyond = beyond_measured(batch, self.ranges[QUANTITY])
        evidence = str(self.fitted[QUANTITY].evidence(rows_of([batch]))[0])
        if adaptation is None:
            latency = ordered(batch, self.measured_on(QUANTITY, batch.runtime), self.latency)
        else:
            latency = self._adapted(batch, adaptation)
        provenance = {"kind": "learned", "evidence": evidence, "corpus": self.corpus[QUANTITY]}
        support = _latency_support(batch, evidence, beyond)
        if latency.says_something:  # else the reasons of its refusal are these
            said = width_words.reason("latency", latency, self.spread[QUANTITY], self.lacks_of(batch), WORDS)
            support = Support(width_words.level_of(latency, support.level), (*support.reasons, *said))
        return costs_of(batch, latency, support, provenance)

    def _adapted(self, batch: Batch, adaptation: Adaptation) -> Interval:
        median = float(adaptation.predict(self.fitted[QUANTITY], rows_of([batch]))[0])
        low, high = self.spread[QUANTITY].bounds(self.lacks_of(batch))
        return Interval(median, median * float(np.exp(low[0])), median * float(np.exp(high[0])), "s")

    def lacks_of(self, batch: Batch) -> dict[str, np.ndarray | float]:
        """What is not known of the latency of a batch, by cause."""
        fitted, rows = self.fitted[QUANTITY], rows_of([batch])
        sizes = (batch.input_tokens, batch.output_tokens, batch.batch)
        counted = lattice.between(latencies(self, alike(batch))[-1], (TOKENS, TOKENS, BATCHES), sizes)
        prompt, answer, at_once = (np.array([n], dtype=np.float64) for n in sizes)
        evidence = fitted.evidence(rows)
        more = lacking(batch, self.ranges[QUANTITY], prompt, answer, at_once, counted)
        more = {**more, **self.of_boards(rows, evidence)}
        return lacks(fitted.form, evidence, fitted.predict(rows)[1], more)

    def of_boards(self, rows: Rows, evidence: np.ndarray) -> Mapping[str, np.ndarray | float]:
        """As of `component_widths`."""
        return of_boards(evidence, vendors_of(rows))

    def sizes(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """Of `latencies` of all sizes of a batch the times."""
        return latencies(self, alike(batch))[:3]

    def latency(self, batch: Batch) -> Interval:
        """Seconds of a batch by itself, in order over sizes."""
        sizes = (batch.input_tokens, batch.output_tokens, batch.batch)
        return lattice.interval(self.sizes(batch), (TOKENS, TOKENS, BATCHES), sizes, "s")


@lru_cache(maxsize=128)
def latencies(predictor: GenerationPredictor, b: Batch) -> tuple[np.ndarray, ...]:
    """Logarithms of low, median and high [TOKENS of input, TOKENS of output, BATCHES] of all sizes of a batch, seconds;
    and which share of each is counted, not learned (`long_prompts`).

    They never fall along an axis that is work (`order.growing`). Batches whose prompts are as long as their answers
    were measured; they bound the others.
    """
    ranges = predictor.ranges[QUANTITY]
    axes = (TOKENS, TOKENS, BATCHES)
    near = [np.clip(a, *ranges[n]) for n, a in zip(("input_tokens", "output_tokens", "batch"), axes, strict=True)]
    inner = [np.unique(values) for values in near]
    index = np.meshgrid(*(np.searchsorted(i, v) for i, v in zip(inner, near, strict=True)), indexing="ij")
    place = np.ravel_multi_index(tuple(index), tuple(len(i) for i in inner)).ravel()
    rows = rows_at(b, Sizes.lattice(BATCHES, TOKENS, TOKENS))
    inside = rows_at(b, Sizes.lattice(inner[2].tolist(), inner[0].tolist(), inner[1].tolist()))
    shape = tuple(len(a) for a in axes)
    inputs, outputs, batch = np.meshgrid(*(np.array(a, dtype=np.float64) for a in axes), indexing="ij")
    learned, spread, evidence = predictor.middle(QUANTITY, rows, inside, place)
    median, counted = long_prompts.counted(b, tuple(np.array(a) for a in axes), learned.reshape(shape))
    if b.runtime_version and b.runtime == "vllm":
        sizes = Sizes(batch.ravel(), inputs.ravel(), outputs.ravel())
        median = old_hosts.waited_for(b, sizes, median.ravel()).reshape(shape)
    more = lacking(b, ranges, inputs.ravel(), outputs.ravel(), batch.ravel(), counted.ravel())
    unknown = {**more, **predictor.of_boards(rows, evidence)}
    low, high = (v.reshape(shape) for v in predictor.log_bounds(QUANTITY, evidence, spread, unknown))
    return (*lattice.bounded(median + low, median, median + high, growing(b.runtime)), counted)


def lacking(
    b: Batch,
    ranges: Mapping[str, Sequence[float]],
    inputs: np.ndarray,
    outputs: np.ndarray,
    batches: np.ndarray,
    counted: np.ndarray | float = 0.0,
) -> dict[str, np.ndarray | float]:
    """What sizes of a batch [N] lack (`component_widths.lacks`); ``ranges`` as `beyond_measured` takes them.

    All that was measured were prompts as long as their answers. Of a longer one ``counted`` [N] is the share of its
    time that no run stands behind; an answer counts as longer by the doublings between them, and so does a prompt of
    llama.cpp, which is learned as it is.
    """
    values = {"input_tokens": inputs, "output_tokens": outputs, "batch": batches}
    values |= {"devices": np.full(1, float(b.devices)), "parameters": np.full(1, float(b.model.parameters))}
    load = np.zeros(len(inputs))
    for name, value in values.items():
        least, most = ranges[name]
        load = load + np.maximum(np.log2(value / most), 0.0)
        if name in ("batch", "parameters"):  # the other side of lengths is that of prompts and answers
            load = load + np.maximum(np.log2(least / value), 0.0)
    longer = np.log2(inputs / outputs)
    pieces = b.runtime in ONE_SEQUENCE
    return {
        "load": load,
        "precision": float(b.precision not in _16_BITS and not pieces),
        "llama.cpp's file types": float(b.precision not in _16_BITS and pieces),
        "long prompts": counted,
        "long answers": np.maximum(-longer, 0.0),
        "llama.cpp's prompts": np.maximum(longer, 0.0) * pieces,
    }


def beyond_measured(b: Batch, ranges: Mapping[str, Sequence[float]]) -> list[str]:
    """In what a batch is outside the records, as sentences; ``ranges``: least and most that was measured, by name."""
    values = {
        "devices": b.devices,
        "batch": b.batch,
        "input_tokens": b.input_tokens,
        "output_tokens": b.output_tokens,
        "parameters": b.model.parameters,
    }
    found = [
        f"{name} {values[name]:,} is outside the {low:,.0f} to {high:,.0f} learned from"
        for name, (low, high) in ranges.items()
        if not low <= values[name] <= high
    ]
    if b.precision not in _16_BITS:
        found.append(f"only 16-bit weights were learned from, not {b.precision}")
    if b.input_tokens != b.output_tokens:
        found.append("only prompts as long as their answers were learned from")
    return found


def _latency_support(b: Batch, evidence: str, beyond: list[str]) -> Support:
    reasons = list(beyond)
    known = evidence.removesuffix(UNSEEN_MODEL)
    if known == "device unseen":
        reasons.append(f"no run of {b.runtime} on {b.device.name} to learn from; boards of its vendor carry over")
    elif known == "vendor unseen":
        reasons.append(
            f"no run of {b.runtime} on any board of {b.device.vendor} to learn from; errors of a factor of 3 were seen"
        )
    elif known == "runtime unseen":
        reasons.append(f"no run of {b.runtime} to learn from; errors of a factor of 3 were seen")
    if evidence.endswith(UNSEEN_MODEL):
        reasons.append("no run of this model's architecture to learn from")
    if b.precision in _16_BITS and b.model.experts_stored_as not in _16_BITS:
        reasons.append(f"the checkpoint stores {b.model.experts_stored_as}; these are the times of {b.precision}")
    if b.runtime in ONE_SEQUENCE:
        reasons.append(f"{b.runtime} was timed with one sequence; batch is the number of prompt tokens at a time")
    level: SupportLevel = "in range" if evidence == "seen" and not beyond else "near"
    if beyond or known in ("vendor unseen", "runtime unseen"):
        level = "outside"
    return Support(level, tuple(reasons))
