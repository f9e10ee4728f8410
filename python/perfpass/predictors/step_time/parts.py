"""What each part of an engine's step takes on one GPU, tabulated once a deployment from the predictors of kernels.

Matrix products, experts, attention and collectives as their measured kernels run in the engine's software; what no
kernel was measured of (latent attention's decode, states of recurrent layers, messages between experts and between
nodes, element-wise work) by its bytes and FLOPs at usual shares of the peaks. Kernels by themselves take longer than
inside a step, whose launches overlap, and counts know nothing of small kernels' floors: a part is the geometric mean of
both, in which kernels weigh more (`KERNELS_WEIGH`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache

import numpy as np

from perfpass.llm.architecture import Attention
from perfpass.llm.batch import EngineBatch
from perfpass.predictors.kernels.predictor import unstated
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
# New tokens of a step at most, as engines are set on data-centre boards (vLLM's max_num_batched_tokens).
STEP_TOKENS = 8192.0


class Parts:
    """Seconds of all layers of a deployment on one GPU, each table made when it is first asked for.

    Each holds two kinds [2]: what the part takes at least, by the best shares of the peaks, and what its kernels take
    beyond that. ``tokens`` [2, BY_TOKENS] by new tokens, ``requests`` [2, BY_REQUESTS] by requests; attention
    ``prefill`` [2] by new prompt tokens and the tokens that they attend to, ``prompt`` [2] of one whole prompt by its
    tokens, and ``decode`` [2] by decodes and their cached tokens. Of an encoder-decoder, of whose layers no kernel was
    measured, and of a board that does not state what kernels need, the tables of attention are those of whole steps,
    counted.
    """

    def __init__(self, setup: Setup) -> None:
        self._kernels, self._counted, self._best = KernelParts(setup), Counted(setup), Counted(setup, best=True)
        self._lacking = unstated(setup.device)
        self._known = not setup.model.is_encoder_decoder and not self._lacking
        self._layers = [(count, layer.attention) for count, layer in setup.model.layers if layer.attention]

    @cached_property
    def tokens(self) -> Curve:
        """Seconds by new tokens."""
        if not self._known:
            return Curve(TOKENS, np.zeros((2, len(BY_TOKENS), len(TOKENS))))
        k = self._kernels
        found = np.stack([k.products(), k.experts(), k.elementwise(), k.messages()])
        return Curve(TOKENS, _kinds(found, self._counted.tokens(), self._best.tokens()))

    @cached_property
    def requests(self) -> Curve:
        """Seconds by requests."""
        if not self._known:
            return Curve(REQUESTS, np.zeros((2, len(BY_REQUESTS), len(REQUESTS))))
        logits = _kinds(self._kernels.logits(), self._counted.logits(), self._best.logits())
        states = self._kernels.states()
        return Curve(REQUESTS, np.stack([logits, np.stack([np.zeros(len(states)), states])], axis=1))

    @cached_property
    def prefill(self) -> Surface:
        """Seconds of the attention of prompt tokens."""
        return Surface(CHUNKS, ATTENDED, self._attention(self._kernels.prefill_attention, prefill=True))

    @cached_property
    def decode(self) -> Surface:
        """Seconds of the attention of decodes."""
        return Surface(DECODES, CONTEXT, self._attention(self._kernels.decode_attention, prefill=False))

    @cached_property
    def prompt(self) -> Curve:
        """Seconds of the attention of one whole prompt."""
        counted, best = (part.prompt(whole=not self._known) for part in (self._counted, self._best))
        return Curve(CHUNKS, self._of_layers(self._kernels.prompt_attention, counted, best))

    def _attention(self, of_layer: Callable[[Attention], np.ndarray], *, prefill: bool) -> np.ndarray:
        counted, best = (part.attention(prefill=prefill, whole=not self._known) for part in (self._counted, self._best))
        return self._of_layers(of_layer, counted, best)

    def _of_layers(
        self, of_layer: Callable[[Attention], np.ndarray], counted: np.ndarray, best: np.ndarray
    ) -> np.ndarray:
        if not self._known:
            return _kinds(counted, counted, best)
        return _kinds(sum((n * of_layer(a) for n, a in self._layers), np.zeros(counted.shape)), counted, best)

    @property
    def reasons(self) -> tuple[str, ...]:
        """What no measured kernel stands behind, of the tables that were made."""
        own = tuple(self._kernels.reasons)
        if self._known:
            return own
        if self._lacking:
            return (f"counted: the device states no {' and no '.join(self._lacking)}, which kernels need", *own)
        return ("an encoder-decoder is counted: no kernel of its layers was measured", *own)


@lru_cache(maxsize=512)
def tabulated(setup: Setup) -> Parts:
    """The tables of a deployment, once."""
    return Parts(setup)


def _kinds(kernels_s: np.ndarray, counted_s: np.ndarray, best_s: np.ndarray) -> np.ndarray:
    """[2, ...] the least, and what the weighted geometric mean of kernels and counts, 0 where either is, has beyond."""
    found = kernels_s**KERNELS_WEIGH * counted_s ** (1 - KERNELS_WEIGH)
    return np.stack([best_s, np.maximum(found - best_s, 0.0)])


def seconds_by_part(setup: Setup, batch: EngineBatch) -> np.ndarray:
    """[N, 2, PARTS] seconds of N steps of a batch, on one GPU and all pipeline stages together: at least, and beyond.
    Its fields are [N] each.
    """
    new, attended = np.asarray(batch.prompt_tokens), np.asarray(batch.prompt_attended)
    attention = tabulated(setup).prefill.at(new, attended) if new.any() else np.zeros((2, len(new)))
    return _by_part(tabulated(setup), batch, attention)


def of_prompts(setup: Setup, tokens: np.ndarray, decodes: np.ndarray) -> np.ndarray:
    """[N, 2, PARTS] seconds that each of prompts of ``tokens`` [N] adds to steps of ``decodes`` [N] that it is part of.

    As many prompts join a step as there are decodes to follow them, or as the tokens of a step allow; weights are read
    once for all.
    """
    found, none = tabulated(setup), np.zeros(len(tokens))
    joined = np.minimum(np.maximum(decodes, 1.0) * tokens, STEP_TOKENS) / tokens
    with_them, without = (
        _by_part(found, EngineBatch(new, many, none, none, decodes, none), np.zeros((2, len(tokens))))
        for new, many in ((joined * tokens, joined), (none, none))
    )
    out = (with_them - without) / joined[:, None, None]
    out[:, :, PARTS.index("prefill attention")] = found.prompt.at(tokens).T
    return out


def _by_part(found: Parts, batch: EngineBatch, prefill_attention: np.ndarray) -> np.ndarray:
    new, prompts, decodes, context = (
        np.asarray(v) for v in (batch.prompt_tokens, batch.prompts, batch.decodes, batch.decode_context)
    )
    attention = found.decode.at(decodes, context) if decodes.any() else np.zeros((2, len(new)))
    both = np.stack([prefill_attention, attention], axis=1)
    parts = np.concatenate([found.tokens.at(new + decodes), found.requests.at(prompts + decodes), both], axis=1)
    return np.moveaxis(parts, 2, 0)
