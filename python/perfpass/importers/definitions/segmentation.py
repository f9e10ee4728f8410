"""Networks of segmentation: U-Net, nnU-Net, dilated ResNets with the heads of mmsegmentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as f


def _pair(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3), nn.ReLU(), nn.Conv2d(outputs, outputs, 3), nn.ReLU())


class UNet(nn.Module):
    """U-Net (Ronneberger et al., 2015): convolutions without padding, 572 pixels in, 388 out, two classes."""

    def __init__(self, inputs: int = 1, classes: int = 2) -> None:
        super().__init__()
        widths = (64, 128, 256, 512, 1024)
        self.down = nn.ModuleList(_pair(a, b) for a, b in zip((inputs, *widths), widths, strict=False))
        wide = widths[:0:-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(n, n // 2, 2, 2) for n in wide)
        self.merge = nn.ModuleList(_pair(n, n // 2) for n in wide)
        self.out = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, inputs, H, W] -> [B, classes, H - 184, W - 184]."""
        kept = []
        for i, part in enumerate(self.down):
            x = part(x if i == 0 else f.max_pool2d(x, 2))
            kept.append(x)
        for up, merge, side in zip(self.up, self.merge, kept[-2::-1], strict=True):
            x = up(x)
            edge = (side.shape[-1] - x.shape[-1]) // 2
            size = x.shape[-1]
            x = merge(torch.cat([side[..., edge : edge + size, edge : edge + size], x], dim=1))
        return self.out(x)


class NnUNet(nn.Module):
    """nnU-Net (Isensee et al., 2021) as DeepLearningExamples has it: instance normalization, leaky ReLU."""

    def __init__(self, dims: int, widths: Sequence[int], inputs: int = 4, classes: int = 4, last: int = 1) -> None:
        super().__init__()
        conv, up, norm = (
            (nn.Conv2d, nn.ConvTranspose2d, nn.InstanceNorm2d) if dims == 2
            else (nn.Conv3d, nn.ConvTranspose3d, nn.InstanceNorm3d)
        )  # fmt: skip

        def block(a: int, b: int, stride: int) -> nn.Sequential:
            return nn.Sequential(
                conv(a, b, 3, stride, 1, bias=False), norm(b, affine=True), nn.LeakyReLU(),
                conv(b, b, 3, 1, 1, bias=False), norm(b, affine=True), nn.LeakyReLU(),
            )  # fmt: skip

        pairs = list(zip((inputs, *widths), widths, strict=False))
        self.down = nn.ModuleList(block(a, b, 1 if i == 0 else 2) for i, (a, b) in enumerate(pairs))
        back = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList(up(a, b, 2, 2, bias=False) for a, b in back)
        self.merge = nn.ModuleList(block(2 * b, b, 1) for _, b in back)
        self.out = conv(widths[0], classes, last, padding=last // 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, inputs, ...] -> [B, classes, ...]."""
        kept = []
        for part in self.down:
            x = part(x)
            kept.append(x)
        for up, merge, side in zip(self.up, self.merge, kept[-2::-1], strict=True):
            x = merge(torch.cat([up(x), side], dim=1))
        return self.out(x)


def _conv(inputs: int, outputs: int, kernel: int = 3, dilation: int = 1, groups: int = 1) -> nn.Sequential:
    padding = dilation * (kernel - 1) // 2
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, 1, padding, dilation, groups, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
    )


def _separable(inputs: int, outputs: int, dilation: int = 1) -> nn.Sequential:
    return nn.Sequential(_conv(inputs, inputs, 3, dilation, inputs), _conv(inputs, outputs, 1))


