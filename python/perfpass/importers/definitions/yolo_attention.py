"""YOLO11 (Ultralytics' configurations, 2024) and YOLO12 (Tian et al., 2025, Ultralytics' form of it), 80 classes.
Of YOLO11 also with masks and key points.

Suppression of boxes, which depends on values, is left out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as f

from perfpass.importers.definitions.yolo import BINS, CLASSES, Pooled, Task, conv

# Depth, width and the widest of each size, before it is multiplied.
SIZES = {
    "n": (0.5, 0.25, 1024), "s": (0.5, 0.5, 1024), "m": (0.5, 1, 512), "l": (1, 1, 512), "x": (1, 1.5, 512),
}  # fmt: skip


def _grouped(width: int, kernel: int) -> nn.Sequential:
    return conv(width, width, kernel, groups=width)


def _plain(a: int, b: int) -> nn.Sequential:
    """A projection without activation."""
    return conv(a, b, act=None)


class Pair(nn.Module):
    """Two convolutions of 3 x 3 with a shortcut; between them ``inner`` maps."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.parts = nn.Sequential(conv(width, inner, 3), conv(inner, width, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W]."""
        return x + self.parts(x)


class Halves(nn.Module):
    """A cross-stage partial block of two pairs (C3k)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.first, self.beside, self.last = conv(width, half), conv(width, half), conv(2 * half, width)
        self.inner = nn.Sequential(Pair(half, half), Pair(half, half))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W]."""
        return self.last(torch.cat([self.inner(self.first(x)), self.beside(x)], 1))


