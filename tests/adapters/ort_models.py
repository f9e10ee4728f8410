"""Small configurations of real architectures with random weights, exported to ONNX: for tests inside ONNX Runtime."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper


def _export(module: torch.nn.Module, arguments: tuple[Any, ...], path: Path, names: list[str], **options: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(), arguments, str(path), input_names=names, dynamo=False, opset_version=17, **options
        )


def _image(name: str, size: int = 64, **options: Any) -> Callable[[Path], None]:
    def export(path: Path) -> None:
        from perfpass.importers import torchvision_schemas

        torchvision_schemas.define()
        import timm

        _export(timm.create_model(name, exportable=True, **options), (torch.zeros(1, 3, size, size),), path, ["image"])

    return export


class _FirstOutput(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.encoder = not hasattr(model, "lm_head")

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        options = {} if self.encoder else {"use_cache": False}
        return self.model(input_ids=ids, attention_mask=mask, return_dict=False, **options)[0]


_TINY = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_TEXT: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertModel", {**_TINY, "intermediate_size": 64}),
    "llama": ("LlamaForCausalLM", {**_TINY, "intermediate_size": 64, "num_key_value_heads": 2}),
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4}),
}


def _text(name: str, *, dynamic: bool = False) -> Callable[[Path], None]:
    def export(path: Path) -> None:
        import transformers

        model_class, sizes = _TEXT[name]
        config = getattr(transformers, model_class).config_class(**sizes, attn_implementation="eager")
        axes = {name: {0: "batch", 1: "length"} for name in ("ids", "mask")} if dynamic else {}
        tokens = torch.ones(1, 8, dtype=torch.int64)
        model = _FirstOutput(getattr(transformers, model_class)(config))
        _export(model, (tokens, tokens), path, ["ids", "mask"], dynamic_axes=axes)

    return export


def _recurrent(path: Path) -> None:
    class Tagger(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(50, 16)
            self.lstm = torch.nn.LSTM(16, 24, num_layers=2, bidirectional=True, batch_first=True)
            self.head = torch.nn.Linear(48, 7)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.lstm(self.embed(ids))[0])

    _export(Tagger(), (torch.zeros(1, 12, dtype=torch.int64),), path, ["ids"])


def _loop(path: Path) -> None:
    """A scripted decoder: Loop with a body of matrix products, an If in the body."""

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = torch.nn.Linear(16, 8)
            self.head = torch.nn.Linear(8, 8)

        def forward(self, x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
            h = x
            for i in range(int(steps)):
                h = torch.tanh(self.cell(torch.cat([x, h], 1)))
                if i > 1:
                    h = self.head(h) + h
            return h

    _export(torch.jit.script(Decoder()), (torch.zeros(2, 8), torch.tensor(4)), path, ["x", "steps"])


def _quantized_dynamic(path: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    float_path = path.with_suffix(".float.onnx")
    _text("bert")(float_path)
    quantize_dynamic(str(float_path), str(path))


def _quantized_static(path: Path) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Noise(CalibrationDataReader):
        def __init__(self) -> None:
            random = np.random.default_rng(0)
            self.left = [{"image": random.normal(size=(1, 3, 64, 64)).astype(np.float32)} for _ in range(2)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self.left.pop() if self.left else None

    float_path = path.with_suffix(".float.onnx")
    _image("resnet18")(float_path)
    quantize_static(str(float_path), str(path), Noise(), quant_format=QuantFormat.QDQ)


def _half(path: Path) -> None:
    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    _export(Encoder().half(), (torch.zeros(1, 6, 32, dtype=torch.float16),), path, ["x"])


def _external(path: Path) -> None:
    inside = path.with_suffix(".inside.onnx")
    _image("resnet18")(inside)
    model = onnx.load(inside)
    onnx.save_model(model, path, save_as_external_data=True, location=path.stem + ".bin", size_threshold=0)


def _function(path: Path) -> None:
    """A model-local function called twice, which calls another: onnxruntime inlines both before placing nodes."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    scale = helper.make_function(
        "local", "Double", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], opsets[:1]
    )
    nodes = [helper.make_node("Double", ["x"], ["y"], domain="local"), helper.make_node("Relu", ["y"], ["z"])]
    block = helper.make_function("local", "Block", ["x"], ["z"], nodes, opsets)
    calls = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Block", ["h"], ["i"], domain="local", name="first"),
        helper.make_node("Block", ["i"], ["out"], domain="local", name="second"),
    ]
    weight = numpy_helper.from_array(np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32), "w")
    graph = helper.make_graph(
        calls,
        "calls",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 6])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [4, 6])],
        [weight],
    )
    onnx.save(helper.make_model(graph, functions=[scale, block], opset_imports=opsets, ir_version=9), path)


MODELS: dict[str, Callable[[Path], None]] = {
    "resnet18": _image("resnet18"),
    "mobilenetv3": _image("mobilenetv3_small_050"),
    "efficientnet": _image("efficientnet_b0"),
    "convnext": _image("convnext_atto"),
    "vit": _image("vit_tiny_patch16_224", img_size=64, depth=3),
    "densenet": _image("densenet121"),
    "bert": _text("bert"),
    "llama": _text("llama"),
    "gpt2-dynamic": _text("gpt2", dynamic=True),
    "lstm": _recurrent,
    "loop-and-if": _loop,
    "int8-dynamic": _quantized_dynamic,
    "int8-qdq": _quantized_static,
    "fp16": _half,
    "external-data": _external,
    "functions": _function,
}
