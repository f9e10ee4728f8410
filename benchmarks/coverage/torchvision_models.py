"""Every model that torchvision lists: classification, detection, segmentation, video, optical flow, quantised."""

from __future__ import annotations

from counted import by_torch, compared
from row import Reading

import perfpass
from perfpass.importers import torchvision_schemas
from perfpass.importers.model_sources import torchvision_image_model

TITLE = "torchvision"
PACKAGES = ("torch", "torchvision")


def models() -> list[str]:
    """All names."""
    torchvision_schemas.define()
    import torchvision

    return sorted(torchvision.models.list_models())


def read(model: str) -> Reading:
    """The network at its own input, and torch's counter beside it."""
    graph = perfpass.load(f"torchvision:{model}")
    module, shape = torchvision_image_model(model)
    return compared(graph, module, by_torch(module, shape))
