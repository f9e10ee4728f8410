"""Our own definitions by name, with their papers and the parameters that are stated of them."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from perfpass.errors import UnsupportedError, needs
from perfpass.late import dataclass
from perfpass.text import nearest

if TYPE_CHECKING:
    import torch

    from perfpass.graph import OpGraph

Shapes = Callable[[int, int], Any]  # height (or the one size) and width -> shapes of the inputs, without the batch
IMAGE, TOKENS = "image_size", "sequence_length"


def _image(height: int, width: int) -> Any:
    return (3, height, width)


@dataclass(frozen=True)
class Own:
    """A network that is defined here.

    ``build`` makes the module; ``paper``: where the definition stands; ``parameters``: what is stated of it (0: nothing
    is). ``size``: height and width of its images by default, or its one size twice; ``sized_by``: the name of that
    size, "" where it is fixed. ``inputs`` gives the shapes of the inputs, as `perfpass.importers.torch.trace` takes
    them.
    """

    build: Callable[[], torch.nn.Module]
    paper: str
    parameters: float = 0.0
    size: tuple[int, int] = (224, 224)
    sized_by: str = IMAGE
    inputs: Shapes = _image

    def module(self, device: str = "meta") -> torch.nn.Module:
        """The network in eval mode; on the meta device it has no weights, elsewhere random ones.

        Raises UnsupportedError where a library that its backbone is of is not installed.
        """
        from perfpass.importers import torchvision_schemas

        with needs("timm", "a network that is defined here"):
            torchvision_schemas.define()
            import torch

            with torch.device(device):
                return self.build().eval()

    def tracer(self, height: int, width: int) -> Callable[[int], OpGraph]:
        """The graph at one size, by batch."""
        from perfpass.importers.torch import trace_owned

        module = self.module()
        return lambda batch: trace_owned(module, self.inputs(height, width), batch=batch)


@functools.lru_cache(maxsize=256)
def definition(name: str) -> Own:
    """The definition of this name. Raises UnsupportedError for one that is not here, with the nearest names."""
    if name in _FIXED:
        return _FIXED[name]
    for pattern, make in {**_FAMILIES, _PICTURES: _picture}.items():
        if found := re.fullmatch(pattern, name):
            return make(found)
    raise UnsupportedError(f"no definition of {name};{nearest(name, names())}")


def named(name: str) -> str:
    """The definition that a name in any spelling means ("YOLOv8n", "fasterrcnn_resnet50_fpn"); "" where none does."""
    lower = name.lower()
    if lower in _FIXED or any(re.fullmatch(pattern, lower) for pattern in _FAMILIES):
        return lower
    return _spellings().get(_key(name), "")


def _key(name: str) -> str:
    """The letters and digits of a name; since its 11th YOLO is written with and without a v."""
    return re.sub(r"^yolov(?=1[12])", "yolo", re.sub(r"[^a-z0-9]", "", name.lower())).removesuffix("fpn")


@functools.cache
def _spellings() -> dict[str, str]:
    return {_key(name): name for name in names()}


@functools.cache
def names() -> tuple[str, ...]:
    """What is defined here, of the families those that are known by a name."""
    detectors = (f"{kind}-{of}" for kind in _DETECTORS for of in ("resnet50", "resnet101"))
    segmenters = (f"{head}-{of}-19" for head in _HEADS for of in ("r18", "r50", "r101"))
    return (*_FIXED, *detectors, *segmenters)


def _made(file: str, name: str, *args: Any, **options: Any) -> Callable[[], torch.nn.Module]:
    """Makes a class of a module beside this one when it is called: importing these takes torch."""

    def build() -> torch.nn.Module:
        found = getattr(importlib.import_module(f"perfpass.importers.definitions.{file}"), name)
        module: torch.nn.Module = found(*args, **options)
        return module

    return build


def _fixed(build: Callable[[], torch.nn.Module], shapes: Any, paper: str, parameters: float = 0.0) -> Own:
    return Own(build, paper, parameters, (1, 1), "", lambda *_: shapes)


def _transformer_xl(layers: int, width: int, heads: int, inner: int, memory: int, divide: int, stated: float) -> Own:
    def inputs(tokens: int, _: int) -> Any:
        return [((tokens,), "int64"), (layers, memory, width)]

    build = _made("language", "TransformerXl", layers, width, heads, inner, memory, divide)
    tokens = {640: 192, 1600: 384}.get(memory, memory)
    paper = "Dai et al., 2019, arXiv 1901.02860; sizes of DeepLearningExamples"
    return Own(build, paper, stated, (tokens, tokens), TOKENS, inputs)


def _pairs(build: Callable[[], torch.nn.Module], paper: str, parameters: float) -> Own:
    """A translation: as many tokens of the source as of the target."""
    return Own(build, paper, parameters, (32, 32), TOKENS, lambda n, _: [((n,), "int64")] * 2)


def _frames(name: str, file: str, frames: int, shapes: Shapes, paper: str, parameters: float, *args: Any) -> Own:
    return Own(_made(file, name, *args), paper, parameters, (frames, frames), "frames", shapes)


def _diffusion(version: str, side: int, context: int, unet: float) -> dict[str, Own]:
    """U-Net and decoder of a version of Stable Diffusion, at pictures of ``side`` pixels."""
    name, extra = f"stable-diffusion-{version}", [(2816,)] if version == "xl" else []
    paper = "Podell et al., 2023, arXiv 2307.01952" if extra else "Rombach et al., 2022, arXiv 2112.10752"
    size = (side, side)

    def inputs(h: int, w: int) -> Any:
        return [(4, h // 8, w // 8), (), (77, context), *extra]

    return {
        f"{name}-unet": Own(_made("diffusion", "UNet", version), paper, unet, size, IMAGE, inputs),
        f"{name}-vae-decoder": Own(
            _made("diffusion", "Decoder"), paper, 49.49e6, size, IMAGE, lambda h, w: (4, h // 8, w // 8)
        ),
    }


_YOLO = {
    "v5": {"n": 1.87e6, "s": 7.23e6, "m": 21.2e6, "l": 46.5e6, "x": 86.7e6},
    "v8": {"n": 3.16e6, "s": 11.17e6, "m": 25.9e6, "l": 43.69e6, "x": 68.2e6},
    "x": {"tiny": 5.06e6, "s": 8.97e6, "m": 25.3e6, "l": 54.2e6, "x": 99.1e6},
}
_YOLO_WITH_ATTENTION = {
    "11": {"n": 2.62e6, "s": 9.46e6, "m": 20.11e6, "l": 25.37e6, "x": 56.97e6},
    "12": {"n": 2.60e6, "s": 9.28e6, "m": 20.20e6, "l": 26.45e6, "x": 59.21e6},
}
# With masks (seg) and with key points (pose); the counts of Ultralytics' tables.
_YOLO_TASKS = {
    ("yolo", "v8", "seg"): {"n": 3.4e6, "s": 11.8e6, "m": 27.3e6, "l": 46.0e6, "x": 71.8e6},
    ("yolo", "v8", "pose"): {"n": 3.3e6, "s": 11.6e6, "m": 26.4e6, "l": 44.4e6, "x": 69.4e6},
    ("yolo_attention", "11", "seg"): {"n": 2.9e6, "s": 10.1e6, "m": 22.4e6, "l": 27.6e6, "x": 62.1e6},
    ("yolo_attention", "11", "pose"): {"n": 2.9e6, "s": 9.9e6, "m": 20.9e6, "l": 26.2e6, "x": 58.8e6},
}
_PAPERS = {
    "11": "Ultralytics' configurations",
    "12": "Tian et al., 2025, arXiv 2502.12524",
    "v5": "Ultralytics' configurations",
    "v8": "Ultralytics' configurations",
    "x": "arXiv 2107.08430",
}
_EFFICIENTDET = {
    "d0": (512, 3.9e6), "d1": (640, 6.6e6), "d2": (768, 8.1e6), "d3": (896, 12e6), "d4": (1024, 21e6),
    "d5": (1280, 34e6), "d6": (1280, 52e6), "d7": (1536, 52e6),
}  # fmt: skip
_GPUNET = {
    "0": (320, 11.9e6), "1": (288, 12.7e6), "2": (384, 25.8e6), "d1": (456, 10.6e6), "d2": (528, 19e6),
    "p0": (224, 0.0), "p1": (224, 0.0),
}  # fmt: skip

_FIXED: Mapping[str, Own] = {
    "dlrm-small": _fixed(_made("recommendation", "Dlrm"), [(13,), ((26,), "int64")], "arXiv 1906.00091"),
    # The README says some 90 million.
    "wide-and-deep": _fixed(
        _made("recommendation", "WideAndDeep"), [(13,), ((13,), "int64")], "Cheng et al., 2016, arXiv 1606.07792", 90e6
    ),
    "neumf": _fixed(
        _made("recommendation", "NeuMf"), ((2,), "int64"), "He et al., 2017, arXiv 1708.05031", 31.8e6
    ),
    "vae-cf": _fixed(_made("recommendation", "VaeCf"), (20108,), "Liang et al., 2018, arXiv 1802.05814"),
    "tft": _fixed(
        _made("forecasting", "Tft"), [(192, 3), (192, 1), ((1,), "int64")], "Lim et al., 2019, arXiv 1912.09363"
    ),
    "transformer-xl-base": _transformer_xl(16, 512, 8, 2048, 640, 1, 192e6),
    "transformer-xl-large": _transformer_xl(18, 1024, 16, 4096, 1600, 4, 0.0),
    "transformer-xl-base-step": _transformer_xl(16, 512, 8, 2048, 192, 1, 192e6),
    "transformer-xl-large-step": _transformer_xl(18, 1024, 16, 4096, 384, 4, 0.0),
    "transformer-base": _pairs(_made("language", "Transformer", 512, 8, 2048), "arXiv 1706.03762", 65e6),
    "transformer-big": _pairs(_made("language", "Transformer", 1024, 16, 4096), "arXiv 1706.03762", 213e6),
    "gnmt": _pairs(_made("language", "Gnmt"), "Wu et al., 2016, arXiv 1609.08144", 160.7e6),
    # Ten frames in a tenth of a second.
    "quartznet15x5": Own(
        _made("speech", "QuartzNet"), "Kriman et al., 2019, arXiv 1910.10261", 18.9e6, (167, 167), "tenths",
        lambda tenths, _: (64, 10 * tenths),
    ),
    "jasper": _frames("Jasper", "speech_recognition", 1670, lambda n, _: (64, n), "arXiv 1904.03288", 333e6),
    # The encoder; what the paper states counts a decoder, too.
    **{
        f"conformer-{size}": _frames(
            "Conformer", "speech_recognition", 1500, lambda n, _: (n, 80), "arXiv 2005.08100", 0.0, size
        )
        for size in "sml"
    },
    "fastpitch": Own(
        _made("speech", "FastPitch"), "Lancucki, 2020, arXiv 2006.06873", 45e6, (128, 128), TOKENS,
        lambda n, _: ((n,), "int64"),
    ),
    "hifigan": _frames("HifiGan", "speech", 662, lambda n, _: (80, n), "Kong et al., 2020, arXiv 2010.05646", 13.92e6),
    "waveglow": _frames("WaveGlow", "speech", 620, lambda n, _: (80, n), "arXiv 1811.00002", 268e6),
    "unet-medical": Own(
        _made("segmentation", "UNet"), "Ronneberger et al., 2015, arXiv 1505.04597", 31.03e6, (572, 572), IMAGE,
        lambda h, w: (1, h, w),
    ),
    "nnunet-2d": Own(
        _made("segmentation", "NnUNet", dims=2, widths=(32, 64, 128, 256, 512, 512)), "Isensee et al., 2021",
        0.0, (192, 160), IMAGE, lambda h, w: (4, h, w),
    ),
    "nnunet-3d": _fixed(
        _made("segmentation", "NnUNet", dims=3, widths=(32, 64, 128, 256, 320, 320)), (4, 128, 128, 128),
        "Isensee et al., 2021", 31.2e6,
    ),
    # The same with a last kernel of three, as DeepLearningExamples has it for TensorFlow.
    "unet3d": _fixed(
        _made("segmentation", "NnUNet", dims=3, widths=(32, 64, 128, 256, 320, 320), classes=3, last=3),
        (4, 128, 128, 128), "Cicek et al., 2016, arXiv 1606.06650",
    ),
    "vnet": _fixed(_made("segmentation", "VNet"), (1, 32, 32, 32), "Milletari et al., 2016, arXiv 1606.04797"),
    "fcn-resnet18": Own(
        _made("segmentation", "PlainFcn"), "jetson-inference's configurations", 0.0, (320, 512), IMAGE
    ),
    "ssd300-resnet50": Own(_made("detection", "Ssd300"), "Liu et al., 2016, arXiv 1512.02325", 0.0, (300, 300)),
    "yolov3": Own(_made("yolo", "Yolo3"), "Redmon and Farhadi, 2018, arXiv 1804.02767", 61.95e6, (416, 416)),
    **{
        f"yolo{kind}{'-' if kind == 'x' else ''}{size}": Own(
            _made("yolo", "Yolo", kind, size[0]), _PAPERS[kind], stated, (416, 416) if size == "tiny" else (640, 640)
        )
        for kind, sizes in _YOLO.items() for size, stated in sizes.items()
    },
    **{
        f"yolo{kind}{size}": Own(_made("yolo_attention", "Yolo", kind, size), _PAPERS[kind], stated, (640, 640))
        for kind, sizes in _YOLO_WITH_ATTENTION.items() for size, stated in sizes.items()
    },
    **{
        f"yolo{kind}{size}-{task}": Own(_made(file, "Yolo", kind, size, task), _PAPERS[kind], stated, (640, 640))
        for (file, kind, task), sizes in _YOLO_TASKS.items() for size, stated in sizes.items()
    },
    **{
        f"efficientdet-{size}": Own(
            _made("efficientdet", "EfficientDet", size), "Tan et al., 2020, arXiv 1911.09070", stated, (side, side)
        )
        for size, (side, stated) in _EFFICIENTDET.items()
    },
    **{
        f"gpunet-{size}": Own(
            _made("gpunet", "GpuNet", size), "Wang et al., 2022, arXiv 2205.00841", stated, (side, side)
        )
        for size, (side, stated) in _GPUNET.items()
    },
    **_diffusion("1.5", 512, 768, 859.5e6),
    **_diffusion("2", 512, 1024, 865.9e6),
    **_diffusion("xl", 1024, 2048, 2567.5e6),
    **{
        f"res2net{depth}-vd": Own(_made("vision", "res2net", depth), "Gao et al., 2019, arXiv 1904.01169", stated)
        for depth, stated in ((50, 25.1e6), (101, 45.2e6), (200, 76.2e6))
    },
    "resnest50-fast": Own(_made("vision", "resnest_fast"), "Zhang et al., 2020, arXiv 2004.08955", 26.3e6),
    "efficientnet_b0-small": Own(
        _made("vision", "without_squeeze", "efficientnet_b0"), "Paddle's configurations", 4.65e6
    ),
}  # fmt: skip


def _segmenter(found: re.Match[str]) -> Own:
    head, name, classes = found.groups()
    build = _made("segmentation", "Segmenter", head, name, int(classes))
    return Own(build, "mmsegmentation's configurations", 0.0, (512, 1024))


def _detector(found: re.Match[str]) -> Own:
    kind, name = found.groups()
    paper = (
        "Ren et al., 2015; Lin et al., 2017; He et al., 2017; Tian et al., 2019; Zhang et al., 2020; Li et al., 2020"
    )
    if kind in ("retinanet", "fsaf", "fcos", "atss", "gfl"):
        build = _made("detection", "DenseNet", kind, name)
    else:
        stages = 0 if kind == "rpn" else 3 if kind.startswith("cascade") else 1
        options = {"masks": "mask" in kind, "stages": stages, "points": kind == "keypoint-rcnn"}
        build = _made("detection", "RegionNet", name, **options)
    return Own(build, paper, 0.0, (800, 1088))


def _resnet(found: re.Match[str]) -> Own:
    squeeze, depth, cardinality, width, deep = found.groups()
    paper = "He et al., 2016; Xie et al., 2017; Hu et al., 2018; He et al., 2019 (bag of tricks)"
    options = {"deep": bool(deep), "squeeze": bool(squeeze)}
    return Own(_made("vision", "resnet", int(depth), int(cardinality or 1), int(width or 64), **options), paper)


def _wide_squeeze(found: re.Match[str]) -> Own:
    return Own(_made("vision", "wide_squeeze", found[1]), "Tan and Le, 2019; DeepLearningExamples' wider squeeze")


def _scaled(found: re.Match[str]) -> Own:
    return Own(_made("vision", "scaled", found[1], float(found[2])), "Howard et al., 2017; Sandler et al., 2018; "
               "Howard et al., 2019; Ma et al., 2018; Cui et al., 2021")  # fmt: skip


def _picture(found: re.Match[str]) -> Own:
    """A whole picture: its U-Net is to be counted once a step (`perfpass.records.build.named`)."""
    version, _, eager = found.groups()
    side = 1024 if version == "xl" else 512

    def inputs(h: int, w: int) -> Any:
        return [((77,), "int64"), (4, h // 8, w // 8)]

    build = _made("diffusion", "Picture", version, eager=bool(eager))
    return Own(build, "Rombach et al., 2022; Podell et al., 2023", 0.0, (side, side), IMAGE, inputs)


_HEADS = ("fcn", "pspnet", "deeplabv3", "deeplabv3plus", "upernet", "fpn")
_DETECTORS = (
    "retinanet", "fcos", "atss", "fsaf", "gfl", "faster-rcnn", "mask-rcnn", "cascade-rcnn", "cascade-mask-rcnn",
    "keypoint-rcnn", "rpn",
)  # fmt: skip
_FAMILIES: Mapping[str, Callable[[re.Match[str]], Own]] = {
    rf"({'|'.join(_HEADS)})-(r18b?|r50b?|r101b?|m-v2|s101)-(\d+)": _segmenter,
    rf"({'|'.join(_DETECTORS)})-(resnet50|resnet101|resnext(?:50|101)_(?:32|64)x[48]d)": _detector,
    r"(se-)?resnet(18|34|50|101|152)(?:-(\d+)x(\d+)d)?(-vd)?": _resnet,
    r"widese-(efficientnet_b[0-7])": _wide_squeeze,
    r"(mobilenet_v[12]|mobilenet_v3_large|mobilenet_v3_small|lcnet)-x(0\.[1-9]\d?|[1-4]\.\d\d?)": _scaled,
    r"(shufflenet_v2)-x(0\.25|0\.33)": _scaled,
}
_PICTURES = r"stable-diffusion-(1\.5|2|xl)-(\d+)-steps(\+eager)?"
