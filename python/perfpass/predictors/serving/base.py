"""The physical base of serving predictions: times per output token and to the first token from exact counts.

Every component of a decode step and of a prefill takes the longer of its computing and its memory traffic, at fitted
shares of the device's peaks; messages take NVLink's or the network's bandwidth and a fixed time each; every layer has a
fixed cost, and so has every step. What the whole deployment does follows from those by the arithmetic of
a closed loop (`times`). The constants of `CONSTANTS` are fitted on measurements; nothing else is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from perfpass.devices import Device
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.batch import EngineBatch
from perfpass.llm.costs import ELEMENT_BYTES, Parallelism, Quantization, Step, peak_flops, step_costs
from perfpass.llm.memory import bounded_sequences
from perfpass.llm.serving import Serving
from perfpass.llm.speculation import Speculation
from perfpass.predictors.serving import first_token
from perfpass.predictors.serving.first_token import CHUNK_TOKENS, REQUEST_S, in_turn
from perfpass.predictors.step_time import overheads
from perfpass.predictors.step_time.overheads import RUNTIMES
from perfpass.predictors.step_time.parts import of_prompts, seconds_by_part
from perfpass.predictors.step_time.setup import Setup, messages_bytes_s, runs_measured_kernels

# Components by what limits them; each has its own efficiency.
KINDS = ("projections", "attention", "recurrence", "dense_mlp", "experts", "shared_experts", "logits", "elementwise")
# vLLM before 0.6.0 ran its HTTP server in the process that schedules: the GPUs wait for it at every step, for each
# request and for each rank that it sends a step to. By ML.ENERGY's servers of 0.5.3 to 0.5.5 (137 rows, 22 models). Its
# own report of 0.6.0 (sgl-project/sglang, benchmark/benchmark_vllm_060: 4,132 tokens/s for an 8B on an A100, 3,701 for
# a 70B on four H100, 2.7 and 1.8 times less before) asks for 0.4 and 0.2 ms a request. Without a server, by
# LLM-Inference-Bench on NVIDIA's boards (237 rows).
_ONE_PROCESS_S, _RANK_S = 0.24e-3, 11e-3
_BATCH_REQUEST_S, _BATCH_RANK_S = 0.056e-3, 0.4e-3
_ONE_PROCESS_UNTIL = (0, 6)
# vLLM before 0.2.6 (December 2023) had no CUDA graphs. On AMD's boards its runs of the summer of 2024 (0.5) took as
# long for a model of 7 B on one GPU as on four, 0.32 to 0.36 ms a layer whatever the model: they issued kernels too.
_EAGER_UNTIL, _EAGER_ON_AMD_UNTIL = (0, 2, 6), (0, 6)
# Columns of one phase: computing and memory seconds per kind at peak, message seconds at peak, messages, layers.
PHASE = 2 * len(KINDS) + 3
_FLOPS, _BYTES = slice(0, len(KINDS)), slice(len(KINDS), 2 * len(KINDS))
_WIRE, _MESSAGES, _LAYERS = PHASE - 3, PHASE - 2, PHASE - 1


@dataclass(frozen=True)
class Terms:
    """Of N workloads: ``decode`` and ``prefill`` [N, PHASE] at peak rates, of one step of a decode replica and of
    one prompt on a prefill replica; ``decode_parts`` and ``prefill_parts`` [N, 2, PARTS] seconds of the same as
    kernels take them, and ``kernels`` [N] whether those of the device's architecture were measured; ``batch`` [N]
    requests of one of its schedulers, of one micro-batch where it is pipelined, of ``stages`` [N]; ``drafts`` [N]
    tokens that a step drafts and verifies of each request; ``requests`` [N] in flight on one decode replica,
    ``beside`` [N] those whose prompts come between the tokens of one, ``prompts`` [N] on one prefill replica;
    ``prefill_ranks`` [N] prompts that a replica prefills at once; ``steps`` [N] output tokens per request; ``host``
    [N] seconds of a step in which GPUs wait for the host, ``issued`` [N] those that it needs to issue a step's
    kernels one by one, 0 with CUDA graphs; ``split`` [N] whether prefill has its own replicas; ``waiting`` [N]
    requests that find no room in the cache, over those that do, and ``waiting_bounds`` [N, 2] the same where the cache
    is as small as it may be, and as large; ``runtime`` [N] indexes RUNTIMES; ``server`` [N]
    whether requests come through one. For the first token: ``chunk`` [N, PHASE] of ``per_chunk`` [N] prompts;
    ``width`` [N] layers times hidden size over `HIDDEN`; ``dense_bytes`` and ``expert_bytes`` [N] of a weight;
    ``unstated`` [N] whether nobody said how many prefill replicas there are; ``looks`` [N] steps from one look of
    the scheduler at its queue to the next; ``waves`` [N] whether requests begin and end together.
    """

    decode: np.ndarray
    prefill: np.ndarray
    decode_parts: np.ndarray
    prefill_parts: np.ndarray
    kernels: np.ndarray
    batch: np.ndarray
    stages: np.ndarray
    drafts: np.ndarray
    requests: np.ndarray
    beside: np.ndarray
    prompts: np.ndarray
    prefill_ranks: np.ndarray
    steps: np.ndarray
    host: np.ndarray
    issued: np.ndarray
    split: np.ndarray
    waiting: np.ndarray
    waiting_bounds: np.ndarray
    runtime: np.ndarray
    server: np.ndarray
    chunk: np.ndarray
    per_chunk: np.ndarray
    width: np.ndarray
    dense_bytes: np.ndarray
    expert_bytes: np.ndarray
    unstated: np.ndarray
    looks: np.ndarray
    waves: np.ndarray

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
    "memory_experts": 0.5,  # weights of experts, in decoding
    "memory_cache": 0.6,  # keys, values and states
    "wire": 0.5,  # share of the link bandwidth
    "message_s": 10e-6,  # each message of a step
    "layer_prefill_s": 40e-6,  # each layer of a prefill
    "acceptance": 0.7,  # chance that a draft token is kept, where those before it were
}
BY_RUNTIME: dict[str, float] = {
    "layer_s": 30e-6,  # each layer of a decode step
    "step_s": 1e-3,  # each decode step
    "interference": 1.0,  # share of the prefill work that decoding waits for
}
_OWN: tuple[str, ...] = (*SHARED, *(f"{name}.{runtime}" for name in BY_RUNTIME for runtime in RUNTIMES))
# What decoding and its stalls are fitted by; then those of the first token (`first_token`), by mode.
STEP_CONSTANTS: tuple[str, ...] = (*_OWN, *overheads.CONSTANTS)
CONSTANTS: tuple[str, ...] = (
    *STEP_CONSTANTS,
    *(
        first_token.prefix(split) + name
        for split in (False, True)
        for name in first_token.constants_of_mode(split, RUNTIMES)
    ),
)
_SHARES = ("compute_decode", "compute_prefill", "memory_dense", "memory_experts", "memory_cache", "wire", "acceptance")
_SHARPNESS = 4.0
_HALVINGS = 12  # of the requests in `_supplied`: to within 1 in 500 of thousands
_MOST_KEPT = 0.99


def prior() -> np.ndarray:
    """[STEP_CONSTANTS] the starting values, free of bounds."""
    values = [*SHARED.values(), *(v for v in BY_RUNTIME.values() for _ in RUNTIMES)]
    own = [np.log(v / (1 - v)) if n in _SHARES else np.log(v) for n, v in zip(_OWN, values, strict=True)]
    return np.concatenate([own, overheads.prior()])


def bounded(values: np.ndarray) -> dict[str, float]:
    """Constants from a free vector: shares by a logistic, the others by an exponential; those of the first token where
    their fit starts.
    """
    free = zip(STEP_CONSTANTS, np.asarray(values, float).tolist(), strict=True)
    found = {n: 1 / (1 + math.exp(-v)) if n in _SHARES else math.exp(min(v, 20.0)) for n, v in free}
    for split in (False, True):
        priors, prefix = first_token.constants_of_mode(split, RUNTIMES), first_token.prefix(split)
        found |= {prefix + name: start for name, (start, _) in priors.items()}
    return found


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

    def beside(self, others: Sizes) -> Sizes:
        """These loads and then the others."""
        return Sizes(*(np.concatenate(pair) for pair in zip(vars(self).values(), vars(others).values(), strict=True)))

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
    out[:, _WIRE] = messages.message_bytes / messages_bytes_s(device, split)
    out[:, _MESSAGES] = messages.messages
    out[:, _LAYERS] = model.passed_layers(decode=step.decode)
    return out


def terms(
    model: LanguageModel,
    device: Device,
    serving: Serving,
    sizes: Sizes | None = None,
    *,
    unstated: bool = False,
    drafts: int = 0,
    looks: int = 1,
    server: bool = True,
    at_rate: bool = False,
) -> Terms:
    """The terms of ``serving`` [1], or of other loads of it [N]. ``unstated``: its workers are a guess. ``drafts``:
    tokens that the model's own layer for them (multi-token prediction) drafts in a step, one after another.
    ``looks``: steps from one look of the scheduler at its queue to the next. ``server``: whether requests come through
    one, or are a batch of the engine alone. ``at_rate``: whether they arrive by themselves, so many being in flight on
    average.

    Requests that find no room or no place wait until others are done; where not even one finds room, which the memory
    plan says, they run one at a time.
    """
    split, q = serving.parallelism, serving.quantization
    sizes = sizes or Sizes.of(serving)
    wanted = np.maximum(1.0, sizes.concurrency / serving.workers)
    # On average requests are half-way through their output.
    context = sizes.input_length + sizes.output_length / 2
    places = serving.decode_batch or np.inf
    whole = sizes.input_length + sizes.output_length
    held = bounded_sequences(model, device, serving, context, whole)
    fits = [np.maximum(np.minimum(one, places) * split.attention_data, 1.0) for one in held]
    most, waiting, least = (wanted / np.minimum(wanted, fit) - 1 for fit in fits)
    requests = wanted / (1 + waiting)
    if serving.mode == "disagg" and not unstated:
        requests = _supplied(model, device, serving, sizes, requests, drafts)
    # A pipelined replica runs as many micro-batches as it has stages, one in each.
    per_rank = np.maximum(1.0, requests / split.attention_data / split.pipeline)
    verified = per_rank * (1 + drafts)
    decode = phase_terms(
        model, device, split, q, Step(verified, verified, verified * context, per_rank * context, per_rank, True)
    )
    own = serving.mode == "disagg" and serving.prefill is not None
    prefill_split = serving.prefill if own and serving.prefill else split
    prompts = np.maximum(1.0, sizes.concurrency / serving.prefill_workers) if own else requests
    prefill = phase_terms(model, device, prefill_split, q, Step.of_prefill(1.0, sizes.input_length))
    per_chunk = np.maximum(CHUNK_TOKENS / sizes.input_length, 1.0)
    chunk = phase_terms(model, device, prefill_split, q, Step.of_prefill(per_chunk, sizes.input_length))
    rows, version = len(wanted), serving.runtime_version
    host_step_s, host_request_s = host_s(serving, server=server)
    setups = [Setup(model, device, one, q, serving.runtime, version) for one in (split, prefill_split)]
    parts = seconds_by_part(setups[0], EngineBatch(0 * context, decodes=verified, decode_context=per_rank * context))
    drafter = Speculation.of("mtp", drafted=drafts).drafter(model)
    if drafter is not None:
        decode = decode + drafts * phase_terms(drafter, device, split, q, Step.of_decode(per_rank, context))
        one = EngineBatch(0 * context, decodes=per_rank, decode_context=per_rank * context)
        parts = parts + drafts * seconds_by_part(Setup(drafter, device, split, q, serving.runtime, version), one)
    return Terms(
        decode=decode,
        prefill=prefill,
        decode_parts=parts,
        kernels=np.full(rows, runs_measured_kernels(device)),
        batch=per_rank,
        stages=np.full(rows, float(split.pipeline)),
        drafts=np.full(rows, float(drafts)),
        prefill_parts=of_prompts(setups[1], sizes.input_length, per_rank),
        requests=requests,
        # A batch without a server states its whole time over its tokens, with its own prompts; who arrives by himself
        # meets the mean of all others, where a closed loop's requests are so many with him.
        beside=requests - 1.0 if server and not at_rate else requests,
        prompts=sizes.concurrency.copy() if own and unstated else prompts,
        prefill_ranks=np.full(rows, float(prefill_split.attention_data)),
        steps=sizes.output_length,
        host=host_step_s + host_request_s * requests,
        issued=np.full(rows, issued_s(model, device, serving)),
        split=np.full(rows, own),
        waiting=waiting,
        waiting_bounds=np.stack([most, least], axis=1),
        runtime=np.full(rows, RUNTIMES.index(serving.runtime)),
        server=np.full(rows, server),
        chunk=chunk,
        per_chunk=per_chunk,
        width=np.full(rows, _width(model)),
        dense_bytes=np.full(rows, ELEMENT_BYTES[q.gemm]),
        expert_bytes=np.full(rows, ELEMENT_BYTES[q.moe if model.is_mixture else q.gemm]),
        unstated=np.full(rows, own and unstated),
        looks=np.full(rows, float(looks)),
        waves=np.full(rows, serving.waves),
    )


def _supplied(
    model: LanguageModel, device: Device, serving: Serving, sizes: Sizes, requests: np.ndarray, drafts: int
) -> np.ndarray:
    """Requests [N] that a decode replica runs at once, at most ``requests`` [N]: where replicas of prefill are full, as
    many as their rate fills, the others being among the prompts. Little's law: requests = rate x steps x seconds of a
    step, by counts at the shares of peaks from which fits start, since it is part of what fits are given.
    """
    split, q, start = serving.parallelism, serving.quantization, bounded(prior())
    own = serving.prefill or split
    shares = {name: value for name, (value, _) in first_token.SHARED.items()}
    together = np.maximum(CHUNK_TOKENS / sizes.input_length, 1.0)
    chunk = phase_terms(model, device, own, q, Step.of_prefill(together, sizes.input_length))
    widths = ELEMENT_BYTES[q.gemm], ELEMENT_BYTES[q.moe if model.is_mixture else q.gemm]
    chunk_s = first_token.prefill_s(chunk, *widths, first_token.BY_RUNTIME["layer_s"][0], shares, KINDS)
    rate = serving.prefill_workers * own.attention_data * together / chunk_s / serving.workers
    context = sizes.input_length + sizes.output_length / 2
    kept = kept_tokens(np.array(drafts), start["acceptance"])

    def beyond(running: np.ndarray) -> np.ndarray:
        """[N] whether so many take fewer seconds than they take to come."""
        each = np.maximum(1.0, running / split.attention_data / split.pipeline)
        step = Step(each * (1 + drafts), each * (1 + drafts), each * (1 + drafts) * context, each * context, each, True)
        rows = phase_terms(model, device, split, q, step)
        step_s = _phase_seconds(rows, start, "decode", BY_RUNTIME["layer_s"]) + BY_RUNTIME["step_s"]
        return np.asarray(running > rate * sizes.output_length * step_s / kept)

    low, high = np.ones(len(requests)), requests.copy()
    full = beyond(high)
    for _ in range(_HALVINGS if full.any() else 0):
        middle = np.sqrt(low * high)
        more = beyond(middle)
        low, high = np.where(more, low, middle), np.where(more, middle, high)
    return np.where(full, low, requests)


def host_s(serving: Serving, *, server: bool = True) -> tuple[float, float]:
    """Seconds of a step in which the GPUs of a replica wait for the host of a version: whatever runs, and for each of
    its requests.
    """
    if not _vllm_before(serving, _ONE_PROCESS_UNTIL):
        return 0.0, 0.0
    rank_s, request_s = (_RANK_S, _ONE_PROCESS_S) if server else (_BATCH_RANK_S, _BATCH_REQUEST_S)
    return serving.parallelism.gpus * rank_s, request_s


def issued_s(model: LanguageModel, device: Device, serving: Serving) -> float:
    """Seconds in which the host of a version without CUDA graphs issues the kernels of a step; 0 of others."""
    if not _vllm_before(serving, _EAGER_ON_AMD_UNTIL if device.vendor == "AMD" else _EAGER_UNTIL):
        return 0.0
    costs = step_costs(model, serving.parallelism, serving.quantization, Step.of_decode(1.0, 1.0))
    return float(costs.total("launches")) * overheads.EAGER_LAUNCH_S


def prompt_issued_s(model: LanguageModel, serving: Serving, c: dict[str, float]) -> float:
    """Seconds in which the host issues the kernels of a mixture's prompt one by one, for whoever is alone as for
    others; 0 of a dense model, whose kernels are few and long: it hides behind them.
    """
    if not model.is_mixture:
        return 0.0
    own = serving.mode == "disagg" and serving.prefill is not None
    return c[f"{first_token.prefix(own)}width_s.{serving.runtime}"] * _width(model)


def _width(model: LanguageModel) -> float:
    return model.layer_count * model.hidden / first_token.HIDDEN


def _vllm_before(serving: Serving, release: tuple[int, ...]) -> bool:
    parts = serving.runtime_version.split(".")[: len(release)]
    if serving.runtime != "vllm" or len(parts) < len(release) or not all(p.isdecimal() for p in parts):
        return False
    return tuple(int(p) for p in parts) < release


def _phase_seconds(rows: np.ndarray, c: dict[str, float], phase: str, layer_s: np.ndarray | float) -> np.ndarray:
    memory = np.full(len(KINDS), c["memory_dense"])
    # Few tokens for each of many experts read their weights at a lower share than a prompt does, by first tokens.
    of_prompts = c[f"{first_token.prefix(split=False)}memory"]
    memory[KINDS.index("experts")] = c["memory_experts"] if phase == "decode" else of_prompts
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


def times(t: Terms, c: dict[str, float]) -> dict[str, np.ndarray]:
    """Seconds [N] each: ``tpot``; ``steady`` and ``ttft``, to the first token; and their parts: ``step`` (decoding
    alone), ``prompt`` (one prefill) and ``queue`` (for room in the cache).

    Aggregated: in a closed loop each request's prefill stalls the decoding of the others once, so every output token
    waits for the others / output length of them; a request that is alone for none. A new request waits for the running
    step and for prefills ahead of its own. ``steady``: where requests arrive by themselves, so that those ahead follow
    from how long each prefills and how long it decodes. ``ttft``: as the records were measured, whose clients send
    their requests together.
    """
    own = {name: np.array([c[f"{name}.{r}"] for r in RUNTIMES])[t.runtime] for name in BY_RUNTIME}
    step = _phase_seconds(t.decode, c, "decode", own["layer_s"]) + own["step_s"]
    step = (np.maximum(step, t.issued) + t.host) / kept_tokens(t.drafts, c["acceptance"])
    prompt = _phase_seconds(t.prefill, c, "prefill", c["layer_prefill_s"])
    others = np.where(t.split, 0.0, t.beside / t.prefill_ranks / t.stages / t.steps)
    # Of a wave's prompts those before a request's own come before its first token, on average half of the others.
    others = np.where(t.waves, others / 2, others)
    tpot = step + own["interference"] * others * prompt
    if t.kernels.any():
        step, tpot = (np.where(t.kernels, *both) for both in zip(by_kernels(t, c, others), (step, tpot), strict=True))
    # A place is free again after its request's own prompt and all its tokens; with prefill elsewhere after its tokens.
    queue = t.waiting * (t.steps * tpot + np.where(t.split, 0.0, prompt))
    at_once = np.maximum(t.prompts / t.prefill_ranks, 1.0)
    handover = _first_own(t, c, True, "handover_s") + _first_own(t, c, True, "steps") * step * _kept(t, c)
    # A prompt's step waits for its host as others do. Without a server it waits for nobody but for the engine's own
    # part of its step.
    received = np.where(t.server, REQUEST_S + t.host, own["step_s"])
    # As `prompt_issued_s`.
    issued = np.where(t.split, *(_first_own(t, c, split, "width_s") for split in (True, False))) * t.width
    received = received + np.where(t.server & (t.prefill[:, KINDS.index("experts")] > 0), issued, 0.0)
    start = received + np.where(t.split, handover, _beside(t) * step) + queue
    steady = start + in_turn(prompt, t.steps * tpot, at_once)
    first = np.empty(len(t))
    for split in (False, True):
        rows = np.flatnonzero(t.split == split)
        if not len(rows):
            continue
        found = first_parts(t.take(rows), c, split, tpot[rows], step[rows])
        first[rows] = first_token.with_queue(found, queue[rows], split)
    return {
        # Of a batch without a server the whole time over its tokens: those that find no room run after the others.
        "tpot": np.where(t.server, tpot, tpot * (1 + t.waiting)),
        # A request that is alone waits for nobody, however its clients begin.
        "ttft": np.where(t.split, first, np.where(t.prompts > 1.0, np.maximum(first, start + prompt), steady)),
        "steady": steady,
        "step": step,
        "prompt": prompt,
        "queue": queue,
    }


def first_token_bounds(
    t: Terms, c: dict[str, float], low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Log bounds [N] of first tokens from those of prompts, ``low`` and ``high`` [N]: near the saturation of a queue
    what a prompt may take less or longer moves the wait by more; what the cache may hold less or more moves it too, as
    an error of its own, whose squares add. Bounds of the whole hold where they are wider.
    """
    usual = np.log(times(t, c)["ttft"])

    def grown(slower: np.ndarray) -> np.ndarray:
        longer = np.exp(slower)[:, None]
        parts = t.prefill_parts * longer[:, None]
        changed = replace(t, prefill=t.prefill * longer, chunk=t.chunk * longer, prefill_parts=parts)
        return np.asarray(np.log(times(changed, c)["ttft"]) - usual)

    more, less = (np.log(times(replace(t, waiting=w), c)["ttft"]) - usual for w in t.waiting_bounds.T)
    return -np.hypot(np.minimum(low, grown(low)), less), np.hypot(np.maximum(high, grown(high)), more)


