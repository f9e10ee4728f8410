"""Networks of speech: QuartzNet 15x5, FastPitch, the generator of HiFi-GAN, WaveGlow."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Masked(nn.Conv1d):
    """A convolution over time that empties what lies behind the end of each utterance first, as NVIDIA's toolkits do.

    With the arithmetic on lengths, some ten small operators a convolution: the host's time at small batches.
    """

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        """[B, C, T] and [B] -> the same, behind the convolution."""
        mask = torch.arange(x.shape[2], device=x.device).expand(x.shape[0], x.shape[2]) >= lengths.unsqueeze(1)
        y = super().forward(x.masked_fill(mask.unsqueeze(1), 0.0))
        reach = self.dilation[0] * (self.kernel_size[0] - 1)
        behind = (lengths + 2 * int(self.padding[0]) - reach - 1).div(self.stride[0], rounding_mode="floor") + 1
        return y, behind


class Separable(nn.Module):
    """A convolution over time of each channel, one over channels, normalization."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, dilation: int = 1) -> None:
        super().__init__()
        padding = dilation * (kernel - 1) // 2
        self.time = Masked(inputs, inputs, kernel, stride, padding, dilation, groups=inputs, bias=False)
        self.channels = Masked(inputs, outputs, 1, bias=False)
        self.norm = nn.BatchNorm1d(outputs)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[B, C, T] and [B]."""
        y, lengths = self.channels(*self.time(x, lengths))
        return self.norm(y), lengths


class Block(nn.Module):
    """Five separable convolutions and a projection beside them."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        widths = [inputs, *[outputs] * 4]
        self.parts = nn.ModuleList(Separable(width, outputs, kernel) for width in widths)
        self.beside, self.norm = Masked(inputs, outputs, 1, bias=False), nn.BatchNorm1d(outputs)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[B, C, T] and [B]."""
        y, behind = x, lengths
        for i, part in enumerate(self.parts):
            y, behind = part(y, behind)
            if i < len(self.parts) - 1:
                y = torch.relu(y)
        return torch.relu(y + self.norm(self.beside(x, lengths)[0])), behind


class QuartzNet(nn.Module):
    """QuartzNet 15x5 (Kriman et al., 2019): 64 mel bands every 10 ms, 28 letters and a blank."""

    def __init__(self, letters: int = 29) -> None:
        super().__init__()
        shapes = [(256, 33), (256, 39), (512, 51), (512, 63), (512, 75)]
        blocks, width = [], 256
        for outputs, kernel in shapes:
            for _ in range(3):
                blocks.append(Block(width, outputs, kernel))
                width = outputs
        self.first = Separable(64, 256, 33, stride=2)
        self.blocks = nn.ModuleList(blocks)
        self.wide, self.out = Separable(512, 512, 87, dilation=2), Masked(512, 1024, 1, bias=False)
        self.last = nn.Sequential(nn.BatchNorm1d(1024), nn.ReLU(), nn.Conv1d(1024, letters, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, 64, frames] -> log probabilities [B, frames / 2, letters]."""
        y, lengths = self.first(x, torch.full((x.shape[0],), x.shape[2], device=x.device))
        y = torch.relu(y)
        for block in self.blocks:
            y, lengths = block(y, lengths)
        y, lengths = self.wide(y, lengths)
        y, _ = self.out(torch.relu(y), lengths)
        return torch.log_softmax(self.last(y).transpose(1, 2), dim=-1)