class Atrous(nn.Module):
    """DeepLab's pyramid of dilated convolutions (Chen et al., 2017)."""

    def __init__(self, width: int, inner: int, *, separable: bool) -> None:
        super().__init__()
        dilated = _separable if separable else (lambda a, b, d: _conv(a, b, 3, d))
        self.parts = nn.ModuleList([_conv(width, inner, 1), *(dilated(width, inner, d) for d in (12, 24, 36))])
        self.whole, self.merge = _conv(width, inner, 1), _conv(5 * inner, inner)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, width, H, W] -> [B, inner, H, W]."""
        mean = f.interpolate(self.whole(f.adaptive_avg_pool2d(x, 1)), x.shape[2:], mode="bilinear")
        return self.merge(torch.cat([mean, *(part(x) for part in self.parts)], dim=1))


class Pyramid(nn.Module):
    """PSPNet's pyramid of means (Zhao et al., 2017)."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(_conv(width, inner, 1) for _ in range(4))
        self.merge = _conv(width + 4 * inner, inner)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, width, H, W] -> [B, inner, H, W]."""
        means = (part(f.adaptive_avg_pool2d(x, size)) for size, part in zip((1, 2, 3, 6), self.parts, strict=True))
        grown = (f.interpolate(mean, x.shape[2:], mode="bilinear") for mean in means)
        return self.merge(torch.cat([x, *grown], dim=1))


class Upper(nn.Module):
    """UPerNet's head (Xiao et al., 2018): a pyramid of means on top of a feature pyramid."""

    def __init__(self, widths: Sequence[int], inner: int) -> None:
        super().__init__()
        self.top = Pyramid(widths[-1], inner)
        self.beside = nn.ModuleList(_conv(width, inner, 1) for width in widths[:-1])
        self.smooth = nn.ModuleList(_conv(inner, inner) for _ in widths[:-1])
        self.merge = _conv(len(widths) * inner, inner)

    def forward(self, maps: Sequence[torch.Tensor]) -> torch.Tensor:
        """Maps of a backbone, finest first -> [B, inner, H, W] of the finest."""
        found = [part(x) for part, x in zip(self.beside, maps[:-1], strict=True)] + [self.top(maps[-1])]
        for i in range(len(found) - 1, 0, -1):
            found[i - 1] = found[i - 1] + f.interpolate(found[i], found[i - 1].shape[2:], mode="bilinear")
        smooth = [part(x) for part, x in zip(self.smooth, found[:-1], strict=True)] + [found[-1]]
        size = smooth[0].shape[2:]
        return self.merge(torch.cat([f.interpolate(x, size, mode="bilinear") for x in smooth], dim=1))


class Joined(nn.Module):
    """The head of semantic FPN (Kirillov et al., 2019): the maps of a feature pyramid, grown step by step and added."""

    def __init__(self, widths: Sequence[int], inner: int) -> None:
        super().__init__()
        from perfpass.importers.definitions.detection import FeaturePyramid

        self.pyramid = FeaturePyramid(widths, 0, convolved=False)
        self.scale = nn.ModuleList(
            nn.ModuleList(_conv(256 if j == 0 else inner, inner) for j in range(max(i, 1))) for i in range(len(widths))
        )

    def forward(self, maps: Sequence[torch.Tensor]) -> torch.Tensor:
        """Maps of a backbone, finest first -> [B, inner, H, W] of the finest."""
        total: Any = 0
        parts: Any
        for i, (x, parts) in enumerate(zip(self.pyramid(maps), self.scale, strict=True)):
            for part in parts:
                x = part(x)
                x = f.interpolate(x, scale_factor=2.0, mode="bilinear") if i else x
            total = x if i == 0 else total + f.interpolate(x, total.shape[2:], mode="bilinear")
        return total


# timm's name of each backbone; "c" stems of three convolutions, "b" of one.
_STEM: dict[str, Any] = {"stem_width": 32, "stem_type": "deep"}
_BACKBONES: dict[str, tuple[str, dict[str, Any]]] = {
    "r18": ("resnet18", _STEM), "r50": ("resnet50c", _STEM), "r101": ("resnet101", _STEM), "r18b": ("resnet18", {}),
    "r50b": ("resnet50", {}), "r101b": ("resnet101", {}), "m-v2": ("mobilenetv2_100", {}), "s101": ("resnest101e", {}),
}  # fmt: skip


