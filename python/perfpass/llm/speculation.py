"""Speculative decoding: what drafts the tokens, how many of them a step keeps, and what drafting takes in memory.

A step drafts tokens, passes them through the model together with the last one, and keeps those that the model itself
would have written, and one more (Leviathan et al. 2023, arXiv:2211.17192). Where each draft token is kept with
probability a as long as all before it are, k of them yield (1 - a^(k + 1)) / (1 - a) tokens a step (equation 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from perfpass.errors import ArgumentError
from perfpass.llm.architecture import LanguageModel, Layer, Mlp
from perfpass.text import unknown

_MOST_DRAFTED = 512
# Vocabularies of one family differ by padding alone.
_PADDED = 0.02


@dataclass(frozen=True)
class Method:
    """A way of drafting, as it was measured: ``depth`` tokens after each other, ``verified`` of them at once (more than
    ``depth`` where they form a tree), ``tokens`` a step over all tasks of Spec-Bench (the median of its rows; nan:
    none).

    ``drafted_by``: "model", a model of its own; "layer", a layer on top of the model that is passed once for every
    level; "layers", the model's own without some; "heads", one for every level, passed together; "search", of text.
    """

    title: str
    drafted_by: str
    depth: int
    verified: int
    tokens: float = math.nan
    measured_as: str = ""


# Settings are those of Spec-Bench's scripts (hemingkx/Spec-Bench, evaluation/ and eval.sh). Medusa: four levels, 63
# candidates (mc_sim_7b_63). EAGLE: its tree of 25 on 5 levels; EAGLE-2 and 3: 60 tokens with the last one, the first
# level and 5 more. Lookahead: level 5, window and guesses 7, so 2 x 7 x 4 tokens. Token recycling: tree 2.2.2, 80 on 6
# levels. A draft model: transformers' schedule settles near 3 where two thirds are kept. MTP: one token, of which 85 to
# 90 % are kept (DeepSeek-V3, arXiv:2412.19437, section 5.4.3). SWIFT: arXiv:2410.06916.
METHODS: dict[str, Method] = {
    "model": Method("a draft model", "model", 3, 3, 2.28, "SpS"),
    "eagle": Method("EAGLE", "layer", 5, 25, 3.58, "EAGLE"),
    "eagle-2": Method("EAGLE-2", "layer", 6, 59, 4.35, "EAGLE2"),
    "eagle-3": Method("EAGLE-3", "layer", 6, 59, 5.71, "EAGLE3"),
    "samd": Method("suffix automaton and EAGLE-2", "layer", 6, 59, 4.58, "SAMD[EAGLE2]"),
    "mtp": Method("multi-token prediction", "layer", 1, 1, 1.87),
    "medusa": Method("Medusa", "heads", 4, 63, 2.32, "Medusa"),
    "ngram": Method("n-gram lookup in the prompt", "search", 10, 10, 1.73, "PLD"),
    "lookahead": Method("lookahead decoding", "search", 4, 56, 1.64, "Lookahead"),
    "recycling": Method("token recycling", "search", 6, 80, 2.73, "Recycling"),
    "rest": Method("retrieval (REST)", "search", 15, 64, 1.82, "REST"),
    "swift": Method("the model without 45 % of its layers (SWIFT)", "layers", 5, 5),
}
_SKIPPED = 0.45
# Hidden states that a layer on top reads beside the last token's embedding; EAGLE-3 reads three.
_STATES = {"eagle-3": 3}


def tokens_per_step(acceptance: float, drafted: float) -> float:
    """Mean tokens of a step that verifies ``drafted`` tokens after each other, each kept with ``acceptance``."""
    if acceptance >= 1.0:
        return drafted + 1.0
    return (1.0 - acceptance ** (drafted + 1.0)) / (1.0 - acceptance)


def acceptance_of(tokens: float, drafted: int) -> float:
    """The acceptance at which a step of ``drafted`` tokens yields ``tokens``. Raises ArgumentError outside of 1 to
    ``drafted`` + 1.
    """
    if not 1.0 <= tokens <= drafted + 1:
        raise ArgumentError(
            f"{drafted} draft tokens yield 1 to {drafted + 1} tokens a step, not {tokens:g}; draft more, or give fewer"
        )
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if tokens_per_step(middle, drafted) < tokens else (low, middle)
    return high


@dataclass(frozen=True)
class Speculation:
    """Speculative decoding as it is asked for.

    ``method``: of METHODS. ``drafted``: tokens drafted after each other. ``verified``: tokens verified at once, more
    where drafts form a tree. ``acceptance``: chance that a draft token is kept where those before it were; with
    ``assumed`` it is the measured one of the method. ``draft``: the draft model, of method "model" alone.
    """

    method: str
    drafted: int
    verified: int
    acceptance: float
    assumed: bool = False
    draft: LanguageModel | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ArgumentError(unknown("method of drafting", self.method, METHODS))
        for name in ("drafted", "verified"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_DRAFTED:
                raise ArgumentError(f"{name} tokens must be a whole number from 0 to {_MOST_DRAFTED}, got {value!r}")
        if self.verified < self.drafted:
            raise ArgumentError(f"{self.drafted} drafted tokens after each other are verified; got {self.verified}")
        if not 0.0 <= self.acceptance <= 1.0:
            raise ArgumentError(f"acceptance is a share from 0 to 1, got {self.acceptance!r}")
        if (self.draft is not None) != (self.method == "model"):
            raise ArgumentError("a draft model belongs to method 'model', and to no other")

    @classmethod
    def of(
        cls,
        method: str,
        *,
        draft: LanguageModel | None = None,
        drafted: int | None = None,
        verified: int | None = None,
        acceptance: float | None = None,
        tokens: float | None = None,
    ) -> Speculation:
        """With what is not given as it was measured: the depth, and the acceptance that its tokens a step imply.

        ``tokens``: mean tokens of a step, instead of ``acceptance``. Tokens are verified in a row unless ``verified``
        says how many a tree has. Raises ArgumentError, also where neither is given and none was measured.
        """
        if method not in METHODS:
            raise ArgumentError(unknown("method of drafting", method, METHODS))
        known = METHODS[method]
        depth = known.depth if drafted is None else drafted
        if acceptance is not None and tokens is not None:
            raise ArgumentError("acceptance and tokens a step say the same; give one of them")
        assumed = acceptance is None and tokens is None
        if tokens is not None:
            acceptance = acceptance_of(tokens, depth)
        elif acceptance is None:
            if math.isnan(known.tokens):
                raise ArgumentError(f"no acceptance of {known.title} was measured; give one, as 0.7")
            acceptance = acceptance_of(known.tokens, known.depth)
        return cls(method, depth, depth if verified is None else verified, acceptance, assumed, draft)

    @property
    def tokens(self) -> float:
        """Mean tokens of a step."""
        return tokens_per_step(self.acceptance, self.drafted)

    @property
    def passes(self) -> int:
        """Passes of what drafts, one after another, in a step."""
        kind = METHODS[self.method].drafted_by
        return {"heads": min(1, self.drafted), "search": 0}.get(kind, self.drafted)

    @property
    def width(self) -> float:
        """Tokens of a sequence in one of `passes`."""
        return self.verified / self.drafted if self.drafted else 0.0

    def drafter(self, model: LanguageModel) -> LanguageModel | None:
        """What drafts for ``model``, as a model; None where text is searched or nothing is drafted.

        Raises ArgumentError for a draft model of another vocabulary.
        """
        kind = METHODS[self.method].drafted_by
        if not self.passes:
            return None
        if self.draft is not None:
            if abs(self.draft.vocabulary / model.vocabulary - 1) > _PADDED:
                raise ArgumentError(
                    f"{self.draft.name} has {self.draft.vocabulary:,} tokens and {model.name} {model.vocabulary:,}; a "
                    "draft model needs the same vocabulary"
                )
            return self.draft
        if kind == "layers":
            return _without_layers(model)
        if kind == "heads":
            # Each head: a square block with a residual, and an output of its own (arXiv:2401.10774, section 3.1).
            width = self.drafted * (model.hidden + model.vocabulary)
            heads = Layer(dense=Mlp(width, matrices=1))
            return replace(model, name=f"heads of {model.name}", layers=((1, heads),), vocabulary=0, stored_bytes=0)
        # Embedding and states are joined and projected down (arXiv:2401.15077, section 4.1; arXiv:2412.19437, eq. 21).
        joined = Layer(dense=Mlp(model.hidden, matrices=1 + _STATES.get(self.method, 1)))
        own = next((layer for _, layer in reversed(model.layers) if layer.attention and not layer.encoder), None)
        if own is None:
            raise ArgumentError(
                f"{model.name} has no layer with attention that could draft; take a draft model or ngram"
            )
        return replace(model, name=f"layer on {model.name}", layers=((1, joined), (1, own)), stored_bytes=0)

    @property
    def own_tables(self) -> bool:
        """Whether what drafts has an embedding and a head of its own."""
        return self.draft is not None

    @property
    def own_weights(self) -> bool:
        """Whether what drafts has weights of its own."""
        return METHODS[self.method].drafted_by in ("model", "layer", "heads") and self.drafted > 0

    def describe(self) -> str:
        """In a line: what drafts how many tokens, and what a step yields."""
        drafts = self.draft.name if self.draft else METHODS[self.method].title
        tree = f" in a tree of {self.verified}" if self.verified > self.drafted else ""
        measured = " (measured for the method)" if self.assumed else ""
        return (
            f"{drafts}, {self.drafted} draft tokens{tree}, acceptance {self.acceptance:.2f}{measured}: "
            f"{self.tokens:.2f} tokens a step"
        )


def _without_layers(model: LanguageModel) -> LanguageModel:
    kept, layers = round((1 - _SKIPPED) * model.layer_count), []
    for count, layer in model.layers:
        share = min(count, round(count * (1 - _SKIPPED)) or 1, kept)
        kept -= share
        layers += [(share, layer)] if share else []
    return replace(model, name=f"part of {model.name}", layers=tuple(layers), stored_bytes=0)
