"""What the phases of a request cost physically: prefill and one decode step, alone and on a server under load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfpass.devices import Device
from perfpass.errors import ArgumentError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.costs import Number, Parallelism, Step
from perfpass.predictors.generation.features import facts, link_bytes_s, peak_flops, touched
from perfpass.predictors.generation.habits import KINDS_OF_ENGINES, Arithmetic, parts_of
from perfpass.predictors.learned.components import Form, Rows, Term

_BYTES = 2.0
_TRAITS = {"log_parameters": 2.0, "log2_cache": 6.0, "log_vocabulary": 6.0}
_TERMS = (
    Term(0.03, ("device", "runtime")),
    Term(0.02, ("device", "runtime"), traits=False),
    Term(0.01, ("device", "runtime"), workload=False),
    Term(0.01, ("runtime",)),
    Term(0.01),
)
_COMPONENTS = ("weights", "cache", "flops", "attention", "issue", "exchanges", "messages", "sequences", "constant")
# Length scales and amplitudes are those of generation's form; nothing was chosen on these records.
ALONE = Form(
    components=_COMPONENTS,
    workload={"log2_devices": 2.0, "log2_batch": 6.0, "log2_tokens": 7.0},
    traits=_TRAITS,
    categories=("runtime", "vendor", "device"),
    levels=((), ("runtime",), ("runtime", "vendor"), ("runtime", "vendor", "device")),
    averaged=(),
    terms=_TERMS,
    noise=0.002,
    support=("runtime unseen", "vendor unseen", "device unseen", "seen"),
)
# A prompt is counted as of an engine with native kernels, whatever runs it; a factor says by how much another differs.
# Free components say more of the laboratory that they are fitted on, and less of another (docs/research/generation.md).
PROMPT = replace(ALONE, components=("counted",))
LOADED = Form(
    components=("counted", "others"),
    workload={"log2_devices": 2.0, "log2_users": 3.0, "log2_tokens": 7.0},
    traits=_TRAITS,
    categories=("runtime", "vendor", "device"),
    levels=((), ("runtime", "device")),
    averaged=(),
    terms=_TERMS,
    noise=0.004,
    support=("device unseen", "seen"),
)


@dataclass(frozen=True)
class Phase:
    """One phase of ``batch`` equal requests, or of ``batch`` users' requests on a loaded server.

    Prefill: ``tokens`` of each prompt. Decode: ``tokens`` in the cache of each. ``devices`` share the model (tensor
    parallel). ``output_tokens``: mean of a request; only a loaded server asks for it.
    """

    model: LanguageModel
    device: Device
    devices: int
    runtime: str
    batch: int
    tokens: int
    output_tokens: int = 1

    def __post_init__(self) -> None:
        for name in ("devices", "batch", "tokens", "output_tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= 10**7:
                raise ArgumentError(f"{name} must be a whole number from 1 to 10,000,000, got {value!r}")


def prefill_rows(phases: Sequence[Phase]) -> Rows:
    """Rows of `PROMPT`: seconds until all first tokens are there."""
    return Rows.joined([prefill_at(p, *_own(p)) for p in phases])


def decode_rows(phases: Sequence[Phase]) -> Rows:
    """Rows of `ALONE`: seconds of one step that gives each sequence a token."""
    return Rows.joined([decode_at(p, *_own(p)) for p in phases])


def loaded_rows(phases: Sequence[Phase], *, first: bool) -> Rows:
    """Rows of `LOADED`: seconds to the first token (``first``), or between tokens, under all users' requests."""
    return Rows.joined([loaded_at(p, *_own(p), first=first) for p in phases])


def _own(p: Phase) -> tuple[np.ndarray, np.ndarray]:
    return np.array([float(p.batch)]), np.array([float(p.tokens)])


