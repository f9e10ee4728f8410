"""Networks of torchvision, timm and transformers as coremltools writes them: ML Programs, older networks, palettes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from converted import FOLDED, built, counted, names
from row import NotMadeError, Reading

import perfpass

TITLE = "Core ML"
PACKAGES = ("coremltools", "torch", "torchvision", "timm", "transformers")
_VARIANTS = {
    "torchvision:mobilenet_v2": ("network", "palette"),
    "torchvision:resnet18": ("network",),
    "torchvision:squeezenet1_1": ("network",),
    "torchvision:vgg11": ("network",),
    "timm:vit_tiny_patch16_224": ("palette",),
    "transformers:bert": ("palette",),
}


def models() -> list[str]:
    """Every network as an ML Program, and of some another variant behind a slash."""
    return [*names(), *(f"{name}/{variant}" for name, found in _VARIANTS.items() for variant in found)]


def read(model: str) -> Reading:
    """The saved model beside the torch route."""
    import coremltools
    import torch

    name, _, variant = model.partition("/")
    module, example = built(name)
    kind = np.float32 if example.is_floating_point() else np.int32
    how: dict[str, Any] = {"convert_to": "neuralnetwork"}
    if variant != "network":
        how = {"convert_to": "mlprogram", "minimum_deployment_target": coremltools.target.iOS18}
    try:
        traced = torch.jit.trace(module, example, check_trace=False)
        inputs = [coremltools.TensorType(name="x", shape=tuple(example.shape), dtype=kind)]
        made = coremltools.convert(traced, inputs=inputs, **how)
        if variant == "palette":
            from coremltools.optimize import coreml

            config = coreml.OpPalettizerConfig(mode="uniform", nbits=4)
            made = coreml.palettize_weights(made, coreml.OptimizationConfig(config))
    except Exception as error:
        raise NotMadeError(f"coremltools: {type(error).__name__}: {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("model.mlmodel" if variant == "network" else "model.mlpackage")
        made.save(str(path))
        graph = perfpass.load(path)
    theirs = counted(module, example)
    said = f"{FOLDED}; equal constants are stored once"
    return Reading(graph, theirs["macs"], theirs["parameters"], f"{said}; tables count too" if variant else said)
