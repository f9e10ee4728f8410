"""SGLang's simulator (tools/sglang-simulator): it runs SGLang's own scheduler and asks how long a batch takes.

Two ways in. `InferTime` has `predict_infer_time(batch)`, the method of the simulator's `InferTimePredictor`. And the
simulator as it is loads a regressor of 18 named features ("predictor": {"name": "ml"}), which `bundle` writes; these
features hold the sums of a batch. Source: the project's time_predictor/base.py and ml.py.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.llm import EngineBatch, StepTime

# The order is the simulator's contract: it refuses a bundle that lists others.
FEATURES: tuple[str, ...] = (
    *("batch_size", "sum_extend", "max_extend", "min_extend", "sum_past", "max_past", "min_past"),
    *("sum_extend_x_past", "sum_extend_squared", "sum_past_squared", "sum_attn_flops", "sum_extend_x_max_past"),
    *("log1p_sum_past", "log1p_sum_attn_flops", "batch_size_x_sum_extend", "max_past_minus_min_past"),
    *("is_decode", "is_prefill"),
)


class ScheduledRequest(Protocol):
    """One request of a batch: its new tokens, and its tokens in the cache."""

    extend_length: int
    past_kv_length: int


class ScheduledBatch(Protocol):
    """A batch as the simulator's scheduler makes it."""

    reqs: Sequence[ScheduledRequest]


class InferTime:
    """The time predictor of SGLang's simulator over a `StepTime`."""

    def __init__(self, steps: StepTime) -> None:
        """``steps``: of the deployment that is simulated."""
        self._steps = steps

    def predict_infer_time(self, batch: ScheduledBatch) -> float:
        """Seconds of ``batch``; 0 of an empty one. A request with one new token and a cache is a decode.

        Raises ArgumentError for negative lengths.
        """
        sizes = [(int(one.extend_length), int(one.past_kv_length)) for one in batch.reqs]
        chunks = [(new, past) for new, past in sizes if new > 1 or past == 0]
        contexts = [past for new, past in sizes if new == 1 and past]
        if len(chunks) + len(contexts) < len(sizes):
            raise ArgumentError(f"a request of a batch has at least one new token, got {min(sizes)}")
        return float(self._steps.seconds(EngineBatch.of(chunks, contexts))[0]) if sizes else 0.0


@dataclass(frozen=True)
class Regressor:
    """What the simulator's bundle holds: ``predict`` of rows of FEATURES."""

    steps: StepTime

    def predict(self, rows: Sequence[Sequence[float]]) -> np.ndarray:
        """Seconds [N] of N batches [N, 18]. Raises ArgumentError for another number of features."""
        table = np.asarray(rows, dtype=np.float64)
        if table.ndim != 2 or table.shape[1] != len(FEATURES):
            raise ArgumentError(f"a batch has {len(FEATURES)} features, got an array of shape {table.shape}")
        return self.steps.seconds(batches(dict(zip(FEATURES, table.T, strict=True))))


def batches(of: dict[str, np.ndarray]) -> EngineBatch:
    """N batches from their features [N].

    Exact where a batch has prompts alone, decodes alone, or decodes beside prompts of one length. Beside prompts of
    several lengths these count as the fewest that hold their tokens.
    """
    requests, new, past, longest = (of[name] for name in ("batch_size", "sum_extend", "sum_past", "max_extend"))
    mixed = (of["is_decode"] == 0) & (of["min_extend"] <= 1)
    more = np.maximum(longest - 1, 1)  # tokens of a prompt beyond the one that a decode has as well
    prompts = np.where(mixed, np.ceil((new - requests) / more - 1e-9), np.where(of["is_decode"] > 0, 0.0, requests))
    cached = np.where(mixed, (of["sum_extend_x_past"] - past) / more, np.where(of["is_decode"] > 0, 0.0, past))
    cached = np.clip(cached, 0.0, past)
    decodes = requests - prompts
    attended = of["sum_extend_x_past"] - (past - cached)
    attended += (of["sum_extend_squared"] - decodes + new - decodes) / 2
    return EngineBatch(
        prompt_tokens=np.maximum(new - decodes, 0.0),
        prompts=prompts,
        prompt_attended=np.where(prompts > 0, np.maximum(attended, 0.0), 0.0),
        prompt_cached=cached,
        decodes=decodes,
        decode_context=past - cached,
    )


def bundle(steps: StepTime) -> bytes:
    """A file for "database_path" of the predictor "ml", which `joblib.load` reads where perfpass is installed."""
    content: dict[str, Any] = {"model": Regressor(steps), "features": list(FEATURES)}
    return pickle.dumps(content, protocol=4)
