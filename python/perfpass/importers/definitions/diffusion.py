"""Stable Diffusion 1.5, 2 (Rombach et al., 2022) and XL (Podell et al., 2023): U-Net, decoder, and a whole picture.

Widths, heads and depths are those of the published configurations. Of a picture the U-Net runs once a step on two
copies of each sample, with and without the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as f

from perfpass.importers.definitions.attention import Attention


@dataclass(frozen=True)
class Version:
    """``depths``: transformer blocks a level, the last also in the middle; ``heads`` a level; ``linear``: projections
    around them are no convolutions; ``texts``: configurations of the text encoders; ``extra``: width of what SDXL is
    told of sizes.
    """

    widths: tuple[int, ...]
    depths: tuple[int, ...]
    heads: tuple[int, ...]
    context: int
    linear: bool
    texts: tuple[dict[str, Any], ...]
    extra: int = 0


def _clip(width: int, layers: int, heads: int, act: str, project: int = 0) -> dict[str, Any]:
    shape = {"hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": layers}
    return {**shape, "num_attention_heads": heads, "hidden_act": act, "projection_dim": project or width}


_LARGE = _clip(768, 12, 12, "quick_gelu")
_FOUR = (320, 640, 1280, 1280)
VERSIONS = {
    "1.5": Version(_FOUR, (1, 1, 1, 0), (8, 8, 8, 8), 768, False, (_LARGE,)),
    "2": Version(_FOUR, (1, 1, 1, 0), (5, 10, 20, 20), 1024, True, (_clip(1024, 23, 16, "gelu"),)),
    "xl": Version(
        _FOUR[:3], (0, 2, 10), (5, 10, 20), 2048, True, (_LARGE, _clip(1280, 32, 20, "gelu", 1280)), extra=2816
    ),
}


class Residual(nn.Module):
    """Two convolutions behind group normalization; ``time``: width of what it is told of the step, 0 for nothing."""

    def __init__(self, a: int, b: int, time: int = 0) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, a), nn.Conv2d(a, b, 3, padding=1)
        self.time = nn.Linear(time, b) if time else None
        self.norm2, self.conv2 = nn.GroupNorm(32, b), nn.Conv2d(b, b, 3, padding=1)
        self.beside = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor | None = None) -> torch.Tensor:
        """[B, a, H, W] -> [B, b, H, W]."""
        y = self.conv1(f.silu(self.norm1(x)))
        if self.time is not None and time is not None:
            y = y + self.time(f.silu(time))[:, :, None, None]
        return self.beside(x) + self.conv2(f.silu(self.norm2(y)))


class Block(nn.Module):
    """Attention to the image, to the words, and a gated feed-forward part."""

    def __init__(self, width: int, heads: int, context: int, *, eager: bool) -> None:
        super().__init__()
        self.own = Attention(width, heads, width, eager=eager)
        self.words = Attention(width, heads, context, eager=eager)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.gate, self.out = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """X [B, T, C], words [B, S, K]."""
        y = self.norms[0](x)
        x = x + self.own(y, y)
        x = x + self.words(self.norms[1](x), words)
        values, gate = self.gate(self.norms[2](x)).chunk(2, dim=-1)
        return x + self.out(values * f.gelu(gate))


class Transformer(nn.Module):
    """Blocks over the places of a map."""

    def __init__(self, width: int, heads: int, depth: int, version: Version, *, eager: bool) -> None:
        super().__init__()
        self.linear, self.norm = version.linear, nn.GroupNorm(32, width)
        self.first, self.last = (
            nn.Linear(width, width) if version.linear else nn.Conv2d(width, width, 1) for _ in range(2)
        )
        self.blocks = nn.ModuleList(Block(width, heads, version.context, eager=eager) for _ in range(depth))

    def forward(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """X [B, C, H, W], words [B, S, K]."""
        y = self.norm(x)
        y = y if self.linear else self.first(y)
        y = y.flatten(2).transpose(1, 2)
        y = self.first(y) if self.linear else y
        for block in self.blocks:
            y = block(y, words)
        y = self.last(y) if self.linear else y
        y = y.transpose(1, 2).unflatten(2, x.shape[2:])
        return x + (y if self.linear else self.last(y))


class Level(nn.Module):
    """Residual blocks of one width, each with a transformer where there is one."""

    def __init__(self, shapes: Sequence[tuple[int, int]], time: int, transformers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.blocks, self.transformers = (
            nn.ModuleList(Residual(a, b, time) for a, b in shapes),
            nn.ModuleList(transformers),
        )

    def forward(self, i: int, x: torch.Tensor, time: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """The i-th block and its transformer."""
        x = self.blocks[i](x, time)
        return self.transformers[i](x, words) if i < len(self.transformers) else x


class UNet(nn.Module):
    """The network of one step: latents [B, 4, H, W], steps [B], words [B, 77, context] -> noise [B, 4, H, W]."""

    def __init__(self, version: str, *, eager: bool = False) -> None:
        super().__init__()
        v = VERSIONS[version]
        w, time = v.widths, 4 * v.widths[0]
        self.first, self.wide = nn.Conv2d(4, w[0], 3, padding=1), w[0]
        self.time = nn.Sequential(nn.Linear(w[0], time), nn.SiLU(), nn.Linear(time, time))
        self.sizes = nn.Sequential(nn.Linear(v.extra, time), nn.SiLU(), nn.Linear(time, time)) if v.extra else None

        def transformers(level: int, count: int) -> list[nn.Module]:
            depth = v.depths[level]
            return [Transformer(w[level], v.heads[level], depth, v, eager=eager) for _ in range(count if depth else 0)]

        kept, down, up, width = [w[0]], [], [], w[0]
        for i, n in enumerate(w):
            down.append(Level([(width, n), (n, n)], time, transformers(i, 2)))
            kept += [n, n] + ([n] if i < len(w) - 1 else [])
            width = n
        depth = max(v.depths[-1], 1)
        self.middle = Level(
            [(width, width)] * 2, time, [Transformer(width, v.heads[-1], depth, v, eager=eager)]
        )  # fmt: skip
        for i in reversed(range(len(w))):
            shapes = []
            for _ in range(3):
                shapes.append((width + kept.pop(), w[i]))
                width = w[i]
            up.append(Level(shapes, time, transformers(i, 3)))
        self.down, self.up = nn.ModuleList(down), nn.ModuleList(up)
        self.shrink = nn.ModuleList(nn.Conv2d(n, n, 3, 2, 1) for n in w[:-1])
        self.grow = nn.ModuleList(nn.Conv2d(n, n, 3, padding=1) for n in w[:0:-1])
        self.norm, self.last = nn.GroupNorm(32, w[0]), nn.Conv2d(w[0], 4, 3, padding=1)

    def forward(
        self, x: torch.Tensor, steps: torch.Tensor, words: torch.Tensor, sizes: torch.Tensor | None = None
    ) -> torch.Tensor:
        """As above; ``sizes`` [B, 2816]: what SDXL is told of the picture."""
        angles = steps[:, None] * torch.empty(self.wide // 2, dtype=x.dtype, device=x.device)
        time = self.time(torch.cat([angles.cos(), angles.sin()], 1))
        if self.sizes is not None and sizes is not None:
            time = time + self.sizes(sizes)
        x = self.first(x)
        kept = [x]
        for i, level in enumerate(self.down):
            for j in range(2):
                x = level(j, x, time, words)
                kept.append(x)
            if i < len(self.shrink):
                x = self.shrink[i](x)
                kept.append(x)
        x = self.middle.blocks[1](self.middle(0, x, time, words), time)
        for i, level in enumerate(self.up):
            for j in range(3):
                x = level(j, torch.cat([x, kept.pop()], 1), time, words)
            if i < len(self.grow):
                x = self.grow[i](f.interpolate(x, scale_factor=2.0))
        return self.last(f.silu(self.norm(x)))


class Decoder(nn.Module):
    """Latents to pictures: [B, 4, H, W] -> [B, 3, 8 H, 8 W]; the same in all versions."""

    def __init__(self, widths: Sequence[int] = (512, 512, 256, 128)) -> None:
        super().__init__()
        n = widths[0]
        self.before, self.first = nn.Conv2d(4, 4, 1), nn.Conv2d(4, n, 3, padding=1)
        self.middle = nn.ModuleList(Residual(n, n) for _ in range(2))
        self.norm, self.attention = nn.GroupNorm(32, n), Attention(n, 1, n, eager=False, bias=True)
        pairs = zip((n, *widths), widths, strict=False)
        self.up = nn.ModuleList(nn.Sequential(Residual(a, b), Residual(b, b), Residual(b, b)) for a, b in pairs)
        self.grow = nn.ModuleList(nn.Conv2d(n, n, 3, padding=1) for n in widths[:-1])
        self.norm_out, self.last = nn.GroupNorm(32, widths[-1]), nn.Conv2d(widths[-1], 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As above."""
        x = self.middle[0](self.first(self.before(x)))
        y = self.norm(x).flatten(2).transpose(1, 2)
        x = self.middle[1](x + self.attention(y, y).transpose(1, 2).unflatten(2, x.shape[2:]))
        for i, level in enumerate(self.up):
            x = level(x)
            if i < len(self.grow):
                x = self.grow[i](f.interpolate(x, scale_factor=2.0))
        return self.last(f.silu(self.norm_out(x)))


