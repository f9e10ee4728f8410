"""Exports the example models with their weights, then keeps the structure only.

The weights are random: no figure of a prediction depends on them. ``python examples/export.py [NAME...]`` rewrites
examples/NAME.onnx with the shape of every tensor in ``value_info``, and for a model exported with open dimensions
examples/NAME_dynamic.onnx as the exporter left it, without shapes. Needs torch, timm, transformers, onnx and
onnxruntime (requirements-test.txt).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import torch

from perfpass.importers import torchvision_schemas

FOLDER = Path(__file__).resolve().parent
# Constants up to this size stay: shapes, axes, slice bounds and scalars are part of the structure.
KEPT_BYTES = 1024


@dataclass(frozen=True)
class Export:
    """A module, example arguments, and the exporter that its users use."""

    module: torch.nn.Module
    arguments: tuple[Any, ...]
    input_names: list[str]
    opset: int = 17
    dynamic: tuple[str, ...] = ()  # names of the inputs' leading dimensions, where the exported file leaves them open
    dynamo: bool = False


def _timm(name: str, size: int = 224) -> Export:
    import timm

    return Export(timm.create_model(name, exportable=True), (torch.zeros(1, 3, size, size),), ["image"])


class _TokensOnly(torch.nn.Module):
    """A transformers model as a function of token ids alone, with a plain tensor out and no cache."""

    def __init__(self, model: torch.nn.Module, masked: bool) -> None:
        super().__init__()
        self.model = model
        self.masked = masked

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        options = {} if self.masked else {"use_cache": False}
        return self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False, **options)[0]


def resnet50() -> Export:
    """Convolutions: 25.6 million parameters, 224 x 224 image."""
    return _timm("resnet50")


def vit_base_patch16_224() -> Export:
    """Vision transformer: 86.6 million parameters, 224 x 224 image."""
    return _timm("vit_base_patch16_224")


def deberta_v3(hidden_size: int, heads: int) -> Export:
    """DeBERTa-v3's encoder at any width: 24 layers, 128 tokens. Disentangled attention makes it about 9,000 nodes."""
    from transformers import DebertaV2Config, DebertaV2Model

    # All but the width is microsoft/deberta-v3-large's config.json.
    config = DebertaV2Config(
        vocab_size=128100,
        hidden_size=hidden_size,
        num_hidden_layers=24,
        num_attention_heads=heads,
        intermediate_size=4 * hidden_size,
        max_position_embeddings=512,
        relative_attention=True,
        position_buckets=256,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        max_relative_positions=-1,
        type_vocab_size=0,
    )
    tokens = torch.zeros(1, 128, dtype=torch.int64)
    module = _TokensOnly(DebertaV2Model(config), masked=True)
    arguments = (tokens, torch.ones_like(tokens))
    return Export(module, arguments, ["input_ids", "attention_mask"], opset=14, dynamic=("batch", "sequence"))


def deberta_v3_large() -> Export:
    """Encoder of 24 layers, 434 million parameters, 128 tokens."""
    return deberta_v3(hidden_size=1024, heads=16)


def llama_1b_prefill() -> Export:
    """Decoder of 16 layers, 1.24 billion parameters (Llama 3.2 1B's sizes): prefill of 512 tokens in bfloat16."""
    from transformers import LlamaConfig, LlamaForCausalLM

    # The sizes of meta-llama/Llama-3.2-1B's config.json.
    config = LlamaConfig(
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=131072,
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(torch.float32)
    return Export(
        _TokensOnly(model, masked=False), (torch.zeros(1, 512, dtype=torch.int64),), ["input_ids"], dynamo=True
    )


MODELS: dict[str, Callable[[], Export]] = {
    entry.__name__: entry for entry in (resnet50, vit_base_patch16_224, deberta_v3_large, llama_1b_prefill)
}


def export_with_weights(export: Export, path: Path) -> None:
    """Writes the module as users do: with weights, in external data where the file would pass 2 GB."""
    export.module.eval()
    for tensor in (*export.module.parameters(), *export.module.buffers()):
        if tensor.is_floating_point():  # no two alike, as after training: the exporter merges equal weights
            tensor.data.uniform_(0.01, 0.02)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if export.dynamo:
            program = torch.onnx.export(
                export.module, export.arguments, dynamo=True, input_names=export.input_names, verbose=False
            )
            assert program is not None
            program.save(path, external_data=True)
        else:
            torch.onnx.export(
                export.module,
                export.arguments,
                str(path),
                dynamo=False,
                opset_version=export.opset,
                input_names=export.input_names,
                dynamic_axes={name: dict(enumerate(export.dynamic)) for name in export.input_names},
            )


def _strip(tensor: onnx.TensorProto) -> None:
    data = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
    kept = sum(len(tensor.raw_data) if field == "raw_data" else 4 * len(getattr(tensor, field)) for field in data)
    if tensor.data_location == onnx.TensorProto.EXTERNAL or kept > KEPT_BYTES:
        for field in (*data, "external_data", "data_location"):
            tensor.ClearField(field)


def structure_only(model: onnx.ModelProto) -> onnx.ModelProto:
    """Drops the data of large tensors, in place: dims and types stay, doc strings and exporter traces go."""
    for initializer in model.graph.initializer:
        _strip(initializer)
    for node in model.graph.node:
        node.ClearField("doc_string")
        node.ClearField("metadata_props")
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _strip(attribute.t)
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output, *model.graph.initializer):
        value.ClearField("doc_string")
        value.ClearField("metadata_props")
    model.graph.ClearField("metadata_props")
    model.ClearField("metadata_props")
    onnx.helper.set_model_props(model, {"perfpass.structure_only": "tensor data removed; weights were random"})
    return model


