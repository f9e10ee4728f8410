"""The physical base of serving predictions: times per output token and to the first token from exact counts.

Every component of a decode step and of a prefill takes the longer of its computing and its memory traffic, at fitted
shares of the device's peaks; messages take NVLink's or the network's bandwidth and a fixed time each; every layer has a
fixed cost, and so has every step. What the whole deployment does follows from those by the arithmetic of
a closed loop (`times`). The constants of `CONSTANTS` are fitted on measurements; nothing else is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perfpass.devices import Device
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.batch import EngineBatch
from perfpass.llm.costs import Parallelism, Quantization, Step, peak_flops, step_costs
from perfpass.llm.memory import likely_sequences
from perfpass.llm.serving import Serving
from perfpass.predictors.step_time import overheads
from perfpass.predictors.step_time.overheads import RUNTIMES
from perfpass.predictors.step_time.parts import of_prompts, seconds_by_part
from perfpass.predictors.step_time.setup import Setup, kernel_boards, link_bytes_s

# Components by what limits them; each has its own efficiency.
KINDS = ("projections", "attention", "recurrence", "dense_mlp", "experts", "shared_experts", "logits", "elementwise")
# Each request before its prefill starts: HTTP, tokens of the prompt, a place in the schedule. By hand, since next to no
# record has a request that runs alone.
REQUEST_S = 5e-3
# vLLM before 0.6.0 ran its HTTP server in the process that schedules: each token of each request took so long there.
# From the rates of 0.6.0 (sgl-project/sglang, benchmark/benchmark_vllm_060: Llama-3.1-8B 4,132 tokens/s on an A100, 70B
# 3,701 on four H100) and 2.7 and 1.8 times less before (vLLM's announcement of 0.6.0): 0.4 and 0.2 ms.
_ONE_PROCESS_S = 0.3e-3
_ONE_PROCESS_UNTIL = (0, 6)
# Columns of one phase: computing and memory seconds per kind at peak, message seconds at peak, messages, layers.
PHASE = 2 * len(KINDS) + 3
_FLOPS, _BYTES = slice(0, len(KINDS)), slice(len(KINDS), 2 * len(KINDS))
_WIRE, _MESSAGES, _LAYERS = PHASE - 3, PHASE - 2, PHASE - 1


@dataclass(frozen=True)
class Terms:
    """Of N workloads: ``decode`` and ``prefill`` [N, PHASE] at peak rates, of one step of a decode replica and of one
    prompt on a prefill replica; ``decode_parts`` and ``prefill_parts`` [N, PARTS] seconds of the same as kernels take
    them, and ``kernels`` [N] whether those of the device were measured; ``batch`` [N] requests of one of its
    schedulers, of one micro-batch where it is pipelined, of ``stages`` [N]; ``requests`` [N] in flight on one decode
    replica, ``prompts`` [N] on one prefill replica; ``prefill_ranks`` [N] prompts that a replica prefills at once;
    ``steps`` [N] output tokens per request; ``host`` [N] seconds of a step in which GPUs wait for the host; ``split``
    [N] whether prefill has its own replicas; ``waiting`` [N] requests that find no room in the cache, over those that
    do; ``runtime`` [N] indexes RUNTIMES.
    """

    decode: np.ndarray
    prefill: np.ndarray
    decode_parts: np.ndarray
    prefill_parts: np.ndarray
    kernels: np.ndarray
    batch: np.ndarray
    stages: np.ndarray
    requests: np.ndarray
    prompts: np.ndarray
    prefill_ranks: np.ndarray
    steps: np.ndarray
    host: np.ndarray
    split: np.ndarray
    waiting: np.ndarray
    runtime: np.ndarray

    def __len__(self) -> int:
        return len(self.requests)

    def take(self, rows: np.ndarray) -> Terms:
        """The terms of some rows."""
        return Terms(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    @classmethod
    def joined(cls, parts: list[Terms]) -> Terms:
        """All parts in a row."""
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in cls.__dataclass_fields__))


# What each constant is, where its fit starts and what pulls it back (`PRIOR_WEIGHT`): shares of a peak that well-tuned
# kernels reach, and times of an order that profiles of serving stacks show. Times in seconds.
SHARED: dict[str, float] = {
    "compute_decode": 0.5,  # share of the peak FLOP/s
    "compute_prefill": 0.6,
    "memory_dense": 0.7,  # share of the bandwidth: weights of dense products
    "memory_experts": 0.5,  # weights of experts
    "memory_cache": 0.6,  # keys, values and states
    "wire": 0.5,  # share of the link bandwidth
    "message_s": 10e-6,  # each message of a step
    "layer_prefill_s": 40e-6,  # each layer of a prefill
}
BY_RUNTIME: dict[str, float] = {
    "layer_s": 30e-6,  # each layer of a decode step
    "step_s": 1e-3,  # each decode step
    "together_s": 50e-3,  # each request beside others, in the records: clients start together, servers cold
    "interference": 1.0,  # share of the prefill work that decoding waits for
    "bunching": 0.15,  # share of the other requests in flight whose prefill a new one waits for, in the records
    "handover_s": 50e-3,  # disaggregated: from the prefill worker to the decode worker, once per request
}
_OWN: tuple[str, ...] = (*SHARED, *(f"{name}.{runtime}" for name in BY_RUNTIME for runtime in RUNTIMES))
CONSTANTS: tuple[str, ...] = (*_OWN, *overheads.CONSTANTS)
_SHARES = ("compute_decode", "compute_prefill", "memory_dense", "memory_experts", "memory_cache", "wire")
_SHARPNESS = 4.0


def prior() -> np.ndarray:
    """[CONSTANTS] the starting values, free of bounds."""
    values = [*SHARED.values(), *(v for v in BY_RUNTIME.values() for _ in RUNTIMES)]
    own = [np.log(v / (1 - v)) if n in _SHARES else np.log(v) for n, v in zip(_OWN, values, strict=True)]
    return np.concatenate([own, overheads.prior()])


def bounded(values: np.ndarray) -> dict[str, float]:
    """Constants from a free vector: shares by a logistic, the others by an exponential."""
    free = zip(CONSTANTS, np.asarray(values, float).tolist(), strict=True)
    return {n: 1 / (1 + math.exp(-v)) if n in _SHARES else math.exp(min(v, 20.0)) for n, v in free}


@dataclass(frozen=True)
class Sizes:
    """N loads of one deployment: tokens of prompts and answers, requests in flight; [N] each."""

    input_length: np.ndarray
    output_length: np.ndarray
    concurrency: np.ndarray

    @classmethod
    def of(cls, *loads: Serving) -> Sizes:
        """The loads of some servings."""
        columns = zip(*((s.input_length, s.output_length, s.concurrency) for s in loads), strict=True)
        return cls(*(np.array(column, dtype=np.float64) for column in columns))

    def take(self, rows: np.ndarray) -> Sizes:
        """Some of the loads."""
        return Sizes(self.input_length[rows], self.output_length[rows], self.concurrency[rows])


def phase_terms(model: LanguageModel, device: Device, split: Parallelism, q: Quantization, step: Step) -> np.ndarray:
    """[N, PHASE] of N steps of a replica on a device, at peak rates."""
    costs = step_costs(model, split, q, step)
    out = np.zeros((len(np.atleast_1d(step.tokens)), PHASE))
    for i, kind in enumerate(KINDS):
        work = costs.parts[kind]
        out[:, i] = work.flops / peak_flops(device.peak_flops, work.precision)
        out[:, len(KINDS) + i] = work.memory_bytes / device.memory_bandwidth_bytes_s
    messages = costs.parts["collectives"]
    out[:, _WIRE] = messages.message_bytes / link_bytes_s(device, split)
    out[:, _MESSAGES] = messages.messages
    out[:, _LAYERS] = model.layer_count
    return out


def terms(model: LanguageModel, device: Device, serving: Serving, sizes: Sizes | None = None) -> Terms:
    """The terms of ``serving`` [1], or of other loads of it [N].

    Requests that find no room wait until others are done; where not even one finds it, which the memory plan says, they
    run one at a time.
    """
    split, q = serving.parallelism, serving.quantization
    sizes = sizes or Sizes.of(serving)
    wanted = np.maximum(1.0, sizes.concurrency / serving.workers)
    # On average requests are half-way through their output.
    context = sizes.input_length + sizes.output_length / 2
    fit = likely_sequences(model, device, serving, context) * split.attention_data
    requests = np.minimum(wanted, np.maximum(fit, 1.0))
    # A pipelined replica runs as many micro-batches as it has stages, one in each.
    per_rank = np.maximum(1.0, requests / split.attention_data / split.pipeline)
    decode = phase_terms(model, device, split, q, Step.of_decode(per_rank, context))
    own = serving.mode == "disagg" and serving.prefill is not None
    prefill_split = serving.prefill if own and serving.prefill else split
    prompts = np.maximum(1.0, sizes.concurrency / serving.prefill_workers) if own else requests
    prefill = phase_terms(model, device, prefill_split, q, Step.of_prefill(1.0, sizes.input_length))
    rows, version = len(wanted), serving.runtime_version
    setups = [Setup(model, device, one, q, serving.runtime, version) for one in (split, prefill_split)]
    return Terms(
        decode=decode,
        prefill=prefill,
        decode_parts=seconds_by_part(
            setups[0], EngineBatch(0 * context, decodes=per_rank, decode_context=per_rank * context)
        ),
        kernels=np.full(rows, device.id in kernel_boards()),
        batch=per_rank,
        stages=np.full(rows, float(split.pipeline)),
        prefill_parts=of_prompts(setups[1], sizes.input_length),
        requests=requests,
        prompts=prompts,
        prefill_ranks=np.full(rows, float(prefill_split.attention_data)),
        steps=sizes.output_length,
        host=host_s(serving) * requests,
        split=np.full(rows, own),
        waiting=wanted / requests - 1,
        runtime=np.full(rows, RUNTIMES.index(serving.runtime)),
    )


def host_s(serving: Serving) -> float:
    """Seconds of a step that each request costs the host of a version, where the GPUs wait for it."""
    parts = serving.runtime_version.split(".")
    if serving.runtime != "vllm" or len(parts) < 2 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        return 0.0
    return _ONE_PROCESS_S if (int(parts[0]), int(parts[1])) < _ONE_PROCESS_UNTIL else 0.0


def _phase_seconds(rows: np.ndarray, c: dict[str, float], phase: str, layer_s: np.ndarray | float) -> np.ndarray:
    memory = np.full(len(KINDS), c["memory_dense"])
    memory[KINDS.index("experts")] = c["memory_experts"]
    memory[[KINDS.index("attention"), KINDS.index("recurrence")]] = c["memory_cache"]
    flops = rows[:, _FLOPS] / c[f"compute_{phase}"]
    traffic = rows[:, _BYTES] / memory
    longer = (flops**_SHARPNESS + traffic**_SHARPNESS) ** (1 / _SHARPNESS)
    wire = rows[:, _WIRE] / c["wire"] + rows[:, _MESSAGES] * c["message_s"]
    return longer.sum(axis=1) + wire + rows[:, _LAYERS] * layer_s


def prompt_seconds(
    model: LanguageModel, device: Device, split: Parallelism, q: Quantization, step: Step, c: dict[str, float]
) -> np.ndarray:
    """Seconds [N] of prefill steps alone, without a server."""
    return _phase_seconds(phase_terms(model, device, split, q, step), c, "prefill", c["layer_prefill_s"])


def decode_seconds(
    model: LanguageModel,
    device: Device,
    split: Parallelism,
    q: Quantization,
    step: Step,
    c: dict[str, float],
    runtime: str,
) -> np.ndarray:
    """Seconds [N] of decode steps alone of a runtime of RUNTIMES."""
    rows = phase_terms(model, device, split, q, step)
    return _phase_seconds(rows, c, "decode", c[f"layer_s.{runtime}"]) + c[f"step_s.{runtime}"]


def times(t: Terms, c: dict[str, float]) -> dict[str, np.ndarray]:
    """Seconds [N] each: ``tpot``; ``steady`` and ``ttft``, to the first token; and their parts: ``step`` (decoding
    alone), ``prompt`` (one prefill) and ``queue`` (for room in the cache).

    Aggregated: in a closed loop each request's prefill stalls the decoding of the others once, so every output token
    waits for requests / output length of them. A new request waits for the running step and for prefills ahead of its
    own. ``steady``: where requests arrive by themselves, so that those ahead follow from how long each prefills and
    how long it decodes. ``ttft``: as the records were measured, whose clients send their requests together.
    """
    own = {name: np.array([c[f"{name}.{r}"] for r in RUNTIMES])[t.runtime] for name in BY_RUNTIME}
    step = _phase_seconds(t.decode, c, "decode", own["layer_s"]) + own["step_s"] + t.host
    prompt = _phase_seconds(t.prefill, c, "prefill", c["layer_prefill_s"])
    others = np.where(t.split, 0.0, t.requests / t.prefill_ranks / t.stages / t.steps)
    tpot = step + own["interference"] * others * prompt
    if t.kernels.any():
        step, tpot = (np.where(t.kernels, *both) for both in zip(by_kernels(t, c, others), (step, tpot), strict=True))
    at_once = np.maximum(t.prompts / t.prefill_ranks, 1.0)
    beside = 1 - 1 / np.maximum(t.prompts, 1.0)  # the chance that a request is not alone
    start = REQUEST_S + np.where(t.split, own["handover_s"], beside * step) + t.waiting * t.steps * tpot
    together = prompt * (1 + own["bunching"] * (at_once - 1)) + beside * own["together_s"]
    return {
        "tpot": tpot,
        "ttft": start + together,
        "steady": start + _in_turn(prompt, t.steps * tpot, at_once),
        "step": step,
        "prompt": prompt,
        "queue": t.waiting * t.steps * tpot,
    }


def by_kernels(t: Terms, c: dict[str, float], others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seconds [N] of a step, and per output token with the prompts of ``others`` [N] in it, from measured kernels."""
    layers, interference = t.decode[:, _LAYERS], overheads.of_runtimes(c, "step.interference")[t.runtime]
    step = overheads.step_seconds(t.decode_parts, layers, t.batch, t.runtime, c) + t.host
    prompt = overheads.prompt_seconds(t.prefill_parts, layers, t.runtime, c)
    return step, step + interference * others * prompt


def _in_turn(prompt: np.ndarray, rest: np.ndarray, at_once: np.ndarray) -> np.ndarray:
    """Seconds [N] of one prefill and those ahead of it, where each of ``at_once`` requests prefills, decodes for
    ``rest`` and comes again: mean value analysis of one server in a closed loop, by Schweitzer's approximation
    (Approximate analysis of multiclass closed networks of queues, 1979), of which this is the root.
    """
    over = prompt * at_once - rest
    return np.asarray((over + np.sqrt(over**2 + 4 * prompt * rest)) / 2)


def wanted_prompts(t: Terms) -> np.ndarray:
    """[N] requests in flight for each rank of a prefill replica, those included that find no room."""
    return np.asarray(np.where(t.split, t.prompts, t.requests * (1 + t.waiting)) / t.prefill_ranks)
