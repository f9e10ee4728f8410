"""A Keras model -> OpGraph: its inputs at fixed sizes, then what each layer computes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfpass.errors import FormatError, UnsupportedError
from perfpass.graph import OpGraph
from perfpass.importers.formats.batch import scaled
from perfpass.importers.formats.channels_last import Program, needed, shown
from perfpass.importers.formats.keras.configuration import configuration
from perfpass.importers.formats.keras.layer import Known, Layer, tensors_in
from perfpass.importers.formats.keras.nested import input_names, model
from perfpass.importers.formats.keras.operations import OPERATIONS
from perfpass.importers.formats.keras.settings import policy
from perfpass.importers.formats.keras.table import LAYERS
from perfpass.importers.formats.patterns import recognise
from perfpass.importers.formats.sizes import Sizes, fixed
from perfpass.importers.onnx import Input
from perfpass.text import shown_value


def read(path: Path, sizes: Sizes) -> OpGraph:
    """The operator graph of a Keras model at ``sizes``.

    Raises FileError, FormatError, LimitError, ShapeError and UnsupportedError (a class whose code is the user's).
    """
    spec = configuration(path)
    config = _model(spec)
    declared = _declared(config, spec)
    program = Program()
    root = Layer(program, spec, Known(LAYERS, OPERATIONS))
    at = fixed(declared, sizes)
    given = {i.name: program.input(i.name, at.shapes[i.name], i.dtype) for i in declared}
    outputs = tensors_in(model(root, list(given.values()) if len(given) > 1 else next(iter(given.values()))))
    if not program.nodes or not outputs:
        raise UnsupportedError(f"model {shown_value(root.name)} computes nothing from its inputs")
    program.nodes = needed(program.nodes, outputs)
    recognise(program, outputs)
    return scaled(shown(program, outputs), at.declared_batch, at.batch)


def inputs(path: Path) -> tuple[Input, ...]:
    """The inputs that a Keras model declares. Raises as `read`."""
    spec = configuration(path)
    return _declared(_model(spec), spec)


def _model(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The configuration of a functional or sequential model. Raises UnsupportedError for one of the user's code."""
    config = spec.get("config")
    if isinstance(config, list):  # Keras 1 and early 2: a sequence is its list of layers
        config = {"layers": config}
    if not isinstance(config, dict) or not isinstance(config.get("layers"), list):
        raise UnsupportedError(
            f"the model is a subclassed one of class {shown_value(spec['class_name'])}: its layers stand in Python "
            "code and not in the file, and that code is never run; export it (model.export) and pass the folder"
        )
    return config


def _declared(config: Mapping[str, Any], spec: Mapping[str, Any]) -> tuple[Input, ...]:
    layers = {}
    for layer in config["layers"]:
        if not isinstance(layer, dict) or not isinstance(layer.get("config"), dict):
            raise FormatError(f"a Keras model has the layer {shown_value(layer)}")
        layers[str(layer.get("name") or layer["config"].get("name"))] = layer
    if "input_layers" in config:
        names = input_names(config)
        if not names:
            raise FormatError("a functional model without inputs; the file is damaged")
        for name in names:
            if name not in layers:
                raise FormatError(f"a functional model whose input {shown_value(name)} is none of its layers")
        return tuple(_input(name, layers[name]["config"]) for name in names)
    first: Any = next(iter(config["layers"]), None)
    while isinstance(first, dict) and isinstance(first.get("config"), dict):
        own = first["config"]
        if any(own.get(key) is not None for key in ("batch_shape", "batch_input_shape")):
            return (_input(str(own.get("name") or "input"), own),)
        if isinstance(own.get("layers"), list) and "input_layers" in own:
            return _declared(own, first)
        first = next(iter(own["layers"]), None) if isinstance(own.get("layers"), list) else None
    built = spec.get("build_config")
    shape = config.get("build_input_shape") or (built.get("input_shape") if isinstance(built, dict) else None)
    return (_input("input", {"batch_shape": shape}),)


def _input(name: str, config: Mapping[str, Any]) -> Input:
    shape = config.get("batch_shape") or config.get("batch_input_shape")
    dtype, _ = policy(name, config.get("dtype"))
    if shape is None:
        return Input(name, dtype, None)
    if not isinstance(shape, list) or any(s is not None and (not isinstance(s, int) or s < 1) for s in shape):
        raise FormatError(f"input {shown_value(name)} has the shape {shown_value(shape)}")
    symbols = ["batch", *(f"{name}:{axis}" for axis in range(1, len(shape)))]
    return Input(name, dtype, tuple(symbols[a] if s is None else s for a, s in enumerate(shape)))
