"""Networks of torchvision, timm and transformers as OpenVINO saves them: fixed and open sizes, halves, four bits."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from converted import FOLDED, built, counted, names
from row import NotMadeError, Reading

import perfpass

TITLE = "OpenVINO"
PACKAGES = ("openvino", "nncf", "torch", "torchvision", "timm", "transformers")
_VARIANTS = {
    "torchvision:mobilenet_v2": ("open", "int8"),
    "torchvision:resnet18": ("open",),
    "timm:vit_tiny_patch16_224": ("open", "int4"),
    "transformers:bert": ("open", "int4"),
    "transformers:gpt2": ("open", "int4"),
    "transformers:llama": ("open", "int4"),
}


def models() -> list[str]:
    """Every network with fixed sizes and weights in halves, and of some another variant behind a slash."""
    return [*names(), *(f"{name}/{variant}" for name, found in _VARIANTS.items() for variant in found)]


def read(model: str) -> Reading:
    """The saved file beside the torch route."""
    import openvino

    name, _, variant = model.partition("/")
    module, example = built(name)
    sizes: dict[str, Any] = {} if variant == "open" else {"input": [list(example.shape)]}
    try:
        made = openvino.convert_model(module, example_input=example, **sizes)
        if variant in ("int4", "int8"):
            import nncf

            mode = getattr(nncf.CompressWeightsMode, "INT4_ASYM" if variant == "int4" else "INT8_ASYM")
            more = {"group_size": 32, "all_layers": True} if variant == "int4" else {}
            made = nncf.compress_weights(made, mode=mode, **more)
    except Exception as error:
        raise NotMadeError(f"openvino: {type(error).__name__}: {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.xml"
        openvino.save_model(made, path, compress_to_fp16=not variant)
        given = {value.get_any_name(): tuple(example.shape) for value in made.inputs}
        graph = perfpass.load(path, input_shape=given) if variant == "open" else perfpass.load(path)
    theirs = counted(module, example)
    said = f"{FOLDED}; scales and zero points count too" if variant.startswith("int") else FOLDED
    return Reading(graph, theirs["macs"], theirs["parameters"], said)
