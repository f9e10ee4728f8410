"""Serving on stacks that the serving records do not have: times under load learned from second sources.

`perfpass.predictors.generation.phases` holds them, per runtime and device. On the records behind it, it errs by 32 to
43 % to the first token and 16 to 18 % between tokens for a device or model held out; the serving predictor, asked for
vLLM, by 60 and 35 % (data/results/accuracy/generation.md).
"""

from __future__ import annotations

from perfpass.devices import Device
from perfpass.errors import ArgumentError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.costs import ELEMENT_BYTES
from perfpass.llm.memory import served
from perfpass.llm.serving import Serving, check_gpu
from perfpass.prediction import Support, SupportLevel
from perfpass.predictors import layer_kinds
from perfpass.predictors.generation.phase_features import Phase
from perfpass.predictors.generation.phases import PhasePredictor, loaded
from perfpass.predictors.learned import width_words
from perfpass.predictors.serving.prediction import LlmPrediction, prediction_of

_16_BITS = 2.0


def predict(model: LanguageModel, device: Device, serving: Serving) -> LlmPrediction:
    """All metrics of one workload but energy. Raises ArgumentError for a CPU and for prefill workers."""
    check_gpu(device)
    if serving.mode != "agg":
        raise ArgumentError(f"{serving.runtime} has no prefill workers; leave them out, or take vllm, trtllm or sglang")
    split = serving.parallelism
    users = max(serving.concurrency / (serving.workers * split.attention_data), 1.0)
    phase = Phase(
        model, device, split.tensor, serving.runtime, round(users), serving.input_length, serving.output_length
    )  # fmt: skip
    first, between = (loaded(f"loaded_{name}", phase, users) for name in ("first_token", "between_tokens"))
    first_token, per_token = (layer_kinds.wider(found.value, model) for found in (first, between))
    memory = served(model, device, serving)
    beyond = []
    if split.pipeline > 1:
        beyond.append("no run with pipeline parallelism to learn from")
    if any(ELEMENT_BYTES[q] != _16_BITS for q in (serving.quantization.gemm, serving.quantization.moe)):
        beyond.append("only 16-bit weights were measured; the times are those of 16 bits")
    if not memory.fits:
        beyond.append("the weights and one request do not fit into memory: the times are those of a larger device")
    predictor = PhasePredictor.load()
    wide = (
        *predictor.why("loaded_between_tokens", phase, "time per output token", per_token),
        *predictor.why("loaded_first_token", phase, "time to first token", first_token),
    )
    unknown = layer_kinds.reasons(model)
    reasons = dict.fromkeys((*first.support.reasons, *between.support.reasons, *beyond, *unknown, *wide))
    levels: tuple[SupportLevel, ...] = ("outside", "near", "in range")
    found = {first.support.level, between.support.level, *(("outside",) if beyond else ())}
    level = width_words.level_of(per_token, next(level for level in levels if level in found))
    return prediction_of(
        model,
        device,
        serving,
        first_token.scaled(1e3, "ms"),
        per_token.scaled(1e3, "ms"),
        memory=memory,
        support=Support(level, tuple(reasons)),
        breakdown={},
        provenance={
            "kind": "learned",
            "evidence": between.evidence,
            "corpus": predictor.corpus["loaded_between_tokens"],
        },
    )
