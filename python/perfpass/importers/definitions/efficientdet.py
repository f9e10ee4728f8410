"""EfficientDet D0 to D7 (Tan et al., 2020): timm's EfficientNet, a weighted pyramid that runs both ways, two heads."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as f

# Backbone, pixels, width and repeats of the pyramid, repeats of the heads: table 1 of the paper.
SIZES = {
    "d0": ("b0", 512, 64, 3, 3), "d1": ("b1", 640, 88, 4, 3), "d2": ("b2", 768, 112, 5, 3),
    "d3": ("b3", 896, 160, 6, 4), "d4": ("b4", 1024, 224, 7, 4), "d5": ("b5", 1280, 288, 7, 4),
    "d6": ("b6", 1280, 384, 8, 5), "d7": ("b6", 1536, 384, 8, 5),
}  # fmt: skip
_CLASSES, _ANCHORS, _LEVELS = 90, 9, 5


def _separable(width: int, outputs: int, *, bias: bool = True) -> list[nn.Module]:
    return [nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False), nn.Conv2d(width, outputs, 1, bias=bias)]


def _lateral(inputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, width, 1), nn.BatchNorm2d(width))


class Pyramid(nn.Module):
    """One round of the pyramid: coarse to fine, then back; each node is a weighted sum and a separable convolution."""

    def __init__(self, width: int, inputs: tuple[int, ...] = ()) -> None:
        super().__init__()
        nodes = 2 * (_LEVELS - 1)
        self.weights = nn.ParameterList(torch.empty(2 + (_LEVELS - 1 <= i < nodes - 1)) for i in range(nodes))
        self.nodes = nn.ModuleList(
            nn.Sequential(nn.SiLU(), *_separable(width, width), nn.BatchNorm2d(width)) for _ in range(nodes)
        )
        # In the first round the backbone's maps are narrowed, for the first sum and, finest apart, for the second.
        self.narrow = nn.ModuleList(_lateral(n, width) for n in inputs)
        self.again = nn.ModuleList(_lateral(n, width) for n in inputs[1:])

    def _sum(self, i: int, *maps: torch.Tensor) -> torch.Tensor:
        weights = f.relu(self.weights[i])
        weights = weights / (weights.sum() + 1e-4)
        return self.nodes[i](torch.stack([m * weights[j] for j, m in enumerate(maps)]).sum(0))

    def forward(self, *maps: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Five maps, finest first."""
        given, second = list(maps), list(maps)
        for i, part in enumerate(self.narrow):
            given[i] = part(maps[i])
        for i, part in enumerate(self.again, 1):
            second[i] = part(maps[i])
        down = [given[-1]]
        for i, side in enumerate(given[-2::-1]):
            down.append(self._sum(i, side, f.interpolate(down[-1], side.shape[2:])))
        down = down[::-1]
        found = [down[0]]
        for i in range(1, _LEVELS):
            pooled = f.adaptive_max_pool2d(found[-1], down[i].shape[2:])
            inner = (down[i],) if i < _LEVELS - 1 else ()
            found.append(self._sum(_LEVELS - 2 + i, second[i], *inner, pooled))
        return tuple(found)


class Head(nn.Module):
    """Separable convolutions that all maps share, each map with normalizations of its own."""

    def __init__(self, width: int, repeats: int, outputs: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Sequential(*_separable(width, width)) for _ in range(repeats))
        self.norms = nn.ModuleList(nn.ModuleList(nn.BatchNorm2d(width) for _ in range(repeats)) for _ in range(_LEVELS))
        self.out = nn.Sequential(*_separable(width, outputs))

    def forward(self, maps: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
        """Five maps -> [B, outputs, H, W] of each."""
        found = []
        norms: Any
        for x, norms in zip(maps, self.norms, strict=True):
            for conv, norm in zip(self.convs, norms, strict=True):
                x = f.silu(norm(conv(x)))
            found.append(self.out(x))
        return found


class EfficientDet(nn.Module):
    """One of `SIZES`: [B, 3, H, W] -> scores and boxes of five maps; suppression of boxes is left out."""

    def __init__(self, size: str) -> None:
        super().__init__()
        import timm

        name, _, width, rounds, repeats = SIZES[size]
        self.backbone = timm.create_model(
            f"tf_efficientnet_{name}", pretrained=False, features_only=True, out_indices=(2, 3, 4)
        )
        info: Any = self.backbone.feature_info
        widths = tuple(info.channels())
        self.coarse = _lateral(widths[-1], width)
        self.rounds = nn.ModuleList(Pyramid(width, widths if i == 0 else ()) for i in range(rounds))
        self.scores, self.boxes = (Head(width, repeats, _ANCHORS * n) for n in (_CLASSES, 4))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """As above."""
        maps = list(self.backbone(x))
        maps.append(f.max_pool2d(self.coarse(maps[-1]), 3, 2, 1))
        maps.append(f.max_pool2d(maps[-1], 3, 2, 1))
        found = tuple(maps)
        for part in self.rounds:
            found = part(*found)
        return [*self.scores(found), *self.boxes(found)]
