"""Every name that timm lists, at the image size that it is made for."""

from __future__ import annotations

from counted import by_torch, compared
from row import Reading

import perfpass
from perfpass.importers import torchvision_schemas
from perfpass.importers.model_sources import timm_image_model

TITLE = "timm"
PACKAGES = ("torch", "timm")


def models() -> list[str]:
    """All names."""
    torchvision_schemas.define()
    import timm

    return sorted(timm.list_models())


def read(model: str) -> Reading:
    """The network at its own input, and torch's counter beside it."""
    graph = perfpass.load(f"timm:{model}")
    module, shape = timm_image_model(model)
    return compared(graph, module, by_torch(module, shape))
