"""What each part of an engine's step takes on one GPU, tabulated once a deployment from the predictors of kernels.

Matrix products, experts, attention and collectives as their measured kernels run in the engine's software; what no
kernel was measured of (latent attention's decode, states of recurrent layers, messages between experts and between
nodes, element-wise work) by its bytes and FLOPs at usual shares of the peaks. Kernels by themselves take longer than
inside a step, whose launches overlap, and counts know nothing of small kernels' floors: a part is the geometric mean of
both, in which kernels weigh more (`KERNELS_WEIGH`).
"""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np

from perfpass.llm.batch import EngineBatch
from perfpass.predictors.step_time.counted import Counted
from perfpass.predictors.step_time.grid import Curve, Surface
from perfpass.predictors.step_time.kernel_parts import KernelParts
from perfpass.predictors.step_time.setup import (
    ATTENDED,
    CHUNKS,
    CONTEXT,
    DECODES,
    REQUESTS,
    TOKENS,
    Setup,
)

# Parts that grow with new tokens, and with the requests that have some; attention has a part for each phase.
BY_TOKENS = ("products", "experts", "elementwise", "messages")
BY_REQUESTS = ("logits", "states")
PARTS = (*BY_TOKENS, *BY_REQUESTS, "prefill attention", "decode attention")
# Weight of kernels in the geometric mean with counts; chosen on the records of served models set aside, where 0.5 and
# 1 err more (docs/research/serving.md).
KERNELS_WEIGH = 0.7


class Parts:
    """Seconds of all layers of a deployment on one GPU, each table made when it is first asked for.

    ``tokens`` [BY_TOKENS] by new tokens, ``requests`` [BY_REQUESTS] by requests; attention ``prefill`` by new prompt
    tokens and the tokens that they attend to, ``prompt`` of one whole prompt by its tokens, and ``decode`` by decodes
    and their cached tokens. Of an encoder-decoder, of whose layers no kernel was measured, the tables of attention are
    those of whole steps, counted.
    """

    def __init__(self, setup: Setup) -> None:
        self._kernels, self._counted = KernelParts(setup), Counted(setup)
        self._known = not setup.model.is_encoder_decoder
        self._layers = [(count, layer.attention) for count, layer in setup.model.layers if layer.attention]

    @cached_property
    def tokens(self) -> Curve:
        """Seconds by new tokens."""
        if not self._known:
            return Curve(TOKENS, np.zeros((len(BY_TOKENS), len(TOKENS))))
        k = self._kernels
        found = np.stack([k.products(), k.experts(), k.elementwise(), k.messages()])
        return Curve(TOKENS, _together(found, self._counted.tokens()))

    @cached_property
    def requests(self) -> Curve:
        """Seconds by requests."""
        if not self._known:
            return Curve(REQUESTS, np.zeros((len(BY_REQUESTS), len(REQUESTS))))
        logits = _together(self._kernels.logits(), self._counted.logits())
        return Curve(REQUESTS, np.stack([logits, self._kernels.states()]))

    @cached_property
    def prefill(self) -> Surface:
        """Seconds of the attention of prompt tokens."""
        return self._surface(CHUNKS, ATTENDED, prefill=True)

    @cached_property
    def decode(self) -> Surface:
        """Seconds of the attention of decodes."""
        return self._surface(DECODES, CONTEXT, prefill=False)

    @cached_property
    def prompt(self) -> Curve:
        """Seconds of the attention of one whole prompt."""
        counted = self._counted.prompt(whole=not self._known)
        if not self._known:
            return Curve(CHUNKS, counted)
        found = sum((n * self._kernels.prompt_attention(a) for n, a in self._layers), np.zeros(len(CHUNKS)))
        return Curve(CHUNKS, _together(found, counted))

    def _surface(self, first: np.ndarray, second: np.ndarray, *, prefill: bool) -> Surface:
        counted = self._counted.attention(prefill=prefill, whole=not self._known)
        if not self._known:
            return Surface(first, second, counted)
        of_layer = self._kernels.prefill_attention if prefill else self._kernels.decode_attention
        found = sum((n * of_layer(a) for n, a in self._layers), np.zeros((len(first), len(second))))
        return Surface(first, second, _together(found, counted))

    @property
    def reasons(self) -> tuple[str, ...]:
        """What no measured kernel stands behind, of the tables that were made."""
        own = tuple(self._kernels.reasons)
        return own if self._known else ("an encoder-decoder is counted: no kernel of its layers was measured", *own)


@lru_cache(maxsize=512)
def tabulated(setup: Setup) -> Parts:
    """The tables of a deployment, once."""
    return Parts(setup)


def _together(kernels_s: np.ndarray, counted_s: np.ndarray) -> np.ndarray:
    """The weighted geometric mean; 0 where either is."""
    return np.asarray(kernels_s**KERNELS_WEIGH * counted_s ** (1 - KERNELS_WEIGH))


def seconds_by_part(setup: Setup, batch: EngineBatch) -> np.ndarray:
    """[N, PARTS] seconds of N steps of a batch, on one GPU and all pipeline stages together; fields of it [N] each."""
    new, attended = np.asarray(batch.prompt_tokens), np.asarray(batch.prompt_attended)
    attention = tabulated(setup).prefill.at(new, attended) if new.any() else np.zeros(len(new))
    return _by_part(tabulated(setup), batch, attention)


def of_prompts(setup: Setup, tokens: np.ndarray) -> np.ndarray:
    """[N, PARTS] seconds of a whole prompt of ``tokens`` [N] each by itself."""
    none, one = np.zeros(len(tokens)), np.ones(len(tokens))
    found = tabulated(setup)
    return _by_part(found, EngineBatch(tokens, one, none, none, none, none), found.prompt.at(tokens))


def _by_part(found: Parts, batch: EngineBatch, prefill_attention: np.ndarray) -> np.ndarray:
    new, prompts, decodes, context = (
        np.asarray(v) for v in (batch.prompt_tokens, batch.prompts, batch.decodes, batch.decode_context)
    )
    attention = found.decode.at(decodes, context) if decodes.any() else np.zeros(len(new))
    both = np.stack([prefill_attention, attention])
    return np.concatenate([found.tokens.at(new + decodes), found.requests.at(prompts + decodes), both]).T
