"""Sources' names of models -> our names of networks, where the definition is certain.

Paddle's "vd" networks are timm's "d" (a deep stem, average pooling before the shortcut's convolution); "ssld" and "Fix"
name ways of training. Names that only resemble a network (SE_ResNet50_vd, ResNeXt50_vd) have none here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

_TRAINED = re.compile(r"(_ssld(_v2)?|\[1\]|_int8)+$")
_DLA = ("34", "60", "102", "169", "60x", "102x", "46_c", "46x_c", "60x_c", "102x2")
_MOBILE = {
    "mobilenet_v1": ("mobilenetv1", ("0_25", "0_5", "0_75")),
    "mobilenet_v2": ("mobilenetv2", ("0_25", "0_5", "0_75", "1_5", "2_0")),
    "mobilenet_v3_large": ("mobilenetv3_large", ("0_35", "0_5", "0_75", "1_25")),
    "mobilenet_v3_small": ("mobilenetv3_small", ("0_35", "0_5", "0_75", "1_25")),
    "shufflenet_v2": ("shufflenetv2", ("0_25", "0_33")),
    "lcnet": ("pplcnet", ("0_25", "2_0")),
}
_REPVGG = ("a0", "a1", "a2", "b0", "b1", "b2", "b3", "b1g4", "b2g4", "b3g4")
_LCNET = ("035", "050", "075", "100", "150")
_SWIN = (
    *(f"{size}_patch4_window7_224" for size in ("tiny", "small", "base", "large")),
    *(f"{size}_patch4_window12_384" for size in ("base", "large")),
)
_VIT = (
    *(f"vit_{size}_patch{p}_{i}" for size in ("small", "base", "large") for p in (16, 32) for i in (224, 384)),
    *(f"deit_{size}_{kind}patch16_224" for size in ("tiny", "small", "base") for kind in ("", "distilled_")),
    *(f"deit_base_{kind}patch16_384" for kind in ("", "distilled_")),
)
_PADDLE = {
    "alexnet": "alexnet",
    "darknet53": "darknet53",
    "googlenet": "googlenet",
    "inceptionv3": "inception_v3",
    "inceptionv4": "inception_v4",
    "mobilenetv1": "mobilenetv1_100",
    "mobilenetv2": "mobilenet_v2",
    "mobilenetv3_large_x1_0": "mobilenet_v3_large",
    "mobilenetv3_small_x1_0": "mobilenet_v3_small",
    "shufflenetv2": "shufflenet_v2_x1_0",
    "shufflenetv2_x0_5": "shufflenet_v2_x0_5",
    "shufflenetv2_x1_5": "shufflenet_v2_x1_5",
    "shufflenetv2_x2_0": "shufflenet_v2_x2_0",
    "resnet50_vc": "resnet50c",
    "senet154": "legacy_senet154",
    "xception41": "xception41",
    "xception65": "xception65",
    "xception71": "xception71",
    "regnetx_4gf": "regnetx_040",
    "resnest50": "resnest50d",
    "ghostnet_x0_5": "ghostnet_050",
    "ghostnet_x1_0": "ghostnet_100",
    "ghostnet_x1_3": "ghostnet_130",
    "res2net50_26w_4s": "res2net50_26w_4s",
    "res2net50_14w_8s": "res2net50_14w_8s",
    "se_resnext50_32x4d": "seresnext50_32x4d",
    "se_resnext101_32x4d": "seresnext101_32x4d",
    "tnt_small": "tnt_s_legacy_patch16_224",
    **{f"resnext{depth}_{width}": f"resnext{depth}_{width}" for depth in (50, 101) for width in ("32x4d", "64x4d")},
    **{f"resnext101_32x{width}d_wsl": f"resnext101_32x{width}d" for width in (8, 16, 32)},
    **{f"resnet{depth}": f"resnet{depth}" for depth in (18, 34, 50, 101, 152)},
    **{f"resnet{depth}_vd": f"resnet{depth}d" for depth in (18, 34, 50, 101, 152, 200)},
    **{f"vgg{depth}": f"vgg{depth}" for depth in (11, 13, 16, 19)},
    **{f"densenet{depth}": f"densenet{depth}" for depth in (121, 161, 169, 201)},
    **{f"dpn{size}": f"dpn{size}" for size in (68, 92, 98, 107, 131)},
    **{f"hrnet_w{width}_c": f"hrnet_w{width}" for width in (18, 30, 32, 40, 44, 48, 64)},
    **{f"dla{size}": f"dla{size}" for size in _DLA},
    **{f"efficientnetb{i}": f"efficientnet_b{i}" for i in range(8)},
    **{f"rexnet_{a}_{b}": f"rexnet_{a}{b}0" for a, b in ("10", "13", "15", "20", "30")},
    **{f"mixnet_{size}": f"mixnet_{size}" for size in "sml"},
    **{f"repvgg_{size}": f"repvgg_{size}" for size in _REPVGG},
    **{f"pplcnet_x{a}": f"lcnet_{b}" for a, b in zip(("0_35", "0_5", "0_75", "1_0", "1_5"), _LCNET, strict=True)},
    **{f"levit_{size}": f"levit_{size}" for size in ("128s", "128", "192", "256", "384")},
    **{f"alt_gvt_{size}": f"twins_svt_{size}" for size in ("small", "base", "large")},
    **{f"pcpvt_{size}": f"twins_pcpvt_{size}" for size in ("small", "base", "large")},
    **{f"swintransformer_{name}": f"swin_{name}" for name in _SWIN},
    **{name: name for name in _VIT},
    **{
        f"{theirs}_x{w}": f"{ours}-x{w.replace('_', '.')}" for ours, (theirs, widths) in _MOBILE.items() for w in widths
    },
    **{f"res2net{depth}_vd_26w_4s": f"res2net{depth}-vd" for depth in (50, 101, 200)},
    "resnext101_32x48d_wsl": "resnet101-32x48d",
    "resnest50_fast_1s1x64d": "resnest50-fast",
    "efficientnetb0_small": "efficientnet_b0-small",
    "yolov5-l": "yolov5l",
    "yolox-l": "yolox-l",
}  # fmt: skip
# (source, model): our name. Of DeepLearningExamples' rows, what its README's default is.
_OTHERS = {
    ("fastertransformer", "Swin-Tiny V2"): "swinv2_tiny_window8_256",
    ("fastertransformer", "ViT B_16"): "vit_base_patch16_384",
    ("fastertransformer", "ViT L_16"): "vit_large_patch16_384",
    ("mmdeploy", "ResNet"): "resnet50",
    ("mmdeploy", "ResNeXt"): "resnext50_32x4d",
    ("mmdeploy", "SE-ResNet"): "seresnet50",
    ("mmdeploy", "ShuffleNetV2"): "shufflenet_v2_x1_0",
    ("vision_pages", "Inception-V1"): "googlenet",
    ("vision_pages", "AlexNet"): "alexnet",
    ("co2_inference", "facebook/convnextv2-tiny-1k-224"): "convnextv2_tiny",
    ("co2_inference", "microsoft/beit-base-patch16-224-pt22k-ft22k"): "beit_base_patch16_224",
    ("deeplearningexamples", "BERT"): "bert-large",
    ("deeplearningexamples", "SSD"): "ssd300-resnet50",
    ("deeplearningexamples", "Efficientdet"): "efficientdet-d0",
    ("deeplearningexamples", "MaskRCNN"): "mask-rcnn-resnet50",
    ("deeplearningexamples", "ELECTRA"): "electra-base",
    ("mmdeploy", "FCOS"): "fcos-resnet50",
    ("mmdeploy", "FSAF"): "fsaf-resnet50",
    ("mmdeploy", "YOLOv3"): "yolov3",
    **{
        ("co2_inference", f"stabilityai/stable-diffusion-{name}"): f"stable-diffusion-{ours}"
        for name, ours in (("2-1", "2-768"), ("2-1-base", "2"), ("xl-base-1.0", "xl"))
    },
    **{("vision_pages", f"YOLOX-{size}"): f"yolox-{size}" for size in "smlx"},
    **{("vision_pages", f"EfficientDet-D{i}"): f"efficientdet-d{i}" for i in range(8)},
    ("mmdeploy", "Faster R-CNN"): "faster-rcnn-resnet50",
    ("mmdeploy", "Mask R-CNN"): "mask-rcnn-resnet50",
    ("mmdeploy", "RetinaNet"): "retinanet-resnet50",
    ("mmdeploy", "FCN"): "fcn-r50-19",
    ("mmdeploy", "PSPNet"): "pspnet-r50-19",
    ("mmdeploy", "DeepLabV3"): "deeplabv3-r50-19",
    ("mmdeploy", "DeepLabV3+"): "deeplabv3plus-r50-19",
}
# Configurations of mmsegmentation, mmdetection, detectron2 without deformable convolutions or another norm; how a
# network is trained (crops, scales, precisions, losses: GHM, free anchors) changes nothing of its layers.
_CLASSES = {"cityscapes": 19, "ade20k": 150, "voc12aug": 21, "context": 60}
_SEGMENTER = re.compile(
    r"(fcn|pspnet|deeplabv3|deeplabv3plus|upernet|fpn)_(?:r(18|50|101)(b?)|(m-v2|s101))(?:-d8)?_\d+x\d+_\w+?_"
    r"(cityscapes|ade20k|voc12aug|context)"
)
_KINDS = "faster_rcnn|mask_rcnn|cascade_rcnn|cascade_mask_rcnn|keypoint_rcnn|retinanet|fcos|atss|fsaf|gfl|rpn"
_DETECTOR = re.compile(
    rf"({_KINDS})(?:_ghm|_free_anchor)?_(r50|r101|x101_32x4d|x101_64x4d|R_50|R_101|X_101_32x8d)(?:_caffe)?_(?:fpn|FPN)"
    r"(?:_gn-head)?(?:_fp16|_albu|_instaboost|_noaug)?(?:_mstrain(?:_\d+-\d+)?)?_(?:[1-4]x|\d+ep_LSJ)"
    r"(?:_coco|\.yaml|_syncbn\.yaml)?"
)
_YOLO = re.compile(r"(?:^|\| )(?:model|backbone)=YOLO(v5|v8|X)-(n|s|m|l|x|tiny)(?= \|)")
# RT-DETR and its second version differ in training alone; "-dsp" samples elsewhere, "-m" and HGNetv2 are others.
_RT_DETR = re.compile(r"\*?(?:RT-DETR(?:v2)?-R|rtdetrv2_r?)(18|34|50|101)(?:vd)?")
_FCN = re.compile(r"fcn-resnet18-\w+-\d+x\d+")
_BACKBONES = {
    "r50": "resnet50", "r101": "resnet101", "R_50": "resnet50", "R_101": "resnet101",
    "x101_32x4d": "resnext101_32x4d", "x101_64x4d": "resnext101_64x4d", "X_101_32x8d": "resnext101_32x8d",
}  # fmt: skip
_VARIANT = re.compile(r"(se_)?res(?:net|next)(\d+)(_vd)?(?:_(\d+)x(\d+)d)?")


def network_of(source: str, model: str, architecture: str = "", variant: str = "") -> str:
    """Our name of a source's model; empty where the definition is not certain."""
    if source in ("openmmlab", "detectron2"):
        if found := _YOLO.search(model):
            return f"yolo{found[1].lower()}{'-' if found[1] == 'X' else ''}{found[2]}" if "P6" not in model else ""
        return _configured(architecture.rpartition("/")[2])
    if source == "deeplearningexamples" and model == "nnUNet" and variant.startswith("dimension: "):
        return f"nnunet-{variant.removeprefix('dimension: ')[0]}d"
    if source == "vision_pages" and _FCN.fullmatch(model):
        return "fcn-resnet18"
    if found := _RT_DETR.fullmatch(model):
        return f"rt-detr-r{found[1]}"
    if source == "paddle_zoo":
        name = _TRAINED.sub("", model.replace(" ", "").replace("Fix_", "")).lower()
        return _PADDLE.get(name) or _variant(name)
    return _OTHERS.get((source, model), "")


