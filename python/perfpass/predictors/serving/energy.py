"""Energy, power, offline throughput and cost of a serving prediction, from the predictors learned on other records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfpass.devices import Device
from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.costs import ELEMENT_BYTES
from perfpass.llm.serving import Serving
from perfpass.prediction import Interval, Support, SupportLevel
from perfpass.predictors.energy.features import Served
from perfpass.predictors.energy.predictor import EnergyPredictor, unlike_records
from perfpass.predictors.generation.features import RUNTIMES, Batch
from perfpass.predictors.generation.predictor import GenerationPredictor
from perfpass.predictors.learned.component_predictor import Learned
from perfpass.predictors.serving.prediction import LlmPrediction

_16_BITS = 2.0


def with_energy(found: LlmPrediction, model: LanguageModel, device: Device) -> LlmPrediction:
    """``found`` with joules per output token of all GPUs, mean watts of one, and offline tokens per second.

    Energy is that at the predicted rate of tokens: joules for bytes and FLOPs, watts while the GPUs are held. It was
    measured on vLLM of 2024 in 16 bits, aggregated; anything else widens the interval and is said. Power is energy
    times rate, between the device's idle and its limit. Offline throughput is left out for runtimes and splits
    without records.
    """
    energy = energy_per_token(found.serving, found.output_tokens_per_s, found.tpot_ms, model, device)
    watts = [v * found.output_tokens_per_s.median / found.serving.gpus for v in _bounds(energy.value)]
    low, median, high = (min(max(w, device.idle_power_w), device.power_limit_w) for w in watts)
    reasons = tuple(r for r in energy.support.reasons if r not in found.support.reasons)
    if found.switched:
        reasons += ("energy is that of a plain engine's work, at the rate with its switches",)
    return replace(
        found,
        energy_per_token_j=energy.value,
        power_w=Interval(median, low, high, "W", energy.value.coverage),
        # One batch without a server was measured on plain engines alone.
        offline_tokens_per_s=None if found.switched else _offline(found, model, device),
        support=Support(found.support.level, (*found.support.reasons, *reasons)),
        provenance={**found.provenance, "energy": {"kind": energy.kind, "support": energy.support.to_dict()}},
    )


def decoding(tokens_per_s: np.ndarray | float, tpot_ms: np.ndarray | float, workers: int) -> np.ndarray:
    """Requests [N] in a step of one of ``workers``, 1 at least, by Little's law: none that waits for room, for its
    prompt or for a full prefill replica is among them.
    """
    return np.maximum(np.asarray(tokens_per_s) * tpot_ms / 1e3 / workers, 1.0)


def _bounds(interval: Interval) -> tuple[float, float, float]:
    return interval.low, interval.median, interval.high


def energy_per_token(serving: Serving, rate: Interval, tpot: Interval, model: LanguageModel, device: Device) -> Learned:
    """Joules per output token of the whole deployment, prompts included, at a rate of output tokens a second and a time
    per output token in ms, which say how many requests share a step.
    """
    size = ELEMENT_BYTES[serving.quantization.moe if model.is_mixture else serving.quantization.gemm]
    served = Served(
        model,
        device,
        serving.gpus,
        float(decoding(rate.median, tpot.median, serving.workers)),
        serving.input_length,
        serving.output_length,
        weight_bytes=size,
    )
    predictor = EnergyPredictor.load()
    more = unlike_records(served, serving.runtime)
    energy = predictor.serving_at_rate(served, rate.median, more)
    beyond = []
    if size != _16_BITS:
        beyond.append("energy was learned from 16-bit weights only")
    if serving.mode != "agg":
        beyond.append("energy was learned from aggregated servers only; prefill workers count as the others")
    if serving.runtime != "vllm":
        beyond.append(f"energy was learned from vLLM only, not {serving.runtime}")
    # The rate's own bounds move the energy too; errors of the two are taken as independent, so squares add.
    value = energy.value
    slow = predictor.serving_at_rate(served, rate.low).value.median
    fast = predictor.serving_at_rate(served, rate.high).value.median
    low = np.hypot(np.log(value.median / value.low), np.log(max(value.median / min(fast, value.median), 1.0)))
    high = np.hypot(np.log(value.high / value.median), np.log(max(slow, value.median) / value.median))
    wider = Interval(
        value.median, value.median * float(np.exp(-low)), value.median * float(np.exp(high)), value.unit, value.coverage
    )
    level: SupportLevel = "outside" if beyond else energy.support.level
    return replace(energy, value=wider, support=Support(level, (*energy.support.reasons, *beyond)))


def _offline(found: LlmPrediction, model: LanguageModel, device: Device) -> Interval | None:
    serving = found.serving
    if serving.runtime not in RUNTIMES or serving.mode != "agg":
        return None
    try:
        batch = Batch(
            model,
            device,
            serving.runtime,
            serving.parallelism.gpus,
            max(round(serving.decoded), 1),
            serving.input_length,
            serving.output_length,
            serving.quantization.gemm,
        )
        one = GenerationPredictor.load().predict(batch).tokens_per_s
    except (ArgumentError, UnsupportedError):  # it does not fit, which `found.memory` says; or its bounds say nothing
        return None
    return one.scaled(serving.workers, one.unit)