class Picture(nn.Module):
    """Text encoders, U-Net and decoder, each once: ids [B, 77], latents [B, 4, H, W] -> [B, 3, 8 H, 8 W]."""

    def __init__(self, version: str, *, eager: bool = False) -> None:
        super().__init__()
        from transformers import CLIPTextConfig, CLIPTextModel

        made = VERSIONS[version]
        attention = "eager" if eager else "sdpa"
        self.texts = nn.ModuleList(
            CLIPTextModel(CLIPTextConfig(**{**text, "attn_implementation": attention})) for text in made.texts
        )
        self.extra, self.unet, self.vae = made.extra, UNet(version, eager=eager), Decoder()

    def forward(self, ids: torch.Tensor, latents: torch.Tensor) -> torch.Tensor:
        """As above."""
        both, batch = torch.cat([ids, ids]), 2 * latents.shape[0]
        words = torch.cat([text(both).last_hidden_state for text in self.texts], 2)
        step = torch.empty(batch, device=latents.device)
        sizes = torch.empty(batch, self.extra, device=latents.device) if self.extra else None
        noise = self.unet(torch.cat([latents, latents]), step, words, sizes)
        uncertain, certain = noise.chunk(2)
        return self.vae(latents + uncertain + 7.5 * (certain - uncertain))
