"""StableHLO of JAX: networks of Flax, of Keras on JAX, and of PyTorch by torchax, as text, bytecode and exports."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from row import NotMadeError, Reading

import perfpass

TITLE = "StableHLO of JAX"
PACKAGES = ("jax", "flax", "keras", "torchax", "torch", "torchvision", "timm", "transformers")

_FORMS = ("text", "bytecode", "export")
_KERAS = (
    "ConvNeXtTiny DenseNet121 EfficientNetB0 EfficientNetV2B0 InceptionV3 MobileNet MobileNetV2 MobileNetV3Small "
    "NASNetMobile ResNet50 ResNet50V2 VGG16 Xception"
)
_EXPLAINED = {
    "flax": "arguments are told apart by what reads them, and by names where the module has them: a table of rows and "
    "a vector for every position count as parameters, and so does data that stands there",
    "keras": "a Normalization's mean, variance and counter are constants, or variables that no operator has as weights",
}
_NEEDED = "what no output needs (a BERT's pooler) is gone"


def models() -> list[str]:
    """SOURCE:NAME/FORM; of PyTorch's networks the export alone."""
    from converted import names
    from jax_networks import NETWORKS

    made = [f"flax:{name}/{form}" for name in NETWORKS for form in _FORMS]
    made += [f"{name}/export" for name in names()]
    return [*made, *(f"keras:{name}/text" for name in _KERAS.split())]


def read(model: str) -> Reading:
    """The module, beside its library's count of parameters and the MACs of JAX's expression or of the torch route."""
    named, _, form = model.rpartition("/")
    source, _, name = named.partition(":")
    try:
        function, arguments, macs, parameters = {"flax": _flax, "keras": _keras}.get(source, _torch)(
            name if source in ("flax", "keras") else named
        )
        written = written_as(form, function, arguments)
    except Exception as error:
        raise NotMadeError(f"{type(error).__name__}: {str(error)[:200]}") from error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module"
        path.write_bytes(written)
        graph = perfpass.load(path)
    return Reading(graph, macs, parameters, _EXPLAINED.get(source, _NEEDED))


def written_as(form: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
    """The function's module: MLIR text, the same with the arguments' names, a portable artifact, an export of JAX."""
    import jax
    from jax import export

    if form == "text":
        return jax.jit(function).lower(*arguments).as_text().encode()
    exported = export.export(jax.jit(function))(*arguments)
    if form == "named":
        return exported.mlir_module().encode()
    return bytes(exported.mlir_module_serialized if form == "bytecode" else exported.serialize())


def _flax(name: str) -> tuple[Callable[..., Any], tuple[Any, ...], int, int]:
    from jax_networks import macs, network

    (function, arguments), elements = network(name)
    return function, arguments, macs(function, *arguments), elements


def _keras(name: str) -> tuple[Callable[..., Any], tuple[Any, ...], int, int]:
    os.environ["KERAS_BACKEND"] = "jax"
    import jax
    import keras
    from jax_networks import macs

    size = {"input_shape": (224, 224, 3)} if "MobileNetV3" in name else {}
    network = getattr(keras.applications, name)(weights=None, **size)

    def function(trained: Any, kept: Any, image: Any) -> Any:
        return network.stateless_call(trained, kept, image, training=False)[0]

    trained, kept = (
        [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in found]
        for found in (network.trainable_variables, network.non_trainable_variables)
    )
    arguments = (trained, kept, jax.ShapeDtypeStruct((1, *network.input_shape[1:]), "float32"))
    return function, arguments, macs(function, *arguments), int(network.count_params())


def _torch(name: str) -> tuple[Callable[..., Any], tuple[Any, ...], int, int]:
    from converted import built, counted

    module, example = built(name)
    theirs = counted(module, example)
    return *of_torch(module, example), theirs["macs"], theirs["parameters"]


def of_torch(module: Any, *examples: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A module of PyTorch as a function of its weights and inputs, those as shapes: torch.export, then torchax."""
    import jax
    import torch

    _name_overloads()
    from torchax.export import exported_program_to_jax

    weights, function = exported_program_to_jax(torch.export.export(module, examples))
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), weights)
    inputs = tuple(jax.ShapeDtypeStruct(tuple(t.shape), str(t.dtype).removeprefix("torch.")) for t in examples)
    return function, (shapes, inputs)


def _name_overloads() -> None:
    """Overloads by names of axes, which torchax 0.0.13 lists and torch 2.13 has no more: others of the operators."""
    import torch

    names = ("dimname", "dimname_out", "Dimname", "Dimname_Scalar", "Dimname_Tensor", "dim_Dimname", "names_dim")
    names += ("names_ScalarOpt_dim", "names_ScalarOpt_dim_dtype", "names_dtype_out", "names_out")
    names += ("correction_names", "correction_names_out")
    aten = torch.ops.aten
    packets = (aten.all, aten.index_add, aten.index_copy, aten.index_copy_, aten.index_fill, aten.index_fill_)
    for packet in (*packets, aten.norm, aten.prod, aten.std, aten.std_mean, aten.unbind):
        for name in set(names) - set(packet.overloads()):
            setattr(packet, name, getattr(packet, packet.overloads()[0]))
