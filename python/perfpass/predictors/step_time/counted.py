"""Parts of a step by their FLOPs and bytes, each the longer of its computing and its memory traffic."""

from __future__ import annotations

import numpy as np

from perfpass.llm.costs import Step, peak_flops, step_costs
from perfpass.predictors.step_time.setup import (
    ATTENDED,
    BEST_COMPUTE,
    BEST_MEMORY,
    CHUNKS,
    COMPUTE,
    CONTEXT,
    DECODES,
    MEMORY,
    MEMORY_CACHE,
    MEMORY_EXPERTS,
    MESSAGE_S,
    REQUESTS,
    TOKENS,
    WIRE,
    Setup,
    messages_bytes_s,
)

_SHARPNESS = 4.0


class Counted:
    """Seconds of the parts by their FLOPs and bytes, at the nodes of the tables."""

    def __init__(self, setup: Setup, *, best: bool = False) -> None:
        """At usual shares of the peaks, or at the ``best``, with messages that take no time."""
        self._s, self._best = setup, best

    def _work(self, step: Step) -> dict[str, np.ndarray]:
        """Seconds [N] by component (`llm.costs.COMPONENTS`)."""
        s, out = self._s, {}
        memory = {"experts": MEMORY_EXPERTS, "attention": MEMORY_CACHE, "recurrence": MEMORY_CACHE}
        link = messages_bytes_s(s.device, s.split) * WIRE
        for name, work in step_costs(s.model, s.split, s.quantization, step).parts.items():
            flops = np.asarray(work.flops / peak_flops(s.device.peak_flops, work.precision))
            moved = np.asarray(work.memory_bytes / s.device.memory_bandwidth_bytes_s)
            if self._best:
                out[name] = np.maximum(flops / BEST_COMPUTE, moved / BEST_MEMORY)
                continue
            longer = (flops / COMPUTE) ** _SHARPNESS + (moved / memory.get(name, MEMORY)) ** _SHARPNESS
            out[name] = np.asarray(longer ** (1 / _SHARPNESS) + work.message_bytes / link + work.messages * MESSAGE_S)
        return out

    def tokens(self) -> np.ndarray:
        """[BY_TOKENS, TOKENS]."""
        n, none = TOKENS, np.zeros(len(TOKENS))
        found = self._work(Step(n, none, none, none, none, decode=True))
        products = found["projections"] + found["dense_mlp"] + found["shared_experts"] + found["recurrence"]
        out = np.stack([products, *(found[name] + none for name in ("experts", "elementwise", "collectives"))])
        return np.where(n > 0, out, 0.0)

    def logits(self) -> np.ndarray:
        """[REQUESTS]."""
        n, none = REQUESTS, np.zeros(len(REQUESTS))
        return np.where(n > 0, self._work(Step(none, n, none, none, n, decode=True))["logits"], 0.0)

    def prompt(self, *, whole: bool) -> np.ndarray:
        """[CHUNKS] of the attention of one prompt, or of all of its step (``whole``)."""
        step = Step.of_prefill(np.minimum(CHUNKS, 1.0), CHUNKS)
        return np.where(CHUNKS > 0, self._of(step, whole=whole), 0.0)

    def attention(self, *, prefill: bool, whole: bool) -> np.ndarray:
        """[CHUNKS, ATTENDED], or [DECODES, CONTEXT], of attention, or of all of the steps (``whole``)."""
        first, second = (CHUNKS, ATTENDED) if prefill else (DECODES, CONTEXT)
        n, total = (v.ravel() for v in np.meshgrid(first, second, indexing="ij"))
        total = np.maximum(total, n)
        one = np.minimum(n, 1.0)
        step = Step(n, one, total, 0.0 * n, one, decode=False) if prefill else Step(n, n, total, total, n, decode=True)
        return np.where(n > 0, self._of(step, whole=whole), 0.0).reshape(len(first), len(second))

    def _of(self, step: Step, *, whole: bool) -> np.ndarray:
        found = self._work(step)
        return np.asarray(sum(found.values())) if whole else found["attention"]
