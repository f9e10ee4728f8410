"""What the tests of all adapters share; packages are imported where a fixture needs them: Relax has others."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Path:
    """A folder of exports: an image network with an open batch and with a fixed one, an encoder of open length."""
    import torch

    from perfpass.importers import torchvision_schemas

    torchvision_schemas.define()
    import timm

    folder = tmp_path_factory.mktemp("exports")
    torch.manual_seed(0)

    def export(module, argument, name, dynamic=None):
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module.eval(),
                (argument,),
                str(folder / name),
                input_names=["x"],
                output_names=["y"],
                opset_version=17,
                dynamo=False,
                dynamic_axes=dynamic,
            )

    images = timm.create_model("resnet18", exportable=True)
    export(images, torch.zeros(1, 3, 96, 96), "open.onnx", {"x": {0: "batch"}, "y": {0: "batch"}})
    export(images, torch.zeros(2, 3, 96, 96), "fixed.onnx")

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.project, self.norm = torch.nn.Linear(64, 192), torch.nn.LayerNorm(64)

        def forward(self, x):
            q, k, v = self.project(self.norm(x)).chunk(3, dim=-1)
            return x + torch.softmax(q @ k.transpose(1, 2) / 8, dim=-1) @ v

    tokens = {"x": {0: "batch", 1: "length"}, "y": {0: "batch", 1: "length"}}
    export(torch.nn.Sequential(*(Attention() for _ in range(4))), torch.zeros(2, 8, 64), "encoder.onnx", tokens)
    return folder


@pytest.fixture(params=["auto", "file"])
def reader(request) -> str:
    """Both ways to a graph; "auto" is the native provider where it was built, else the file reader again."""
    return request.param


@pytest.fixture(autouse=True)
def no_calibration(tmp_path, monkeypatch):
    """A calibration of whoever runs the tests changes no prediction."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
