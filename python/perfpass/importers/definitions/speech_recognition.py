"""Jasper 10x5 (Li et al., 2019) and the Conformer (Gulati et al., 2020), each with scores of letters or word parts."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as f

_SHAPES = ((256, 11), (384, 13), (512, 17), (640, 21), (768, 25))  # of Jasper, two blocks each
# Layers, width and heads of the Conformer's sizes: table 1 of the paper.
CONFORMERS = {"s": (16, 144, 4), "m": (16, 256, 4), "l": (17, 512, 8)}


def _conv(a: int, b: int, kernel: int, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    padding = dilation * (kernel - 1) // 2
    return nn.Sequential(nn.Conv1d(a, b, kernel, stride, padding, dilation, bias=False), nn.BatchNorm1d(b))


class Jasper(nn.Module):
    """Ten blocks of five convolutions; the shortcuts of a block come from all blocks before it."""

    def __init__(self, letters: int = 29) -> None:
        super().__init__()
        self.first = nn.Sequential(_conv(64, 256, 11, 2), nn.ReLU())
        self.blocks, self.beside, widths = nn.ModuleList(), nn.ModuleList(), [256]
        for outputs, kernel in _SHAPES:
            for _ in range(2):
                a = [widths[-1], *[outputs] * 4]
                self.blocks.append(nn.ModuleList(_conv(n, outputs, kernel) for n in a))
                self.beside.append(nn.ModuleList(_conv(n, outputs, 1) for n in widths))
                widths.append(outputs)
        self.last = nn.Sequential(
            _conv(768, 896, 29, 1, 2), nn.ReLU(), _conv(896, 1024, 1), nn.ReLU(), nn.Conv1d(1024, letters, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, 64, frames] -> log probabilities [B, frames / 2, letters]."""
        kept = [self.first(x)]
        parts: Any
        sides: Any
        for parts, sides in zip(self.blocks, self.beside, strict=True):
            y = kept[-1]
            for i, part in enumerate(parts):
                y = torch.relu(part(y)) if i < len(parts) - 1 else part(y)
            for side, before in zip(sides, kept, strict=True):
                y = y + side(before)
            kept.append(torch.relu(y))
        return torch.log_softmax(self.last(kept[-1]).transpose(1, 2), dim=-1)


class Relative(nn.Module):
    """Attention with relative positions (Dai et al., 2019)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.places = nn.Linear(width, width, bias=False)
        self.bias = nn.Parameter(torch.empty(2, heads, 1, width // heads))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, T, C]."""
        batch, length, width = x.shape
        q, k, v = (part(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        table = self.places(x.new_empty(2 * length - 1, width)).unflatten(1, (self.heads, -1)).permute(1, 2, 0)
        shifted = f.pad(torch.matmul(q + self.bias[1], table), (1, 0)).view(batch, self.heads, -1, length)[:, :, 1:]
        shifted = shifted.reshape(batch, self.heads, length, -1)[..., :length]
        score = torch.matmul(q + self.bias[0], k.transpose(2, 3)) + shifted
        found = torch.matmul(torch.softmax(score * q.shape[-1] ** -0.5, dim=-1), v)
        return self.out(found.transpose(1, 2).flatten(2))


class Convolved(nn.Module):
    """The convolution module: a gate, a convolution of 31 frames of each channel, normalization, swish."""

    def __init__(self, width: int, kernel: int = 31) -> None:
        super().__init__()
        self.norm, self.gate = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
        self.time = nn.Conv1d(width, width, kernel, padding="same", groups=width)
        self.middle, self.last = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, T, C]."""
        y = self.time(f.glu(self.gate(self.norm(x).transpose(1, 2)), 1))
        return self.last(f.silu(self.middle(y))).transpose(1, 2)


class Block(nn.Module):
    """Half a feed-forward part, attention, convolution, the other half."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.halves = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
            for _ in range(2)
        )
        self.norm, self.attention = nn.LayerNorm(width), Relative(width, heads)
        self.convolved, self.last = Convolved(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, T, C]."""
        x = x + 0.5 * self.halves[0](x)
        x = x + self.attention(self.norm(x))
        x = x + self.convolved(x)
        return self.last(x + 0.5 * self.halves[1](x))


class Conformer(nn.Module):
    """The encoder of one of `CONFORMERS`: every fourth frame of 80 mel bands, scores of ``parts`` of words."""

    def __init__(self, size: str, parts: int = 1024) -> None:
        super().__init__()
        layers, width, heads = CONFORMERS[size]
        self.fewer = nn.Sequential(nn.Conv2d(1, width, 3, 2), nn.ReLU(), nn.Conv2d(width, width, 3, 2), nn.ReLU())
        self.narrow = nn.Linear(width * 19, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.scores = nn.Linear(width, parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, frames, 80] -> log probabilities [B, frames / 4, parts]."""
        y = self.narrow(self.fewer(x[:, None]).transpose(1, 2).flatten(2))
        return torch.log_softmax(self.scores(self.blocks(y)), dim=-1)
