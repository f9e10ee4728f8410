"""The U-Net of the temperature downscaling study: image [B, 3, 96, 128] -> two fields [B, 1, 96, 128] each.

The shapes and the size (about 3.5 million parameters) are the study's; the layout is the usual one (Ronneberger et
al., "U-Net", MICCAI 2015): per level two 3 x 3 convolutions with batch norm and ReLU, max-pooling down, transposed
convolution up, and a concatenation across. Two 1 x 1 convolutions give the two fields.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

CHANNELS, HEIGHT, WIDTH = 3, 96, 128
NAMES = {"temperature-downscaling": (24, 48, 96, 168, 336)}  # channels per level


class UNet(nn.Module):
    """Forward: [B, 3, 96, 128] -> ([B, 1, 96, 128], [B, 1, 96, 128])."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        inputs = (CHANNELS, *widths[:-1])
        self.down = nn.ModuleList(_block(a, b) for a, b in zip(inputs, widths, strict=True))
        pairs = list(pairwise(widths))[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(deep, shallow, 2, stride=2) for shallow, deep in pairs)
        self.merge = nn.ModuleList(_block(2 * shallow, shallow) for shallow, _ in pairs)
        self.heads = nn.ModuleList(nn.Conv2d(widths[0], 1, 1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See the class."""
        kept = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat((kept.pop(), up(x)), dim=1))
        first, second = (head(x) for head in self.heads)
        return first, second


def _block(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers)
