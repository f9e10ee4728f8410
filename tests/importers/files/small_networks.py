"""The small networks that the files beside this one are made of."""

from __future__ import annotations

import torch
from torch import nn


class Images(nn.Module):
    """A convolution, a depthwise one, a transposed one, normalisations that fold and one that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.before = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU())
        self.deep = nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)
        self.head = nn.Linear(4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = torch.nn.functional.max_pool2d(self.deep(self.before(x)) + x, 2)
        return self.head(self.up(x).mean((2, 3)))


class Block(nn.Module):
    """Attention of two heads and a feed-forward layer over open lengths."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.table = nn.Embedding(50, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.feed(self.norms[1](x))


def trained(module: nn.Module) -> nn.Module:
    """Every parameter and statistic another than it begins with: converters drop additions of zero."""
    torch.manual_seed(0)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.uniform_(0.1, 0.5)
    return module.eval()
