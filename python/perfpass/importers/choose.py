"""Model in, OpGraph out: one module per source, `load` chooses; `readers` finds those of other packages.

Nothing heavy is imported here: the type of the model decides which framework is needed, and that is already loaded.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass.errors import ArgumentError, UnsupportedError, about
from perfpass.importers.model_argument import once, opened, unasked, understood
from perfpass.text import shown_value

if TYPE_CHECKING:
    from perfpass.graph import OpGraph
    from perfpass.importers.formats import Sizes

_SEQUENCE_NAMES = ("sequence_length", "sequence")
_IMAGE_NAMES = ("image_size", "height", "width")
_OF_TORCH = "a torch module, whose sizes are set by input_shape and batch"


def load(
    model: Any,
    *,
    batch: int | None = None,
    input_shape: Any = None,
    dims: Mapping[str, int] | None = None,
    mode: str = "inference",
    optimizer: str = "momentum",
    frozen: Sequence[str] = (),
    assume: Mapping[str, int] | None = None,
) -> OpGraph:
    """The operator graph of a model in any form that perfpass reads.

    ``model``: a path to an ``.onnx`` file or one of another framework (`perfpass.importers.formats`, told by its
    content), the bytes of one, an ``onnx.ModelProto``; a path to a Hugging Face ``config.json`` or its folder (weights
    are not needed), or its content; the name of a known network, ``timm:NAME``,
    ``torchvision:NAME`` or ``definitions:NAME``, built from the definitions installed here; a ``torch.nn.Module``
    (with ``input_shape``, without the batch) or what ``torch.export`` made of one; a ``tvm.IRModule`` of Relay or
    Relax, which tvm_perfpass reads; or an OpGraph, given back as it is.

    ``batch`` is the batch size (ONNX: the symbolic batch dimension; torch: 1 if not given; of an OpGraph and a
    ``tvm.IRModule`` it is in their shapes, and another is refused); ``dims`` sets named
    dimensions: those of an ONNX file or a Relax module, ``sequence_length`` (``sequence``) of a configuration,
    ``image_size`` of a model of timm or torchvision, the one size of a definition; what a model does not have is an
    ArgumentError. ``mode`` "training" gives a whole step (a `perfpass.graph.traced_step.TrainingGraph`: forward,
    backward, ``optimizer``) of a torch module or a configuration; other models have no autograd to record, and
    `perfpass.graph.step.derive` makes their step from the forward graph.

    ``frozen``: parameters that training leaves as they are, as `perfpass.predict` takes them, beside the graph's own
    (of a torch module those that require no gradient).

    ``assume``: what values decide and a graph without values cannot know, as `perfpass.predict` takes it; the graph's
    ``assumed`` says what was.

    Raises FileError, FormatError, ShapeError, UnsupportedError, ArgumentError: see perfpass.errors.
    """
    if mode not in ("inference", "training"):
        raise ArgumentError(f"unknown mode {mode!r}; allowed are inference, training")
    _check_dims(dims)
    stated = _stated(assume)
    with about(model) if isinstance(model, (str, os.PathLike)) else nullcontext():
        model = once(model)
        left = unasked(model, input_shape, dims)
        model, input_shape, dims = opened(model, input_shape, dims)
    if mode == "training":
        return _known(_training(model, batch, input_shape, dims, optimizer, frozen, stated), stated)
    graph = _known(_forward(model, batch, input_shape, dims, stated), stated)
    described = isinstance(model, Mapping) or (isinstance(model, (str, os.PathLike)) and understood(model).kind == "hf")
    if left or described:
        graph = replace(graph, unasked=left or graph.unasked, by_description=described or graph.by_description)
    if not graph.op.all():  # what no reader knows
        from perfpass.importers.operators import applied

        graph = applied(graph)
    if not len(frozen):
        return graph
    from perfpass.graph.frozen import matching

    return replace(graph, frozen=graph.frozen | matching(graph, frozen))


def _stated(assume: Mapping[str, int] | None) -> Mapping[str, int]:
    from perfpass.graph.assumed import checked

    return checked(assume)


def _known(graph: OpGraph, stated: Mapping[str, int]) -> OpGraph:
    """``graph``. Raises ArgumentError for a stated load that it does not have, or cannot have."""
    found = {a.name: a for a in graph.assumed}
    for name, value in stated.items():
        if name not in found:
            raise ArgumentError(f"assume {name}={value} has no meaning for this model: nothing in it depends on {name}")
        found[name].check(value)
    return graph


def _forward(
    model: Any,
    batch: int | None,
    input_shape: Any,
    dims: Mapping[str, int] | None,
    assume: Mapping[str, int],
) -> OpGraph:
    from perfpass.graph import OpGraph

    if isinstance(model, OpGraph):
        _refuse_unused("an OpGraph, whose sizes are fixed", dims=dims, input_shape=input_shape)
        return _held(model, batch)
    if isinstance(model, Mapping):
        from perfpass.importers import huggingface

        sizes = _of_configuration(Path("the configuration"), input_shape, dims)
        return huggingface.trace_config(model, batch=1 if batch is None else batch, assume=assume, **sizes)
    if isinstance(model, (str, os.PathLike)):
        with about(model):
            return _from_path(model, batch, input_shape, dims, assume)
    if isinstance(model, (bytes, bytearray, memoryview)):
        from perfpass.importers import formats, onnx

        content = bytes(model)
        if (found := formats.of_bytes(content, _sizes(dims, input_shape, batch, assume))) is not None:
            return found
        return onnx.read(content, **_onnx_sizes(dims, input_shape, batch, assume))
    origins = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    if "torch" in origins:
        from perfpass.importers import torch

        _refuse_unused(_OF_TORCH, dims=dims)
        return torch.trace(model, _given_shape(input_shape), batch=1 if batch is None else batch, assume=assume)
    if origins & {"onnx", "google"} and hasattr(model, "SerializeToString"):
        from perfpass.importers import onnx

        return onnx.read(model.SerializeToString(), **_onnx_sizes(dims, input_shape, batch, assume))
    from perfpass.importers import readers

    if (reader := readers.owner(model)) is not None:
        _refuse_unused(f"a model of {reader.name}, whose sizes are set by dims", input_shape=input_shape)
        return _held(reader.load(model, dims), batch)
    if "tvm" in origins:
        raise UnsupportedError(
            "no reader of TVM's modules is installed: pip install 'perfpass[tvm]' (or import tvm_perfpass first, where "
            "it is used from its source)"
        )
    raise ArgumentError(
        f"cannot read a model from {type(model).__module__}.{type(model).__qualname__}; allowed are a path, bytes, a "
        "configuration's content, an onnx.ModelProto, a torch.nn.Module, a tvm.IRModule and an OpGraph"
    )


def _held(graph: OpGraph, batch: int | None) -> OpGraph:
    """``graph``, whose shapes are fixed. Raises ArgumentError for a batch that they do not hold."""
    if batch is not None:
        from perfpass.graph.held_batch import check_held

        check_held(graph, batch)
    return graph


def _given_shape(input_shape: Any) -> Any:
    if input_shape is None:
        raise ArgumentError("a torch module needs input_shape, without the batch: input_shape=(3, 224, 224)")
    return input_shape


def _training(
    model: Any,
    batch: int | None,
    input_shape: Any,
    dims: Mapping[str, int] | None,
    optimizer: str,
    frozen: Sequence[str],
    assume: Mapping[str, int],
) -> OpGraph:
    """A traced step, from what has an autograd."""
    samples = 1 if batch is None else batch
    if "torch" in {base.__module__.partition(".")[0] for base in type(model).__mro__}:
        from perfpass.graph.frozen import named
        from perfpass.importers.torch_training import trace_training

        _refuse_unused(_OF_TORCH, dims=dims)
        held = named((name for name, _ in model.named_parameters()), frozen)
        shape = _given_shape(input_shape)
        return trace_training(model, shape, batch=samples, optimizer=optimizer, frozen=held, assume=assume)
    if isinstance(model, (str, os.PathLike)) and understood(model).kind == "hf":
        from perfpass.importers import huggingface

        path = Path(understood(model).name)
        sizes = _of_configuration(path, input_shape, dims)
        return huggingface.trace_training(
            path, batch=samples, optimizer=optimizer, frozen=frozen, assume=assume, **sizes
        )
    raise UnsupportedError(
        "only torch modules and Hugging Face configurations have a training step to record; for other models, "
        "perfpass.predict(model, device, mode='training') derives the step from the forward graph"
    )


def _check_dims(dims: Any) -> None:
    if not isinstance(dims, Mapping | type(None)):
        raise ArgumentError(f"dims {shown_value(dims)}; it maps names of dimensions to sizes: dims={{'sequence': 128}}")


def _refuse_unused(what: str, **given: Any) -> None:
    """Raises ArgumentError for an argument that would change nothing: its figure would be another model's."""
    for name, value in given.items():
        if value is not None and len(value):
            raise ArgumentError(f"{name}={value!r} has no meaning for {what}; leave it out")


