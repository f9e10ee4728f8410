"""ONNX files of Microsoft Olive: networks that it converts, and what its passes make of them."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from converted import built, counted
from row import NotMadeError, Reading

import perfpass
from perfpass.importers import torchvision_schemas

TITLE = "ONNX files by Olive"
PACKAGES = ("olive-ai", "onnxruntime", "onnx", "torch", "transformers")
_NETWORKS = "torchvision:mobilenet_v3_small timm:convnext_atto timm:vit_tiny_patch16_224 "
_NETWORKS += "transformers:bert transformers:distilbert transformers:t5-encoder"
# Names in olive.passes, and what each is asked for.
_PASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "peephole": ("OnnxPeepholeOptimizer", {}),
    "transformers": ("OrtTransformersOptimization", {"model_type": "bert"}),
    "fp16": ("OnnxFloatToFloat16", {}),
    "int8": ("OnnxDynamicQuantization", {}),
    "int4": ("OnnxBlockWiseRtnQuantization", {}),
}
_EXPLAINED = (
    "the exporter drops what no output needs (a BERT's pooler) and folds batch normalisations; passes store weights "
    "with scales and zero points, and constants as initializers"
)


def models() -> list[str]:
    """NETWORK/PASS; "converted" is the file that the passes begin with."""
    return [f"{name}/{way}" for name in _NETWORKS.split() for way in ("converted", *_PASSES)]


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    os.environ["OLIVE_DISABLE_TELEMETRY"] = "1"
    return tempfile.TemporaryDirectory()


@cache
def _converted(name: str) -> tuple[Any, dict[str, int]]:
    """Olive's model of the converted network, and the totals of the torch route."""
    from olive.model import PyTorchModelHandler

    module, example = built(name)
    declared = {"input_names": ["x"], "output_names": ["y"], "input_shapes": [list(example.shape)]}
    declared["input_types"] = [str(example.dtype).removeprefix("torch.")]
    handler = PyTorchModelHandler(model_loader=lambda _: module, io_config=declared)
    return _run("OnnxConversion", {"use_dynamo_exporter": False}, handler, name), counted(module, example)


def _run(kind: str, settings: dict[str, Any], handler: Any, place: str) -> Any:
    from olive.package_config import OlivePackageConfig
    from olive.passes.olive_pass import create_pass_from_dict

    known = OlivePackageConfig.load_default_config().import_pass_module(kind)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        made = create_pass_from_dict(known, settings, disable_search=True)
        return made.run(handler, str(Path(_folder().name) / place.replace(":", "_")))


def read(model: str) -> Reading:
    """The file beside the torch route."""
    torchvision_schemas.define()
    name, _, way = model.rpartition("/")
    try:
        made, theirs = _converted(name)
        if way in _PASSES:
            made = _run(*_PASSES[way], made, model)
    except Exception as error:
        raise NotMadeError(f"olive: {type(error).__name__}: {str(error)[:200]}") from error
    return Reading(perfpass.load(made.model_path), theirs["macs"], theirs["parameters"], _EXPLAINED)
