"""Networks that recommend: DLRM, Wide & Deep, NeuMF. Their input is one row of integers, one look-up a column."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

# Rows of the 26 tables of Criteo Terabyte, values seen at least 15 times; from memory, not from the source: the time of
# a look-up does not depend on them.
CRITEO_ROWS = (
    7912889, 33823, 17139, 7339, 20046, 4, 7105, 1382, 63, 5554114, 582469, 245828, 11, 2209, 10667, 104, 4, 968, 15,
    8165896, 2675940, 7156453, 302516, 12022, 97, 35,
)  # fmt: skip
# (width, rows) of Outbrain's 13 tables, as the README of Wide & Deep lists them.
OUTBRAIN = (
    (128, 300000), (16, 4), (128, 100000), (64, 4000), (64, 1000), (64, 2500), (64, 300), (64, 2000),
    (128, 250000), (64, 2500), (64, 4000), (64, 1000), (64, 5000),
)  # fmt: skip
_NUMBERS = 13  # numerical features of both data sets


def layers(widths: Sequence[int], *, last: bool = False) -> nn.Sequential:
    """Linear layers with a ReLU behind each, but for the ``last`` one where it gives the answer."""
    parts: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(pairwise(widths)):
        parts.append(nn.Linear(inputs, outputs))
        if not (last and i == len(widths) - 2):
            parts.append(nn.ReLU())
    return nn.Sequential(*parts)


class Dlrm(nn.Module):
    """DLRM (Naumov et al., 2019) as DeepLearningExamples has it: one joint table, dot interaction."""

    pairs: torch.Tensor

    def __init__(self, rows: Sequence[int] = CRITEO_ROWS, width: int = 128) -> None:
        super().__init__()
        self.table = nn.Embedding(sum(rows), width)
        self.bottom = layers((_NUMBERS, 512, 256, width))
        n = len(rows) + 1
        self.register_buffer("pairs", torch.tril_indices(n, n, -1))
        self.top = layers((n * (n - 1) // 2 + width + 1, 1024, 1024, 512, 256, 1), last=True)

    def forward(self, numbers: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Numbers [B, 13], ids [B, 26] -> [B, 1]."""
        bottom = self.bottom(numbers)
        all_ = torch.cat([bottom[:, None], self.table(ids)], dim=1)
        products = torch.bmm(all_, all_.transpose(1, 2))
        pairs = products[:, self.pairs[0], self.pairs[1]]
        return self.top(nn.functional.pad(torch.cat([bottom, pairs], dim=1), (0, 1)))


class WideAndDeep(nn.Module):
    """Wide & Deep (Cheng et al., 2016) as DeepLearningExamples has it for Outbrain: five layers of 1,024."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for width, rows in OUTBRAIN)
        self.wide = nn.ModuleList(nn.Embedding(rows, 1) for _, rows in OUTBRAIN)
        self.wide_numbers = nn.Linear(_NUMBERS, 1)
        self.deep = layers((sum(width for width, _ in OUTBRAIN) + _NUMBERS, *[1024] * 5, 1), last=True)

    def forward(self, numbers: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Numbers [B, 13], ids [B, 13] -> [B, 1]."""
        found = [table(ids[:, i]) for i, table in enumerate(self.tables)]
        wide = torch.cat([table(ids[:, i]) for i, table in enumerate(self.wide)], dim=1).sum(1, keepdim=True)
        deep = self.deep(torch.cat([numbers, *found], dim=1))
        return torch.sigmoid(deep + wide + self.wide_numbers(numbers))


class NeuMf(nn.Module):
    """NeuMF (He et al., 2017) on MovieLens-20M, as DeepLearningExamples has it."""

    def __init__(self, users: int = 138493, items: int = 26744, factors: int = 64) -> None:
        super().__init__()
        widths = (256, 256, 128, 64)
        self.users, self.items = nn.Embedding(users, factors), nn.Embedding(items, factors)
        self.mlp_users, self.mlp_items = (nn.Embedding(n, widths[0] // 2) for n in (users, items))
        self.mlp = layers(widths)
        self.out = nn.Linear(factors + widths[-1], 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Ids [B, 2]: user and item -> [B, 1]."""
        user, item = ids[:, 0], ids[:, 1]
        mlp = self.mlp(torch.cat([self.mlp_users(user), self.mlp_items(item)], dim=1))
        return self.out(torch.cat([self.users(user) * self.items(item), mlp], dim=1))


class VaeCf(nn.Module):
    """The variational autoencoder of Liang et al., 2018, on MovieLens-20M: a row of ratings in and out."""

    def __init__(self, items: int = 20108, inner: int = 600, hidden: int = 200) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(items, inner), nn.Tanh(), nn.Linear(inner, 2 * hidden))
        self.decoder = nn.Sequential(nn.Linear(hidden, inner), nn.Tanh(), nn.Linear(inner, items))

    def forward(self, ratings: torch.Tensor) -> torch.Tensor:
        """[B, items] -> [B, items]."""
        mean, variance = self.encoder(nn.functional.normalize(ratings)).chunk(2, 1)
        return self.decoder(mean + torch.exp(0.5 * variance))