def kept_tokens(drafts: np.ndarray, acceptance: float) -> np.ndarray:
    """Tokens [N] that a step keeps of a request, on average, as `llm.speculation.tokens_per_step`."""
    kept = min(acceptance, _MOST_KEPT)
    return np.asarray((1 - kept ** (drafts + 1)) / (1 - kept))


def by_kernels(t: Terms, c: dict[str, float], others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seconds [N] of a token's share of a step, and per output token with the prompts of ``others`` [N] in it, from
    measured kernels.
    """
    layers, interference = t.decode[:, _LAYERS], overheads.of_runtimes(c, "step.interference")[t.runtime]
    step = np.maximum(overheads.step_seconds(t.decode_parts, layers, t.batch, t.runtime, c), t.issued) + t.host
    step = step / kept_tokens(t.drafts, c["step.acceptance"])
    prompt = overheads.of_parts(t.prefill_parts, c)
    return step, step + interference * others * prompt


def first_parts(
    t: Terms, c: dict[str, float], split: bool, tpot: np.ndarray, step: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Seconds [N] to the first token of workloads of one mode, as the records were measured, by `first_token.PARTS`,
    where an output token takes ``tpot`` [N], room in the cache apart. ``step`` [N]: of these without others' prompts;
    left out, answers are no shorter than the records'.
    """
    p = first_token.Prompts(
        one=t.prefill,
        chunk=t.chunk,
        per_chunk=t.per_chunk,
        together=np.maximum(t.prompts / t.prefill_ranks, 1.0),
        unstated=t.unstated,
        width=t.width,
        dense_bytes=t.dense_bytes,
        expert_bytes=t.expert_bytes,
        token_s=tpot,
        step_s=tpot if step is None else step,
        steps=t.steps,
        kept=_kept(t, c),
        looks=t.looks,
        waves=t.waves,
        balanced=(t.runtime == RUNTIMES.index("trtllm")) & (t.prefill_ranks > 1),
        beside=_beside(t),
    )
    prefix = first_token.prefix(split)
    shared = {name: c[prefix + name] for name in first_token.SHARED if prefix + name in c}
    return first_token.parts(p, lambda name: _first_own(t, c, split, name), shared, split, KINDS)


def _first_own(t: Terms, c: dict[str, float], split: bool, name: str) -> np.ndarray:
    prefix = first_token.prefix(split)
    return np.array([c[f"{prefix}{name}.{runtime}"] for runtime in RUNTIMES])[t.runtime]


def _kept(t: Terms, c: dict[str, float]) -> np.ndarray:
    """[N] tokens that a step keeps of a request, as the base that answers for its board has it."""
    return np.where(t.kernels, *(kept_tokens(t.drafts, c[name]) for name in ("step.acceptance", "acceptance")))


def _beside(t: Terms) -> np.ndarray:
    """[N] the chance that a request is not alone."""
    return np.asarray(1 - 1 / np.maximum(t.prompts, 1.0))