def _of_configuration(path: Path, input_shape: Any, dims: Mapping[str, int] | None) -> dict[str, Any]:
    """What ``dims`` gives a configuration: a length of sequences, the height and width of pictures, None without one.

    Raises ArgumentError for what it has not.
    """
    allowed = (
        "allowed are sequence_length (or sequence), and of pictures image_size, or height and width; batch and --batch "
        "set the batch"
    )
    _refuse_unused(f"{path.name}, whose shapes follow from the configuration: {allowed}", input_shape=input_shape)
    found = {}
    for name, size in (dims or {}).items():
        if name not in _SEQUENCE_NAMES + _IMAGE_NAMES:
            raise ArgumentError(f"{path}: a configuration has no dimension {name!r}; {allowed}")
        if isinstance(size, bool) or not hasattr(size, "__index__") or not 1 <= operator.index(size) <= 1 << 48:
            raise ArgumentError(f"{name} = {shown_value(size)}; it must be a whole number from 1 to 2^48")
        found[name] = operator.index(size)
    lengths = {name: found[name] for name in _SEQUENCE_NAMES if name in found}
    if len(set(lengths.values())) > 1:
        raise ArgumentError(f"{' and '.join(lengths)} are one dimension, and have two values; give one of them")
    pictures = tuple(name for name in _IMAGE_NAMES if name in found)
    if pictures not in ((), ("image_size",), ("height", "width")):
        raise ArgumentError(
            f"{' and '.join(pictures)}: a picture has an image_size, or a height and a width; give those"
        )
    sides = [found[name] for name in pictures]
    return {
        "sequence_length": next(iter(lengths.values()), None),
        "image_size": (sides[0], sides[-1]) if sides else None,
    }