def prefill_at(p: Phase, batch: np.ndarray, tokens: np.ndarray) -> Rows:
    """`prefill_rows` of a phase with N other batches and tokens."""
    split = Parallelism(tensor=p.devices, expert_tensor=p.devices)
    counted = parts_of(p.model, p.device, split, "fp16", Step.of_prefill(batch, tokens), Arithmetic())
    return _rows(p, batch, tokens, [counted.seconds(KINDS_OF_ENGINES["native"])])


def at_peak(p: Phase, *, prompt: bool) -> float:
    """Seconds of a prompt or of a decode step at the peak rates: weights, cache and FLOPs."""
    batch, tokens = _own(p)
    new, attended = (batch * tokens, batch * tokens**2 / 2.0) if prompt else (batch, batch * tokens)
    step = _step(p, batch, tokens, new, attended, np.zeros(1) if prompt else batch)
    return float(sum(np.asarray(part).sum() for part in step[:3]))


def decode_at(p: Phase, batch: np.ndarray, tokens: np.ndarray) -> Rows:
    """`decode_rows` of a phase with N other batches and tokens."""
    return _rows(p, batch, tokens, _step(p, batch, tokens, batch, batch * tokens, batch))


def loaded_at(p: Phase, batch: np.ndarray, tokens: np.ndarray, *, first: bool) -> Rows:
    """`loaded_rows` of a phase with N other numbers of users and tokens.

    Counted as of an eager server: a prompt and a step, or a step; and what others take: all their prompts before the
    first token, and those of the requests that come while one answers between its tokens.
    """
    split = Parallelism(tensor=p.devices, expert_tensor=p.devices)

    def seconds(step: Step) -> Number:
        return parts_of(p.model, p.device, split, "fp16", step, Arithmetic()).seconds(KINDS_OF_ENGINES["server"])

    prompt = seconds(Step.of_prefill(np.ones(len(batch)), tokens))
    between = seconds(Step.of_decode(batch, tokens + p.output_tokens / 2))
    if first:
        return _rows(p, batch, tokens, [prompt + between, batch * prompt])
    return _rows(p, batch, tokens, [between, batch * prompt / p.output_tokens])


def _step(
    p: Phase, batch: np.ndarray, tokens: np.ndarray, new: np.ndarray, attended: np.ndarray, sequences: np.ndarray
) -> list[Number]:
    f = facts(p.model)
    n = float(p.devices)
    bandwidth, flops = n * p.device.memory_bandwidth_bytes_s, n * peak_flops(p.device, "fp16")
    message = new * f.hidden * _BYTES * 2 * (n - 1) / n
    return [
        touched(f, new) * _BYTES / bandwidth,
        _BYTES * p.model.cache_elements(tokens, batch) / bandwidth,
        2 * (f.body + f.head * (sequences > 0)) * new / flops,
        2 * f.pair_width * attended / flops,
        f.layers * 1e-5,
        f.layers * 2e-5 * np.log2(n),
        f.layers * 2 * message / link_bytes_s(p.device, p.devices),
        np.maximum(sequences, 1.0) * 1e-5,
        1e-3,
    ]


def _rows(p: Phase, batch: np.ndarray, tokens: np.ndarray, components: list[Number]) -> Rows:
    f, rows = facts(p.model), len(batch)
    cache = np.log2(max(float(p.model.cache_elements(1.0)) / f.layers, 1.0))
    traits = [np.log(f.parameters), cache, np.log(f.head / f.hidden)]
    workload = [np.full(rows, np.log2(p.devices)), np.log2(batch), np.log2(tokens)]
    return Rows(
        np.stack(np.broadcast_arrays(batch, *components)[1:], axis=1).astype(np.float64),
        np.stack(workload, axis=1),
        np.tile(np.array(traits, dtype=np.float64), (rows, 1)),
        np.array([(p.runtime, p.device.vendor, p.device.id)] * rows, dtype=object).reshape(-1, 3),
        np.zeros(rows, dtype=bool),
    )
