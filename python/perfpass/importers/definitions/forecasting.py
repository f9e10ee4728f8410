"""The Temporal Fusion Transformer (Lim et al., 2019), as DeepLearningExamples runs it on hourly electricity."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as f

WIDTH, HEADS, ENCODED, STEPS = 128, 4, 168, 192
KNOWN, SERIES = 3, 369  # known numbers of every hour; series of the data set


class Gate(nn.Module):
    """A gated linear unit."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 2 * out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., width] -> [..., out]."""
        return f.glu(self.linear(x))


class Residual(nn.Module):
    """The gated residual network, eq. 2 to 5."""

    def __init__(self, inputs: int, out: int | None = None, *, context: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inputs, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.context = nn.Linear(WIDTH, WIDTH, bias=False) if context else None
        self.gate = Gate(WIDTH, out or WIDTH)
        self.skip = nn.Linear(inputs, out) if out else nn.Identity()
        self.norm = nn.LayerNorm(out or WIDTH)

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        """[..., inputs] -> [..., out]; ``context`` [B, WIDTH]."""
        y = self.first(x)
        if self.context is not None and context is not None:
            y = y + self.context(context).unsqueeze(1)
        return self.norm(self.gate(self.second(f.elu(y))) + self.skip(x))


class Selection(nn.Module):
    """Variable selection, eq. 6 to 8."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.joint = Residual(WIDTH * count, count, context=True)
        self.each = nn.ModuleList(Residual(WIDTH) for _ in range(count))

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        """[..., count, WIDTH] -> [..., WIDTH]."""
        weights = torch.softmax(self.joint(x.flatten(-2), context), dim=-1)
        found = torch.stack([part(x[..., i, :]) for i, part in enumerate(self.each)], dim=-1)
        return torch.matmul(found, weights.unsqueeze(-1)).squeeze(-1)


class Tft(nn.Module):
    """168 hours read, 24 forecast, three quantiles."""

    def __init__(self) -> None:
        super().__init__()
        self.series = nn.Embedding(SERIES, WIDTH)
        self.known = nn.Parameter(torch.empty(2, KNOWN, WIDTH))
        self.target = nn.Parameter(torch.empty(2, 1, WIDTH))
        self.static = Selection(1)
        self.contexts = nn.ModuleList(Residual(WIDTH) for _ in range(4))
        self.past, self.future = Selection(KNOWN + 1), Selection(KNOWN)
        self.encoder, self.decoder = (nn.LSTM(WIDTH, WIDTH, batch_first=True) for _ in range(2))
        self.gates = nn.ModuleList(Gate(WIDTH, WIDTH) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.enrich, self.positionwise = Residual(WIDTH, context=True), Residual(WIDTH)
        head = WIDTH // HEADS
        self.qkv = nn.Linear(WIDTH, (2 * HEADS + 1) * head, bias=False)
        self.out = nn.Linear(head, WIDTH, bias=False)
        self.register_buffer("mask", torch.empty(1, STEPS, STEPS))
        self.quantiles = nn.Linear(WIDTH, 3)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        """Interpretable attention, eq. 13 to 16: heads share their values."""
        batch, steps, _ = x.shape
        head = WIDTH // HEADS
        q, k, v = self.qkv(x).split((HEADS * head, HEADS * head, head), dim=-1)
        q, k = (part.view(batch, steps, HEADS, head) for part in (q, k))
        score = torch.matmul(q.permute(0, 2, 1, 3), k.permute(0, 2, 3, 1)) * head**-0.5
        found = torch.matmul(torch.softmax(score + self.mask, dim=3), v.unsqueeze(1))
        return self.out(found.mean(dim=1))

    def forward(self, known: torch.Tensor, target: torch.Tensor, series: torch.Tensor) -> torch.Tensor:
        """Known [B, 192, 3], target [B, 192, 1], series [B, 1] -> [B, 24, 3]."""
        static = self.static(self.series(series))
        select, enrich, state, cell = (part(static) for part in self.contexts)
        hours = known.unsqueeze(-1) * self.known[0] + self.known[1]
        seen = target.unsqueeze(-1) * self.target[0] + self.target[1]
        past = self.past(torch.cat([hours[:, :ENCODED], seen[:, :ENCODED]], dim=-2), select)
        future = self.future(hours[:, ENCODED:], select)
        history, carried = self.encoder(past, (state.unsqueeze(0), cell.unsqueeze(0)))
        forecast, _ = self.decoder(future, carried)
        inputs, recurrent = torch.cat([past, future], dim=1), torch.cat([history, forecast], dim=1)
        recurrent = self.norms[0](self.gates[0](recurrent) + inputs)
        enriched = self.enrich(recurrent, enrich)
        x = self.attention(enriched)[:, ENCODED:]
        x = self.norms[1](self.gates[1](x) + enriched[:, ENCODED:])
        x = self.positionwise(x)
        x = self.norms[2](self.gates[2](x) + recurrent[:, ENCODED:])
        return self.quantiles(x)
