"""Every name that timm lists, at the image size that it is made for."""

from __future__ import annotations

import zlib

from counted import by_torch, compared
from row import Reading

from perfpass.importers import torchvision_schemas
from perfpass.importers.model_sources import timm_image_model
from perfpass.importers.torch import trace_owned

TITLE = "timm"
PACKAGES = ("torch", "timm")


def models() -> list[str]:
    """All names, in an order that mixes the families, so that a run cut short is a fair sample."""
    torchvision_schemas.define()
    import timm

    return sorted(timm.list_models(), key=lambda name: zlib.crc32(name.encode()))


def read(model: str) -> Reading:
    """The network at its own input, and torch's counter beside it."""
    module, shape = timm_image_model(model)
    return compared(trace_owned(module, shape), module, by_torch(module, shape))