def _is_shaped(value: onnx.ValueInfoProto) -> bool:
    shape = value.type.tensor_type.shape
    return value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in shape.dim)


def unshaped(model: onnx.ModelProto) -> list[str]:
    """The tensors that the model computes and gives no concrete shape for."""
    shaped = {value.name for value in (*model.graph.value_info, *model.graph.output) if _is_shaped(value)}
    return [output for node in model.graph.node for output in node.output if output and output not in shaped]


def with_shapes(model: onnx.ModelProto, arguments: tuple[torch.Tensor, ...], weights: Path) -> onnx.ModelProto:
    """The model for these arguments: concrete inputs, and the shape of every tensor in ``value_info``.

    ONNX's own inference leaves some open (what follows a Range over a computed length); they are read off one run of
    the file with weights.
    """
    typed = onnx.ModelProto()
    typed.CopyFrom(model)
    for value, argument in zip(typed.graph.input, arguments, strict=True):
        for dim, size in zip(value.type.tensor_type.shape.dim, argument.shape, strict=True):
            dim.dim_value = size
    for value in typed.graph.output:
        value.type.tensor_type.ClearField("shape")
    typed.graph.ClearField("value_info")
    typed = onnx.shape_inference.infer_shapes(typed, data_prop=True)
    missing = unshaped(typed)
    if missing:
        kept = [value for value in typed.graph.value_info if value.name not in set(missing)]
        typed.graph.ClearField("value_info")
        typed.graph.value_info.extend([*kept, *_shapes_of_a_run(weights, arguments, missing)])
    return typed


def _shapes_of_a_run(weights: Path, arguments: tuple[torch.Tensor, ...], names: list[str]) -> list[onnx.ValueInfoProto]:
    import onnxruntime

    model = onnx.load(weights, load_external_data=False)
    inputs = {value.name: argument.numpy() for value, argument in zip(model.graph.input, arguments, strict=True)}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    instrumented = weights.with_name("instrumented.onnx")
    onnx.save(model, instrumented)
    del model
    session = onnxruntime.InferenceSession(str(instrumented), providers=["CPUExecutionProvider"])
    return [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in zip(names, session.run(names, inputs), strict=True)
    ]


def write(name: str) -> None:
    """Exports MODELS[name] and writes its structure to this folder."""
    export = MODELS[name]()
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "model.onnx"
        export_with_weights(export, weights)
        model = structure_only(onnx.load(weights, load_external_data=False))
        models = {name: with_shapes(model, export.arguments, weights)}
    if export.dynamic:
        model.graph.ClearField("value_info")
        models[f"{name}_dynamic"] = model
    for stem, content in models.items():
        path = FOLDER / f"{stem}.onnx"
        onnx.save(content, path)
        print(
            f"{path.name}: {len(content.graph.node)} nodes, {path.stat().st_size / 1e6:.2f} MB, "
            f"{len(unshaped(content))} tensors without a shape"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)} (default: all)")
    names = parser.parse_args().names or list(MODELS)
    unknown = [name for name in names if name not in MODELS]
    if unknown:
        sys.exit(f"unknown model {unknown[0]!r}; known: {', '.join(MODELS)}")
    torchvision_schemas.define()  # timm and transformers import torchvision
    for name in names:
        write(name)


if __name__ == "__main__":
    main()
