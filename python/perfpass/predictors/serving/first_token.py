"""Time to the first token of a closed loop, as the clients of the serving records measure it.

Both clients behind the records (benchmark_serving of vLLM as InferenceMAX calls it, genai-perf as aiconfigurator does)
keep a number of requests in flight until ten times as many are done, and open with all of them at once. So the mean is
made of two: a share of the requests belongs to that burst, whose prompts are prefilled one chunk after another, and
waits for half of it; the others arrive when one before them is done, wait until the scheduler looks at its queue, which
takes some steps (whole ones: where a step drafts, it lasts as long as the tokens that it keeps), and for their own
prompt. A fixed time goes with layers and their width: prefills run without
CUDA graphs. Where answers have one length and prompts go before decodes, requests that begin together end together, and
so do the next: every one belongs to such a burst. Where prefill has replicas of its own, each is a queue that the same
requests come back to, and every request waits for some steps of its decoder: between two of them it looks whether a
cache has arrived.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

# Tokens of prompts that a step holds: the defaults of vLLM (max_num_batched_tokens of a server on boards of this size),
# TensorRT-LLM (max_num_tokens) and SGLang (chunked_prefill_size on 80 GB).
CHUNK_TOKENS = 8192
# Each request before its prefill starts: HTTP, tokens of the prompt, a place in the schedule. By hand, since next to no
# record has a request that runs alone.
REQUEST_S = 5e-3
# The shortest answers of the records. Of shorter ones a step holds more of others' prompts, but those who wait do not
# wait for more of them.
_SHORTEST_ANSWER = 100.0
# Steps that TensorRT-LLM lets a prompt wait until all attention ranks have one (`timeout_iters` of attention_dp_config,
# which the records' servers set to 60 or leave at 50).
BALANCE_STEPS = 50.0
# Requests that the records' clients send for each in flight.
ROUNDS = 10.0
# Of prompts' lengths, standard deviation over mean: genai-perf's are of one length, InferenceMAX's spread evenly from
# 0.8 to 1 of the stated one (0.06).
PROMPT_VARIATION = 0.0
# Hidden size that fixed times per layer are given at.
HIDDEN = 5000.0
_SHARPNESS = 4.0
# Components whose shares of peak depend on the width of the dense weights.
_NARROWED = ("projections", "dense_mlp", "shared_experts")

# What each constant is, where its fit starts and by how much (log) a prior lets it go. Shares of peaks and factors of
# them by the width of weights; seconds.
SHARED: dict[str, tuple[float, float]] = {
    "dense": (0.6, 0.3),
    "experts": (0.5, 0.4),
    "attention": (0.4, 0.5),
    "8 bits": (0.8, 0.2),
    "4 bits": (0.6, 0.3),
    "memory": (0.7, 0.2),
    "wire": (0.5, 0.3),
    "look": (0.5, 0.3),  # of the steps between two looks of the scheduler at its queue, the share that a request waits
    "rank": (0.5, 0.4),  # likewise of `BALANCE_STEPS`
    "balance": (0.6, 0.5),  # how busy unstated prefill replicas are, which were chosen to keep up
}
BY_RUNTIME: dict[str, tuple[float, float]] = {
    "layer_s": (1e-4, 0.7),  # each layer of each step of a prefill
    "width_s": (5e-4, 1.0),  # each layer, by its width, once a request
    "burst": (1 / ROUNDS, 0.4),  # share of the requests that open the run together: one in ten
    "steps": (2.0, 1.0),  # that a request waits until the scheduler sees it; beside prefill replicas, the decoder's
    "handover_s": (0.05, 1.0),  # from the prefill worker to the decode worker
}
# What a first token waits for: its server and the runtime of its model; the burst that opens a run; its own prompt and
# those that come before it later on; the scheduler.
PARTS = ("host", "opening burst", "prompts", "scheduler")


def constants_of_mode(split: bool, runtimes: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """Priors of one mode of serving, by name: start and how far (log)."""
    left = ("look", "rank") if split else ("handover_s", "balance")
    shared = {name: prior for name, prior in SHARED.items() if name not in left}
    own = {name: prior for name, prior in BY_RUNTIME.items() if name not in left}
    return shared | {f"{name}.{runtime}": prior for name, prior in own.items() for runtime in runtimes}


def bounded(values: np.ndarray, names: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Constants from a free vector of logarithms."""
    return {name: math.exp(min(v, 10.0)) for name, v in zip(names, np.asarray(values, float).tolist(), strict=True)}


def start_of(names: Mapping[str, tuple[float, float]]) -> np.ndarray:
    """The free vector that priors start from."""
    return np.array([math.log(start) for start, _ in names.values()])


def prefix(split: bool) -> str:
    """What the names of a mode's constants begin with among all of the base."""
    return f"first.{'disagg' if split else 'agg'}."


@dataclass(frozen=True)
class Prompts:
    """Of N workloads of one mode: ``one`` prompt and a ``chunk`` of ``per_chunk`` prompts as columns of a phase at peak
    rates [N, PHASE]; ``together`` [N] requests for each rank of a prefill replica, or, where their number is
    ``unstated`` [N], for each rank of all of them; ``width`` [N] layers times hidden size; ``dense_bytes`` and
    ``expert_bytes`` [N] of a weight; ``token_s``, ``step_s`` and ``steps`` [N]: seconds of an output token, without
    others' prompts, and how many;
    ``beside`` [N]: the chance that a request is not alone; ``kept`` [N] tokens of a step, ``looks`` [N] steps between
    two looks at the queue, ``waves`` [N] whether every one opens a run, ``balanced`` [N] whether ranks wait for each
    other.
    """

    one: np.ndarray
    chunk: np.ndarray
    per_chunk: np.ndarray
    together: np.ndarray
    unstated: np.ndarray
    width: np.ndarray
    dense_bytes: np.ndarray
    expert_bytes: np.ndarray
    token_s: np.ndarray
    step_s: np.ndarray
    steps: np.ndarray
    kept: np.ndarray
    looks: np.ndarray
    waves: np.ndarray
    balanced: np.ndarray
    beside: np.ndarray


