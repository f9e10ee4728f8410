"""Prefill and decode time of language models, alone or on a loaded server, learned from second sources.

`perfpass.predictors.serving` knows current serving stacks on current boards. These records add batches without a
server, older boards (A10 to A100, T4), a server of 2023 under load, and accelerators of other vendors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from perfpass.devices import Device
from perfpass.errors import ArgumentError
from perfpass.llm.costs import ELEMENT_BYTES
from perfpass.prediction import Interval, Support
from perfpass.predictors.generation import phase_features as features
from perfpass.predictors.generation.features import ONE_SEQUENCE, Batch, Sizes, overflow, sequences, vendors_of
from perfpass.predictors.generation.order import BATCHES, TOKENS, ordered
from perfpass.predictors.generation.prediction import Offline
from perfpass.predictors.learned import lattice, width_words
from perfpass.predictors.learned.component_predictor import ComponentPredictor, Learned
from perfpass.predictors.learned.component_widths import WORDS, lacks, of_boards
from perfpass.predictors.learned.components import UNSEEN_MODEL, Form, Rows

QUANTITIES: Mapping[str, tuple[Form, str]] = {
    "prefill": (features.PROMPT, "s"),
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
    OUTSIDE = ("runtime unseen", "vendor unseen")

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

    def why(self, quantity: str, phase: features.Phase, what: str, found: Interval) -> tuple[str, ...]:
        """What makes an interval of a quantity wide; empty where it is not."""
        rows, fitted = _rows(quantity, phase), self.fitted[quantity]
        evidence = fitted.evidence(rows)
        more = {"load": self.far(quantity, rows), **self.of_boards(rows, evidence)}
        own = lacks(fitted.form, evidence, fitted.predict(rows)[1], more)
        return width_words.reason(what, found, self.spread[quantity], own, WORDS)

    def of_boards(self, rows: Rows, evidence: np.ndarray) -> Mapping[str, np.ndarray | float]:
        """As of `component_widths`."""
        return of_boards(evidence, vendors_of(rows))

    def sizes(
        self, quantity: str, phase: features.Phase, batch: np.ndarray, tokens: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """Logarithms of low, median and high of a phase with other batches and tokens, arrays of one shape."""
        shape = batch.shape
        batch, tokens = batch.ravel(), tokens.ravel()
        (_, most_batch), (least_tokens, most_tokens) = self.ranges[quantity][1:3]
        near = np.clip(batch, 1.0, 2.0**most_batch), np.clip(tokens, 2.0**least_tokens, 2.0**most_tokens)
        rows, inside = (_rows_at(quantity, phase, *values) for values in ((batch, tokens), near))
        found = self.around(quantity, rows, inside, np.arange(len(batch)), more={"load": self.far(quantity, rows)})
        return tuple(values.reshape(shape) for values in found)


def _rows(quantity: str, phase: features.Phase) -> Rows:
    return _rows_at(quantity, phase, np.array([float(phase.batch)]), np.array([float(phase.tokens)]))


def _rows_at(quantity: str, phase: features.Phase, batch: np.ndarray, tokens: np.ndarray) -> Rows:
    if quantity == "prefill":
        return features.prefill_at(phase, batch, tokens)
    if quantity == "decode":
        return features.decode_at(phase, batch, tokens)
    if quantity in QUANTITIES:
        return features.loaded_at(phase, batch, tokens, first=quantity == "loaded_first_token")
    raise ArgumentError(f"quantity {quantity!r}; allowed are {', '.join(QUANTITIES)}")


def loaded(quantity: str, phase: features.Phase, users: float) -> Learned:
    """`PhasePredictor.predict` of a loaded server, in order over users and tokens, and with other devices."""
    predictor = PhasePredictor.load()

    def find(device: Device) -> Interval:
        found = _loaded_sizes(predictor, quantity, replace(phase, device=device, batch=1, tokens=1))
        return lattice.interval(found, (TOKENS, BATCHES), (phase.tokens, users), "s")

    found = predictor.predict(quantity, phase)
    like = Batch(phase.model, phase.device, phase.runtime, phase.devices, 1, phase.tokens, phase.output_tokens)
    value = ordered(like, predictor.measured_on(quantity, phase.runtime), lambda b: find(b.device))
    return replace(found, value=value)


@lru_cache(maxsize=128)
def _loaded_sizes(predictor: PhasePredictor, quantity: str, phase: features.Phase) -> tuple[np.ndarray, ...]:
    tokens, users = np.meshgrid(np.array(TOKENS, dtype=np.float64), np.array(BATCHES, dtype=np.float64), indexing="ij")
    low, median, high = predictor.sizes(quantity, phase, users, tokens)
    return lattice.bounded(low, median, high)


Whole = Callable[[Batch], tuple[np.ndarray, ...]]


def with_phases(found: Offline, batch: Batch, whole: Whole, measured_on: Sequence[str]) -> Offline:
    """``found`` with the times of its prompt and of a token, in order over sizes and devices as its latency is.

    ``whole``: low, median and high of the latency of all sizes (`predictor.latencies`); ``measured_on``: its devices.
    The prompt is that of the phases: for a model or a device without records they err by a seventh or less of what the
    latency split up does (data/results/accuracy/generation.md). The token takes what the prompt leaves of the latency,
    which was measured on the same software; but where the latency was never measured in this runtime on this device and
    the phases were, it is theirs.
    """
    if ELEMENT_BYTES[batch.precision] != _16_BITS:
        return found
    predictor = PhasePredictor.load()
    own = _running(batch, Sizes.of(batch))
    prompt = predictor.one("prefill", features.prefill_at(_phase(batch), *own))
    decode = predictor.one("decode", features.decode_at(_phase(batch), *own))
    known = found.provenance["evidence"].removesuffix(UNSEEN_MODEL) == "seen"
    by_decode = not known and decode.evidence.removesuffix(UNSEEN_MODEL) == "seen"
    support = decode.support if by_decode else found.support

    def prompt_of(b: Batch) -> Interval:
        return _read(_prompts(predictor, _without_sizes(b)), b)

    def token_of(b: Batch) -> Interval:
        return _read(_rests(predictor, whole, _without_sizes(b)), b)

    first = ordered(batch, predictor.measured_on("prefill", batch.runtime), prompt_of)
    if by_decode:
        token = _read(_decodes(predictor, _without_sizes(batch)), batch)
    else:
        token = ordered(batch, measured_on, token_of)
    reasons = [f"prompt: {reason}" for reason in prompt.support.reasons]
    parts = (("time to first token", first), ("time per output token", token))
    reasons += [
        f"{name} left out: its bounds are too wide to say anything" for name, v in parts if not v.says_something
    ]
    return replace(
        found,
        prompt_s=first if first.says_something else None,
        token_s=token if batch.output_tokens > 1 and token.says_something else None,
        support=Support(found.support.level, (*found.support.reasons, *reasons)),
        provenance={**found.provenance, "prompt": prompt.support.to_dict(), "token": support.to_dict()},
    )


def _without_sizes(b: Batch) -> Batch:
    return replace(b, batch=1, input_tokens=1)


def _read(found: tuple[np.ndarray, ...], b: Batch) -> Interval:
    return lattice.interval(found, (TOKENS, BATCHES), (b.input_tokens, b.batch), "s")


def _phase(b: Batch) -> features.Phase:
    devices = 1 if b.runtime in ONE_SEQUENCE else b.devices  # there devices hold layers each: a pipeline
    return features.Phase(b.model, b.device, devices, b.runtime, 1, 1)


def _running(b: Batch, sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Sequences that run at once, and the tokens of their prompts; [N] each."""
    waves = np.maximum(overflow(b, sizes), 1.0)
    return np.maximum(sequences(b, sizes.batch) / waves, 1.0), sizes.input_tokens