class Feed(nn.Module):
    """A feed-forward Transformer's layer: attention of one head, two convolutions over time."""

    def __init__(self, width: int = 384, inner: int = 1536, head: int = 64) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * head), nn.Linear(head, width, bias=False)
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.conv = nn.Sequential(
            nn.Conv1d(width, inner, 3, padding=1), nn.ReLU(), nn.Conv1d(inner, width, 3, padding=1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, T, C]."""
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        weights = torch.softmax(torch.bmm(q, k.transpose(1, 2)) * q.shape[-1] ** -0.5, dim=-1)
        x = self.norm(x + self.out(torch.bmm(weights, v)))
        return self.norm2(x + self.conv(x.transpose(1, 2)).transpose(1, 2))


class Scalar(nn.Module):
    """The predictor of durations or of pitch: two convolutions over letters."""

    def __init__(self, width: int = 384, inner: int = 256) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(n, inner, 3, padding=1) for n in (width, inner))
        self.norms = nn.ModuleList(nn.LayerNorm(inner) for _ in range(2))
        self.out = nn.Linear(inner, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, T, C] -> [B, T, 1]."""
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = norm(torch.relu(conv(x.transpose(1, 2))).transpose(1, 2))
        return self.out(x)


class FastPitch(nn.Module):
    """FastPitch (Lancucki, 2020): letters to mel frames, ``frames`` a letter.

    DeepLearningExamples' rates of frames give 600 to 700 frames for its 128 letters.
    """

    def __init__(self, frames: float = 660 / 128, width: int = 384) -> None:
        super().__init__()
        self.frames = frames
        self.letters = nn.Embedding(148, width)
        self.encoder, self.decoder = (nn.Sequential(*[Feed(width) for _ in range(6)]) for _ in range(2))
        self.duration, self.pitch = Scalar(width), Scalar(width)
        self.pitched = nn.Conv1d(1, width, 3, padding=1)
        self.out = nn.Linear(width, 80)

    def forward(self, letters: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Letters [B, T] -> mel [B, 80, T * frames], durations [B, T, 1]."""
        x = self.encoder(self.letters(letters))
        durations = self.duration(x)
        x = x + self.pitched(self.pitch(x).transpose(1, 2)).transpose(1, 2)
        length = int(letters.shape[1] * self.frames)
        repeats = x.new_empty(letters.shape[0], length, letters.shape[1])
        return self.out(self.decoder(torch.bmm(repeats, x))).transpose(1, 2), durations


class Dilated(nn.Module):
    """HiFi-GAN's residual block: three pairs of convolutions over time."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.pairs = nn.ModuleList(
            nn.Sequential(
                nn.LeakyReLU(0.1), nn.Conv1d(width, width, kernel, padding=d * (kernel - 1) // 2, dilation=d),
                nn.LeakyReLU(0.1), nn.Conv1d(width, width, kernel, padding=(kernel - 1) // 2),
            )
            for d in (1, 3, 5)
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C, T]."""
        for pair in self.pairs:
            x = x + pair(x)
        return x


class HifiGan(nn.Module):
    """HiFi-GAN's generator V1 (Kong et al., 2020): 80 mel bands to samples, 256 a frame."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(80, 512, 7, padding=3)
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        width = 512
        for rate, kernel in ((8, 16), (8, 16), (2, 4), (2, 4)):
            self.ups.append(nn.ConvTranspose1d(width, width // 2, kernel, rate, (kernel - rate) // 2))
            width //= 2
            self.blocks.append(nn.ModuleList(Dilated(width, k) for k in (3, 7, 11)))
        self.last = nn.Conv1d(width, 1, 7, padding=3)

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        """[B, 80, frames] -> [B, 1, 256 * frames]."""
        x = self.first(mel)
        blocks: Any
        for up, blocks in zip(self.ups, self.blocks, strict=True):
            x = up(nn.functional.leaky_relu(x, 0.1))
            parts = [block(x) for block in blocks]
            x = (parts[0] + parts[1] + parts[2]) / 3
        return torch.tanh(self.last(nn.functional.leaky_relu(x)))


class Flow(nn.Module):
    """A step of WaveGlow: a dilated network of eight layers gives scale and shift of half the channels."""

    def __init__(self, channels: int, width: int, layers: int, mel: int) -> None:
        super().__init__()
        half = channels // 2
        self.mix = nn.Conv1d(channels, channels, 1, bias=False)
        self.first, self.last = nn.Conv1d(half, width, 1), nn.Conv1d(width, 2 * half, 1)
        self.given = nn.Conv1d(mel, 2 * width * layers, 1)
        self.time = nn.ModuleList(nn.Conv1d(width, 2 * width, 3, padding=2**i, dilation=2**i) for i in range(layers))
        self.out = nn.ModuleList(nn.Conv1d(width, width * (1 + (i < layers - 1)), 1) for i in range(layers))

    def forward(self, x: torch.Tensor, mel: torch.Tensor) -> torch.Tensor:
        """X [B, channels, T], mel [B, mel, T]."""
        a, b = x.chunk(2, 1)
        y, total = self.first(a), None
        given = self.given(mel).chunk(len(self.time), 1)
        for time, out, more in zip(self.time, self.out, given, strict=True):
            both, gate = (time(y) + more).chunk(2, 1)
            found = out(torch.tanh(both) * torch.sigmoid(gate))
            if found.shape[1] > y.shape[1]:
                kept, found = found.chunk(2, 1)
                y = y + kept
            total = found if total is None else total + found
        shift, scale = self.last(total).chunk(2, 1)
        return self.mix(torch.cat([a, (b - shift) / torch.exp(scale)], 1))


class WaveGlow(nn.Module):
    """WaveGlow (Prenger et al., 2018) as DeepLearningExamples has it: 80 mel bands to samples, 256 a frame."""

    def __init__(self, width: int = 512, flows: int = 12, layers: int = 8, group: int = 8) -> None:
        super().__init__()
        self.grow, self.group = nn.ConvTranspose1d(80, 80, 1024, 256), group
        # Every fourth step on the way to noise two channels leave, which on the way back come in again.
        channels = [group - 2 * (i // 4) for i in range(flows)][::-1]
        self.flows = nn.ModuleList(Flow(n, width, layers, 80 * group) for n in channels)

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        """[B, 80, frames] -> [B, 256 * frames]."""
        batch, _, frames = mel.shape
        given = self.grow(mel)[:, :, : 256 * frames].unflatten(2, (-1, self.group))
        given = given.permute(0, 1, 3, 2).flatten(1, 2)
        flow: Any = self.flows[0]
        x = mel.new_empty(batch, flow.mix.in_channels, given.shape[2])
        for flow in self.flows:
            width = flow.mix.in_channels
            if x.shape[1] < width:
                x = torch.cat([mel.new_empty(batch, width - x.shape[1], given.shape[2]), x], 1)
            x = flow(x, given)
        return x.transpose(1, 2).flatten(1)