class Kept(nn.Module):
    """A block that keeps the maps after each of ``count`` parts (C3k2); ``nested``: the parts are `Halves`."""

    def __init__(self, a: int, b: int, count: int, *, nested: bool, share: float = 0.5) -> None:
        super().__init__()
        width = int(b * share)
        self.first, self.last = conv(a, 2 * width), conv((2 + count) * width, b)
        self.inner = nn.ModuleList(Halves(width) if nested else Pair(width, width // 2) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, a, H, W] -> [B, b, H, W]."""
        kept = list(self.first(x).chunk(2, 1))
        for part in self.inner:
            kept.append(part(kept[-1]))
        return self.last(torch.cat(kept, 1))


class Attention(nn.Module):
    """Attention of all places to one another, whose keys have half of a head's width (YOLO11)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.wide = heads, width // heads
        self.narrow = self.wide // 2
        self.mixed = _plain(width, width + 2 * self.narrow * heads)
        self.last, self.place = _plain(width, width), conv(width, width, 3, groups=width, act=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W]."""
        b, c, h, w = x.shape
        mixed = self.mixed(x).view(b, self.heads, 2 * self.narrow + self.wide, h * w)
        q, k, v = mixed.split([self.narrow, self.narrow, self.wide], 2)
        weights = (q.transpose(-2, -1) @ k * self.narrow**-0.5).softmax(-1)
        found = (v @ weights.transpose(-2, -1)).view(b, c, h, w)
        return self.last(found + self.place(v.reshape(b, c, h, w)))


class Areas(nn.Module):
    """Attention within each of ``areas`` stripes of the map (YOLO12)."""

    def __init__(self, width: int, areas: int) -> None:
        super().__init__()
        self.heads, self.areas = width // 32, areas
        self.mixed, self.last = _plain(width, 3 * width), _plain(width, width)
        self.place = conv(width, width, 7, groups=width, act=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W], H times W a multiple of ``areas``."""
        b, c, h, w = x.shape
        places = self.mixed(x).flatten(2).transpose(1, 2).reshape(b * self.areas, h * w // self.areas, 3 * c)
        q, k, v = places.view(b * self.areas, -1, self.heads, 96).permute(0, 2, 3, 1).split([32, 32, 32], 2)
        weights = (q.transpose(-2, -1) @ k * 32**-0.5).softmax(-1)
        found, values = (
            t.permute(0, 3, 1, 2).reshape(b, h, w, c).permute(0, 3, 1, 2).contiguous()
            for t in (v @ weights.transpose(-2, -1), v)
        )
        return self.last(found + self.place(values))


class Attended(nn.Module):
    """Attention and two projections, each with a shortcut."""

    def __init__(self, attention: nn.Module, width: int, inner: int) -> None:
        super().__init__()
        self.attention, self.inner = attention, nn.Sequential(conv(width, inner), _plain(inner, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W]."""
        x = x + self.attention(x)
        return x + self.inner(x)


class HalfAttended(nn.Module):
    """Half of the maps pass ``count`` attentions (C2PSA)."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        half = width // 2
        self.first, self.last = conv(width, width), conv(width, width)
        self.inner = nn.Sequential(*(Attended(Attention(half, half // 64), half, 2 * half) for _ in range(count)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W]."""
        a, b = self.first(x).chunk(2, 1)
        return self.last(torch.cat([a, self.inner(b)], 1))


class KeptAttended(nn.Module):
    """As `Kept`, of pairs of attentions within ``areas`` stripes, or of `Halves` where 0 (A2C2f).

    ``ratio``: how much wider than its maps the inner projection is; ``scaled``: the whole has a scaled shortcut.
    """

    def __init__(self, a: int, b: int, count: int, *, areas: int, ratio: float, scaled: bool) -> None:
        super().__init__()
        width = b // 2

        def part() -> nn.Module:
            if not areas:
                return Halves(width)
            return nn.Sequential(*(Attended(Areas(width, areas), width, int(width * ratio)) for _ in range(2)))

        self.first, self.last = conv(a, width), conv((1 + count) * width, b)
        self.inner = nn.ModuleList(part() for _ in range(count))
        self.scale = nn.Parameter(torch.full((b, 1, 1), 0.01)) if scaled and areas else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, a, H, W] -> [B, b, H, W]."""
        kept = [self.first(x)]
        for part in self.inner:
            kept.append(part(kept[-1]))
        found = self.last(torch.cat(kept, 1))
        return found if self.scale is None else x + self.scale * found


class Yolo(nn.Module):
    """``kind`` "11" or "12", of a size of `SIZES`; ``task`` as of `perfpass.importers.definitions.yolo.Yolo`."""

    def __init__(self, kind: str, size: str, task: str = "") -> None:
        super().__init__()
        self.classes = CLASSES if task != "pose" else 1
        deep, wide, widest = SIZES[size]
        w = [int(min(n, widest) * wide) for n in (64, 128, 256, 512, 1024)]
        count, nested, large = round(2 * deep), size in "mlx", size in "lx"
        ratio = 1.2 if large else 2.0

        def block(a: int, b: int) -> nn.Module:
            if kind == "11":
                return Kept(a, b, count, nested=nested)
            return KeptAttended(a, b, count, areas=0, ratio=ratio, scaled=False)

        def deepest(a: int) -> nn.Module:
            return Kept(a, w[4], count, nested=True)

        def stage(width: int, areas: int) -> nn.Module:
            if kind == "11":
                return Kept(width, width, count, nested=True)
            return KeptAttended(width, width, round(4 * deep), areas=areas, ratio=ratio, scaled=large)

        last = [Pooled(w[4]), HalfAttended(w[4], count)] if kind == "11" else []
        self.stem = nn.Sequential(conv(3, w[0], 3, 2), conv(w[0], w[1], 3, 2))
        self.stages = nn.ModuleList(
            [
                nn.Sequential(
                    Kept(w[1], w[2], count, nested=nested, share=0.25),
                    conv(w[2], w[2], 3, 2),
                    Kept(w[2], w[3], count, nested=nested, share=0.25),
                ),
                nn.Sequential(conv(w[3], w[3], 3, 2), stage(w[3], 4)),
                nn.Sequential(conv(w[3], w[4], 3, 2), stage(w[4], 1), *last),
            ]
        )
        self.up = nn.ModuleList([block(w[4] + w[3], w[3]), block(2 * w[3], w[2])])
        self.shrink = nn.ModuleList([conv(w[2], w[2], 3, 2), conv(w[3], w[3], 3, 2)])
        self.down = nn.ModuleList([block(w[2] + w[3], w[3]), deepest(w[3] + w[4])])
        self.heads = nn.ModuleList(self._head(n, w[2]) for n in w[2:])
        self.task = Task(task, w[2:], int(256 * wide)) if task else None

    def _head(self, width: int, least: int) -> nn.Module:
        box, score = max(16, least // 4, 4 * BINS), max(least, self.classes)
        return nn.ModuleList(
            [
                nn.Sequential(conv(width, box, 3), conv(box, box, 3), nn.Conv2d(box, 4 * BINS, 1)),
                nn.Sequential(
                    _grouped(width, 3), conv(width, score), _grouped(score, 3), conv(score, score),
                    nn.Conv2d(score, self.classes, 1),
                ),
            ]
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> Any:
        """[B, 3, H, W] -> boxes and scores [B, places, 84], and what the task has beside."""
        x = self.stem(x)
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        kept = [x]
        for up, side in zip(self.up, maps[1::-1], strict=True):
            x = up(torch.cat([f.interpolate(x, scale_factor=2.0), side], 1))
            kept.append(x)
        found = [x]
        for shrink, down, side in zip(self.shrink, self.down, kept[1::-1], strict=True):
            x = down(torch.cat([shrink(x), side], 1))
            found.append(x)
        scores = torch.cat([_scores(head, m) for head, m in zip(self.heads, found, strict=True)], 1)
        return scores if self.task is None else self.task(scores, found)


def _scores(head: Any, x: torch.Tensor) -> torch.Tensor:
    boxes, scores = (tower(x).flatten(2).transpose(1, 2) for tower in head)
    bins = torch.arange(BINS, dtype=x.dtype, device=x.device)
    boxes = torch.matmul(torch.softmax(boxes.unflatten(2, (4, BINS)), -1), bins)
    return torch.cat([boxes, torch.sigmoid(scores)], 2)
