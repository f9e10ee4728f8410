"""The networks that are asked about: exported files, torchvision's modules, shipped configurations, graphs by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import perfpass
from perfpass.graph import OpGraph
from perfpass.search.template import Template

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
IMAGE_SIZES = (128, 160, 192, 224, 256, 320, 384)
TOKEN_SIZES = (32, 64, 128, 200, 256, 384, 512)


@dataclass(frozen=True)
class Network:
    """A network at any batch, and at any of ``sizes`` (pixels of a side, or tokens); ``size`` is its usual one."""

    load: Callable[[int, int], OpGraph]  # of batch and size
    size: int
    sizes: tuple[int, ...] = ()


def _file(name: str, size: int) -> Network:
    return Network(lambda batch, _: perfpass.load(EXAMPLES / f"{name}.onnx", batch=batch), size)


def _dynamic_file(name: str) -> Network:
    def load(batch: int, size: int) -> OpGraph:
        return perfpass.load(EXAMPLES / f"{name}.onnx", dims={"batch": batch, "sequence": size})

    return Network(load, 128, TOKEN_SIZES)


@cache
def module(name: str, **options: Any) -> Any:
    """A module of torchvision, without weights."""
    from perfpass.importers import torchvision_schemas

    torchvision_schemas.define()
    import torch
    import torchvision

    with torch.device("meta"):
        return getattr(torchvision.models, name)(**options).eval()


def _of_source(
    source: Callable[[], Any], how: Callable[[int], dict[str, Any]], size: int, sizes: tuple[int, ...]
) -> Network:
    """Read at three batches alone: at 1, which frameworks run otherwise, and at two others for all the rest."""

    @cache
    def template(size: int) -> Template:
        return Template(source(), **how(size))

    def load(batch: int, size: int) -> OpGraph:
        return template(size).at(batch) if batch > 1 else perfpass.load(source(), batch=1, **how(size))

    return Network(load, size, sizes)


def _torchvision(name: str, *, sizes: tuple[int, ...] = IMAGE_SIZES, **options: Any) -> Network:
    return _of_source(lambda: module(name, **options), lambda size: {"input_shape": (3, size, size)}, 224, sizes)


def _configuration(name: str) -> Network:
    path = Path(perfpass.__file__).parent / "configurations" / f"{name}.json"
    return _of_source(lambda: path, lambda size: {"dims": {"sequence": size}}, 128, TOKEN_SIZES)


def _by_hand(blocks: int) -> Network:
    from small_networks import network

    return Network(lambda batch, _: network(batch, width=64, blocks=blocks), 32)


NETWORKS: dict[str, Network] = {
    "resnet50.onnx": _file("resnet50", 224),
    "vit_base_patch16_224.onnx": _file("vit_base_patch16_224", 224),
    "deberta_v3_large_dynamic.onnx": _dynamic_file("deberta_v3_large_dynamic"),
    "llama_1b_prefill.onnx": _file("llama_1b_prefill", 512),
    **{
        name: _torchvision(name)
        for name in (
            *("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "vgg11", "vgg13", "vgg16", "vgg19"),
            *("densenet121", "densenet169", "densenet201", "convnext_tiny", "convnext_small"),
            *("mobilenet_v2", "efficientnet_b0", "squeezenet1_1", "shufflenet_v2_x1_0", "resnext50_32x4d", "swin_t"),
        )
    },
    "vit_b_16": _torchvision("vit_b_16", sizes=()),
    **{f"mobilenet_v2 x{width}": _torchvision("mobilenet_v2", width_mult=width) for width in (0.5, 1.4)},
    **{name: _configuration(name) for name in ("bert-base", "bert-large", "deberta-v3-base")},
    **{name: _configuration(name) for name in ("gpt2", "gpt2-medium", "gpt2-large")},
    **{f"{blocks} convolutions": _by_hand(blocks) for blocks in (2, 4, 8, 16)},
}
# Read in a moment: what continuous integration asks about.
QUICK = frozenset(
    {
        *(name for name in NETWORKS if name.endswith((".onnx", "convolutions")) or name.startswith("vgg")),
        *("squeezenet1_1", "resnet18", "resnet34", "mobilenet_v2", "vit_b_16"),
    }
)
# Of each, every network holds all layers of the one before it, at the same widths or wider ones.
LADDERS: tuple[tuple[str, ...], ...] = (
    ("resnet18", "resnet34"),
    ("resnet50", "resnet101", "resnet152"),
    ("vgg11", "vgg13", "vgg16", "vgg19"),
    ("densenet121", "densenet169", "densenet201"),
    ("convnext_tiny", "convnext_small"),
    ("mobilenet_v2 x0.5", "mobilenet_v2", "mobilenet_v2 x1.4"),
    ("bert-base", "bert-large"),
    ("gpt2", "gpt2-medium", "gpt2-large"),
    ("2 convolutions", "4 convolutions", "8 convolutions", "16 convolutions"),
)


@lru_cache(maxsize=4096)
def graph(name: str, batch: int, size: int = 0) -> OpGraph:
    """The graph of a network, read once a process; ``size`` 0 is its usual one."""
    network = NETWORKS[name]
    return network.load(batch, size or network.size)
