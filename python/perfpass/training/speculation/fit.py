"""Eager PyTorch's steps, and the five constants of them that measured speed-ups tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.optimize import least_squares

from perfpass.devices import Device
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.batch import EngineBatch
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import Parallelism, Quantization, peak_flops, step_costs
from perfpass.llm.speculation import METHODS, Speculation
from perfpass.predictors.switches.speculative import SpeculativeSteps

# Where the fit starts, and how far a logarithm is expected to move: a layer of eager PyTorch takes some 0.75 ms of a
# host (transformers on an A100), as other passes and trees take some milliseconds; shares of a device's peaks.
CONSTANTS: dict[str, tuple[float, float]] = {
    "layer_s": (0.75e-3, 0.3),
    "pass_s": (1e-3, 0.5),
    "tree_s": (2e-3, 0.5),
    "memory": (0.8, 0.1),
    "compute": (0.6, 0.2),
}
_NOISE = 0.05
_SHARPNESS = 4.0
# Tokens in the cache on average, which the source does not state: prompts of 480 questions and half an answer. A tenth
# of the weights' bytes at most, so next to nothing follows from it.
CONTEXT = 600.0
# double7/vicuna-68m, the draft model of Spec-Bench's SpS (its config.json).
_DRAFT = {
    "model_type": "llama",
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 2,
    "num_attention_heads": 12,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
}
_FP16 = Quantization("fp16", "fp16", "fp16")


@dataclass(frozen=True)
class EagerSteps:
    """A `StepTime` of transformers without a server on one device: a host that issues every layer, a device that reads
    and computes; the longer counts.
    """

    model: LanguageModel
    device: Device
    constants: tuple[float, ...]

    def seconds(self, batch: EngineBatch) -> np.ndarray:
        """Seconds [N] of N steps of decodes."""
        layer_s, pass_s, _, memory, compute = self.constants
        costs = step_costs(self.model, Parallelism(), _FP16, batch.decode())
        peak = peak_flops(self.device.peak_flops, "fp16") * compute
        read = [work.memory_bytes / (self.device.memory_bandwidth_bytes_s * memory) for work in costs.parts.values()]
        done = [work.flops / peak for work in costs.parts.values()]
        device_s = sum((r**_SHARPNESS + d**_SHARPNESS) ** (1 / _SHARPNESS) for r, d in zip(read, done, strict=True))
        host_s = pass_s + layer_s * self.model.layer_count
        return np.atleast_1d((device_s**_SHARPNESS + host_s**_SHARPNESS) ** (1 / _SHARPNESS))

    def one(self, *sizes: float) -> float:
        """Seconds of one step."""
        return float(self.seconds(EngineBatch(*sizes))[0])

    def decode_run(self, decodes: float, decode_context: float, steps: float) -> float:
        """Seconds of ``steps`` steps, by the middle one."""
        return steps * self.one(0.0, 0.0, 0.0, 0.0, decodes, decode_context + decodes * (steps - 1) / 2)


@dataclass(frozen=True)
class Question:
    """A method on a model and a device: its mean ``tokens`` of a step."""

    model: LanguageModel
    device: Device
    method: str
    tokens: float


@lru_cache(maxsize=1)
def draft_model() -> LanguageModel:
    """The draft model of Spec-Bench's SpS."""
    return language_model(_DRAFT, "vicuna-68m")


def speedup(asked: Question, constants: tuple[float, ...]) -> float:
    """Plain decoding's seconds a token over those with the method, one request at a time."""
    known = METHODS[asked.method]
    draft = draft_model() if known.drafted_by == "model" else None
    tree = max(known.verified, known.depth)
    speculation = Speculation.of(asked.method, draft=draft, verified=tree, tokens=asked.tokens)
    target = EagerSteps(asked.model, asked.device, constants)
    drafter = speculation.drafter(asked.model)
    steps = SpeculativeSteps(target, EagerSteps(drafter, asked.device, constants) if drafter else None, speculation)
    batch = EngineBatch(decodes=1.0, decode_context=CONTEXT)
    in_tree = constants[2] if known.verified > known.depth else 0.0
    plain, speculative = float(target.seconds(batch)[0]), float(steps.seconds(batch)[0])
    return steps.tokens * plain / (speculative + in_tree)


def start() -> tuple[float, ...]:
    """The constants before any fit."""
    return tuple(value for value, _ in CONSTANTS.values())


def fit(asked: Sequence[Question], measured: np.ndarray) -> tuple[float, ...]:
    """The constants at which measured speed-ups [N] are met best, not far from where they start."""
    first = np.log(start())
    expected = np.array([spread for _, spread in CONSTANTS.values()])

    def residuals(logarithms: np.ndarray) -> np.ndarray:
        constants = tuple(np.exp(logarithms).tolist())
        off = [np.log(speedup(one, constants) / value) for one, value in zip(asked, measured, strict=True)]
        return np.concatenate([np.array(off) / _NOISE, (logarithms - first) / expected])

    found = least_squares(residuals, first, x_scale=expected)
    return tuple(np.exp(found.x).tolist())


def at(asked: Question, tokens: float) -> Question:
    """The same with other tokens a step."""
    return replace(asked, tokens=tokens)
