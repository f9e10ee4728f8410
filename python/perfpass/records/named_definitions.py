"""Our names of public networks, and the definition behind each: a library's, or one of `importers.definitions`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from perfpass.importers.definitions import definition, names


@dataclass(frozen=True)
class Definition:
    """A network as it is traced.

    ``source``: transformers, timm, torchvision or definitions; ``model``: its name there. ``sized_by``: what the size
    of its tables counts: tokens, pixels, audio (tenths of a second) or fixed. ``default``: the size where a
    record states none, -1 where then nothing is known. ``attention``: there is a table with attention in parts, too.
    ``heads``: (source or "", mode) -> the name where a record ran another head.
    """

    source: str
    model: str
    sized_by: str
    default: int = -1
    attention: bool = False
    heads: Mapping[tuple[str, str], str] = field(default_factory=dict)
    width: int = 0  # of the default image, where it is not square
    trained: bool = True  # no: only inference is asked, a step updates the rows of a table that were read
    steps: int = 0  # of a picture where a record states none; the name of its table says them


def _text(model: str, default: int = -1, **heads: str) -> Definition:
    """A transformer over tokens; ``heads`` by mode, or by source and mode (``demobert_inference``)."""
    by = {}
    for key, name in heads.items():
        source, _, mode = key.rpartition("_")
        by[source, mode] = name
    return Definition("transformers", model, "tokens", default, True, by)


def _image(source: str, model: str, default: int, *, attention: bool = False) -> Definition:
    return Definition(source, model, "pixels", default, attention)


def _bert(size: str) -> Definition:
    """DeepLearningExamples and demoBERT answer questions on SQuAD (384 tokens by default); the rest are bare."""
    answering = f"{size}/BertForQuestionAnswering"
    return _text(
        f"{size}/BertModel",
        demobert_inference=answering,
        deeplearningexamples_inference=answering,
        deeplearningexamples_training=f"{size}/pretraining",
    )


def _own(name: str) -> Definition:
    """One of `perfpass.importers.definitions`, at its own size."""
    found = definition(name)
    if not found.sized_by:
        return Definition("definitions", name, "fixed", found.size[0])
    height, width = found.size
    return Definition("definitions", name, "pixels", height, width=width if width != height else 0)


def _picture(version: str, pixels: int) -> Definition:
    """A picture of Stable Diffusion; diffusers takes 50 steps."""
    return Definition("definitions", f"stable-diffusion-{version}", "pixels", pixels, True, trained=False, steps=50)


def _segments(name: str, trained: int) -> Definition:
    """Transformer-XL: inference has a longer memory than the training step over ``trained`` tokens."""
    return Definition("definitions", name, "tokens", trained, False, {("", "training"): f"{name}-step"})


# PyTorch's own and timm's networks, at the size that they are trained for.
_TIMM = {
    "resnext101_32x4d": 224, "seresnext101_32x4d": 224, "efficientnet_b0": 224, "efficientnet_b1": 240,
    "efficientnet_b2": 260, "efficientnet_b3": 300, "efficientnet_b4": 380, "efficientnet_b5": 456,
    "efficientnet_b6": 528, "efficientnet_b7": 600, "efficientnetv2_s": 384, "inception_v4": 299,
    "resnet18d": 224, "resnet34d": 224, "resnet50d": 224, "resnet101d": 224, "resnet152d": 224,
    "resnet200d": 224, "resnet200": 224, "resnext50_32x4d": 224, "resnext101_64x4d": 224, "seresnet18": 224,
    "seresnet34": 224, "seresnet50": 224, "seresnext50_32x4d": 224, "resnet50c": 224, "legacy_senet154": 224,
    "res2net50_26w_4s": 224,
    "res2net50_14w_8s": 224, "ghostnet_050": 224, "ghostnet_100": 224, "ghostnet_130": 224, "resnest50d": 224,
    "darknet53": 256, "xception41": 299, "xception65": 299,
    "xception71": 299, "dla34": 224, "dla60": 224, "dla102": 224, "dla169": 224, "dla60x": 224, "dla102x": 224,
    "dla46_c": 224, "dla46x_c": 224, "dla60x_c": 224, "dla102x2": 224, "dpn68": 224, "dpn92": 224, "dpn98": 224,
    "dpn107": 224, "dpn131": 224, "hrnet_w18": 224, "hrnet_w30": 224, "hrnet_w32": 224, "hrnet_w40": 224,
    "hrnet_w44": 224, "hrnet_w48": 224, "hrnet_w64": 224, "rexnet_100": 224, "rexnet_130": 224, "rexnet_150": 224,
    "rexnet_200": 224, "rexnet_300": 224, "mixnet_s": 224, "mixnet_m": 224, "mixnet_l": 224, "repvgg_a0": 224,
    "repvgg_a1": 224, "repvgg_a2": 224, "repvgg_b0": 224, "repvgg_b1": 224, "repvgg_b2": 224, "repvgg_b3": 224,
    "repvgg_b1g4": 224, "repvgg_b2g4": 224, "repvgg_b3g4": 224,
    "regnetx_040": 224, "lcnet_035": 224, "lcnet_050": 224, "lcnet_075": 224, "lcnet_100": 224, "lcnet_150": 224,
    "mobilenetv1_100": 224,
    "resnext101_32x8d": 224, "resnext101_32x16d": 224,
    "resnext101_32x32d": 224, "convnextv2_tiny": 224,
}  # fmt: skip
_TIMM_ATTENTION = {
    **{f"swin_{s}_patch4_window7_224": 224 for s in ("tiny", "small", "base", "large")},
    **{f"swin_{s}_patch4_window12_384": 384 for s in ("base", "large")},
    **{f"vit_{s}_patch16_224": 224 for s in ("tiny", "small", "base", "large")},
    **{f"vit_{s}_patch16_384": 384 for s in ("base", "large")},
    **{f"vit_{s}_patch32_384": 384 for s in ("base", "large")},
    **{f"deit_{s}_patch16_224": 224 for s in ("tiny", "small", "base")},
    **{f"deit_{s}_distilled_patch16_224": 224 for s in ("tiny", "small", "base")},
    "deit_base_patch16_384": 384, "deit_base_distilled_patch16_384": 384, "swinv2_tiny_window8_256": 256,
    **{f"twins_svt_{s}": 224 for s in ("small", "base", "large")},
    **{f"twins_pcpvt_{s}": 224 for s in ("small", "base", "large")},
    **{f"levit_{s}": 224 for s in ("128s", "128", "192", "256", "384")},
    "tnt_s_legacy_patch16_224": 224, "beit_base_patch16_224": 224,
    **{f"pvt_v2_b{i}": 224 for i in range(6)},
}  # fmt: skip
_TORCHVISION = {
    "resnet18": 224, "resnet34": 224, "resnet50": 224, "resnet101": 224, "resnet152": 224, "vgg11": 224, "vgg13": 224,
    "vgg16": 224, "vgg19": 224, "alexnet": 224, "squeezenet1_0": 224, "squeezenet1_1": 224, "mobilenet_v2": 224,
    "mobilenet_v3_large": 224, "mobilenet_v3_small": 224, "inception_v3": 299, "googlenet": 224, "densenet121": 224,
    "densenet161": 224, "densenet169": 224, "densenet201": 224, "shufflenet_v2_x0_5": 224, "shufflenet_v2_x1_0": 224,
    "shufflenet_v2_x1_5": 224, "shufflenet_v2_x2_0": 224,
}  # fmt: skip

# Records name the GPUNets by their latency on a V100, too.
_GPUNET = {
    **{f"gpunet-{name}": name for name in ("0", "1", "2", "d1", "d2", "p0", "p1")}, "gpunet-065ms": "0",
    "gpunet-085ms": "1", "gpunet-175ms": "2", "gpunet-125ms-d": "d1", "gpunet-225ms-d": "d2", "gpunet-05ms-d": "p0",
    "gpunet-08ms-d": "p1",
}  # fmt: skip

DEFINITIONS: dict[str, Definition] = {
    "bert-base": _bert("bert-base"),
    "bert-large": _bert("bert-large"),
    "bert-4l-312": _text("bert-4l-312/BertForQuestionAnswering"),
    "bert-6l-768": _text("bert-6l-768/BertForQuestionAnswering"),
    "xlnet-base": _text("xlnet-base/XLNetModel"),
    "llama-7b": _text("llama-2-7b/LlamaForCausalLM"),
    "llama-2-7b": _text("llama-2-7b/LlamaForCausalLM"),
    "mistral-7b": _text("mistral-7b/MistralForCausalLM"),
    "electra-base": _text("electra-base/ElectraForQuestionAnswering", 384),
    **{
        f"rt-detr-r{depth}": Definition(
            "transformers", f"rt-detr-r{depth}/RTDetrForObjectDetection", "pixels", 640, attention=False
        )
        for depth in (18, 34, 50, 101)
    },
    # Encoder over its 30 s window and one token of the decoder: optimum-benchmark's forward pass.
    "whisper-base": Definition("transformers", "whisper-base/WhisperForConditionalGeneration", "fixed", 1, True),
    **{name: _image("timm", name, size) for name, size in _TIMM.items()},
    **{name: _image("timm", name, size, attention=True) for name, size in _TIMM_ATTENTION.items()},
    **{name: _image("torchvision", name, size) for name, size in _TORCHVISION.items()},
    # Torch7's networks are the same but for the order of normalization in the 200-layer one.
    "resnet50-torch7": _image("torchvision", "resnet50", 224),
    "resnet101-torch7": _image("torchvision", "resnet101", 224),
    "resnet152-torch7": _image("torchvision", "resnet152", 224),
    "resnet200-torch7": _image("timm", "resnet200", 224),
    # A whole picture, each step on two samples.
    "stable-diffusion-1.5": _picture("1.5", 512),
    "stable-diffusion-2": _picture("2", 512),
    "stable-diffusion-2-768": _picture("2", 768),
    "stable-diffusion-xl": _picture("xl", 1024),
    # Written from their papers: perfpass.importers.definitions.
    "dlrm-small": Definition("definitions", "dlrm-small", "fixed", 1, trained=False),
    "wide-and-deep": Definition("definitions", "wide-and-deep", "fixed", 1, trained=False),
    "neumf": Definition("definitions", "neumf", "fixed", 1),
    "tft": Definition("definitions", "tft", "fixed", 192),
    "transformer-xl-base": _segments("transformer-xl-base", 192),
    "transformer-xl-large": _segments("transformer-xl-large", 384),
    "quartznet15x5": Definition("definitions", "quartznet15x5", "audio"),
    "fastpitch": Definition("definitions", "fastpitch", "tokens", 128, trained=False),
    "hifigan": Definition("definitions", "hifigan", "fixed", 662, trained=False),
    "unet-medical": Definition("definitions", "unet-medical", "pixels", 572),
    "nnunet-2d": Definition("definitions", "nnunet-2d", "pixels", 192, width=160),
    "nnunet-3d": Definition("definitions", "nnunet-3d", "fixed", 128),
    "ssd300-resnet50": Definition("definitions", "ssd300-resnet50", "pixels", 300),
    **{name: _own(name) for name in ("unet3d", "vnet", "vae-cf", "yolov3", "fcn-resnet18", "resnest50-fast")},
    **{
        name: _own(name)
        for name in names()
        if name.startswith(("yolov5", "yolov8", "yolox", "efficientdet", "res2net"))
    },
    **{name: _own(f"gpunet-{of}") for name, of in _GPUNET.items()},
    "efficientnet_b0-small": _own("efficientnet_b0-small"),
    **{f"resnext{a}_{b}x{c}d": _own(f"resnet{a}-{b}x{c}d") for a, b, c in ((152, 32, 4), (152, 64, 4), (50, 64, 4))},
    "efficientnet-widese-b0": Definition("definitions", "widese-efficientnet_b0", "pixels", 224),
    "efficientnet-widese-b4": Definition("definitions", "widese-efficientnet_b4", "pixels", 380),
}
# Families of definitions: their names are those of the definition; the default size and width.
FAMILIES: dict[str, tuple[int, int]] = {
    r"(fcn|pspnet|deeplabv3|deeplabv3plus|upernet|fpn)-(r\d+b?|m-v2|s101)-\d+": (512, 683),
    r"(retinanet|fcos|atss|fsaf|gfl|rpn|(faster|mask|cascade|cascade-mask|keypoint)-rcnn)-resne\w+": (800, 1088),
    r"(se-)?resnet\d+(-\d+x\d+d)?(-vd)?": (224, 0),
    r"(mobilenet_v[12]|mobilenet_v3_(large|small)|shufflenet_v2|lcnet)-x\d\.\d+": (224, 0),
}


def definition_of(network: str) -> Definition | None:
    """The definition behind our name of a network; None where there is none."""
    if network in DEFINITIONS:
        return DEFINITIONS[network]
    for pattern, (size, width) in FAMILIES.items():
        if re.fullmatch(pattern, network):
            return Definition("definitions", network, "pixels", size, width=width)
    return None
