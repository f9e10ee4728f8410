"""Prefill and decode time of language models, alone or on a loaded server, learned from second sources.

`perfpass.predictors.serving` knows current serving stacks on current boards. These records add batches without a
server, older boards (A10 to A100, T4), a server of 2023 under load, and accelerators of other vendors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from perfpass.errors import ArgumentError
from perfpass.llm.costs import ELEMENT_BYTES
from perfpass.prediction import Interval, Support
from perfpass.predictors.generation import phase_features as features
from perfpass.predictors.generation.features import ONE_SEQUENCE, Batch, overflow
from perfpass.predictors.generation.prediction import Offline
from perfpass.predictors.learned.component_predictor import ComponentPredictor, Learned
from perfpass.predictors.learned.components import UNSEEN_MODEL, Form, Rows

QUANTITIES: Mapping[str, tuple[Form, str]] = {
    "prefill": (features.ALONE, "s"),
    "decode": (features.ALONE, "s"),
    "loaded_first_token": (features.LOADED, "s"),
    "loaded_between_tokens": (features.LOADED, "s"),
}


_16_BITS = 2.0
# The prompt takes at most this share of a batch's time where the two predictors disagree. By hand.
_MOST_PROMPT = 0.8


class PhasePredictor(ComponentPredictor):
    """The times of `QUANTITIES`, from a trained artefact; NumPy alone."""

    AREA = "generation"
    QUANTITIES = QUANTITIES
    OUTSIDE = ("runtime unseen",)

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> PhasePredictor:
        """The shipped predictor, read once per process."""
        return PhasePredictor()

    def predict(self, quantity: str, phase: features.Phase) -> Learned:
        """Seconds of "prefill" (all first tokens of a batch), "decode" (one step), and, with ``batch`` users,
        "loaded_first_token" (queueing included) or "loaded_between_tokens". Raises ArgumentError for another.
        """
        return self.one(quantity, _rows(quantity, phase))


def _rows(quantity: str, phase: features.Phase) -> Rows:
    if quantity == "prefill":
        return features.prefill_rows([phase])
    if quantity == "decode":
        return features.decode_rows([phase])
    if quantity in QUANTITIES:
        return features.loaded_rows([phase], first=quantity == "loaded_first_token")
    raise ArgumentError(f"quantity {quantity!r}; allowed are {', '.join(QUANTITIES)}")


def with_phases(found: Offline, batch: Batch) -> Offline:
    """``found`` with the times of its prompt and of a token.

    The prompt is that of the phases: for a model or a device without records they err by a seventh or less of what the
    latency split up does (data/results/accuracy/generation.md). The token takes what the prompt leaves of the latency,
    which was measured on the same software; but where the latency was never measured in this runtime on this device and
    the phases were, it is theirs.
    """
    if ELEMENT_BYTES[batch.precision] != _16_BITS:
        return found
    waves = max(overflow(batch), 1.0)
    phase = features.Phase(
        batch.model,
        batch.device,
        1 if batch.runtime in ONE_SEQUENCE else batch.devices,  # its devices hold layers each: a pipeline
        batch.runtime,
        max(int(batch.sequences / waves), 1),
        batch.input_tokens,
    )
    predictor = PhasePredictor.load()
    prompt = predictor.predict("prefill", phase)
    token, support = _rest(found.latency_s, prompt.value, waves, batch.output_tokens), found.support
    if found.provenance["evidence"].removesuffix(UNSEEN_MODEL) != "seen":
        decode = predictor.predict("decode", phase)
        if decode.evidence.removesuffix(UNSEEN_MODEL) == "seen":
            token, support = decode.value, decode.support
    reasons = [f"prompt: {reason}" for reason in prompt.support.reasons]
    parts = (("time to first token", prompt.value), ("time per output token", token))
    reasons += [
        f"{name} left out: its bounds are too wide to say anything" for name, v in parts if not v.says_something
    ]
    return replace(
        found,
        prompt_s=prompt.value if prompt.value.says_something else None,
        token_s=token if batch.output_tokens > 1 and token.says_something else None,
        support=Support(found.support.level, (*found.support.reasons, *reasons)),
        provenance={**found.provenance, "prompt": prompt.support.to_dict(), "token": support.to_dict()},
    )


def _rest(latency: Interval, prompt: Interval, waves: float, output_tokens: int) -> Interval:
    """Seconds a token of what a prompt leaves of the latency of ``waves`` waves."""

    def each(whole: float, first: float) -> float:
        return max(whole / waves - first, (1.0 - _MOST_PROMPT) * whole / waves) / max(output_tokens - 1, 1)

    return Interval(
        each(latency.median, prompt.median), each(latency.low, prompt.high), each(latency.high, prompt.low), "s"
    )
