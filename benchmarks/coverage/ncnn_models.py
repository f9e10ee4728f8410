"""Networks of torchvision and small ones of torch.nn that pnnx writes for ncnn; beside each torch's own counter."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from counted import by_torch
from row import NotMadeError, Reading

import perfpass
from perfpass.importers import torchvision_schemas

TITLE = "ncnn"
PACKAGES = ("pnnx", "ncnn", "torch", "torchvision")
_VISION = (
    "alexnet convnext_tiny densenet121 efficientnet_b0 googlenet inception_v3 mnasnet1_0 mobilenet_v2 "
    "mobilenet_v3_large mobilenet_v3_small regnet_y_400mf resnet18 resnet50 resnext50_32x4d "
    "shufflenet_v2_x1_0 squeezenet1_1 swin_t vgg11 vit_b_16 wide_resnet50_2 "
)


def models() -> list[str]:
    """Of torchvision's list, those that stand for a family."""
    return _VISION.split()


def _written(network: Any, size: int, folder: Path) -> Path:
    import torch

    with torch.no_grad():
        torch.jit.trace(network, torch.rand(1, 3, size, size), check_trace=False).save(str(folder / "m.pt"))
    pnnx = Path(sysconfig.get_path("scripts")) / ("pnnx.exe" if sys.platform == "win32" else "pnnx")
    said = subprocess.run(
        [pnnx, "m.pt", f"inputshape=[1,3,{size},{size}]f32"], cwd=folder, capture_output=True, text=True, check=False
    )
    if not (folder / "m.ncnn.param").exists():
        raise NotMadeError(f"pnnx: {said.stderr[-200:]}")
    return folder / "m.ncnn.param"


def read(model: str) -> Reading:
    """The network without its batch norms, which pnnx folds: parameters have no reference."""
    torchvision_schemas.define()
    import torch
    import torchvision

    torch.backends.mha.set_fastpath_enabled(False)
    more = {"init_weights": False} if model in ("googlenet", "inception_v3") else {}
    network = torchvision.models.get_model(model, weights=None, **more).eval()
    size = 299 if model == "inception_v3" else 224
    with tempfile.TemporaryDirectory() as folder:
        path = _written(network, size, Path(folder))
        graph = perfpass.load(path, input_shape={"in0": (1, 3, size, size)})
    return Reading(graph, by_torch(network.to("meta"), (3, size, size)))
