"""ONNX files of optimum's exporter, from small networks of transformers with random weights."""

from __future__ import annotations

import contextlib
import io
import tempfile
import warnings
from pathlib import Path
from typing import Any

from row import NotMadeError, Reading

import perfpass
from perfpass.graph import costs
from perfpass.importers import onnx, torchvision_schemas

TITLE = "ONNX files by optimum"
PACKAGES = ("optimum-onnx", "transformers", "torch", "onnx")
_TEXTS = "albert bert distilbert electra mobilebert mpnet roberta xlm-roberta"
_WRITERS = "bloom codegen gpt2 gpt_neo gpt_neox gptj llama mistral opt phi qwen2"
_IMAGES = "beit convnext deit mobilevit resnet segformer swin vit"
_BOTH = "bart t5 whisper"
_SIZES = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "rotary_dim": 16,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 256,
}
_OPEN = {"batch_size": 1, "num_channels": 3}  # other open sizes are an image's or a text's
_EDGE = 64  # of images whose configuration states none: the exporter's own
_LENGTH = 64
_EXPLAINED = (
    "tensors of equal contents (norms before training) are stored once and tied weights may be stored twice, what no "
    "output needs (a pooler) is gone, batch normalisations are folded, constants of the graph are initializers"
)


def models() -> list[str]:
    """FAMILY/TASK; of encoders with decoders each file is one more name."""
    made = [f"{name}/feature-extraction" for name in (*_TEXTS.split(), *_IMAGES.split())]
    made += [f"{name}/text-generation" for name in _WRITERS.split()]
    made += [f"{name}/text-generation-with-past" for name in ("gpt2", "llama", "qwen2")]
    seq = {"whisper": "automatic-speech-recognition"}
    return [*made, *(f"{n}/{seq.get(n, 'text2text-generation')}/{part}" for n in _BOTH.split() for part in _PARTS)]


_PARTS = ("encoder_model", "decoder_model")


def read(model: str) -> Reading:
    """The file; parameters beside the module's own where it is one file."""
    torchvision_schemas.define()
    family, task, *part = model.split("/")
    with tempfile.TemporaryDirectory() as folder:
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                module = _module(family, task)
                _export(module, Path(folder), task)
        except Exception as error:
            raise NotMadeError(f"optimum: {type(error).__name__}: {str(error)[:200]}") from error
        file = Path(folder) / f"{part[0] if part else 'model'}.onnx"
        edge = getattr(module.config, "image_size", None) or _EDGE
        sizes = {**_OPEN, "height": edge, "width": edge}
        shapes = {i.name: tuple(_size(d, sizes) for d in i.shape or ()) for i in onnx.inputs(file)}
        graph = perfpass.load(file, input_shape=shapes)
    if part:
        return Reading(graph)
    held = {id(p): p.numel() for p in module.parameters()}
    ours = costs.count(graph).totals["parameters"]
    return Reading(graph, None, sum(held.values()), "" if ours == sum(held.values()) else _EXPLAINED)


def _size(declared: int | str, sizes: dict[str, int]) -> int:
    if isinstance(declared, int):
        return declared
    return sizes.get(declared, 2 * _LENGTH if "+" in declared else _LENGTH)


def _module(family: str, task: str) -> Any:
    import transformers as t

    config: Any = t.AutoConfig.for_model(family)
    for name, value in _SIZES.items():
        if family not in ("beit", "resnet", "convnext", "swin", "segformer", "mobilevit", "mobilebert"):
            with contextlib.suppress(Exception):  # of other names in this family
                setattr(config, name, value)
    if task.startswith("text-generation"):
        return t.AutoModelForCausalLM.from_config(config).eval()
    if task == "text2text-generation":
        return t.AutoModelForSeq2SeqLM.from_config(config).eval()
    if task == "automatic-speech-recognition":
        return t.AutoModelForSpeechSeq2Seq.from_config(config).eval()
    return t.AutoModel.from_config(config).eval()


def _export(module: Any, folder: Path, task: str) -> None:
    from optimum.exporters.onnx import onnx_export_from_model

    onnx_export_from_model(module, output=folder, task=task, do_validation=False)
