"""Our own definitions by name, with their papers and the parameters that are stated of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfpass.errors import UnsupportedError

if TYPE_CHECKING:
    import torch

    from perfpass.graph import OpGraph

Shapes = Callable[[int, int], Any]  # height (or the one size) and width -> shapes of the inputs, without the batch


@dataclass(frozen=True)
class Own:
    """A network that is defined here.

    ``build`` makes the module; ``inputs`` gives the shapes of its inputs, as `perfpass.importers.torch.trace` takes
    them. ``paper``: where the definition stands; ``parameters``: what is stated of it (0: nothing is).
    """

    build: Callable[[], torch.nn.Module]
    inputs: Shapes
    paper: str
    parameters: float = 0.0

    def module(self) -> torch.nn.Module:
        """The network on the meta device."""
        from perfpass.importers import torchvision_schemas

        torchvision_schemas.define()
        import torch

        with torch.device("meta"):
            return self.build().eval()

    def tracer(self, height: int, width: int) -> Callable[[int], OpGraph]:
        """The graph at one size, by batch."""
        from perfpass.importers.torch import trace_owned

        module = self.module()
        return lambda batch: trace_owned(module, self.inputs(height, width), batch=batch)


def definition(name: str) -> Own:
    """The definition of this name. Raises UnsupportedError for one that is not here."""
    if name in _FIXED:
        return _FIXED[name]
    for pattern, make in _FAMILIES.items():
        if found := re.fullmatch(pattern, name):
            return make(found)
    raise UnsupportedError(f"no definition of {name}")


def _image(height: int, width: int) -> Any:
    return (3, height, width)


def _dlrm() -> torch.nn.Module:
    from perfpass.importers.definitions import recommendation

    return recommendation.Dlrm()


def _wide_and_deep() -> torch.nn.Module:
    from perfpass.importers.definitions import recommendation

    return recommendation.WideAndDeep()


def _neumf() -> torch.nn.Module:
    from perfpass.importers.definitions import recommendation

    return recommendation.NeuMf()


def _tft() -> torch.nn.Module:
    from perfpass.importers.definitions import forecasting

    return forecasting.Tft()


def _speech(name: str) -> Callable[[], torch.nn.Module]:
    def build() -> torch.nn.Module:
        from perfpass.importers.definitions import speech

        module: torch.nn.Module = getattr(speech, name)()
        return module

    return build


def _segmentation(name: str, **options: Any) -> Callable[[], torch.nn.Module]:
    def build() -> torch.nn.Module:
        from perfpass.importers.definitions import segmentation

        module: torch.nn.Module = getattr(segmentation, name)(**options)
        return module

    return build


def _transformer_xl(layers: int, width: int, heads: int, inner: int, memory: int, divide: int, stated: float) -> Own:
    def build() -> torch.nn.Module:
        from perfpass.importers.definitions import language

        return language.TransformerXl(layers, width, heads, inner, memory, divide)

    def inputs(tokens: int, _: int) -> Any:
        return [((tokens,), "int64"), (layers, memory, width)]

    return Own(build, inputs, "Dai et al., 2019, arXiv 1901.02860; sizes of DeepLearningExamples", stated)


_FIXED: Mapping[str, Own] = {
    "dlrm-small": Own(_dlrm, lambda *_: [(13,), ((26,), "int64")], "Naumov et al., 2019, arXiv 1906.00091"),
    # The README says some 90 million.
    "wide-and-deep": Own(
        _wide_and_deep, lambda *_: [(13,), ((13,), "int64")], "Cheng et al., 2016, arXiv 1606.07792", 90e6
    ),
    "neumf": Own(_neumf, lambda *_: ((2,), "int64"), "He et al., 2017, arXiv 1708.05031", 31.8e6),
    "tft": Own(
        _tft, lambda *_: [(192, 3), (192, 1), ((1,), "int64")], "Lim et al., 2019, arXiv 1912.09363"
    ),
    "transformer-xl-base": _transformer_xl(16, 512, 8, 2048, 640, 1, 192e6),
    "transformer-xl-large": _transformer_xl(18, 1024, 16, 4096, 1600, 4, 0.0),
    "transformer-xl-base-step": _transformer_xl(16, 512, 8, 2048, 192, 1, 192e6),
    "transformer-xl-large-step": _transformer_xl(18, 1024, 16, 4096, 384, 4, 0.0),
    # Ten frames in a tenth of a second.
    "quartznet15x5": Own(
        _speech("QuartzNet"), lambda tenths, _: (64, 10 * tenths), "Kriman et al., 2019, arXiv 1910.10261", 18.9e6
    ),
    "fastpitch": Own(_speech("FastPitch"), lambda n, _: ((n,), "int64"), "Lancucki, 2020, arXiv 2006.06873", 45e6),
    "hifigan": Own(_speech("HifiGan"), lambda frames, _: (80, frames), "Kong et al., 2020, arXiv 2010.05646", 13.92e6),
    "unet-medical": Own(
        _segmentation("UNet"), lambda h, w: (1, h, w), "Ronneberger et al., 2015, arXiv 1505.04597", 31.03e6
    ),
    "nnunet-2d": Own(
        _segmentation("NnUNet", dims=2, widths=(32, 64, 128, 256, 512, 512)),
        lambda h, w: (4, h, w),
        "Isensee et al., 2021",
    ),
    "nnunet-3d": Own(
        _segmentation("NnUNet", dims=3, widths=(32, 64, 128, 256, 320, 320)),
        lambda h, _: (4, h, h, h),
        "Isensee et al., 2021",
        31.2e6,
    ),
}  # fmt: skip


def _segmenter(found: re.Match[str]) -> Own:
    head, depth, plain, classes = found.groups()
    options = {"head": head, "depth": int(depth), "deep": not plain, "classes": int(classes)}
    return Own(_segmentation("Segmenter", **options), _image, "mmsegmentation's configurations")


def _detector(found: re.Match[str]) -> Own:
    kind, name = found.groups()

    def build() -> torch.nn.Module:
        from perfpass.importers.definitions import detection

        if kind == "retinanet":
            return detection.RetinaNet(name)
        stages = 3 if kind.startswith("cascade") else 1
        return detection.RegionNet(name, masks="mask" in kind, stages=stages)

    return Own(build, _image, "Ren et al., 2015; Lin et al., 2017; He et al., 2017")


def _resnet(found: re.Match[str]) -> Own:
    squeeze, depth, cardinality, width, deep = found.groups()

    def build() -> torch.nn.Module:
        from perfpass.importers.definitions import vision

        return vision.resnet(
            int(depth), int(cardinality or 1), int(width or 64), deep=bool(deep), squeeze=bool(squeeze)
        )

    return Own(build, _image, "He et al., 2016; Xie et al., 2017; Hu et al., 2018; He et al., 2019 (bag of tricks)")


def _wide_squeeze(found: re.Match[str]) -> Own:
    def build() -> torch.nn.Module:
        from perfpass.importers.definitions import vision

        return vision.wide_squeeze(found[1])

    return Own(build, _image, "Tan and Le, 2019; DeepLearningExamples' wider squeeze")


def _ssd(_: re.Match[str]) -> Own:
    def build() -> torch.nn.Module:
        from perfpass.importers.definitions import detection

        return detection.Ssd300()

    return Own(build, _image, "Liu et al., 2016, arXiv 1512.02325")


_FAMILIES: Mapping[str, Callable[[re.Match[str]], Own]] = {
    r"(fcn|pspnet|deeplabv3|deeplabv3plus|upernet)-r(18|50|101)(b?)-(\d+)": _segmenter,
    r"(retinanet|faster-rcnn|mask-rcnn|cascade-rcnn|cascade-mask-rcnn)-(\w+)": _detector,
    r"(se-)?resnet(\d+)(?:-(\d+)x(\d+)d)?(-vd)?": _resnet,
    r"widese-(\w+)": _wide_squeeze,
    r"ssd300-resnet50": _ssd,
}