def _configured(name: str) -> str:
    """The network of a configuration file."""
    if found := _SEGMENTER.fullmatch(name.removesuffix(".py")):
        head, depth, plain, other, data = found.groups()
        return f"{head}-{other or f'r{depth}{plain}'}-{_CLASSES[data]}"
    if found := _DETECTOR.fullmatch(name.removesuffix(".py")):
        return f"{found[1].replace('_', '-')}-{_BACKBONES[found[2]]}"
    if name.startswith(("yolov3_d53", "yolov3_d53_mstrain")):
        return "yolov3"
    return ""


def _variant(name: str) -> str:
    """Paddle's ResNets and ResNeXts, with or without squeeze, that timm has no name for."""
    found = _VARIANT.fullmatch(name)
    if not found:
        return ""
    squeeze, depth, deep, cardinality, width = found.groups()
    groups = f"-{cardinality}x{width}d" if cardinality else ""
    return f"{'se-' if squeeze else ''}resnet{depth}{groups}{'-vd' if deep else ''}"


def fill(rows: pandas.DataFrame) -> pandas.DataFrame:
    """The rows with ``network`` named wherever it is empty and the definition is certain."""
    empty = rows.network == ""
    names = ["source", "model", "architecture", "variant"]
    pairs = rows.loc[empty, names].drop_duplicates()
    known = {pair: network_of(*pair) for pair in pairs.itertuples(index=False, name=None)}
    found = [known[pair] for pair in zip(*(rows.loc[empty, name] for name in names), strict=True)]
    named = rows.network.copy()
    named[empty] = found
    return rows.assign(network=named)