def named_shapes(input_shape: Any) -> Mapping[str, Any] | None:
    """``input_shape`` of a file. Raises ArgumentError where it is not a mapping."""
    if input_shape is None or isinstance(input_shape, Mapping):
        return input_shape
    raise ArgumentError(
        f"input_shape of a model's file is a mapping from input name to shape, got {input_shape!r}; "
        "symbolic dimensions are set by name with dims={'batch': 8}"
    )


def _from_path(
    model: str | os.PathLike[str],
    batch: int | None,
    input_shape: Any,
    dims: Mapping[str, int] | None,
    assume: Mapping[str, int],
) -> OpGraph:
    found = understood(model)
    path = Path(found.name)
    if found.kind == "hf":
        from perfpass.importers import huggingface

        sizes = _of_configuration(path, input_shape, dims)
        return huggingface.trace_config(path, batch=1 if batch is None else batch, assume=assume, **sizes)
    if found.kind == "file":
        from perfpass.importers import formats

        return formats.named(found.format).read(path, _sizes(dims, input_shape, batch, assume))
    from perfpass.importers import onnx

    return onnx.read(path, **_onnx_sizes(dims, input_shape, batch, assume))


def _onnx_sizes(
    dims: Mapping[str, int] | None, input_shape: Any, batch: int | None, assume: Mapping[str, int]
) -> dict[str, Any]:
    return {"dims": dims, "input_shapes": named_shapes(input_shape), "batch": batch, "assume": assume}


def _sizes(dims: Mapping[str, int] | None, input_shape: Any, batch: int | None, assume: Mapping[str, int]) -> Sizes:
    from perfpass.importers.formats import Sizes

    return Sizes(batch, dims or {}, named_shapes(input_shape) or {}, assume)
