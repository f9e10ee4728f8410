"""Detectors: SSD300 on ResNet-50, RetinaNet, Faster and Mask R-CNN on a ResNet with a feature pyramid.

What depends on values (suppression of boxes, the choice of proposals) is left out. Cropping of regions counts as one
gather of the cropped values, of 1,000 proposals an image and, for masks, 100 boxes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as f

_WIDTH = 256
PROPOSALS, BOXES = 1000, 100


def backbone(name: str) -> nn.Module:
    """A timm ResNet's maps at strides 4 to 32."""
    import timm

    return timm.create_model(name, pretrained=False, features_only=True, out_indices=(1, 2, 3, 4))


class FeaturePyramid(nn.Module):
    """Lin et al., 2017; ``extra`` coarser maps by strided convolutions (RetinaNet) or by pooling."""

    def __init__(self, widths: Sequence[int], extra: int, *, convolved: bool) -> None:
        super().__init__()
        self.beside = nn.ModuleList(nn.Conv2d(width, _WIDTH, 1) for width in widths)
        self.smooth = nn.ModuleList(nn.Conv2d(_WIDTH, _WIDTH, 3, padding=1) for _ in widths)
        self.more = nn.ModuleList(
            nn.Conv2d(widths[-1] if i == 0 else _WIDTH, _WIDTH, 3, 2, 1) for i in range(extra if convolved else 0)
        )
        self.extra = extra

    def forward(self, maps: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Finest first."""
        found = [part(x) for part, x in zip(self.beside, maps, strict=True)]
        for i in range(len(found) - 1, 0, -1):
            found[i - 1] = found[i - 1] + f.interpolate(found[i], found[i - 1].shape[2:])
        found = [part(x) for part, x in zip(self.smooth, found, strict=True)]
        if self.more:
            x = maps[-1]
            for part in self.more:
                x = part(x)
                found.append(x)
        else:
            for _ in range(self.extra):
                found.append(f.max_pool2d(found[-1], 1, 2))
        return found


def _tower(outputs: int) -> nn.Sequential:
    parts: list[nn.Module] = []
    for _ in range(4):
        parts += [nn.Conv2d(_WIDTH, _WIDTH, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*parts, nn.Conv2d(_WIDTH, outputs, 3, padding=1))


class RetinaNet(nn.Module):
    """RetinaNet (Lin et al., 2017) with nine anchors and 80 classes."""

    def __init__(self, name: str = "resnet50") -> None:
        super().__init__()
        self.backbone = backbone(name)
        self.pyramid = FeaturePyramid((512, 1024, 2048), 2, convolved=True)
        self.classes, self.boxes = _tower(9 * 80), _tower(9 * 4)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """[B, 3, H, W] -> scores and boxes of five maps."""
        maps = self.pyramid(self.backbone(x)[1:])
        return [head(m) for m in maps for head in (self.classes, self.boxes)]


class RegionNet(nn.Module):
    """Faster R-CNN (Ren et al., 2015) with a feature pyramid; with ``masks``: Mask R-CNN (He et al., 2017)."""

    def __init__(self, name: str = "resnet50", *, masks: bool = False, stages: int = 1) -> None:
        super().__init__()
        self.backbone = backbone(name)
        self.pyramid = FeaturePyramid((256, 512, 1024, 2048), 1, convolved=False)
        self.propose = nn.Sequential(nn.Conv2d(_WIDTH, _WIDTH, 3, padding=1), nn.ReLU())
        self.score, self.shift = nn.Conv2d(_WIDTH, 3, 1), nn.Conv2d(_WIDTH, 12, 1)
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(_WIDTH * 49, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                          nn.Linear(1024, 81 + (320 if stages == 1 else 4)))
            for _ in range(stages)
        )  # fmt: skip
        self.masks = None
        if masks:
            convs = [part for _ in range(4) for part in (nn.Conv2d(_WIDTH, _WIDTH, 3, padding=1), nn.ReLU())]
            up = nn.ConvTranspose2d(_WIDTH, _WIDTH, 2, 2)
            self.masks = nn.Sequential(*convs, up, nn.ReLU(), nn.Conv2d(_WIDTH, 80, 1))

    @staticmethod
    def crop(maps: torch.Tensor, count: int, side: int) -> torch.Tensor:
        """Values of ``count`` regions an image, [B * count, C, side, side]."""
        values = maps.flatten(2)
        where = torch.zeros(count * side * side, dtype=torch.int64, device=maps.device)
        found = values[:, :, where].reshape(maps.shape[0], maps.shape[1], count, side, side)
        return found.transpose(1, 2).flatten(0, 1)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """[B, 3, H, W] -> scores and boxes of the maps, of the proposals, and masks."""
        maps = self.pyramid(self.backbone(x))
        out = []
        for m in maps:
            y = self.propose(m)
            out += [self.score(y), self.shift(y)]
        for head in self.heads:
            out.append(head(self.crop(maps[0], PROPOSALS, 7).flatten(1)))
        if self.masks is not None:
            out.append(self.masks(self.crop(maps[0], BOXES, 14)))
        return out


class Ssd300(nn.Module):
    """SSD (Liu et al., 2016) on the first three stages of ResNet-50, the third at stride 8, as DeepLearningExamples."""

    def __init__(self, classes: int = 81) -> None:
        super().__init__()
        import torchvision

        whole = torchvision.models.resnet50(weights=None)
        block = whole.layer3[0]
        block.conv2.stride = block.downsample[0].stride = (1, 1)
        self.backbone = nn.Sequential(*list(whole.children())[:7])
        widths, inner = (1024, 512, 512, 256, 256, 256), (256, 256, 128, 128, 128)
        self.more = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(a, c, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU(),
                nn.Conv2d(c, b, 3, 2 if i < 3 else 1, 1 if i < 3 else 0, bias=False), nn.BatchNorm2d(b), nn.ReLU(),
            )
            for i, (a, b, c) in enumerate(zip(widths, widths[1:], inner, strict=False))
        )  # fmt: skip
        anchors = (4, 6, 6, 6, 4, 4)
        self.boxes = nn.ModuleList(nn.Conv2d(w, n * 4, 3, padding=1) for w, n in zip(widths, anchors, strict=True))
        self.scores = nn.ModuleList(
            nn.Conv2d(w, n * classes, 3, padding=1) for w, n in zip(widths, anchors, strict=True)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[B, 3, 300, 300] -> boxes [B, 4, 8732], scores [B, 81, 8732]."""
        maps = [self.backbone(x)]
        for part in self.more:
            maps.append(part(maps[-1]))
        boxes = [head(m).flatten(1).unflatten(1, (4, -1)) for head, m in zip(self.boxes, maps, strict=True)]
        scores = [head(m).flatten(1).unflatten(1, (81, -1)) for head, m in zip(self.scores, maps, strict=True)]
        return torch.cat(boxes, 2), torch.cat(scores, 2)
