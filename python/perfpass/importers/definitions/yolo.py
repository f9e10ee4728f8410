"""YOLO v3 (Redmon and Farhadi, 2018), v5 and v8 (Ultralytics' configurations), YOLOX (Ge et al., 2021), 80 classes.
Of v8 also with masks and key points.

Suppression of boxes, which depends on values, is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as f

CLASSES = 80
VALUES = {"seg": 32, "pose": 51}  # masks; 17 points with three values each, of people alone
BINS = 16  # of v8's distribution over a box's sides
# Depth and width of each size.
SIZES = {
    "t": (1 / 3, 0.375),
    "n": (1 / 3, 0.25),
    "s": (1 / 3, 0.5),
    "m": (2 / 3, 0.75),
    "l": (1, 1),
    "x": (4 / 3, 1.25),
}
_WIDEST = {"m": 768, "l": 512, "x": 512}  # of v8, which is also no deeper than its "l"


def conv(
    a: int, b: int, kernel: int = 1, stride: int = 1, padding: int = -1, *, groups: int = 1, act: Any = nn.SiLU
) -> nn.Sequential:
    """A convolution, its normalization and its activation (None: none); ``padding`` -1: half the kernel."""
    padding = kernel // 2 if padding < 0 else padding
    parts = [nn.Conv2d(a, b, kernel, stride, padding, groups=groups, bias=False), nn.BatchNorm2d(b)]
    return nn.Sequential(*parts, *([] if act is None else [act(inplace=True)]))


class Bottleneck(nn.Module):
    """Two convolutions, the first of ``kernel``, with a shortcut where ``add``."""

    def __init__(self, width: int, kernel: int, *, add: bool) -> None:
        super().__init__()
        self.parts, self.add = nn.Sequential(conv(width, width, kernel), conv(width, width, 3)), add

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W]."""
        return x + self.parts(x) if self.add else self.parts(x)


