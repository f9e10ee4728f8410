"""What energy and power are made of, as the components that `perfpass.predictors.energy.predictor` weighs.

Joules per byte moved and per FLOP, watts over time that the devices wait (per step, per layer, per token); power itself
as idle, and shares of the limit by what the time is spent on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfpass.devices import Device
from perfpass.errors import ArgumentError
from perfpass.llm.architecture import LanguageModel
from perfpass.predictors.generation.features import facts, peak_flops, touched
from perfpass.predictors.learned.components import Form, Rows, Term

# What makes intervals of energy and power wide (`learned.component_widths`); the last three tell of servers alone.
CAUSES = (
    *("measurement", "laboratory", "unlike", "model", "network", "data set", "device", "load"),
    *("vendor", "runtime", "precision"),
)
# Prompt lengths that the source of serving energy does not state; its data sets are public (ShareGPT, EvalPlus, LLaVA).
PROMPT_TOKENS = {"chat": 200, "code": 150, "mllm": 120}
# Tokens that a picture becomes, by the models' published processors (LLaVA-NeXT at its usual, the 16 crops of Phi-3
# vision at their largest extent).
IMAGE_TOKENS = {
    "facebook/chameleon-7b": 1024,
    "facebook/chameleon-30b": 1024,
    "llava-hf/llava-1.5-7b-hf": 576,
    "llava-hf/llava-1.5-13b-hf": 576,
    "llava-hf/llama3-llava-next-8b-hf": 2200,
    "microsoft/Phi-3-vision-128k-instruct": 2509,
}
# Time that a layer of a decode step waits, and more where devices exchange: what steps take beyond the time of reading
# weights in LLM-Inference-Bench (7B on one board) and splitwise-sim (70B on 2 to 8), to one digit.
_LAYER_WAIT_S = 1e-4
_EXCHANGE_WAIT_S = 2e-4
# Share of its limit that a board draws while it is held, whatever it does: ML.ENERGY's servers, whose factors of "held"
# below are 2.09 (A100) and 2.18 (H100) tenths. Batches of one board never wait, so they cannot tell it from their work.
HELD_SHARE = 0.21
_LLM_TRAITS = {"log_parameters": 1.5, "log_active": 1.5, "log_cache": 2.0, "log_vocabulary": 3.0, "log_layers": 2.0}

SERVING = Form(
    components=(
        "weights",
        "cache",
        "flops",
        "prefill_flops",
        "messages",
        "message_wait",
        "token_wait",
        "step_wait",
        "layer_wait",
    ),
    workload={"log2_batch": 3.0, "log2_devices": 2.0, "log_output": 2.0},
    traits=_LLM_TRAITS,
    categories=("device", "task", "model"),
    levels=((), ("device",)),
    averaged=(),
    terms=(
        Term(0.03),
        Term(0.02, ("device",), traits=False),
        Term(0.02, ("task",), traits=False),
        Term(0.02, ("device",)),
        Term(0.02, ("task",), workload=False),
        Term(0.02, ("model",), traits=False),
        Term(0.01, ("model",), workload=False, traits=False),
    ),
    noise=0.002,
    support=("device unseen", "seen"),
)
# With the rate of tokens known, time is: what is left are joules moved and computed, and watts while the GPUs are held.
SERVING_AT_RATE = Form(
    components=("held", "weights", "cache", "flops", "prefill_flops", "messages"),
    workload={"log2_batch": 3.0, "log2_devices": 2.0, "log_output": 2.0, "log_held": 2.0},
    traits=_LLM_TRAITS,
    categories=("device", "task", "model"),
    levels=((), ("device",)),
    averaged=(),
    terms=SERVING.terms,
    noise=0.002,
    support=("device unseen", "seen"),
)
BATCH1 = Form(
    components=("weights", "cache", "flops", "layer_wait", "token_wait", "request"),
    workload={"log_output": 1.0},
    traits=_LLM_TRAITS,
    categories=("device", "task", "model"),
    levels=((), ("device",)),
    averaged=(),
    terms=SERVING.terms,
    noise=0.004,
    support=("device unseen", "seen"),
)
DIFFUSION = Form(
    components=("denoising", "pixels", "attention", "waiting", "rest"),
    workload={"log2_batch": 3.0, "log_pixels": 2.0},
    traits={"log_denoising": 1.0, "log_total": 1.0, "log_frames": 1.0},
    categories=("device", "task", "model"),
    levels=((), ("device",)),
    averaged=(),
    terms=(
        Term(0.1),
        Term(0.02, ("device",), traits=False),
        Term(0.05, ("task",), workload=False),
        Term(0.05, ("model",), workload=False, traits=False),
        Term(0.02, ("model", "device"), traits=False),
    ),
    noise=0.001,
    support=("device unseen", "seen"),
)
OFFLINE_POWER = Form(
    components=("memory_use", "compute_use", "held"),
    workload={"log2_devices": 2.0, "log2_batch": 4.0, "log2_input": 4.0, "log2_output": 4.0},
    traits={"log_parameters": 2.0, "log_cache": 3.0},
    categories=("device", "runtime", "source"),
    levels=((), ("source",), ("source", "device")),
    averaged=(),
    terms=(
        Term(0.02, ("device", "runtime")),
        Term(0.01, ("device",), traits=False),
        Term(0.01, ("runtime",), workload=False, traits=False),
        Term(0.01),
    ),
    noise=0.0005,
    support=("source unseen", "device unseen", "seen"),
    given=(("held", HELD_SHARE),),
)
TRAINING_POWER = Form(
    components=("idle", "size", "limit"),
    workload={"log2_batch": 3.0, "log_limit_share": 0.5, "log_size": 1.0},
    traits={"one": 1.0},
    categories=("network", "task", "device"),
    levels=((), ("network",), ("task",), ("task", "device")),
    averaged=(),
    terms=(
        Term(0.05, ("network",), traits=False),
        Term(0.05, ("task",), traits=False),
        Term(0.02, ("task", "device"), traits=False),
        Term(0.02, ("device",), traits=False),
    ),
    noise=0.002,
    support=("network unseen", "data set unseen", "device unseen", "seen"),
)
SERVER_POWER = Form(
    components=("host", "idle", "boards"),
    workload={"log2_boards": 1.5, "log_limit": 1.0},
    traits={"one": 1.0},
    categories=("device", "model", "scenario", "organization"),
    levels=((), ("device",)),
    averaged=(),
    terms=(
        Term(0.05, ("device",), traits=False),
        Term(0.02, ("device", "model"), traits=False),
        Term(0.02, ("device", "organization"), traits=False),
        Term(0.02, ("organization",), workload=False, traits=False),
        Term(0.02, ("model",), workload=False, traits=False),
        Term(0.05, workload=True, traits=False),
    ),
    noise=0.004,
    support=("device unseen", "seen"),
)


@dataclass(frozen=True)
class Served:
    """Serving under load on ``devices`` GPUs: ``mean_batch`` sequences in a step on average.

    ``input_tokens`` and ``output_tokens``: means of a request. ``task``: chat, code or mllm, a habit of the load; empty
    for none of these. ``weight_bytes``: of one weight as stored; only 2 was measured.
    """

    model: LanguageModel
    device: Device
    devices: int
    mean_batch: float
    input_tokens: float
    output_tokens: float
    task: str = ""
    weight_bytes: float = 2.0

    def __post_init__(self) -> None:
        for name in ("devices", "mean_batch", "input_tokens", "output_tokens", "weight_bytes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not np.isfinite(value) or not 0 < value <= 1e7:
                raise ArgumentError(f"{name} must be a number above 0 and at most 10,000,000, got {value!r}")


def _llm_traits(model: LanguageModel, context: float) -> list[float]:
    f = facts(model)
    cache = 2.0 * model.cache_elements(context)
    return [float(np.log(v)) for v in (f.parameters, f.body + f.head, max(cache, 1.0), f.head / f.hidden, f.layers)]


def serving_rows(served: Sequence[Served]) -> Rows:
    """Rows of `SERVING`: joules per output token of all GPUs together."""
    components, workload, traits = [], [], []
    for s in served:
        f = facts(s.model)
        n, batch = float(s.devices), float(s.mean_batch)
        context = s.input_tokens + s.output_tokens / 2
        flops = 2 * (f.body + f.head)
        several = n > 1
        components.append(
            [
                s.weight_bytes * touched(f, batch) / batch * 1e-9,
                2.0 * s.model.cache_elements(context) * 1e-9,
                flops * 1e-12,
                flops * s.input_tokens / s.output_tokens * 1e-12,
                several * f.layers * f.hidden * n * 1e-6,
                several * n * f.layers / batch * 1e-3,
                n * 1e-2,
                n * f.layers / batch * 1e-3,
                n * f.layers * 1e-4,
            ]
        )
        workload.append([np.log2(batch), np.log2(n), np.log(s.output_tokens)])
        traits.append(_llm_traits(s.model, 500.0))
    categories = [(s.device.id, s.task, s.model.name) for s in served]
    return _rows(components, workload, traits, categories)


def serving_at_rate_rows(served: Sequence[Served], tokens_per_s: Sequence[float]) -> Rows:
    """Rows of `SERVING_AT_RATE`: joules per output token where ``tokens_per_s`` [N] of each deployment are known."""
    plain = serving_rows(served)
    kept = [SERVING.components.index(name) for name in SERVING_AT_RATE.components[1:]]
    held = np.array(
        [0.1 * s.device.power_limit_w * s.devices / rate for s, rate in zip(served, tokens_per_s, strict=True)]
    )
    workload = np.concatenate([plain.workload, np.log(held)[:, None]], axis=1)
    components = np.concatenate([held[:, None], plain.components[:, kept]], axis=1)
    return Rows(components, workload, plain.traits, plain.categories, plain.apart)


def batch1_rows(served: Sequence[Served]) -> Rows:
    """Rows of `BATCH1`: joules per response of one GPU in eager PyTorch."""
    components, workload, traits = [], [], []
    for s in served:
        f = facts(s.model)
        out = float(s.output_tokens)
        device = s.device
        components.append(
            [
                2 * f.parameters * out * 1e-9,
                2.0 * s.model.cache_elements(s.input_tokens + out / 2) * out * 1e-9,
                2 * (f.body + f.head) * (out + s.input_tokens) * 1e-12,
                f.layers * out * device.power_limit_w * 1e-5,
                out * device.power_limit_w * 1e-3,
                device.power_limit_w * 0.1,
            ]
        )
        workload.append([np.log(out)])
        traits.append(_llm_traits(s.model, 500.0))
    categories = [(s.device.id, s.task, s.model.name) for s in served]
    return _rows(components, workload, traits, categories)


@dataclass(frozen=True)
class Diffused:
    """A diffusion pipeline: parameters (10^9) of all parts and of the part that each denoising step runs."""

    device: Device
    model: str
    task: str
    total_b: float
    denoising_b: float
    width: int
    height: int
    steps: int
    frames: int
    batch: int


def diffusion_rows(runs: Sequence[Diffused]) -> Rows:
    """Rows of `DIFFUSION`: joules per picture or video. Latents are taken as an eighth of the picture per side."""
    components, workload, traits = [], [], []
    for r in runs:
        pixels = float(r.width * r.height) * r.frames
        latents = pixels / 64
        work = r.steps * latents
        components.append(
            [
                work * r.denoising_b * 1e-4,
                pixels * 1e-5,
                r.steps * latents * (latents / r.frames) * 1e-8,
                r.steps * r.device.power_limit_w / r.batch * 1e-1,
                r.device.power_limit_w * r.total_b / r.batch * 1e-1,
            ]
        )
        workload.append([np.log2(r.batch), np.log(pixels)])
        traits.append([np.log(r.denoising_b), np.log(r.total_b), np.log(r.frames)])
    return _rows(components, workload, traits, [(r.device.id, r.task, r.model) for r in runs])


def _rows(components: list, workload: list, traits: list, categories: list) -> Rows:  # type: ignore[type-arg]
    return Rows(
        np.array(components, dtype=np.float64),
        np.array(workload, dtype=np.float64),
        np.array(traits, dtype=np.float64),
        np.array(categories, dtype=object),
        np.zeros(len(components), dtype=bool),
    )


@dataclass(frozen=True)
class Offline:
    """A batch of equal requests whose mean power is asked for; ``source``: how power was read (argonne: NVML mean)."""

    model: LanguageModel
    device: Device
    devices: int
    runtime: str
    batch: int
    input_tokens: int
    output_tokens: int
    source: str = "argonne"


def offline_power_rows(runs: Sequence[Offline]) -> Rows:
    """Rows of `OFFLINE_POWER`: watts of all devices. Uses are shares of prefill's and decode's time at peak."""
    components, workload, traits = [], [], []
    for r in runs:
        f = facts(r.model)
        flops = peak_flops(r.device, "fp16") * r.devices
        bandwidth = r.device.memory_bandwidth_bytes_s * r.devices
        cache = 2.0 * r.model.cache_elements(r.input_tokens + r.output_tokens / 2, r.batch)
        memory_s = r.output_tokens * (2 * touched(f, r.batch) + cache) / bandwidth
        compute_s = 2 * (f.body + f.head) * r.batch * (r.input_tokens + r.output_tokens) / flops
        wait_s = r.output_tokens * f.layers * (_LAYER_WAIT_S + (_EXCHANGE_WAIT_S if r.devices > 1 else 0.0))
        total = memory_s + compute_s + wait_s
        limit = r.devices * r.device.power_limit_w
        components.append([limit * memory_s / total, limit * compute_s / total, limit])
        workload.append([np.log2(r.devices), np.log2(r.batch), np.log2(r.input_tokens), np.log2(r.output_tokens)])
        traits.append([np.log(f.parameters), np.log(max(r.model.cache_elements(1.0), 1.0))])
    return _rows(components, workload, traits, [(r.device.id, r.runtime, r.source) for r in runs])


@dataclass(frozen=True)
class Trained:
    """Training of a network on a data set with a GPU power limit in W."""

    device: Device
    network: str
    dataset: str
    batch: int
    power_limit_w: float


def training_power_rows(runs: Sequence[Trained]) -> Rows:
    """Rows of `TRAINING_POWER`: watts."""
    components, workload, categories = [], [], []
    for r in runs:
        full = r.device.power_limit_w
        limit = min(r.power_limit_w, full)
        components.append([r.device.idle_power_w, 0.1 * full, limit])
        workload.append([np.log2(r.batch), np.log(limit / full), np.log(full)])
        categories.append((r.network, f"{r.network}/{r.dataset}", r.device.id))
    return _rows(components, workload, [[1.0]] * len(runs), categories)


@dataclass(frozen=True)
class Server:
    """A whole server under an MLPerf Inference load."""

    device: Device
    boards: int
    model: str
    scenario: str
    organization: str = ""


def server_power_rows(runs: Sequence[Server]) -> Rows:
    """Rows of `SERVER_POWER`: watts at the wall."""
    components = [[100.0, r.boards * r.device.idle_power_w, r.boards * r.device.power_limit_w] for r in runs]
    workload = [[np.log2(r.boards), np.log(r.device.power_limit_w)] for r in runs]
    categories = [(r.device.id, r.model, r.scenario, r.organization) for r in runs]
    return _rows(components, workload, [[1.0]] * len(runs), categories)
