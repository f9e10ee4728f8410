"""Detectors: SSD300 on ResNet-50; RetinaNet, FCOS and their like, Faster and Mask R-CNN on a feature pyramid.

What depends on values (suppression of boxes, the choice of proposals) is left out. Cropping of regions counts as one
gather of the cropped values, of 1,000 proposals an image and, for masks, 100 boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    """Lin et al., 2017; ``extra`` coarser maps by strided convolutions, of the backbone's last map or the pyramid's, or
    by pooling.
    """

    def __init__(self, widths: Sequence[int], extra: int, *, convolved: bool, from_backbone: bool = True) -> None:
        super().__init__()
        self.beside = nn.ModuleList(nn.Conv2d(width, _WIDTH, 1) for width in widths)
        self.smooth = nn.ModuleList(nn.Conv2d(_WIDTH, _WIDTH, 3, padding=1) for _ in widths)
        self.more = nn.ModuleList(
            nn.Conv2d(widths[-1] if i == 0 and from_backbone else _WIDTH, _WIDTH, 3, 2, 1)
            for i in range(extra if convolved else 0)
        )
        self.extra, self.from_backbone = extra, from_backbone

    def forward(self, maps: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Finest first."""
        found = [part(x) for part, x in zip(self.beside, maps, strict=True)]
        for i in range(len(found) - 1, 0, -1):
            found[i - 1] = found[i - 1] + f.interpolate(found[i], found[i - 1].shape[2:])
        found = [part(x) for part, x in zip(self.smooth, found, strict=True)]
        if self.more:
            x = maps[-1] if self.from_backbone else found[-1]
            for part in self.more:
                x = part(x)
                found.append(x)
        else:
            for _ in range(self.extra):
                found.append(f.max_pool2d(found[-1], 1, 2))
        return found


def _tower(outputs: int, *, normed: bool) -> nn.Sequential:
    parts: list[nn.Module] = []
    for _ in range(4):
        parts.append(nn.Conv2d(_WIDTH, _WIDTH, 3, padding=1, bias=not normed))
        parts += [nn.GroupNorm(32, _WIDTH), nn.ReLU()] if normed else [nn.ReLU()]
    return nn.Sequential(*parts, nn.Conv2d(_WIDTH, outputs, 3, padding=1))


@dataclass(frozen=True)
class Dense:
    """What a dense detector says of each place: ``boxes`` values for each of ``anchors``; if it is ``centred``.

    ``normed``: towers with group normalization; ``from_backbone``: the coarser maps stand on the backbone's last, not
    on the pyramid's.
    """

    anchors: int = 1
    boxes: int = 4
    centred: bool = False
    normed: bool = True
    from_backbone: bool = False


DENSE = {
    "retinanet": Dense(9, normed=False, from_backbone=True),  # Lin et al., 2017
    "fsaf": Dense(normed=False, from_backbone=True),  # Zhu et al., 2019
    "fcos": Dense(centred=True),  # Tian et al., 2019
    "atss": Dense(centred=True),  # Zhang et al., 2020
    "gfl": Dense(boxes=4 * 17),  # Li et al., 2020
}


class DenseNet(nn.Module):
    """A one-stage detector of `DENSE` with 80 classes on a pyramid of five maps."""

    def __init__(self, kind: str, name: str = "resnet50") -> None:
        super().__init__()
        self.head = DENSE[kind]
        self.backbone = backbone(name)
        self.pyramid = FeaturePyramid((512, 1024, 2048), 2, convolved=True, from_backbone=self.head.from_backbone)
        self.classes = _tower(80 * self.head.anchors, normed=self.head.normed)
        self.boxes = _tower(self.head.boxes * self.head.anchors, normed=self.head.normed)
        self.centre = nn.Conv2d(_WIDTH, 1, 3, padding=1) if self.head.centred else None

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """[B, 3, H, W] -> scores and boxes of five maps."""
        found = []
        for m in self.pyramid(self.backbone(x)[1:]):
            inner = self.boxes[:-1](m)
            found += [self.classes(m), self.boxes[-1](inner)]
            if self.centre is not None:
                found.append(self.centre(inner))
        return found


class RegionNet(nn.Module):
    """Faster R-CNN (Ren et al., 2015) with a feature pyramid; with ``masks``: Mask R-CNN (He et al., 2017).

    ``stages``: heads in a row, 0 for the proposals alone; ``points``: 17 keypoints of each box instead of its mask.
    """

    def __init__(self, name: str = "resnet50", *, masks: bool = False, stages: int = 1, points: bool = False) -> None:
        super().__init__()
        self.backbone = backbone(name)
        self.pyramid = FeaturePyramid((256, 512, 1024, 2048), 1, convolved=False)
        self.propose = nn.Sequential(nn.Conv2d(_WIDTH, _WIDTH, 3, padding=1), nn.ReLU())
        self.score, self.shift = nn.Conv2d(_WIDTH, 3, 1), nn.Conv2d(_WIDTH, 12, 1)
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(_WIDTH * 49, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                          nn.Linear(1024, 2 + 4 if points else 81 + (320 if stages == 1 else 4)))
            for _ in range(stages)
        )  # fmt: skip
        self.masks = None
        if points:  # eight convolutions of 512
            shapes = [(_WIDTH if i == 0 else 512, 512) for i in range(8)]
            convs = [part for a, b in shapes for part in (nn.Conv2d(a, b, 3, padding=1), nn.ReLU())]
            self.masks = nn.Sequential(*convs, nn.ConvTranspose2d(512, 17, 4, 2, 1))
        elif masks:
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
