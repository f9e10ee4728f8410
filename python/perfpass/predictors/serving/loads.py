"""Many loads of one deployment at once: the figures of `predict_llm` as arrays.

What no load changes (the deployment's costs, its place among measured ones, the order of devices and models) is found
once; what is left is arithmetic on arrays of N loads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from perfpass.devices import Device
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.costs import ELEMENT_BYTES
from perfpass.llm.memory import served
from perfpass.llm.serving import Serving
from perfpass.prediction import WIDEST_FACTOR
from perfpass.predictors.energy.features import Served
from perfpass.predictors.energy.predictor import EnergyPredictor, unlike_records
from perfpass.predictors.estimate import Bounds
from perfpass.predictors.learned.width_words import NEAR_FROM, OUTSIDE_FROM
from perfpass.predictors.serving.base import Sizes
from perfpass.predictors.serving.energy import decoding
from perfpass.predictors.serving.order import Alone, InOrder, in_order, ordered
from perfpass.predictors.serving.predictor import ServingPredictor

_WIDE = f"bounds of its times are wider than a factor of {WIDEST_FACTOR:g} either way"


@dataclass(frozen=True, eq=False)
class Loads:
    """Figures [N] of N loads of one deployment, named as in `LlmPrediction`, and ``requests_per_s`` of all its GPUs.

    ``fits``: the probability that the weights and one request find room on each GPU; ``most_requests`` that run at
    once; ``support`` indexes SUPPORT_LEVELS; ``problem``: why there is no figure that says anything, else "".
    """

    ttft_ms: Bounds
    tpot_ms: Bounds
    request_ms: Bounds
    requests_per_s: Bounds
    output_tokens_per_s: Bounds
    fits: np.ndarray
    most_requests: np.ndarray
    support: np.ndarray
    problem: np.ndarray


class Once:
    """The predictor, asked of each deployment once, of one and the same loads: what bounds several is shared."""

    def __init__(self) -> None:
        self.predictor = ServingPredictor.load()
        self.manifest = self.predictor.manifest
        self._found: dict[tuple[LanguageModel, Device, Serving], Alone] = {}
        self.in_order: InOrder = cache(in_order)  # of boards that are asked of once and so are the same objects

    def alone(self, model: LanguageModel, device: Device, serving: Serving, sizes: Sizes) -> Alone:
        """The loads by themselves."""
        key = (model, device, serving)
        if key not in self._found:
            self._found[key] = self.predictor.alone(model, device, serving, sizes)
        return self._found[key]


def predict_loads(
    model: LanguageModel, device: Device, serving: Serving, sizes: Sizes, once: Once | None = None
) -> Loads:
    """The times of ``serving`` under each of the loads ``sizes`` [N]; the load of ``serving`` itself says nothing.

    ``serving``: of a runtime of `base.RUNTIMES`, and checked as `predict_llm` checks it. ``once``: what several
    deployments of these loads share.
    """
    once = once or Once()
    predictor = once.predictor
    own = once.alone(model, device, serving, sizes)
    found = ordered(once, own, once.in_order)
    ttft, tpot = found["ttft"], found["tpot"]
    rest = sizes.output_length - 1
    request = Bounds(*(getattr(ttft, b) + rest * getattr(tpot, b) for b in ("median", "low", "high")))
    rate = Bounds(*(1e3 * sizes.concurrency / getattr(request, b) for b in ("median", "high", "low")))
    output = Bounds(*(getattr(rate, b) * sizes.output_length for b in ("median", "low", "high")))
    fits, most, problem = _room(model, device, serving, sizes)
    says = np.logical_and.reduce([b.high <= WIDEST_FACTOR**2 * b.low for b in (ttft, tpot)])
    problem = np.where((problem == "") & ~says, _WIDE, problem)
    prompt, answer = sizes.input_length, sizes.output_length
    length = np.maximum(prompt, answer) if model.counts_sides_apart else prompt + answer
    beyond = predictor.is_beyond(model, device, serving, sizes) | (fits == 0.0) | (0 < model.max_positions < length)
    width = tpot.high / np.maximum(tpot.low, 1e-300)
    level = np.full(len(rest), 0 if own.evidence == "measured" else 1)
    level = np.where(beyond | (width > OUTSIDE_FROM), 2, np.where(width > NEAR_FROM, np.maximum(level, 1), level))
    return Loads(ttft, tpot, request, rate, output, fits, most, level.astype(np.int8), problem)


def _room(
    model: LanguageModel, device: Device, serving: Serving, sizes: Sizes
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[N] each: the probability that one request fits, how many do, and why none does, else ""."""
    rows = len(sizes.concurrency)
    fits, most, why = np.empty(rows), np.empty(rows, dtype=np.int64), np.empty(rows, dtype=object)
    lengths = np.stack([sizes.input_length, sizes.output_length], axis=1)
    pairs, inverse = np.unique(lengths, axis=0, return_inverse=True)
    for i, (prompt, answer) in enumerate(pairs.astype(int).tolist()):
        one = served(model, device, replace(serving, input_length=prompt, output_length=answer, concurrency=1.0))
        at = inverse.ravel() == i
        fits[at] = one.probability if one.fits else 0.0
        most[at], why[at] = one.most_requests, "" if one.fits else one.reason
    return fits, most, why


def energy_per_token(
    model: LanguageModel, device: Device, serving: Serving, sizes: Sizes, tokens_per_s: Bounds, tpot_ms: Bounds
) -> Bounds:
    """Joules [N] per output token of all GPUs at rates [N] of tokens and times [N] of one, as
    `perfpass.predictors.serving.energy`.
    """
    size = ELEMENT_BYTES[serving.quantization.moe if model.is_mixture else serving.quantization.gemm]
    batches = decoding(tokens_per_s.median, tpot_ms.median, serving.workers).tolist()
    asked = [
        Served(model, device, serving.gpus, batch, prompt, answer, weight_bytes=size)
        for batch, prompt, answer in zip(
            batches, sizes.input_length.tolist(), sizes.output_length.tolist(), strict=True
        )
    ]
    predictor = EnergyPredictor.load()
    more = unlike_records(asked[0], serving.runtime)
    found = predictor.serving_at_rates(asked, tokens_per_s.median, more)
    slow = predictor.serving_at_rates(asked, tokens_per_s.low).median
    fast = predictor.serving_at_rates(asked, tokens_per_s.high).median
    median = found.median
    low = np.hypot(np.log(median / found.low), np.log(np.maximum(median / np.minimum(fast, median), 1.0)))
    high = np.hypot(np.log(found.high / median), np.log(np.maximum(slow, median) / median))
    return Bounds(median, median * np.exp(-low), median * np.exp(high))
