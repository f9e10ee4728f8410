"""What a graph + language model consists of and how long it trains."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """``representation``: "graph" (soft tokens), "text" (`graph_text.summary`), "json" (`graph_text.structure`, cut at
    ``most_tokens``), "none" (the run alone); without a language model, as baselines: "network" (encoder and a dense
    head), "sentence" (a sentence embedding of the summary and a dense head).

    ``hidden`` and ``tokens`` of the encoder and of its output (1, or 5: one per layer); ``rank`` of LoRA; ``masked``
    and ``summarised``: whether both pre-training stages are run; ``answer``: "head" (a regression head on the last
    hidden state) or "text" (digits, generated); ``run_token``: the run's figures as a soft token. ``base``: folder of
    a causal language model; empty for the small one trained here; ``sentences``: folder of a sentence-embedding model;
    empty for the mean hidden state of ``base``.
    """

    representation: str = "graph"
    hidden: int = 64
    tokens: int = 1
    rank: int = 8
    masked: bool = True
    summarised: bool = True
    answer: str = "head"
    run_token: bool = True
    base: str = ""
    sentences: str = ""
    most_tokens: int = 80
    mask_share: float = 0.5
    masked_steps: int = 120
    summary_steps: int = 100
    steps: int = 220
    adaptation_steps: int = 40
    networks: int = 10
    rows: int = 4
    rate: float = 6e-3

    @property
    def has_language_model(self) -> bool:
        """Whether anything is read by a language model."""
        return self.representation not in ("network", "sentence")

    @property
    def needs_base(self) -> bool:
        """Whether a language model is loaded, be it to embed sentences."""
        return self.has_language_model or (self.representation == "sentence" and not self.sentences)

    @property
    def has_encoder(self) -> bool:
        """Whether graphs are encoded."""
        return self.representation in ("graph", "network")

    def key(self, *parts: object) -> str:
        """A name for what these settings and ``parts`` give."""
        text = json.dumps([dataclasses.asdict(self), *map(repr, parts)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


# Encoder and rank as published; a base model of billions of parameters comes by ``base``.
PUBLISHED = Settings(hidden=1024, rank=16)
