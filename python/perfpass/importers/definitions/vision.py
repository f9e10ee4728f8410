"""Variants of timm's networks that have no name there."""

from __future__ import annotations

from typing import Any

from torch import nn

_DEPTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


def resnet(
    depth: int, cardinality: int = 1, width: int = 64, *, deep: bool = False, squeeze: bool = False
) -> nn.Module:
    """A ResNet or ResNeXt; ``deep``: Paddle's "vd" (a deep stem, means before shortcuts); ``squeeze``: SE blocks."""
    from timm.models.resnet import BasicBlock, Bottleneck, ResNet

    options: dict[str, Any] = {"stem_width": 32, "stem_type": "deep", "avg_down": True} if deep else {}
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