def _sizes(b: Batch) -> Sizes:
    return Sizes.lattice(BATCHES, TOKENS, (b.output_tokens,))


_SHAPE = len(TOKENS), len(BATCHES)


@lru_cache(maxsize=128)
def _prompts(predictor: PhasePredictor, b: Batch) -> tuple[np.ndarray, ...]:
    """Logarithms of low, median and high [TOKENS, BATCHES] of the prompts' seconds."""
    found = predictor.sizes("prefill", _phase(b), *_running(b, _sizes(b)))
    low, median, high = (values.reshape(_SHAPE) for values in found)
    return lattice.bounded(low, median, high)


@lru_cache(maxsize=128)
def _decodes(predictor: PhasePredictor, b: Batch) -> tuple[np.ndarray, ...]:
    """The same of a token, from its own records."""
    found = predictor.sizes("decode", _phase(b), *_running(b, _sizes(b)))
    low, median, high = (values.reshape(_SHAPE) for values in found)
    return lattice.bounded(low, median, high)


@lru_cache(maxsize=128)
def _rests(predictor: PhasePredictor, whole: Whole, b: Batch) -> tuple[np.ndarray, ...]:
    """The same of a token, from what the prompts leave of the latency of each wave."""
    waves = np.maximum(overflow(b, _sizes(b)), 1.0).reshape(_SHAPE)
    latency = [
        np.exp(lattice.along(np.moveaxis(values, 1, 0), TOKENS, b.output_tokens)) / waves
        for values in whole(replace(b, output_tokens=1))
    ]
    prompts = [np.exp(values) for values in reversed(_prompts(predictor, b))]
    steps = max(b.output_tokens - 1, 1)
    low, median, high = (
        np.log(np.maximum(one - first, (1.0 - _MOST_PROMPT) * one) / steps)
        for one, first in zip(latency, prompts, strict=True)
    )
    return lattice.bounded(low, median, high, axes=(0,) if b.runtime in ONE_SEQUENCE else None)
