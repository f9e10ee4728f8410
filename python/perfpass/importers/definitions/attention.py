"""Attention of several heads, fused or in parts."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as f


class Attention(nn.Module):
    """Attention of ``heads`` to ``context``; ``eager``: as two products around a softmax."""

    def __init__(self, width: int, heads: int, context: int, *, eager: bool, bias: bool = False) -> None:
        super().__init__()
        self.heads, self.eager = heads, eager
        self.q, self.k, self.v = (nn.Linear(n, width, bias=bias) for n in (width, context, context))
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """X [B, T, C], context [B, S, K] -> [B, T, C]."""
        batch = x.shape[0]
        rows = (self.q(x), self.k(context), self.v(context))
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in rows)
        if not self.eager:
            return self.out(f.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        q, k, v = (part.flatten(0, 1) for part in (q, k, v))
        weights = torch.softmax(torch.bmm(q * q.shape[-1] ** -0.5, k.transpose(1, 2)), dim=-1)
        return self.out(torch.bmm(weights, v).unflatten(0, (batch, self.heads)).transpose(1, 2).flatten(2))
