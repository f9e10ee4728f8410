"""What the phases of a request cost physically: prefill and one decode step, alone and on a server under load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfpass.devices import Device
from perfpass.errors import ArgumentError
from perfpass.llm.architecture import LanguageModel
from perfpass.predictors.generation.features import facts, link_bytes_s, peak_flops, touched
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
    categories=("runtime", "device"),
    levels=((), ("runtime",), ("runtime", "device")),
    averaged=(),
    terms=_TERMS,
    noise=0.002,
    support=("runtime unseen", "device unseen", "seen"),
)
LOADED = Form(
    components=(*_COMPONENTS, "queue"),
    workload={"log2_devices": 2.0, "log2_users": 3.0, "log2_tokens": 7.0},
    traits=_TRAITS,
    categories=("runtime", "device"),
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
    """Rows of `ALONE`: seconds until all first tokens are there."""
    return _rows([_step(p, float(p.batch * p.tokens), p.batch * p.tokens**2 / 2.0, 0.0) for p in phases], phases)


def decode_rows(phases: Sequence[Phase]) -> Rows:
    """Rows of `ALONE`: seconds of one step that gives each sequence a token."""
    return _rows([_step(p, float(p.batch), float(p.batch * p.tokens), float(p.batch)) for p in phases], phases)


def loaded_rows(phases: Sequence[Phase], *, first: bool) -> Rows:
    """Rows of `LOADED`: seconds to the first token (``first``), or between tokens, with all users' requests under way.

    Requests that arrive while others are served wait for their steps; the last component is the prefill of all users.
    """
    described = []
    for p in phases:
        tokens = float(p.tokens) if first else float(p.batch)
        one = _step(p, tokens, p.tokens**2 / 2.0 if first else float(p.batch * p.tokens), float(p.batch))
        f = facts(p.model)
        rate = p.devices * peak_flops(p.device, "fp16")
        others = 2 * (f.body + f.head) * p.batch * (p.tokens + (p.output_tokens if first else 0)) / rate
        described.append([*one, others])
    return _rows(described, phases)


def _step(p: Phase, tokens: float, attended: float, sequences: float) -> list[float]:
    f = facts(p.model)
    n = float(p.devices)
    bandwidth, flops = n * p.device.memory_bandwidth_bytes_s, n * peak_flops(p.device, "fp16")
    message = tokens * f.hidden * _BYTES * 2 * (n - 1) / n
    return [
        touched(f, tokens) * _BYTES / bandwidth,
        _BYTES * p.model.cache_elements(float(p.tokens), p.batch) / bandwidth,
        2 * (f.body + (f.head if sequences else 0.0)) * tokens / flops,
        2 * f.pair_width * attended / flops,
        f.layers * 1e-5,
        f.layers * 2e-5 * np.log2(n),
        f.layers * 2 * message / link_bytes_s(p.device),
        max(sequences, 1.0) * 1e-5,
        1e-3,
    ]


def _rows(components: list[list[float]], phases: Sequence[Phase]) -> Rows:
    workload = [[np.log2(p.devices), np.log2(p.batch), np.log2(p.tokens)] for p in phases]
    traits = []
    for p in phases:
        f = facts(p.model)
        cache = np.log2(max(p.model.cache_elements(1.0) / f.layers, 1.0))
        traits.append([np.log(f.parameters), cache, np.log(f.head / f.hidden)])
    return Rows(
        np.array(components, dtype=np.float64),
        np.array(workload, dtype=np.float64),
        np.array(traits, dtype=np.float64),
        np.array([(p.runtime, p.device.id) for p in phases], dtype=object),
        np.zeros(len(components), dtype=bool),
    )
