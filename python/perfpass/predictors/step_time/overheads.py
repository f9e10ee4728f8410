"""What a step takes beyond its kernels, by engine, and how little else is fitted.

    seconds = least + beyond x what kernels take beyond it + layers x layer_s + step_s + requests x request_s

Kernels by themselves take longer than inside a step, where they overlap (``beyond``), but none less than the best share
of the peaks lets it; each layer has small kernels and gaps
(``layer_s``), each step its scheduler and launch (``step_s``), each request its place in both and its sampling
(``request_s``). In a closed loop every token also waits for its share of the prompts of others (``interference``).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

# The engines of the records; their order is part of the artefact.
RUNTIMES = ("vllm", "trtllm", "sglang")
# What each constant is, where its fit starts and what pulls it back: of an order that profiles of engines show.
BY_RUNTIME: Mapping[str, float] = {
    "step.layer_s": 20e-6,
    "step.step_s": 1e-3,
    "step.request_s": 10e-6,
    "step.interference": 1.0,
}
SHARED: Mapping[str, float] = {
    "step.beyond": 1.0,
    "step.acceptance": 0.7,  # chance that a draft token is kept, where those before it were
}
CONSTANTS = (*SHARED, *(f"{name}.{runtime}" for name in BY_RUNTIME for runtime in RUNTIMES))
# Without CUDA graphs the host issues every kernel. By hand: half of the 0.75 ms that eager transformers take of a layer
# on an A100, since engines fuse what follows each other; over the nine launches of a dense layer (`llm.costs`).
EAGER_LAUNCH_S = 40e-6


def prior() -> np.ndarray:
    """[CONSTANTS] logarithms of the starting values."""
    return np.log([*SHARED.values(), *(value for value in BY_RUNTIME.values() for _ in RUNTIMES)])


def of_runtimes(constants: Mapping[str, float], name: str) -> np.ndarray:
    """[RUNTIMES] values of one of BY_RUNTIME."""
    return np.array([constants[f"{name}.{runtime}"] for runtime in RUNTIMES])


def step_seconds(
    parts: np.ndarray, layers: np.ndarray, requests: np.ndarray, runtime: np.ndarray, c: Mapping[str, float]
) -> np.ndarray:
    """Seconds [N] of N steps: their ``parts`` [N, 2, PARTS], ``layers`` and ``requests`` [N] and engine's place [N]."""
    layer_s, step_s, request_s = (of_runtimes(c, f"step.{name}_s")[runtime] for name in ("layer", "step", "request"))
    return np.asarray(of_parts(parts, c) + layers * layer_s + step_s + requests * request_s)


def of_parts(parts: np.ndarray, c: Mapping[str, float]) -> np.ndarray:
    """Seconds [N] of ``parts`` [N, 2, PARTS], at least and beyond."""
    least, beyond = parts.sum(axis=2).T
    return np.asarray(least + c["step.beyond"] * beyond)