def parts(
    p: Prompts, own: Callable[[str], np.ndarray], c: Mapping[str, float], split: bool, kinds: tuple[str, ...]
) -> dict[str, np.ndarray]:
    """Seconds [N] from a request's arrival, room in the cache apart, to its first token, by PARTS; their sum is the
    time. ``own``: a constant by runtime.
    """
    one, chunk = (prefill_s(rows, p.dense_bytes, p.expert_bytes, own("layer_s"), c, kinds) for rows in (p.one, p.chunk))
    each = chunk / p.per_chunk
    rest = p.steps * p.token_s
    together = p.together
    if split:
        replicas = np.maximum(together * each / rest / c["balance"], 1.0)
        together = np.maximum(np.where(p.unstated, together / replicas, together), 1.0)
    more = np.where(p.per_chunk > 1, (chunk - one) / np.maximum(p.per_chunk - 1, 1e-9), one)
    first_chunk = one + more * (np.minimum(together, p.per_chunk) - 1)
    opening = first_chunk + each * np.maximum(together - p.per_chunk, 0.0) / 2
    share = np.where(p.waves, 1.0, np.minimum(own("burst"), 1.0))
    if split:
        later = one - each + in_turn(each, rest, together, PROMPT_VARIATION)
        seen = own("steps") * p.step_s * p.kept
        fixed = own("width_s") * p.width + own("handover_s")
    else:
        token_s = p.step_s + (p.token_s - p.step_s) * np.minimum(p.steps / _SHORTEST_ANSWER, 1.0)
        waits = own("steps") + c["look"] * (p.looks - 1) + c["rank"] * BALANCE_STEPS * p.balanced
        later, seen = one, (1 - share) * p.beside * waits * token_s * p.kept
        fixed = p.beside * own("width_s") * p.width
    found = (REQUEST_S + fixed, share * opening, (1 - share) * later, seen)
    return dict(zip(PARTS, found, strict=True))


def with_queue(found: Mapping[str, np.ndarray], queue: np.ndarray, split: bool) -> np.ndarray:
    """Seconds [N] to the first token of `parts` and a ``queue`` [N] for room: of a closed loop whose decoders are full
    as many requests are elsewhere as find no room, whether they are prefilled or wait (Little's law), so prefill
    replicas hide behind the queue. Those that open a run, one of `ROUNDS`, find every place free. Where prefill shares
    the room, what waits has not begun.
    """
    if not split:
        return np.asarray(np.sum([*found.values(), queue], axis=0))
    host, opening, prompts, scheduler = (found[name] for name in PARTS)
    return np.asarray(host + opening + np.maximum(prompts + scheduler, (1 - 1 / ROUNDS) * queue))


def prefill_s(
    rows: np.ndarray,
    dense_bytes: np.ndarray | float,
    expert_bytes: np.ndarray | float,
    layer_s: np.ndarray | float,
    c: Mapping[str, float],
    kinds: tuple[str, ...],
) -> np.ndarray:
    """Seconds [N] of prefills whose columns of a phase are ``rows`` [N, PHASE], without a server; ``c`` as SHARED."""
    count = len(kinds)
    shares = np.empty((len(rows), count))
    dense, experts = (_narrow(np.asarray(size), c) for size in (dense_bytes, expert_bytes))
    for i, kind in enumerate(kinds):
        if kind == "experts":
            shares[:, i] = c["experts"] * experts
        elif kind in ("attention", "recurrence"):
            shares[:, i] = c["attention"]
        else:
            shares[:, i] = c["dense"] * (dense if kind in _NARROWED else 1.0)
    compute, traffic = rows[:, :count] / shares, rows[:, count : 2 * count] / c["memory"]
    longer = (compute**_SHARPNESS + traffic**_SHARPNESS) ** (1 / _SHARPNESS)
    wire, layers = rows[:, 2 * count], rows[:, -1]
    return np.asarray(longer.sum(axis=1) + wire / c["wire"] + layers * layer_s)


def _narrow(size: np.ndarray, c: Mapping[str, float]) -> np.ndarray:
    return np.where(size < 1, c["4 bits"], np.where(size < 2, c["8 bits"], 1.0))


def in_turn(prompt: np.ndarray, rest: np.ndarray, at_once: np.ndarray, variation: float = 1.0) -> np.ndarray:
    """Seconds [N] of one prefill and those ahead of it, where each of ``at_once`` requests prefills, decodes for
    ``rest`` and comes again: mean value analysis of one server in a closed loop, by Schweitzer's approximation
    (Approximate analysis of multiclass closed networks of queues, 1979), of which this is the root.

    ``variation``: that of prompts, their standard deviation over their mean. Whoever arrives finds
    (1 + variation^2) / 2 of one in progress still to be done (Reiser, A queueing network analysis of computer
    communication networks, 1979): all of an exponential one (1), half of prompts of one length (0).
    """
    over = prompt * at_once - rest
    done = 2 * (1 - variation**2) * prompt**2 * (at_once - 1)
    return np.asarray((over + np.sqrt(over**2 + 4 * prompt * rest - done)) / 2)
