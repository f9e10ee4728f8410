"""Networks for pictures of 32 x 32 as pytorch-cifar100 defines them: what Zeus' script on CIFAR-100 trains.

Written anew from what its files say (github.com/weiaicunzai/pytorch-cifar100, models/shufflenetv2.py). Where they
differ from the papers' networks, so do these. On the meta device: no weight is allocated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfpass.errors import UnsupportedError

if TYPE_CHECKING:
    import torch

SOURCE = "pytorch-cifar100"
# Channels after the stem, of the three stages and of the last convolution; units of a stage that do not stride.
_STEM, _STAGES, _LAST, _CLASSES = 24, ((116, 3), (232, 7), (464, 3)), 1024, 100


def build(name: str) -> torch.nn.Module:
    """The network ``name`` on the meta device. Raises UnsupportedError for any other than "shufflenetv2"."""
    import torch

    if name != "shufflenetv2":
        raise UnsupportedError(f"{SOURCE} has no {name!r} here; shufflenetv2 is there")
    with torch.device("meta"):
        return _shufflenetv2()


def _shufflenetv2() -> torch.nn.Module:
    """ShuffleNetV2 at 1x: a stem that neither strides nor pools, a bias in every convolution."""
    import torch
    from torch import nn

    def point(inside: int, outside: int) -> list[nn.Module]:
        return [nn.Conv2d(inside, outside, 1), nn.BatchNorm2d(outside), nn.ReLU(inplace=True)]

    def depthwise(channels: int, stride: int) -> list[nn.Module]:
        return [nn.Conv2d(channels, channels, 3, stride, 1, groups=channels), nn.BatchNorm2d(channels)]

    class Unit(nn.Module):
        """Two branches, concatenated and shuffled; a unit that strides gives both the whole input, others half each.

        The branch that strides keeps its channels up to the last convolution, where the paper's halves them first.
        """

        def __init__(self, inside: int, outside: int, stride: int) -> None:
            super().__init__()
            self.halves = stride == 1
            width = inside // 2 if self.halves else inside
            self.branch = nn.Sequential(*point(width, width), *depthwise(width, stride), *point(width, outside // 2))
            straight = [] if self.halves else [*depthwise(inside, stride), *point(inside, outside // 2)]
            self.straight = nn.Sequential(*straight)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Of x [N, C, H, W]."""
            left, right = x.chunk(2, dim=1) if self.halves else (x, x)
            both = torch.cat([self.straight(left), self.branch(right)], dim=1)
            n, c, h, w = both.shape
            return both.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)

    layers: list[nn.Module] = [nn.Conv2d(3, _STEM, 3, padding=1), nn.BatchNorm2d(_STEM)]
    inside = _STEM
    for outside, plain in _STAGES:
        layers += [Unit(inside, outside, 2), *(Unit(outside, outside, 1) for _ in range(plain))]
        inside = outside
    layers += [*point(inside, _LAST), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(_LAST, _CLASSES)]
    return nn.Sequential(*layers)
