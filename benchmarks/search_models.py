"""Distinct ONNX files of about 500 nodes each: real architectures of timm at other depths, widths, sizes and batches.

A few networks are exported by torch, structure only; the others are made of them as a search would: every channel
count times a factor (weights, groups), another image, another batch. No weights are written, no shapes are inferred.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import onnx

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
WIDTHS = tuple(Fraction(eighths, 8) for eighths in (4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16))
SIZES = (96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 272, 288, 320, 352, 384, 416)
BATCHES = tuple(range(1, 17))


def write_files(folder: Path, count: int) -> list[Path]:
    """The first ``count`` variants, of all families alike. Raises ValueError where there are fewer."""
    families = [_convolutional(), _transformers()]
    paths: list[Path] = []
    while len(paths) < count and families:
        for family in list(families):
            model = next(family, None)
            if model is None:
                families.remove(family)
                continue
            paths.append(folder / f"{len(paths):05d}.onnx")
            paths[-1].write_bytes(model)
    if len(paths) < count:
        raise ValueError(f"{count} files wanted; there are {len(paths)} variants")
    return paths[:count]


def _convolutional() -> Iterator[bytes]:
    """ResNets and EfficientNets: depth by export, width and size by rewriting."""
    from timm.models.efficientnet import _gen_efficientnet
    from timm.models.resnet import Bottleneck, ResNet

    makers: list[Callable[[], Any]] = [
        lambda: ResNet(Bottleneck, (3, 20, 36, 3)),
        lambda: _gen_efficientnet("efficientnet_b4", channel_multiplier=1.0, depth_multiplier=1.8),
        lambda: ResNet(Bottleneck, (4, 24, 30, 4)),
        lambda: _gen_efficientnet("efficientnet_b5", channel_multiplier=1.0, depth_multiplier=2.2),
        lambda: ResNet(Bottleneck, (6, 24, 40, 6)),
    ]
    exported = [_exported(make, 64, dynamic=False) for make in makers]
    for size in SIZES:
        for width in WIDTHS:
            for model in exported:
                yield _resized(_widened(model, width), size)


def _transformers() -> Iterator[bytes]:
    """Vision transformers: depth and width by export, with an open batch that each file then fixes."""
    from timm.models.vision_transformer import VisionTransformer

    for depth in (11, 13):
        for width in (96, 192, 256, 384):
            make = lambda d=depth, w=width: VisionTransformer(  # noqa: E731
                img_size=64, patch_size=8, embed_dim=w, depth=d, num_heads=w // 32
            )
            model = _exported(make, 64, dynamic=True)
            for batch in BATCHES:
                copy = onnx.ModelProto()
                copy.CopyFrom(model)
                copy.graph.input[0].type.tensor_type.shape.dim[0].dim_value = batch
                yield copy.SerializeToString()


def _exported(make: Callable[[], Any], size: int, *, dynamic: bool) -> onnx.ModelProto:
    """The structure of a network as torch exports it."""
    import torch

    sys.path.append(str(EXAMPLES))
    import export

    with torch.device("meta"):
        module = make()
    module = module.to_empty(device="cpu").eval()
    with torch.no_grad():
        for index, tensor in enumerate(module.state_dict().values()):
            if tensor.is_floating_point():  # all different, else the exporter merges equal ones
                tensor.fill_(1.0 + index / 4096)
    buffer = io.BytesIO()
    axes = {"x": {0: "batch"}} if dynamic else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (torch.zeros(1, 3, size, size),), buffer, dynamo=False, input_names=["x"], dynamic_axes=axes,
            opset_version=17,
        )  # fmt: skip
    model = export.structure_only(onnx.load_from_string(buffer.getvalue()))
    model.graph.ClearField("value_info")
    return model


def _widened(model: onnx.ModelProto, factor: Fraction) -> onnx.ModelProto:
    """Every channel count times the factor, but for images and classes."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    scaled = lambda channels: max(1, round(channels * factor))  # noqa: E731
    tensors = {tensor.name: tensor for tensor in copy.graph.initializer}
    last = next(node for node in reversed(copy.graph.node) if node.op_type == "Gemm")
    for node in copy.graph.node:
        if node.op_type not in ("Conv", "Gemm"):
            continue
        weight = tensors[node.input[1]]
        if node is not last:
            weight.dims[0] = scaled(weight.dims[0])
            for bias in node.input[2:]:
                tensors[bias].dims[0] = weight.dims[0]
        group = next((a for a in node.attribute if a.name == "group"), None)
        if group is not None and group.i > 1:
            group.i = weight.dims[0]  # depthwise: one channel each
        elif weight.dims[1] != 3:
            weight.dims[1] = scaled(weight.dims[1])
        for name in node.input[1:]:
            tensors[name].ClearField("raw_data")
    return copy


def _resized(model: onnx.ModelProto, size: int) -> bytes:
    """The network on images of another size."""
    for axis in (2, 3):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = size
    model.graph.output[0].type.ClearField("tensor_type")
    return bytes(model.SerializeToString())
