"""Archives of PyTorch: a network saved by torch.export and by torch.jit, beside its module on the meta device."""

from __future__ import annotations

import io
import tempfile
import warnings
from pathlib import Path
from typing import Any

from converted import Hidden
from row import NotMadeError, Reading

import perfpass
from perfpass.graph import costs
from perfpass.importers import torchvision_schemas

TITLE = "Archives of torch.export and TorchScript"
PACKAGES = ("torch", "torchvision", "timm", "transformers")

_TORCHVISION = [
    "alexnet",
    "convnext_tiny",
    "densenet121",
    "efficientnet_b0",
    "googlenet",
    "inception_v3",
    "maxvit_t",
    "mnasnet1_0",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "regnet_y_400mf",
    "resnet18",
    "resnet50",
    "shufflenet_v2_x1_0",
    "squeezenet1_1",
    "swin_t",
    "vgg11",
    "vit_b_16",
]
_TIMM = ("deit_tiny_patch16_224", "ghostnet_100", "mixer_s32_224", "coatnet_0_rw_224", "hrnet_w18_small", "repvgg_a0")
_TRANSFORMERS = {
    "bert": ("BertConfig", "BertModel", {"num_hidden_layers": 2}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {"n_layer": 2, "use_cache": False}),
    "llama": (
        "LlamaConfig",
        "LlamaForCausalLM",
        {
            "num_hidden_layers": 2,
            "hidden_size": 256,
            "intermediate_size": 512,
            "num_attention_heads": 8,
            "vocab_size": 1000,
            "use_cache": False,
        },
    ),
    "distilbert": ("DistilBertConfig", "DistilBertModel", {"n_layers": 2}),
    "t5-encoder": ("T5Config", "T5EncoderModel", {"num_layers": 2}),
}


def models() -> list[str]:
    """WAY:LIBRARY:NAME."""
    names = [f"torchvision:{n}" for n in _TORCHVISION] + [f"timm:{n}" for n in _TIMM]
    scripted = [f"script:torchvision:{n}" for n in _TORCHVISION]
    both = [f"{way}:{n}" for way in ("pt2", "trace") for n in (*names, *(f"hf:{n}" for n in _TRANSFORMERS))]
    return [*both, *scripted]


def read(model: str) -> Reading:
    """The archive's graph; its parameters and MACs are those of the module traced here, or the row says why not."""
    way, _, name = model.partition(":")
    torchvision_schemas.define()
    module, shape, example = _module(name)
    whole = perfpass.load(module, input_shape=shape)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "archive"
        path.write_bytes(_archive(way, module, example))
        given = {"input_shape": _whole(path, example)} if way == "script" else {}
        graph = perfpass.load(str(path), **given)
    totals = costs.count(whole).totals
    return Reading(graph, totals["macs"], totals["parameters"])


def _module(name: str) -> tuple[Any, Any, Any]:
    """A module with weights at random, its input's shape without the batch, and an input."""
    import torch

    library, _, model = name.partition(":")
    if library == "hf":
        import transformers

        configuration, kind, sizes = _TRANSFORMERS[model]
        module = Hidden(getattr(transformers, kind)(getattr(transformers, configuration)(**sizes))).eval()
        return module, ((32,), "int64"), torch.zeros(1, 32, dtype=torch.int64)
    side = 299 if model == "inception_v3" else 224
    if library == "timm":
        import timm

        module = timm.create_model(model)
    else:
        import torchvision

        module = getattr(torchvision.models, model)(weights=None)
    return module.eval(), (3, side, side), torch.zeros(1, 3, side, side)


def _archive(way: str, module: Any, example: Any) -> bytes:
    import torch

    stream = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if way == "pt2":
                torch.export.save(torch.export.export(module, (example,)), stream)
            elif way == "trace":
                torch.jit.save(torch.jit.trace(module, example, check_trace=False, strict=False), stream)
            else:
                torch.jit.save(torch.jit.script(module), stream)
    except Exception as error:
        raise NotMadeError(f"{type(error).__name__}: {str(error)[:200]}") from error
    return stream.getvalue()


def _whole(path: Path, example: Any) -> dict[str, tuple[int, ...]]:
    from perfpass.importers.formats import torchscript

    (only,) = torchscript.inputs(path)
    return {only.name: tuple(example.shape)}
