"""Transformer-XL (Dai et al., 2019) in the two sizes of DeepLearningExamples, the Transformer, GNMT."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from perfpass.importers.definitions.attention import Attention

WORDS, CUTOFFS = 267735, (19997, 39997, 199997)
# Share of WikiText-103's tokens whose word lies in each cluster beyond the first: our estimate by Zipf's law. The
# network multiplies only these tokens with the rows of a cluster.
SHARES = (1 / 16, 1 / 16, 1 / 64)


class Layer(nn.Module):
    """Attention with relative positions over the memory and the tokens, and the feed-forward part."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads, self.head = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.positions, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width))

    def forward(self, x: torch.Tensor, memory: torch.Tensor, r: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """X [T, B, C], memory [M, B, C], r [M + T, C], bias [2, heads, head] -> [T, B, C]."""
        tokens, batch, width = x.shape
        both = torch.cat([memory, x])
        length = both.shape[0]
        q, k, v = self.qkv(both).chunk(3, dim=-1)
        q = q[-tokens:].reshape(tokens, batch, self.heads, self.head)
        k, v = (part.reshape(length, batch * self.heads, self.head).transpose(0, 1) for part in (k, v))
        content = (q + bias[0]).reshape(tokens, batch * self.heads, self.head).transpose(0, 1)
        score = torch.bmm(content, k.transpose(1, 2)).view(batch, self.heads, tokens, length)
        place = self.positions(r).view(length, self.heads, self.head).permute(1, 2, 0)
        shifted = torch.matmul((q + bias[1]).permute(1, 2, 0, 3), place)
        shifted = nn.functional.pad(shifted, (1, 0)).view(batch, self.heads, length + 1, tokens)
        shifted = shifted[:, :, 1:].reshape(batch, self.heads, tokens, length)
        weights = torch.softmax((score + shifted) * self.head**-0.5, dim=-1)
        found = torch.bmm(weights.view(batch * self.heads, tokens, length), v)
        found = found.transpose(0, 1).reshape(tokens, batch, width)
        x = self.norm(x + self.out(found))
        return self.norm2(x + self.inner(x))


class TransformerXl(nn.Module):
    """A segment of tokens after a memory; the adaptive softmax shares its weights with the embedding.

    ``divide``: each cluster of words is this many times narrower than the one before, and projected.
    """

    def __init__(self, count: int, width: int, heads: int, inner: int, memory: int, divide: int) -> None:
        super().__init__()
        self.memory = memory
        edges, widths = (0, *CUTOFFS, WORDS), [width // divide**i for i in range(len(CUTOFFS) + 1)]
        self.words = nn.ParameterList(torch.empty(b - a, w) for (a, b), w in zip(pairwise(edges), widths, strict=True))
        self.projections = nn.ParameterList(torch.empty(w, width) for w in widths if divide > 1)
        self.bias = nn.Parameter(torch.empty(2, heads, width // heads))
        self.layers = nn.ModuleList(Layer(width, heads, inner) for _ in range(count))
        self.clusters = nn.Parameter(torch.empty(len(CUTOFFS), widths[0]))
        self.biases = nn.Parameter(torch.empty(WORDS + len(CUTOFFS)))

    def forward(self, tokens: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Tokens [B, T], memory [B, layers, M, C] -> scores of each cluster of words."""
        x = nn.functional.embedding(tokens.t(), self.words[0])
        if self.projections:
            x = torch.matmul(x, self.projections[0])
        r = torch.empty(self.memory + x.shape[0], x.shape[-1], device=x.device)
        memory = memory.permute(1, 2, 0, 3)
        for i, layer in enumerate(self.layers):
            x = layer(x, memory[i], r, self.bias)
        found = []
        for i, (words, share) in enumerate(zip(self.words, (1.0, *SHARES), strict=True)):
            rows = x[: int(x.shape[0] * share)].flatten(0, 1)
            if self.projections:
                rows = nn.functional.linear(rows, self.projections[i])
            weight = torch.cat([words, self.clusters]) if i == 0 else words
            found.append(torch.log_softmax(nn.functional.linear(rows, weight), dim=-1))
        return tuple(found)


class Feed(nn.Module):
    """Attention to the own tokens, in a decoder also to the encoder's, and the feed-forward part."""

    def __init__(self, width: int, heads: int, inner: int, *, decodes: bool) -> None:
        super().__init__()
        parts = (Attention(width, heads, width, eager=True, bias=True) for _ in range(1 + decodes))
        self.attention = nn.ModuleList(parts)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 + decodes))
        self.inner = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width))

    def forward(self, x: torch.Tensor, other: torch.Tensor | None = None) -> torch.Tensor:
        """X [B, T, C], other [B, S, C]."""
        x = self.norms[0](x + self.attention[0](x, x))
        if other is not None:
            x = self.norms[1](x + self.attention[1](x, other))
        return self.norms[-1](x + self.inner(x))


class Transformer(nn.Module):
    """The Transformer (Vaswani et al., 2017): six layers on each side, one table of words for both and the scores."""

    def __init__(self, width: int, heads: int, inner: int, words: int = 37000, layers: int = 6) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.encoder = nn.ModuleList(Feed(width, heads, inner, decodes=False) for _ in range(layers))
        self.decoder = nn.ModuleList(Feed(width, heads, inner, decodes=True) for _ in range(layers))

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Source [B, S], target [B, T] -> scores of every next word [B, T, words]."""
        x, y = self.words(source), self.words(target)
        for part in self.encoder:
            x = part(x)
        for part in self.decoder:
            y = part(y, x)
        return nn.functional.linear(y, self.words.weight)


class Gnmt(nn.Module):
    """GNMT (Wu et al., 2016) in four layers of 1,024, as DeepLearningExamples has it: the target is given."""

    def __init__(self, words: int = 32320, width: int = 1024, layers: int = 4) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.first = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.encoder = nn.ModuleList(
            nn.LSTM(2 * width if i == 0 else width, width, batch_first=True) for i in range(layers - 1)
        )
        self.decoder = nn.ModuleList(
            nn.LSTM(width if i == 0 else 2 * width, width, batch_first=True) for i in range(layers)
        )
        self.query, self.keys = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.weigh, self.scores = nn.Parameter(torch.empty(width)), nn.Linear(width, words)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Source [B, S], target [B, T] -> scores of every next word [B, T, words]."""
        x = self.first(self.words(source))[0]
        for i, part in enumerate(self.encoder):
            y = part(x)[0]
            x = y if i == 0 else x + y
        y = self.decoder[0](self.words(target))[0]
        sums = torch.tanh(self.query(y)[:, :, None] + self.keys(x)[:, None])
        context = torch.bmm(torch.softmax(torch.matmul(sums, self.weigh), dim=-1), x)
        for i, part in enumerate(self.decoder[1:]):
            found = part(torch.cat([y, context], 2))[0]
            y = found if i == 0 else y + found
        return self.scores(y)