class Partial(nn.Module):
    """A cross-stage partial block: half of the maps pass the bottlenecks; ``each``: all of these are kept (v8)."""

    def __init__(self, a: int, b: int, count: int, *, add: bool = True, each: bool = False) -> None:
        super().__init__()
        self.each, half = each, b // 2
        # One convolution makes both halves where each map is kept.
        self.first, self.beside = conv(a, b if each else half), nn.Sequential() if each else conv(a, half)
        self.inner = nn.ModuleList(Bottleneck(half, 3 if each else 1, add=add) for _ in range(count))
        self.last = conv((2 + count) * half if each else b, b)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, a, H, W] -> [B, b, H, W]."""
        if self.each:
            kept = list(self.first(x).chunk(2, 1))
            for part in self.inner:
                kept.append(part(kept[-1]))
            return self.last(torch.cat(kept, 1))
        y = self.first(x)
        for part in self.inner:
            y = part(y)
        return self.last(torch.cat([y, self.beside(x)], 1))


class Pooled(nn.Module):
    """Maxima over growing windows, side by side; one pooling after another or of three ``kernels`` (YOLOX)."""

    def __init__(self, width: int, kernels: Sequence[int] = ()) -> None:
        super().__init__()
        self.first, self.last, self.kernels = conv(width, width // 2), conv(2 * width, width), kernels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W]."""
        kept = [self.first(x)]
        for kernel in self.kernels or (5, 5, 5):
            kept.append(f.max_pool2d(kept[0 if self.kernels else -1], kernel, 1, kernel // 2))
        return self.last(torch.cat(kept, 1))


class Task(nn.Module):
    """What stands beside boxes and scores, of maps of ``widths``: of "seg" coefficients of masks and the masks
    themselves, whose maps are ``wide``, of "pose" key points.
    """

    def __init__(self, task: str, widths: Sequence[int], wide: int) -> None:
        super().__init__()
        values = VALUES[task]
        inner = max(widths[0] // 4, values)
        self.towers = nn.ModuleList(
            nn.Sequential(conv(n, inner, 3), conv(inner, inner, 3), nn.Conv2d(inner, values, 1)) for n in widths
        )
        self.masks = None
        if task == "seg":
            up = nn.ConvTranspose2d(wide, wide, 2, 2)
            self.masks = nn.Sequential(conv(widths[0], wide, 3), up, conv(wide, wide, 3), conv(wide, values))

    def forward(self, found: torch.Tensor, maps: Sequence[torch.Tensor]) -> Any:
        """Boxes and scores [B, places, values] -> the same with more values; of "seg" masks [B, 32, H/4, W/4] too."""
        more = torch.cat([tower(m).flatten(2) for tower, m in zip(self.towers, maps, strict=True)], 2)
        found = torch.cat([found, more.transpose(1, 2)], 2)
        return found if self.masks is None else (found, self.masks(maps[0]))


class Yolo(nn.Module):
    """``kind`` "v5", "v8" or "x" (YOLOX), of a size of `SIZES`; ``task``: of `VALUES`, v8's alone."""

    def __init__(self, kind: str, size: str, task: str = "") -> None:
        super().__init__()
        self.classes = CLASSES if task != "pose" else 1
        self.kind, (deep, wide) = kind, SIZES[size]
        new, most = kind == "v8", _WIDEST.get(size, 1024) if kind == "v8" else 1024
        deep = min(deep, 1) if new else deep
        w = [int(min(n, most) * wide) for n in (64, 128, 256, 512, 1024)]
        counts = [round(n * deep) for n in {"v5": (3, 6, 9, 3), "v8": (3, 6, 6, 3), "x": (3, 9, 9, 3)}[kind]]
        self.stem = conv(12, w[0], 3) if kind == "x" else conv(3, w[0], 3, 2) if new else conv(3, w[0], 6, 2, 2)
        stages = []
        for i, count in enumerate(counts):
            body: list[nn.Module] = [Partial(w[i + 1], w[i + 1], count, add=not (kind == "x" and i == 3), each=new)]
            if i == 3:
                pooled = Pooled(w[4], (5, 9, 13) if kind == "x" else ())
                body = [pooled, *body] if kind == "x" else [*body, pooled]
            stages.append(nn.Sequential(conv(w[i], w[i + 1], 3, 2), *body))
        self.stages = nn.ModuleList(stages)
        back, options = counts[0], {"add": False, "each": new}
        self.narrow = nn.ModuleList(nn.Identity() if new else conv(w[i], w[i - 1]) for i in (4, 3))
        up = [(w[4] + w[3], w[3]), (w[3] + w[2], w[2])] if new else [(2 * w[3], w[3]), (2 * w[2], w[2])]
        down = [(w[2] + w[3], w[3]), (w[3] + w[4], w[4])] if new else [(2 * w[2], w[3]), (2 * w[3], w[4])]
        self.up = nn.ModuleList(Partial(a, b, back, **options) for a, b in up)
        self.shrink = nn.ModuleList(conv(n, n, 3, 2) for n in w[2:4])
        self.down = nn.ModuleList(Partial(a, b, back, **options) for a, b in down)
        self.heads = nn.ModuleList(self._head(n, w[2]) for n in w[2:])
        self.task = Task(task, w[2:], int(256 * wide)) if task else None

    def _head(self, width: int, least: int) -> nn.Module:
        if self.kind == "v5":
            return nn.ModuleList([nn.Conv2d(width, 3 * (CLASSES + 5), 1)])
        inner = [max(16, least // 4, 4 * BINS), max(least, self.classes)] if self.kind == "v8" else [least, least]
        outputs = [4 * BINS, self.classes] if self.kind == "v8" else [5, CLASSES]
        stem: nn.Module = nn.Identity() if self.kind == "v8" else conv(width, least)
        start = width if self.kind == "v8" else least
        towers = (
            nn.Sequential(conv(start, n, 3), conv(n, n, 3), nn.Conv2d(n, out, 1))
            for n, out in zip(inner, outputs, strict=True)
        )
        return nn.ModuleList([stem, *towers])

    def forward(self, x: torch.Tensor) -> Any:
        """[B, 3, H, W] -> boxes and scores [B, places, values], and what the task has beside."""
        x = self.stem(f.pixel_unshuffle(x, 2) if self.kind == "x" else x)
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        kept = []
        for narrow, up, side in zip(self.narrow, self.up, maps[2:0:-1], strict=True):
            x = narrow(x)
            kept.append(x)
            x = up(torch.cat([f.interpolate(x, scale_factor=2.0), side], 1))
        found = [x]
        for shrink, down, side in zip(self.shrink, self.down, reversed(kept), strict=True):
            x = down(torch.cat([shrink(x), side], 1))
            found.append(x)
        scores = torch.cat([self._scores(head, m) for head, m in zip(self.heads, found, strict=True)], 1)
        return scores if self.task is None else self.task(scores, found)

    def _scores(self, head: Any, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "v5":
            return torch.sigmoid(head[0](x).unflatten(1, (3, -1)).permute(0, 1, 3, 4, 2)).flatten(1, 3)
        x = head[0](x)
        boxes, scores = (tower(x).flatten(2).transpose(1, 2) for tower in list(head)[1:])
        if self.kind == "v8":
            bins = torch.arange(BINS, dtype=x.dtype, device=x.device)
            boxes = torch.matmul(torch.softmax(boxes.unflatten(2, (4, BINS)), -1), bins)
        return torch.cat([boxes, torch.sigmoid(scores)], 2)


class Yolo3(nn.Module):
    """YOLO v3 on Darknet-53: five convolutions, then one and the answers, at three scales."""

    def __init__(self) -> None:
        super().__init__()
        import timm

        self.backbone = timm.create_model("darknet53", pretrained=False, features_only=True, out_indices=(3, 4, 5))
        leaky = nn.LeakyReLU
        self.bodies, self.narrow, self.heads = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for i, (a, b) in enumerate(((1024, 512), (768, 256), (384, 128))):
            shapes = [(a, b, 1), (b, 2 * b, 3), (2 * b, b, 1), (b, 2 * b, 3), (2 * b, b, 1)]
            self.bodies.append(nn.Sequential(*(conv(*shape, act=leaky) for shape in shapes)))
            self.heads.append(nn.Sequential(conv(b, 2 * b, 3, act=leaky), nn.Conv2d(2 * b, 3 * (CLASSES + 5), 1)))
            if i < 2:
                self.narrow.append(conv(b, b // 2, act=leaky))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, 3, H, W] -> boxes and scores [B, places, 85]."""
        sides = self.backbone(x)[::-1]
        found, y = [], sides[0]
        for i, (body, head) in enumerate(zip(self.bodies, self.heads, strict=True)):
            if i:
                y = torch.cat([f.interpolate(self.narrow[i - 1](y), scale_factor=2.0), sides[i]], 1)
            y = body(y)
            found.append(torch.sigmoid(head(y).unflatten(1, (3, -1)).permute(0, 1, 3, 4, 2)).flatten(1, 3))
        return torch.cat(found, 1)
