"""GPUNet (Wang et al., 2022, arXiv 2205.00841): the seven networks of DeepLearningExamples.

A row stands for as many equal blocks as its last figure says: the first has the stride, the others keep its outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Row = tuple[str, int, float, int, str, bool, int]  # kind, outputs, expansion, kernel, activation, squeeze, blocks


@dataclass(frozen=True)
class Network:
    """``stem``: width of the first convolution; ``rows``: (stride, `Row`); ``tail``: widths of the end."""

    pixels: int
    stem: int
    stem_act: str
    rows: tuple[tuple[int, Row], ...]
    tail: tuple[int, ...] = (1280,)


def _b(stride: int, outputs: int, expansion: float, kernel: int = 3, blocks: int = 1, *, kind: str = "irb",
       act: str = "relu", squeeze: bool = False) -> tuple[int, Row]:  # fmt: skip
    return stride, (kind, outputs, expansion, kernel, act, squeeze, blocks)


def _c(outputs: int, stride: int = 1, kernel: int = 3, blocks: int = 1) -> tuple[int, Row]:
    return _b(stride, outputs, 1, kernel, blocks, kind="conv")


def _f(stride: int, outputs: int, expansion: float, kernel: int = 3, blocks: int = 1, **options: Any) -> Any:
    return _b(stride, outputs, expansion, kernel, blocks, kind="fused", **options)


def _distilled(w: tuple[int, ...], three: int) -> tuple[tuple[int, Row], ...]:
    """The rows that GPUNet-D1 and D2 share; ``three``: blocks of expansion 3 at the end of the last stage."""
    return (
        _b(1, w[0], 1), _b(2, w[1], 3), _b(1, w[1], 4, 5), _b(1, w[1], 3), _b(2, w[2], 4, 5), _b(1, w[2], 4, 5),
        _b(1, w[2], 6), _b(1, w[2], 3, 5), _b(2, w[3], 6, 7), _b(1, w[3], 6, 5), _b(1, w[3], 3),
        _b(1, w[3], 4, 5, blocks=three - 2), _b(1, w[4], 6), _b(1, w[4], 6, 5), _b(1, w[4], 6, 7),
        *([_b(1, w[4], 6, 5)] if three > 3 else []), _b(1, w[4], 4), _b(2, w[5], 6), _b(1, w[5], 6), _b(1, w[5], 6, 5),
        _b(1, w[5], 3, blocks=three),
    )  # fmt: skip


NETWORKS = {
    "0": Network(320, 32, "swish", (
        _c(32, blocks=2), _f(2, 32, 5, blocks=2), _f(2, 64, 5, blocks=3), _b(2, 256, 5, blocks=3, act="swish"),
        _b(2, 704, 5, blocks=2, squeeze=True),
    )),
    "1": Network(288, 24, "swish", (
        _c(24), _f(2, 64, 4, blocks=2, act="swish"), _f(2, 96, 4, blocks=2, act="swish"),
        _b(2, 160, 2, act="swish", squeeze=True), _b(1, 288, 5, blocks=4), _b(2, 448, 4, blocks=4, squeeze=True),
    )),
    "2": Network(384, 32, "swish", (
        _c(32, blocks=3), _f(2, 32, 6, 5, act="swish", squeeze=True), _f(2, 112, 3, blocks=3, act="swish"),
        _b(2, 144, 6, blocks=6, act="swish"), _b(1, 160, 3, 5, blocks=4),
        _b(2, 224, 3, blocks=8, act="swish", squeeze=True), _b(1, 832, 2, 5, blocks=7),
    )),
    "p0": Network(224, 32, "relu", (
        _c(32, blocks=2), _c(64, 2), _b(2, 96, 8), _b(1, 96, 7.67, blocks=2), _b(2, 256, 7.67), _b(1, 256, 4.25, 5),
        _b(1, 256, 4.75), _b(2, 704, 8), _b(1, 704, 3.82, 5), _b(1, 704, 3.36), _b(1, 704, 2.55), _b(2, 704, 5.73),
    ), (1984,)),
    "p1": Network(224, 32, "relu", (
        _c(32, blocks=2), _c(64, 2, 5), _b(1, 64, 8, blocks=2), _b(2, 96, 8, 5), _b(1, 96, 8, 5), _b(2, 256, 8, 5),
        _b(1, 256, 7.5, 5), _b(1, 256, 7.88), _b(2, 704, 7.88, 5), _b(1, 704, 8, 5), _b(1, 704, 7.41), _b(1, 704, 8, 5),
        _b(2, 704, 7.95, 5),
    ), (1984,)),
    "d1": Network(456, 33, "relu", _distilled((33, 44, 67, 134, 190, 268), 3), (1152, 1984)),
    "d2": Network(528, 48, "relu", (_c(48, blocks=2), *_distilled((48, 64, 96, 192, 272, 384), 4)), (1152, 1984)),
}  # fmt: skip
_ACTIVATIONS = {"relu": nn.ReLU, "swish": nn.SiLU}


def _conv(a: int, b: int, kernel: int, stride: int, act: str = "", groups: int = 1) -> list[nn.Module]:
    parts: list[nn.Module] = [
        nn.Conv2d(a, b, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(b)
    ]  # fmt: skip
    return [*parts, _ACTIVATIONS[act](inplace=True)] if act else parts


class Block(nn.Module):
    """A plain convolution, an inverted residual block ("irb"), or one whose first convolution is "fused"."""

    def __init__(self, a: int, stride: int, row: Row) -> None:
        super().__init__()
        from timm.layers import SqueezeExcite, make_divisible

        kind, b, expansion, kernel, act, squeeze, _ = row
        self.add = kind != "conv" and stride == 1 and a == b
        if kind == "conv":
            self.body = nn.Sequential(*_conv(a, b, kernel, stride, act))
            return
        inner = make_divisible(a * expansion) if expansion != int(expansion) or a % 8 == 0 else int(a * expansion)
        if kind == "fused":
            parts = _conv(a, inner, kernel, stride, act)
        else:
            parts = [*_conv(a, inner, 1, 1, act), *_conv(inner, inner, kernel, stride, act, groups=inner)]
        if squeeze:
            reduced = round(inner * 0.25 / expansion)
            parts.append(SqueezeExcite(inner, rd_channels=reduced, act_layer=_ACTIVATIONS[act]))
        self.body = nn.Sequential(*parts, *_conv(inner, b, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W]."""
        return x + self.body(x) if self.add else self.body(x)


class GpuNet(nn.Module):
    """One of `NETWORKS`: [B, 3, H, W] -> [B, 1000]."""

    def __init__(self, name: str) -> None:
        super().__init__()
        network = NETWORKS[name]
        parts, width = _conv(3, network.stem, 3, 2, network.stem_act), network.stem
        for stride, row in network.rows:
            for i in range(row[-1]):
                parts.append(Block(width, stride if i == 0 else 1, row))
                width = row[1]
        parts += [*_conv(width, network.tail[0], 1, 1, "relu"), nn.AdaptiveAvgPool2d(1)]
        if len(network.tail) > 1:
            parts += [nn.Conv2d(network.tail[0], network.tail[1], 1, bias=False), nn.ReLU()]
        self.body = nn.Sequential(*parts, nn.Flatten(), nn.Linear(network.tail[-1], 1000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, 3, H, W] -> [B, 1000]."""
        return self.body(x)
