"""Variants of timm's networks that have no name there."""

from __future__ import annotations

from typing import Any

from torch import nn

_DEPTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_DEEP: dict[str, Any] = {"stem_width": 32, "stem_type": "deep", "avg_down": True}


def resnet(
    depth: int, cardinality: int = 1, width: int = 64, *, deep: bool = False, squeeze: bool = False
) -> nn.Module:
    """A ResNet or ResNeXt; ``deep``: Paddle's "vd" (a deep stem, means before shortcuts); ``squeeze``: SE blocks."""
    from timm.models.resnet import BasicBlock, Bottleneck, ResNet

    options: dict[str, Any] = dict(_DEEP) if deep else {}
    if squeeze:
        options["block_args"] = {"attn_layer": "se"}
    block: Any = BasicBlock if depth < 50 else Bottleneck
    return ResNet(block, _DEPTHS[depth], cardinality=cardinality, base_width=width, **options)


def wide_squeeze(name: str) -> nn.Module:
    """An EfficientNet whose blocks squeeze to a quarter of their inner width: DeepLearningExamples' widese."""
    import timm
    from timm.layers import SqueezeExcite

    model: nn.Module = timm.create_model(name, pretrained=False)
    part: Any
    for part in model.modules():
        block = part
        if (
            hasattr(block, "conv_pw")
            and isinstance(getattr(block, "se", None), nn.Module)
            and hasattr(block, "conv_dw")
        ):
            inner = block.conv_dw.out_channels
            block.se = SqueezeExcite(inner, rd_channels=inner // 4, act_layer=nn.SiLU)
    return model


def res2net(depth: int) -> nn.Module:
    """Paddle's Res2Net_vd of 26 channels and four scales (Gao et al., 2019); 200 has blocks of its own."""
    from timm.models.res2net import Bottle2neck
    from timm.models.resnet import ResNet

    block: Any = Bottle2neck

    layers = (3, 12, 48, 3) if depth == 200 else _DEPTHS[depth]
    return ResNet(block, layers, base_width=26, block_args={"scale": 4}, **_DEEP)


def resnest_fast() -> nn.Module:
    """ResNeSt-50-fast 1s1x64d (Zhang et al., 2020): one split, means before the convolution that strides."""
    from timm.models.resnest import ResNestBottleneck
    from timm.models.resnet import ResNet

    options: dict[str, Any] = {"radix": 1, "avd": True, "avd_first": True}
    block: Any = ResNestBottleneck
    return ResNet(block, _DEPTHS[50], base_width=64, block_args=options, **_DEEP)


def scaled(family: str, width: float) -> nn.Module:
    """A mobile network with each layer's channels times ``width``: torchvision's and timm's own scaling."""
    from timm.models import efficientnet, mobilenetv3
    from torchvision import models
    from torchvision.models import mobilenetv3 as third

    if family == "mobilenet_v1":
        return efficientnet._gen_mobilenet_v1("mobilenetv1_100", channel_multiplier=width)
    if family == "mobilenet_v2":
        return models.mobilenet_v2(width_mult=width)
    if family == "lcnet":
        return mobilenetv3._gen_lcnet("lcnet_100", channel_multiplier=width)
    if family == "shufflenet_v2":
        widths = {0.25: [24, 24, 48, 96, 512], 0.33: [24, 32, 64, 128, 512]}[width]
        return models.ShuffleNetV2([4, 8, 4], widths)
    settings, _ = third._mobilenet_v3_conf(family, width_mult=width)
    return models.MobileNetV3(settings, 1280)  # which Paddle does not scale


def without_squeeze(name: str) -> nn.Module:
    """An EfficientNet whose blocks do not squeeze: Paddle's EfficientNetB0_small."""
    import timm

    model: nn.Module = timm.create_model(name, pretrained=False)
    for part in model.modules():
        if hasattr(part, "se"):
            part.se = nn.Identity()
    return model