class Segmenter(nn.Module):
    """mmsegmentation's FCN, PSPNet, DeepLab v3 and v3+, UPerNet and semantic FPN, scores of each pixel.

    The head that training alone uses is left out. ``name``: a backbone of `_BACKBONES`.
    """

    def __init__(self, head: str, name: str, classes: int = 19) -> None:
        super().__init__()
        import timm

        model, options = _BACKBONES[name]
        stride = 32 if head in ("upernet", "fpn") else 8
        self.backbone = timm.create_model(
            model, pretrained=False, features_only=True, output_stride=stride, out_indices=(1, 2, 3, 4), **options
        )
        info: Any = self.backbone.feature_info
        widths = info.channels()
        small = widths[-1] == 512
        inner, self.head = 128 if small else 512, head
        if head == "fcn":
            self.body: nn.Module = nn.Sequential(_conv(widths[-1], inner), _conv(inner, inner))
            self.join: nn.Module = _conv(widths[-1] + inner, inner)
        elif head == "pspnet":
            self.body = Pyramid(widths[-1], inner)
        elif head in ("upernet", "fpn"):
            self.body = Upper(widths, 512) if head == "upernet" else Joined(widths, 128)
            inner = 512 if head == "upernet" else 128
        else:
            self.body = Atrous(widths[-1], inner, separable=head == "deeplabv3plus")
        if head == "deeplabv3plus":
            low = 12 if small else 48
            self.low = _conv(widths[0], low, 1)
            self.join = nn.Sequential(_separable(inner + low, inner), _separable(inner, inner))
        self.out = nn.Conv2d(inner, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, 3, H, W] -> [B, classes, H, W]."""
        maps = self.backbone(x)
        y = self.body(maps if self.head in ("upernet", "fpn") else maps[-1])
        if self.head == "fcn":
            y = self.join(torch.cat([maps[-1], y], dim=1))
        elif self.head == "deeplabv3plus":
            y = f.interpolate(y, maps[0].shape[2:], mode="bilinear")
            y = self.join(torch.cat([y, self.low(maps[0])], dim=1))
        return f.interpolate(self.out(y), x.shape[2:], mode="bilinear")


class VNet(nn.Module):
    """V-Net (Milletari et al., 2016) as DeepLearningExamples has it: residual blocks, two of them on the way up."""

    def __init__(self, inputs: int = 1, classes: int = 3, blocks: int = 3) -> None:
        super().__init__()

        def conv(a: int, b: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
            padding = (kernel - 1) // 2
            return nn.Sequential(nn.Conv3d(a, b, kernel, stride, padding), nn.BatchNorm3d(b), nn.ReLU())

        def up(a: int, b: int) -> nn.Sequential:
            return nn.Sequential(nn.ConvTranspose3d(a, b, 2, 2), nn.BatchNorm3d(b), nn.ReLU())

        def body(width: int) -> nn.Sequential:
            return nn.Sequential(*[conv(width, width) for _ in range(blocks)])

        self.first = conv(inputs, 16)
        self.down = nn.ModuleList(conv(n, 2 * n, 2, 2) for n in (16, 32, 64))
        self.inner = nn.ModuleList(body(n) for n in (32, 64, 128))
        self.up = nn.ModuleList(up(a, b) for a, b in ((128, 64), (128, 32)))
        self.merge = nn.ModuleList(body(n) for n in (128, 64))
        self.last = nn.Sequential(up(64, 16), nn.Conv3d(16, classes, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, inputs, D, H, W] -> [B, classes, D, H, W]."""
        x = self.first(x) + x
        kept = []
        for down, inner in zip(self.down, self.inner, strict=True):
            x = down(x)
            x = x + inner(x)
            kept.append(x)
        for up, merge, side in zip(self.up, self.merge, kept[-2::-1], strict=True):
            x = torch.cat([up(x), side], dim=1)
            x = x + merge(x)
        return self.last(x)


class PlainFcn(nn.Module):
    """A ResNet-18 and two convolutions, scores at every 32nd pixel: jetson-inference's fcn-resnet18."""

    def __init__(self, classes: int = 21) -> None:
        super().__init__()
        import timm

        self.backbone = timm.create_model("resnet18", pretrained=False, features_only=True, out_indices=(4,))
        self.head = nn.Sequential(_conv(512, 128), nn.Conv2d(128, classes, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, 3, H, W] -> [B, classes, H / 32, W / 32]."""
        return self.head(self.backbone(x)[0])
