"""The network that is trained: encoder, soft tokens, language model with LoRA, and the head that gives the number."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from perfpass.predictors.published.graph_classes import union
from perfpass.predictors.published.language_model import Base, backbone, with_lora
from perfpass.training.published.graph_language.corpus import Corpus
from perfpass.training.published.graph_language.encoder import Encoder, On
from perfpass.training.published.graph_language.settings import Settings

# Exponent of the first letter of an answer in words, and how many letters there are: milliseconds, joules, watts and
# bytes lie between 1e-3 and 1e13.
_LEAST_EXPONENT = -3
_LETTERS = 16


def answer_text(log_value: float) -> str:
    """A value in words: a letter for the power of ten, then three digits. ``log_value``: its natural log."""
    exponent = int(np.floor(log_value / np.log(10)))
    mantissa = round(float(np.exp(log_value - exponent * np.log(10))) * 100)
    if mantissa == 1000:
        exponent, mantissa = exponent + 1, 100
    return f"{chr(ord('a') + exponent - _LEAST_EXPONENT)} {mantissa:03d}"


class GraphLanguage(nn.Module):
    """Rows to scaled log latencies. ``sentences`` [P, D]: fixed embeddings of the networks for that baseline."""

    def __init__(
        self, settings: Settings, corpus: Corpus, numbers: int, base: Base | None, sentences: np.ndarray | None = None
    ) -> None:
        super().__init__()
        self.settings, self.corpus, self.base = settings, corpus, base
        self.encoder = Encoder(settings.hidden) if settings.has_encoder else None
        self.sentences = None if sentences is None else torch.tensor(sentences, dtype=torch.float32)
        self.language: Any = None
        if base is not None and settings.has_language_model:
            self.language = with_lora(base, settings.rank)
            self.read, self.words = backbone(self.language), self.language.get_input_embeddings()
            width = base.hidden
            self.graph_token = nn.Linear(settings.hidden, width)
            self.run_token = nn.Sequential(nn.Linear(numbers, width), nn.ReLU(), nn.Linear(width, width))
            self.head = nn.Linear(width, 1)
        else:
            inputs = settings.hidden if self.sentences is None else self.sentences.shape[1]
            width = 128
            self.dense = nn.Sequential(
                *(nn.Linear(inputs + numbers, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
                nn.Linear(width, 1),
            )

    def twin(self) -> GraphLanguage:
        """A copy with weights of its own; graphs and base model are shared."""
        return copy.deepcopy(self, {id(self.corpus): self.corpus, id(self.base): self.base})

    @property
    def place(self) -> str:
        """The torch device."""
        return next(self.parameters()).device.type

    def graphs(self, places: np.ndarray, corpus: Corpus | None = None) -> Tensor:
        """[G, tokens, H] codes of some of ``corpus`` (default: the model's own)."""
        assert self.encoder is not None
        parts = (corpus or self.corpus).parts
        on = On(union([parts[i] for i in places]), self.place)
        codes: Tensor = self.encoder(on, self.settings.tokens)
        return codes

    def soft(self, places: np.ndarray, numbers: Tensor) -> Tensor:
        """[R, K, width] the soft tokens of rows: graph, then run."""
        parts = []
        if self.settings.representation == "graph":
            distinct, member = np.unique(places, return_inverse=True)
            parts.append(self.graph_token(self.graphs(distinct))[torch.as_tensor(member, device=self.place)])
        if self.settings.run_token:
            parts.append(self.run_token(numbers)[:, None])
        return torch.cat(parts, dim=1) if parts else numbers.new_zeros((len(numbers), 0, self.head.in_features))

    def states(
        self, before: Sequence[Sequence[int]], soft: Tensor, after: Sequence[Sequence[int]]
    ) -> tuple[Tensor, Tensor]:
        """Hidden states [R, T, width] of words, soft tokens [R, K, width] and words, and lengths [R].

        Shorter rows are padded behind, where what is before does not look.
        """
        first, last = self._ids(before), self._ids(after)
        parts = torch.cat([self.words(first), soft, self.words(last)], dim=1)
        starts, kept = torch.tensor([len(b) for b in before]), soft.shape[1]
        lengths = starts + kept + torch.tensor([len(a) for a in after])
        # What stands at each place: a row's words, then what follows behind the longest row's words.
        at = torch.arange(int(lengths.max())).expand(len(before), -1)
        at = torch.where(at < starts[:, None], at, at + (first.shape[1] - starts)[:, None]).clamp(
            max=parts.shape[1] - 1
        )
        given = parts.gather(1, at.to(self.place)[:, :, None].expand(-1, -1, parts.shape[2]))
        return self.read(inputs_embeds=given, use_cache=False).last_hidden_state, lengths.to(self.place)

    def _ids(self, texts: Sequence[Sequence[int]]) -> Tensor:
        ids = torch.zeros((len(texts), max(map(len, texts))), dtype=torch.int64)
        for row, text in enumerate(texts):
            ids[row, : len(text)] = torch.tensor(text, dtype=torch.int64)
        return ids.to(self.place)

    def forward(self, places: np.ndarray, numbers: Tensor, texts: Sequence[Sequence[int]]) -> Tensor:
        """[R] scaled log latencies, from the head on the last hidden state, or of the baselines without language."""
        if self.language is None:
            distinct, member = np.unique(places, return_inverse=True)
            if self.sentences is None:
                code = self.graphs(distinct)[:, -1]
            else:
                code = self.sentences[torch.as_tensor(distinct)].to(self.place)
            out: Tensor = self.dense(torch.cat([code[torch.as_tensor(member, device=self.place)], numbers], dim=1))
            return out[:, 0]
        hidden, lengths = self.states(texts, self.soft(places, numbers), [()] * len(texts))
        last = hidden[torch.arange(len(texts), device=self.place), lengths - 1]
        out = self.head(last)
        return out[:, 0]

    def text_loss(
        self,
        before: Sequence[Sequence[int]],
        soft: Tensor,
        asked: Sequence[Sequence[int]],
        said: Sequence[Sequence[int]],
    ) -> Tensor:
        """Cross-entropy of the answers ``said`` after words, soft tokens and the question ``asked``."""
        hidden, _ = self.states(before, soft, [[*a, *s] for a, s in zip(asked, said, strict=True)])
        rows, places, wanted = [], [], []
        for row, (b, a, s) in enumerate(zip(before, asked, said, strict=True)):
            for i, token in enumerate(s):
                rows.append(row)
                places.append(len(b) + soft.shape[1] + len(a) + i - 1)
                wanted.append(token)
        logits = self.language.get_base_model().lm_head(hidden[torch.tensor(rows), torch.tensor(places)])
        return nn.functional.cross_entropy(logits, torch.tensor(wanted, device=self.place))

    @torch.no_grad()
    def say(self, before: Sequence[Sequence[int]], soft: Tensor) -> np.ndarray:
        """[R] natural logs, generated greedily; only letters of a power and digits are let through."""
        assert self.base is not None
        letters = [self.base.encode(chr(ord("a") + i))[0] for i in range(_LETTERS)]
        digits = [self.base.encode(str(i))[0] for i in range(10)]
        texts: list[list[int]] = [[] for _ in before]
        found = np.zeros((len(texts), 4), dtype=np.int64)
        for step in range(4):
            allowed = letters if step == 0 else digits[1:] if step == 1 else digits
            hidden, lengths = self.states(before, soft, texts)
            last = hidden[torch.arange(len(texts)), lengths - 1]
            logits = self.language.get_base_model().lm_head(last)[:, allowed]
            found[:, step] = logits.argmax(dim=1).cpu().numpy()
            for row, choice in enumerate(found[:, step]):
                texts[row].append(allowed[choice])
        first = found[:, 1] + 1
        mantissa = (first * 100 + found[:, 2] * 10 + found[:, 3]) / 100
        return np.asarray(np.log(mantissa) + (found[:, 0] + _LEAST_EXPONENT) * np.log(10))
